"""A loss of two tensors, as function and as module."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import Function

Reduction = Literal["none", "mean", "sum"]


class SmoothL1Function(Function):
    """Keeps its inputs, which are alive anyway, and not their difference."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, target: Tensor, beta: float) -> Tensor:
        size = (input - target).abs()
        # Divided by nothing smaller than beta: with beta 0 the branch is not taken, but would be NaN.
        return torch.where(size < beta, size * size / (2 * beta or 1), size - beta / 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        input, target, ctx.beta = inputs
        ctx.save_for_backward(input, target)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        input, target = ctx.saved_tensors
        residual = input - target
        # The sign of 0 is 0, as torch has it for the plain L1 loss.
        slope = (residual / ctx.beta).clamp(-1, 1) if ctx.beta else residual.sign()
        grad = grad_output * slope
        return grad if ctx.needs_input_grad[0] else None, -grad if ctx.needs_input_grad[1] else None, None


def smooth_l1(input: Tensor, target: Tensor, beta: float = 1.0, reduction: Reduction = "mean") -> Tensor:
    r"""Quadratic for small residuals, linear for large ones: outliers pull with a bounded force.

    .. math::
        \ell = \begin{cases} r^2 / 2\beta & |r| < \beta \\ |r| - \beta / 2 & \text{else} \end{cases}, \qquad
        \bar{x} = \bar{\ell}\,\min(\max(r / \beta, -1), 1), \quad \bar{t} = -\bar{x}, \qquad r = x - t

    Args:
        input: any shape, real floating dtype.
        target: like ``input``.
        beta: where the quadratic part ends; with 0 the loss is the absolute value.
        reduction: "none" for a loss per element, "mean" or "sum" for a scalar. The mean of nothing is NaN.

    Returns:
        A tensor like ``input``, or a scalar.

    Raises:
        ValueError: if ``beta`` is negative, ``reduction`` is unknown, or the shapes differ: broadcasting here is
            nearly always a mistake.

    Source: R. Girshick, Fast R-CNN, arXiv:1504.08083.

    >>> x = torch.tensor([0.5, 5.0], requires_grad=True)
    >>> smooth_l1(x, torch.zeros(2), reduction="sum").backward()
    >>> x.grad
    tensor([0.5000, 1.0000])
    """
    if not beta >= 0:
        raise ValueError(f"expected beta >= 0, got {beta}")
    if input.shape != target.shape:
        raise ValueError(f"expected a target of shape {tuple(input.shape)}, got {tuple(target.shape)}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"expected reduction 'none', 'mean' or 'sum', got {reduction!r}")
    loss = SmoothL1Function.apply(input, target, beta)
    return loss if reduction == "none" else getattr(loss, reduction)()


class SmoothL1Loss(nn.Module):
    """:func:`smooth_l1` with its options fixed.

    Args:
        beta: where the quadratic part ends.
        reduction: "none", "mean" or "sum".

    >>> SmoothL1Loss(beta=0.5)(torch.ones(3), torch.zeros(3))
    tensor(0.7500)
    """

    def __init__(self, beta: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.beta, self.reduction = beta, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return smooth_l1(input, target, self.beta, self.reduction)
