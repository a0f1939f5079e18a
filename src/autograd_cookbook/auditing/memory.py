"""How many bytes a function keeps for its backward, and how many it needs at once."""

import gc
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity


def saved_bytes(function: Callable[..., Any], *args: Any) -> int:
    """Exact bytes that autograd saves during ``function(*args)``, beyond the arguments themselves.

    Each storage counts once and whole, however many views of it are saved. Tensors that a function hides on
    ``ctx``, or packs by hooks of its own, are not seen: :func:`held_bytes` sees them.

    >>> x = torch.ones(1000, requires_grad=True)
    >>> saved_bytes(lambda x: x * torch.sigmoid(x), x)
    4000
    """
    held = {a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor)}
    saved: dict[int, tuple[int, Tensor]] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            # Keeping the tensor keeps its address from being used again.
            saved[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function(*args)
    return sum(size for size, _ in saved.values())


def peak_bytes(function: Callable[..., Any], *args: Any) -> int:
    """Exact bytes of CPU memory that ``function(*args)`` holds at its worst moment, beyond what was there before.

    >>> x = torch.ones(1000)
    >>> peak_bytes(lambda x: x + x + x + x, x)
    8000
    """
    return max(_held(function, args))


def held_bytes(function: Callable[..., Any], *args: Any) -> int:
    """Exact bytes of CPU memory that are alive because ``function(*args)`` was called: result and saved tensors.

    Unlike :func:`saved_bytes` it sees what is kept on ``ctx`` or by hooks, and counts the result, too.

    >>> x = torch.ones(1000, requires_grad=True)
    >>> held_bytes(torch.sigmoid, x), held_bytes(lambda x: x.exp().sigmoid(), x)
    (4000, 8000)
    """
    return _held(function, args)[-1]


def kept_bytes(function: Callable[..., Any], *args: Any) -> int:
    """Exact bytes that ``function(*args)`` keeps for its backward, beyond the arguments, however it keeps them.

    Of two counts the larger: the tensors that autograd saves, the result perhaps among them, and what is alive
    besides the result.

    >>> x = torch.ones(1000, requires_grad=True)
    >>> held_bytes(torch.neg, x), kept_bytes(torch.neg, x), kept_bytes(torch.sigmoid, x)
    (4000, 0, 4000)
    """
    inputs = {a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor)}
    result = function(*args)
    outputs = [r for r in (result if isinstance(result, tuple | list) else (result,)) if isinstance(r, Tensor)]
    storages = {o.untyped_storage().data_ptr(): o.untyped_storage().nbytes() for o in outputs}
    returned = sum(size for place, size in storages.items() if place not in inputs)
    del result, outputs
    return max(saved_bytes(function, *args), held_bytes(function, *args) - returned)


def _held(function: Callable[..., Any], args: tuple[Any, ...]) -> list[int]:
    """What torch's allocator has given out and not taken back, after each of its steps: deterministic."""
    gc.collect()  # or what earlier calls have left would be taken back in the middle of this one
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = function(*args)
    del result
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    steps = sorted(events, key=lambda event: event.start_ns())
    return [0, *itertools.accumulate(event.nbytes() for event in steps)]
