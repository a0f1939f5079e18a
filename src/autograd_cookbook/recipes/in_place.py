"""An activation that overwrites its input."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.recipes._context import Context


class LeakyReLUInPlaceFunction(Function):
    """Keeps its output, which has the same sign as the overwritten input."""

    @staticmethod
    def forward(input: Tensor, slope: float) -> Tensor:
        return F.leaky_relu_(input, slope)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float], output: Tensor) -> None:
        input, ctx.slope = inputs
        ctx.mark_dirty(input)
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        return torch.where(output > 0, grad_output, ctx.slope * grad_output), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, None], input: Tensor, slope: float) -> tuple[Tensor, int | None]:
        """Apply the function to the whole batch. A generated rule is not possible, as it cannot save a dirty tensor."""
        return LeakyReLUInPlaceFunction.apply(input, slope), in_dims[0]


# If code compiled by torch 2.13 calls this Function for a tensor from outside of this code, the result silently has the
# gradient of the identity. So cause a graph break here.
@torch.compiler.disable
def leaky_relu_(input: Tensor, slope: float = 0.01) -> Tensor:
    r"""Leaky rectified linear unit that overwrites its input.

    .. math:: x \leftarrow \max(x, 0) + s \min(x, 0), \qquad \bar{x} = \bar{y}\,\bigl([y > 0] + s\,[y \le 0]\bigr)

    Args:
        input: real floating dtype, any shape. The call overwrites it. If another function has saved its old values for
            backward, the backward of that function raises.
        slope: :math:`s > 0`, so that the output has the same sign as the input.

    Returns:
        ``input``. If autograd does not record the call, another tensor that uses the same memory.

    Raises:
        ValueError: if ``slope`` is not positive.
        RuntimeError: if ``input`` is a leaf that requires grad, or a view of one.

    Source:
        Rota Bulò, Porzi and Kontschieder, "In-place activated batch norm for memory-optimized training of DNNs", 2018.

    >>> x = torch.tensor([-4.0, 2.0], requires_grad=True)
    >>> h = 1 * x
    >>> leaky_relu_(h, 0.5) is h
    True
    >>> h.sum().backward()
    >>> h.tolist(), x.grad.tolist()
    ([-2.0, 2.0], [0.5, 1.0])
    """
    if not slope > 0:
        raise ValueError(f"expected slope > 0, got {slope}")
    owner = input if input._base is None else input._base
    if torch.is_grad_enabled() and owner.is_leaf and owner.requires_grad:
        # mark_dirty also raises an error, but only after forward has overwritten the values.
        view = "" if owner is input else "a view of "
        raise RuntimeError(f"{view}a leaf Variable that requires grad is being used in an in-place operation.")
    return LeakyReLUInPlaceFunction.apply(input, slope)
