"""How many bytes a function keeps for its backward, and how many it needs at once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity


def saved_bytes(function: Callable[..., Any], *args: Any) -> int:
    """Exact bytes that autograd saves during ``function(*args)``, beyond the arguments themselves.

    Each storage counts once and whole, however many views of it are saved. Tensors that a function hides on
    ``ctx`` are not seen.

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

    The sum of what torch's allocator gives out and takes back, in the order in which it does: deterministic.

    >>> x = torch.ones(1000)
    >>> peak_bytes(lambda: x + x + x + x)
    8000
    """
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function(*args)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
