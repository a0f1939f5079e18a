"""The type of ``ctx``. PyTorch has no type with both the methods of ``ctx`` and attributes of your own."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor


class Context(Protocol):
    """The first argument of ``setup_context``, ``backward`` and ``jvp``, with any attributes of your own.

    In a copied recipe, ``Any`` replaces this type, see :func:`autograd_cookbook.catalog._source.standalone`.
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
