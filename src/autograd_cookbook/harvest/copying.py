"""Copy the arguments of a call. Arguments that are the same tensor, or share memory, do so in the copy, too."""

import contextlib
import copy
import copyreg
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from autograd_cookbook.harvest.callables import users, with_others
from autograd_cookbook.layouts import PARTS, parts

LIMIT = 2**25  # the most bytes of one call that are copied
PLAIN = Tensor, nn.Parameter, nn.Buffer


class UncopyableError(Exception):
    """The arguments cannot be copied. The message says why."""


def tensors_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors in nested arguments, also in modules and in the attributes of plain objects."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif depth > 4:
        return
    elif isinstance(value, dict):
        for child in value.values():
            yield from tensors_in(child, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for child in value:
            yield from tensors_in(child, depth + 1)
    elif not callable(value) and isinstance(attributes := getattr(value, "__dict__", None), dict):
        for child in list(attributes.values()):
            yield from tensors_in(child, depth + 1)


def copied(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
    """Return a copy of the arguments, detached from their graph, and the size of the copy in bytes.

    Raises:
        UncopyableError: if an argument cannot be copied, or the copy would be too large.
    """
    tensors = {id(t): t for t in tensors_in(args)}
    storages: dict[int, int] = {}
    for tensor in tensors.values():
        if type(tensor) not in PLAIN or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise UncopyableError(f"it was called with a {_kind(tensor)}, which stands for other tensors")
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
        else:
            # The number of elements of a sparse tensor says nothing about its memory.
            storages[id(tensor)] = sum(p.nbytes for p in parts(tensor)) if tensor.layout in PARTS else tensor.nbytes
    if (size := sum(storages.values())) > LIMIT:
        raise UncopyableError(f"its smallest call takes {size / 2**20:.0f} MiB; at most {LIMIT // 2**20} are recorded")
    memo: dict[int, Any] = {}
    try:
        with torch.inference_mode(False), torch.no_grad(), _keys_are_copied():
            for key, tensor in tensors.items():
                # A detached tensor shares memory with the tensor and its views, and deepcopy copies each memory once.
                # It cannot copy most sparse layouts, and no view shares their memory.
                detached = tensor.detach()
                twin = detached.clone() if tensor.layout in PARTS else copy.deepcopy(detached, memo)
                memo[key] = nn.Parameter(twin) if isinstance(tensor, nn.Parameter) else twin
                memo[key].requires_grad_(tensor.requires_grad)
            # deepcopy does not copy functions, so one that uses a tensor of the arguments would keep the original.
            for i in users(args, tensors):
                memo[id(args[i])] = with_others(args[i], {key: memo[key] for key in tensors})
            return copy.deepcopy(args, memo), size
    except Exception as error:
        reason = " ".join(str(error).split())
        raise UncopyableError(f"its arguments cannot be copied: {type(error).__name__}: {reason}"[:300]) from None


@contextlib.contextmanager
def _keys_are_copied() -> Iterator[None]:
    """Let deepcopy copy the keys of a dict, which an object can hold. Without this, Python refuses to copy them."""
    views: list[type] = [type({}.keys()), type(OrderedDict[Any, Any]().keys())]
    before = {view: copyreg.dispatch_table.get(view) for view in views}
    copyreg.dispatch_table.update(dict.fromkeys(views, lambda keys: (_keys, (list(keys),))))
    try:
        yield
    finally:
        for view, reduce in before.items():
            if reduce:
                copyreg.dispatch_table[view] = reduce
            else:
                del copyreg.dispatch_table[view]


def _keys(names: list[Any]) -> Any:
    return dict.fromkeys(names).keys()


def _kind(tensor: Tensor) -> str:
    return "tensor under a torch.func transform" if type(tensor) in PLAIN else type(tensor).__name__
