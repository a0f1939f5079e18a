"""The type of ``ctx``; torch has none that knows both what it does and what one keeps on it."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor


class Context(Protocol):
    """What ``setup_context``, ``backward`` and ``jvp`` are given, with any attributes of one's own.

    A copied recipe says ``Any`` in its place, see :func:`autograd_cookbook.catalog._source.standalone`.
    """

    saved_tensors: tuple[Any, ...]
    needs_input_grad: Sequence[bool]

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...
    def save_for_forward(self, *tensors: Tensor | None) -> None: ...
    def mark_dirty(self, *args: Tensor) -> None: ...
    def mark_non_differentiable(self, *args: Tensor) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
