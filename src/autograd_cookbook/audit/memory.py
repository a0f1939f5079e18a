"""How many bytes a function keeps alive for its backward."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def saved_bytes(function: Callable[..., Any], *args: Any) -> int:
    """Exact bytes that autograd saves during ``function(*args)``, beyond the arguments themselves.

    Each storage counts once and whole, however many views of it are saved. Tensors that a function hides on
    ``ctx`` are not seen.

    >>> import torch
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
