"""Smooth activations: what one tensor tells about value and slope."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from autograd_cookbook.broadcasting import sum_to_shape


class GELUFunction(Function):
    """Keeps its input; two inputs share each output below 0, so the output would not do."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        # The limit keeps -inf · 0 from being NaN; the distribution is 0 there in any dtype.
        return input.clamp(min=-40) * torch.special.ndtr(input)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        density = torch.exp(-input.square() / 2) / math.sqrt(2 * math.pi)
        return grad_output * (torch.special.ndtr(input) + input.clamp(-40, 40) * density)


def gelu(input: Tensor) -> Tensor:
    r"""Gaussian error linear unit, the exact form.

    .. math:: y = x\,\Phi(x), \qquad \bar{x} = \bar{y}\,(\Phi(x) + x\,\varphi(x))

    with the distribution :math:`\Phi` and the density :math:`\varphi` of the standard normal. At
    :math:`-\infty` it is 0.

    Args:
        input: any shape, real floating dtype.

    Returns:
        A tensor like ``input``.

    Source: D. Hendrycks, K. Gimpel, Gaussian error linear units, arXiv:1606.08415.

    >>> x = torch.zeros(2, requires_grad=True)
    >>> gelu(x).sum().backward()
    >>> x.grad
    tensor([0.5000, 0.5000])
    """
    return GELUFunction.apply(input)


class MishFunction(Function):
    """Keeps its input and none of the three steps in between."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.clamp(min=-750) * _gate(input)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        gate = _gate(input)
        # Where the input is infinite the slope of the gate is 0, and their product must not be NaN.
        return grad_output * (gate + input.clamp(-750, 750) * (1 - gate) * (1 + gate) * input.sigmoid())


def _gate(input: Tensor) -> Tensor:
    return torch.logaddexp(input, input.new_zeros(())).tanh()


def mish(input: Tensor) -> Tensor:
    r"""Input times the hyperbolic tangent of its softplus.

    .. math::
        y = x\,t, \qquad \bar{x} = \bar{y}\,(t + x\,(1 - t^2)\,\sigma(x)), \qquad t = \tanh \log(1 + e^x)

    At :math:`-\infty` it is 0.

    Args:
        input: any shape, real floating dtype.

    Returns:
        A tensor like ``input``.

    Source: D. Misra, Mish: a self regularized non-monotonic activation function, arXiv:1908.08681.

    >>> x = torch.zeros(2, requires_grad=True)
    >>> mish(x).sum().backward()
    >>> x.grad
    tensor([0.6000, 0.6000])
    """
    return MishFunction.apply(input)


class ELUFunction(Function):
    """Keeps its output, from which the slope follows without another exponential."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, alpha: float, scale: float) -> Tensor:
        # The exponential of what is above 0 is not used, and must not overflow either.
        return scale * torch.where(input > 0, input, alpha * torch.expm1(input.clamp(max=0)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        _, ctx.alpha, ctx.scale = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (output,) = ctx.saved_tensors
        return grad_output * torch.where(output > 0, ctx.scale, output + ctx.scale * ctx.alpha), None, None


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    r"""Exponential linear unit.

    .. math::
        y = \begin{cases} x & x > 0 \\ \alpha\,(e^x - 1) & \text{else} \end{cases}, \qquad
        \bar{x} = \bar{y} \begin{cases} 1 & y > 0 \\ y + \alpha & \text{else} \end{cases}

    The sum :math:`y + \alpha` has the absolute precision of the dtype, not the relative one: slopes below
    :math:`10^{-7} \alpha` are 0 in float32.

    Args:
        input: any shape, real floating dtype.
        alpha: minus the limit at :math:`-\infty`; not negative, or the output would not tell the sign of the input.

    Returns:
        A tensor like ``input``.

    Raises:
        ValueError: if ``alpha`` is negative.

    Source: D.-A. Clevert et al., Fast and accurate deep network learning by exponential linear units,
    arXiv:1511.07289.

    >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> elu(x).sum().backward()
    >>> x.grad
    tensor([0.3679, 1.0000])
    """
    if not alpha >= 0:
        raise ValueError(f"expected alpha >= 0, got {alpha}")
    return ELUFunction.apply(input, alpha, 1.0)


SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


def selu(input: Tensor) -> Tensor:
    r"""Exponential linear unit with the constants that keep mean 0 and variance 1 from layer to layer.

    .. math:: y = s \operatorname{ELU}_\alpha(x), \qquad s \approx 1.0507, \quad \alpha \approx 1.6733

    Args:
        input: any shape, real floating dtype.

    Returns:
        A tensor like ``input``.

    Source: G. Klambauer et al., Self-normalizing neural networks, arXiv:1706.02515.

    >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> selu(x).sum().backward()
    >>> x.grad
    tensor([0.6468, 1.0507])
    """
    return ELUFunction.apply(input, SELU_ALPHA, SELU_SCALE)


class ParametricSwishFunction(Function):
    """Keeps its two inputs; the sigmoid is computed again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, beta: Tensor) -> Tensor:
        return input * torch.sigmoid(beta * input)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, beta = ctx.saved_tensors
        gate = torch.sigmoid(beta * input)
        slope = gate * (1 - gate)
        grad_input = grad_beta = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output * (gate + beta * input * slope)
        if ctx.needs_input_grad[1]:
            grad_beta = sum_to_shape(grad_output * input * input * slope, beta.shape)
        return grad_input, grad_beta


def parametric_swish(input: Tensor, beta: Tensor) -> Tensor:
    r"""Input times a sigmoid whose steepness is learned, one for all or one per channel.

    .. math::
        y = x\,g, \qquad \bar{x} = \bar{y}\,(g + \beta x\,g (1 - g)), \quad
        \bar{\beta} = \textstyle\sum \bar{y}\,x^2\,g (1 - g), \qquad g = \sigma(\beta x)

    Args:
        input: any shape, real floating dtype.
        beta: a shape that broadcasts to that of ``input``, same dtype: ``()`` for one steepness, ``(channels,)``
            for channels in the last dimension, ``(channels, 1, 1)`` for images.

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
    """:func:`parametric_swish` with a steepness that is learned with the rest of a network.

    Args:
        channels: size of the last dimension for a steepness each, or None for one in all.
        device: of the parameter.
        dtype: of the parameter.

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
