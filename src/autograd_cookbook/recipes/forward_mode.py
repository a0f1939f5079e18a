"""Functions with a ``jvp`` for forward mode. Forward mode computes derivatives together with the values."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.broadcasting import sum_to_shape


class SymlogFunction(Function):
    """Keeps its input for both modes. A slope computed from the rounded output would be wrong in its last digits."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return torch.log1p(input.abs()).copysign(input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return grad_output / (1 + input.abs())

    @staticmethod
    def jvp(ctx: Context, tangent: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return tangent / (1 + input.abs())


def symlog(input: Tensor) -> Tensor:
    r"""Logarithm for both signs: linear near 0, logarithmic far from 0, for targets of any size.

    .. math::
        y = \operatorname{sign}(x) \log(1 + |x|), \qquad
        \bar{x} = \frac{\bar{y}}{1 + |x|}, \qquad \dot{y} = \frac{\dot{x}}{1 + |x|}

    At 0 the slope is 1. The composition ``x.sign() * x.abs().log1p()`` has the slope 0 there.

    Args:
        input: any shape, real floating dtype.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if the input is complex or an integer.

    Source: D. Hafner et al., Mastering diverse domains through world models, arXiv:2301.04104 (2023).

    >>> x = torch.tensor([0.0, -3.0])
    >>> torch.func.jvp(symlog, (x,), (torch.ones(2),))
    (tensor([ 0.0000, -1.3863]), tensor([1.0000, 0.2500]))
    """
    if not input.is_floating_point():
        raise TypeError(f"expected a real floating input, got {input.dtype}")
    return SymlogFunction.apply(input)


class SmoothMaximumFunction(Function):
    """Keeps both inputs. The share of an input in the result is the factor of its tangent and of its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, other: Tensor, temperature: float) -> Tensor:
        return temperature * torch.logaddexp(input / temperature, other / temperature)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        input, other, ctx.temperature = inputs
        # For an input without a tangent, jvp now gets None instead of a tensor of zeros.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(input, other)
        ctx.save_for_forward(input, other)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        input, other = ctx.saved_tensors
        grad_input = grad_other = None
        if grad_output is not None and ctx.needs_input_grad[0]:
            grad_input = sum_to_shape(grad_output * share(input, other, ctx.temperature), input.shape)
        if grad_output is not None and ctx.needs_input_grad[1]:
            grad_other = sum_to_shape(grad_output * share(other, input, ctx.temperature), other.shape)
        return grad_input, grad_other, None

    @staticmethod
    def jvp(ctx: Context, tangent: Tensor | None, other_tangent: Tensor | None, _: None) -> Tensor | None:
        input, other = ctx.saved_tensors
        moved = None
        if tangent is not None:
            moved = tangent * share(input, other, ctx.temperature)
        if other_tangent is not None:
            moved_too = other_tangent * share(other, input, ctx.temperature)
            moved = moved_too if moved is None else moved + moved_too
        return moved


class ShareFunction(Function):
    """The share of ``input``. Its slope is the product of both shares. As share * (1 - share), it would lose digits."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, other: Tensor, temperature: float) -> Tensor:
        # Two equal infinities have a share of one half each, but their difference would be NaN. So use finite numbers.
        limit = torch.finfo(input.dtype).max
        difference = input.clamp(-limit, limit) - other.clamp(-limit, limit)
        return difference.div_(temperature).sigmoid_()

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        input, other, ctx.temperature = inputs
        ctx.save_for_backward(input, other)
        ctx.save_for_forward(input, other)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, Tensor, None]:
        input, other = ctx.saved_tensors
        grad = ShareFunction._moved(grad_output, input, other, ctx.temperature)
        return sum_to_shape(grad, input.shape), sum_to_shape(-grad, other.shape), None

    @staticmethod
    def jvp(ctx: Context, tangent: Tensor, other_tangent: Tensor, _: None) -> Tensor:
        input, other = ctx.saved_tensors
        return ShareFunction._moved(tangent - other_tangent, input, other, ctx.temperature)

    @staticmethod
    def _moved(change: Tensor, input: Tensor, other: Tensor, temperature: float) -> Tensor:
        return change * share(input, other, temperature) * share(other, input, temperature) / temperature


def share(input: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Return the derivative of a smooth maximum with respect to ``input``."""
    return ShareFunction.apply(input, other, temperature)


def smooth_maximum(input: Tensor, other: Tensor, temperature: float = 1.0) -> Tensor:
    r"""Maximum of two tensors with a rounded corner. If two elements differ by much, the result is the larger one.

    .. math::
        y = T \log\left(e^{x/T} + e^{z/T}\right), \qquad s = \sigma\!\left(\frac{x - z}{T}\right), \qquad
        \bar{x} = s\,\bar{y}, \quad \bar{z} = (1 - s)\,\bar{y}, \qquad \dot{y} = s\,\dot{x} + (1 - s)\,\dot{z}

    Args:
        input: any shape, real floating dtype.
        other: any shape that broadcasts with the shape of ``input``, with the same dtype.
        temperature: the width :math:`T` of the corner. For equal arguments, the result is :math:`T \log 2` larger than
            the maximum.

    Returns:
        A tensor of the broadcast shape.

    Raises:
        TypeError: if the dtypes differ, or are not real and floating.
        ValueError: if the temperature is not positive.
        RuntimeError: if the shapes do not broadcast.

    >>> x = torch.tensor([0.0, 3.0])
    >>> torch.func.jvp(lambda x: smooth_maximum(x, torch.zeros(2)), (x,), (torch.ones(2),))
    (tensor([0.6931, 3.0486]), tensor([0.5000, 0.9526]))
    """
    if not input.is_floating_point() or input.dtype != other.dtype:
        raise TypeError(f"expected two tensors of the same real floating dtype, got {input.dtype} and {other.dtype}")
    if not temperature > 0:
        raise ValueError(f"expected temperature > 0, got {temperature}")
    return SmoothMaximumFunction.apply(input, other, temperature)
