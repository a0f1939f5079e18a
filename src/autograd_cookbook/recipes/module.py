"""Functions in modules for training: an activation with a learnable steepness, and a loss of two tensors."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._logistic import GatedFunction, GateSlopeFunction, gated
from autograd_cookbook.recipes.broadcasting import sum_to_shape
from autograd_cookbook.recipes.elementwise import wide


class ParametricSwishFunction(Function):
    """Keeps its two inputs. Backward computes the sigmoid again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, beta: Tensor) -> Tensor:
        x = wide(input)
        return gated(x, wide(beta) * x).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, beta = map(wide, ctx.saved_tensors)
        product = beta * input
        # gate * (1 - gate) is only rounding error where the gate is close to 1, so use the slope of the logistic
        # function. Multiply the input by this slope first: the product is small, but the square of the input can
        # overflow.
        grad = wide(grad_output)
        bend = grad * GateSlopeFunction.apply(input, product)
        grad_input = grad_beta = None
        if ctx.needs_input_grad[0]:
            grad_input = torch.addcmul(GatedFunction.apply(grad, product), beta, bend).to(grad_output.dtype)
        if ctx.needs_input_grad[1]:
            grad_beta = sum_to_shape(input * bend, beta.shape).to(grad_output.dtype)
        return grad_input, grad_beta


def parametric_swish(input: Tensor, beta: Tensor) -> Tensor:
    r"""Input times a sigmoid with a learned steepness. The steepness is one number, or one number per channel.

    .. math::
        y = x\,g, \qquad \bar{x} = \bar{y}\,(g + \beta x\,g (1 - g)), \quad
        \bar{\beta} = \textstyle\sum \bar{y}\,x^2\,g (1 - g), \qquad g = \sigma(\beta x)

    Args:
        input: any shape, real floating dtype.
        beta: the steepness, with a shape that broadcasts to the shape of ``input``, and the same dtype. Use ``()`` for
            one steepness, ``(channels,)`` for channels in the last dimension, and ``(channels, 1, 1)`` for images.

    Returns:
        A tensor like ``input``.

    Raises:
        RuntimeError: if ``beta`` does not broadcast to the shape of ``input``, or has another dtype.

    Source: P. Ramachandran et al., Searching for activation functions, arXiv:1710.05941.

    >>> beta = torch.zeros(2, requires_grad=True)
    >>> parametric_swish(torch.ones(3, 2), beta).sum().backward()
    >>> beta.grad
    tensor([0.7500, 0.7500])
    """
    if beta.dtype != input.dtype:
        raise RuntimeError(f"expected beta of dtype {input.dtype}, got {beta.dtype}")
    if torch.broadcast_shapes(input.shape, beta.shape) != input.shape:
        raise RuntimeError(f"cannot broadcast beta of shape {tuple(beta.shape)} to shape {tuple(input.shape)}")
    return ParametricSwishFunction.apply(input, beta)


class Swish(nn.Module):
    """A module for :func:`parametric_swish`, with the steepness as a parameter.

    Args:
        channels: the size of the last dimension, for one steepness per channel; None for a single steepness.
        device: the device of the parameter.
        dtype: the dtype of the parameter.

    >>> sum(p.numel() for p in Swish(8).parameters())
    8
    """

    def __init__(
        self,
        channels: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        shape = () if channels is None else (channels,)
        self.beta = nn.Parameter(torch.ones(shape, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return parametric_swish(input, self.beta)


Reduction = Literal["none", "mean", "sum"]


class SmoothL1Function(Function):
    """Keeps its inputs, which the caller usually keeps anyway. It does not keep their difference."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, target: Tensor, beta: float) -> Tensor:
        # In float32 or wider, because float16 has no number near to a beta of 1e-8, and none near to 1e5.
        size = (wide(input) - wide(target)).abs_()
        if not is_normal(beta, size):
            return size.to(input.dtype)
        # One formula covers both cases. Divide first, because the square can overflow. The quotient is at most 1.
        near = size.clamp(max=beta)
        return size.sub_(near, alpha=0.5).mul_(near.div_(beta)).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        input, target, ctx.beta = inputs
        ctx.save_for_backward(input, target)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        input, target = map(wide, ctx.saved_tensors)
        residual = input - target
        # The sign of 0 is 0, as in torch's L1 loss.
        slope = (residual / ctx.beta).clamp(-1, 1) if is_normal(ctx.beta, residual) else residual.sign()
        grad = (grad_output * slope).to(grad_output.dtype)
        return grad if ctx.needs_input_grad[0] else None, -grad if ctx.needs_input_grad[1] else None, None


def is_normal(beta: float, tensor: Tensor) -> bool:
    """Return whether the dtype has numbers between 0 and ``beta``. Otherwise the loss is the absolute value."""
    return beta >= torch.finfo(tensor.dtype).smallest_normal


def smooth_l1(input: Tensor, target: Tensor, beta: float = 1.0, reduction: Reduction = "mean") -> Tensor:
    r"""A loss that is quadratic for small residuals and linear for large ones, so outliers have a bounded gradient.

    .. math::
        \ell = \begin{cases} r^2 / 2\beta & |r| < \beta \\ |r| - \beta / 2 & \text{else} \end{cases}, \qquad
        \bar{x} = \bar{\ell}\,\min(\max(r / \beta, -1), 1), \quad \bar{t} = -\bar{x}, \qquad r = x - t

    Args:
        input: any shape, real floating dtype.
        target: a tensor like ``input``.
        beta: the residual at which the quadratic part ends. With 0, the loss is the absolute value.
        reduction: "none" for a loss per element, "mean" or "sum" for a scalar. The mean of an empty input is NaN.

    Returns:
        A tensor like ``input``, or a scalar.

    Raises:
        ValueError: if ``beta`` is negative, ``reduction`` is unknown, or the shapes differ, because broadcasting input
            and target is nearly always a mistake.

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
    """A module for :func:`smooth_l1`.

    Args:
        beta: the residual at which the quadratic part ends.
        reduction: "none", "mean" or "sum".

    >>> SmoothL1Loss(beta=0.5)(torch.ones(3), torch.zeros(3))
    tensor(0.7500)
    """

    def __init__(self, beta: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.beta, self.reduction = beta, reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return smooth_l1(input, target, self.beta, self.reduction)
