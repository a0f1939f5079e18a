"""A threshold with the gradient of a smooth function, to train networks of spiking neurons."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.elementwise import wide

Shape = Literal["fast_sigmoid", "arctan", "triangle"]


def surrogate_derivative(input: Tensor, slope: float, shape: Shape) -> Tensor:
    """Return the surrogate derivative, in float32 or wider. It is 1 at 0 and falls on both sides."""
    distance = slope * wide(input).abs()  # in float16, the square of 256 is infinite
    if shape == "triangle":
        return (1 - distance).clamp(min=0)
    # Take the reciprocal before the square, because the square of a large distance would overflow.
    if shape == "fast_sigmoid":
        return (1 + distance).reciprocal().square()
    return (1 + distance.square()).reciprocal()


class SpikeFunction(Function):
    """Keeps its input, because the output does not show how far the input is from the threshold."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, slope: float, shape: Shape) -> Tensor:
        # torch.heaviside returns 0 for NaN, so a neuron that has diverged would look as if it did not spike.
        return torch.where(input.isnan(), input, (input > 0).to(input.dtype))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float, Shape], output: Tensor) -> None:
        input, ctx.slope, ctx.shape = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (input,) = ctx.saved_tensors
        # In float16, the derivative would become 0 where its product with a scaled gradient does not.
        grad_input = grad_output * surrogate_derivative(input, ctx.slope, ctx.shape)
        return grad_input.to(grad_output.dtype), None, None


def spike(input: Tensor, slope: float = 2.0, shape: Shape = "fast_sigmoid") -> Tensor:
    r"""Return 1 above the threshold 0, and 0 elsewhere. Backward uses the derivative of a smooth function.

    .. math::
        y = [x > 0], \qquad
        \bar{x} = \bar{y} \cdot \begin{cases}
            (1 + \beta |x|)^{-2} & \text{fast\_sigmoid, the derivative of } x / (1 + \beta |x|) \\
            (1 + (\beta x)^2)^{-1} & \text{arctan, the derivative of } \arctan(\beta x) / \beta \\
            \max(0, 1 - \beta |x|) & \text{triangle} \end{cases}

    Args:
        input: membrane potential minus threshold; any shape, floating dtype.
        slope: the steepness :math:`\beta > 0`, in units of 1 / potential. With a larger slope, a neuron must be closer
            to the threshold to learn. The default is for thresholds of about 1.
        shape: the name of one of the three derivatives.

    Returns:
        A tensor of zeros and ones, with the shape and dtype of ``input``. NaN stays NaN.

    Raises:
        ValueError: if ``slope`` is not positive and finite, or ``shape`` is unknown.
        TypeError: if ``input`` is not floating.

    Source: F. Zenke and S. Ganguli, SuperSpike, Neural Computation 30 (2018), for fast_sigmoid; W. Fang et al., ICCV
    2021, for arctan; S. K. Esser et al., PNAS 113 (2016), for triangle. The derivatives there differ by a constant
    factor.

    >>> x = torch.tensor([-0.1, 0.0, 0.3], requires_grad=True)
    >>> y = spike(x, slope=10.0)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad
    ([0.0, 0.0, 1.0], tensor([0.2500, 1.0000, 0.0625]))
    """
    if not input.is_floating_point():
        raise TypeError(f"expected input of a floating dtype, got {input.dtype}")
    if not 0 < slope < math.inf:
        raise ValueError(f"expected a finite slope > 0, got {slope}")
    if shape not in ("fast_sigmoid", "arctan", "triangle"):
        raise ValueError(f"expected shape to be fast_sigmoid, arctan or triangle, got {shape!r}")
    return SpikeFunction.apply(input, slope, shape)
