"""Functions that save only their arguments for backward, and compute the intermediate results again there."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._opaque import opaque
from autograd_cookbook.recipes.reductions import largest_size
from autograd_cookbook.recipes.template import rows

FLAT = 1000.0  # beyond this absolute value, the slope of GELU is 0 or 1 in every dtype


def gelu_products(grad_output: Tensor, input: Tensor, approximate: str) -> Tensor:
    """Compute the activation again, and return the gradient of the weight."""
    return rows(grad_output).mT @ rows(F.gelu(input, approximate=approximate).to(grad_output.dtype))


def like_products(grad_output: Tensor, input: Tensor, *_: Any) -> Tensor:
    """Return a tensor like the weight's gradient, but without values. The compiler traces with it."""
    return grad_output.new_empty(grad_output.shape[-1], input.shape[-1])


# Without the opaque operator, torch.compile would compute the activation once, in forward, and save it for backward.
gelu_grad_weight = opaque("gelu_grad_weight", gelu_products, like_products)


class GELULinearFunction(Function):
    """Keeps the input and the weight. Two separate layers would keep the output of GELU, too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None, approximate: str) -> Tensor:
        return F.linear(F.gelu(input, approximate=approximate), weight, bias)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor | None, str], output: Tensor) -> None:
        input, weight, _, ctx.approximate = inputs
        ctx.save_for_backward(input, weight)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        input, weight = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            # Under autocast, grad_output has another dtype than the arguments.
            grad_hidden = (grad_output @ weight.to(grad_output.dtype)).to(input.dtype)
            # With "tanh", torch computes the slope from the cube of the input, and returns NaN where the cube
            # overflows.
            bounded = input.clamp(-FLAT, FLAT) if ctx.approximate == "tanh" else input
            grad_input = torch.ops.aten.gelu_backward(grad_hidden, bounded, approximate=ctx.approximate)
        if ctx.needs_input_grad[1]:
            grad_weight = gelu_grad_weight(grad_output, input, ctx.approximate)
        if ctx.needs_input_grad[2]:
            grad_bias = rows(grad_output).sum(0)
        return grad_input, grad_weight, grad_bias, None


def gelu_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, approximate: str = "none") -> Tensor:
    r"""GELU followed by a linear layer. The function saves its arguments for backward, but not the output of GELU.

    .. math::
        Y = \phi(X)\,W^\top + b, \qquad
        \bar{X} = (\bar{Y} W) \odot \phi'(X), \quad
        \bar{W} = \bar{Y}^\top \phi(X), \quad
        \bar{b} = \textstyle\sum_n \bar{Y}_n, \qquad
        \phi(x) = x\,\Phi(x)

    Args:
        input: ``(..., in_features)``, the input of GELU; real floating dtype.
        weight: ``(out_features, in_features)``, same dtype and device.
        bias: ``(out_features,)`` or None.
        approximate: ``"none"``, or ``"tanh"`` as in :func:`torch.nn.functional.gelu`.

    Returns:
        ``(..., out_features)``.

    Raises:
        RuntimeError: if the shapes, dtypes or devices do not fit, or ``approximate`` has another value.

    Source:
        Hendrycks and Gimpel, "Gaussian error linear units", 2016.

    >>> x = torch.tensor([[0.0, 10.0]], requires_grad=True)
    >>> gelu_linear(x, torch.ones(1, 2)).sum().backward()
    >>> x.grad
    tensor([[0.5000, 1.0000]])
    """
    return GELULinearFunction.apply(input, weight, bias, approximate)


def swiglu_products(grad_output: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Compute the product ``silu(gate) * up`` again, and return the gradient of the weight."""
    return rows(grad_output).mT @ rows((F.silu(gate) * up).to(grad_output.dtype))


swiglu_grad_weight = opaque("swiglu_grad_weight", swiglu_products, like_products)


class SwiGLULinearFunction(Function):
    """Keeps its arguments. Backward computes ``silu(gate)`` and ``silu(gate) * up`` again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gate: Tensor, up: Tensor, weight: Tensor) -> Tensor:
        return F.linear(F.silu(gate) * up, weight)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        gate, up, weight = ctx.saved_tensors
        grad_gate = grad_up = grad_weight = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            # Under autocast, grad_output has another dtype than the arguments.
            grad_hidden = grad_output @ weight.to(grad_output.dtype)
            if ctx.needs_input_grad[0]:
                sigmoid = torch.sigmoid(gate)
                grad_gate = grad_hidden * up * (sigmoid * (1 + gate * (1 - sigmoid)))
            if ctx.needs_input_grad[1]:
                grad_up = grad_hidden * F.silu(gate)
        if ctx.needs_input_grad[2]:
            grad_weight = swiglu_grad_weight(grad_output, gate, up)
        return grad_gate, grad_up, grad_weight


def swiglu_linear(gate: Tensor, up: Tensor, weight: Tensor) -> Tensor:
    r"""Linear layer of ``silu(gate) * up``. This is the second half of a gated feed-forward block.

    .. math::
        H = s(G) \odot U, \quad Y = H W^\top, \qquad
        \bar{H} = \bar{Y} W, \quad
        \bar{G} = \bar{H} \odot U \odot s'(G), \quad
        \bar{U} = \bar{H} \odot s(G), \quad
        \bar{W} = \bar{Y}^\top H, \qquad
        s(x) = x\,\sigma(x)

    Args:
        gate: ``(..., hidden_features)``, real floating dtype.
        up: a tensor like ``gate``.
        weight: ``(out_features, hidden_features)``, same dtype and device.

    Returns:
        ``(..., out_features)``.

    Raises:
        TypeError: if ``gate`` is not real and floating.
        RuntimeError: if ``gate`` and ``up`` have different shapes, or if ``weight``, the dtypes or the devices do not
            fit.

    Source:
        Shazeer, "GLU variants improve transformer", 2020, equation 6.

    >>> gate, up = torch.tensor([[0.0]], requires_grad=True), torch.tensor([[3.0]])
    >>> swiglu_linear(gate, up, torch.tensor([[2.0]])).backward()
    >>> gate.grad
    tensor([[3.]])
    """
    if not gate.is_floating_point():
        raise TypeError(f"expected a real floating gate, got {gate.dtype}")
    if gate.shape != up.shape:
        raise RuntimeError(f"expected up of the shape of gate, {tuple(gate.shape)}, got {tuple(up.shape)}")
    return SwiGLULinearFunction.apply(gate, up, weight)


def normalized(input: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return each row divided by its root mean square, and two numbers ``scale`` and ``unit`` in float32 or wider.

    Their quotient ``scale / unit`` is 1 / (root mean square). For a row of tiny numbers, this quotient overflows.
    """
    input = input.to(torch.promote_types(input.dtype, torch.float32))
    # Squares of large numbers overflow. So divide each row by its largest absolute value first. This factor cancels.
    largest = largest_size(input.detach(), (-1,)) if input.numel() else input.new_ones(())
    info = torch.finfo(input.dtype)
    unit = largest.clamp(max(math.sqrt(eps), info.smallest_normal), info.max)
    scaled = input / unit
    scale = torch.rsqrt(scaled.square().mean(-1, keepdim=True) + eps / unit / unit)
    return scaled * scale, scale, unit


class RMSNormFunction(Function):
    """Keeps its arguments. If forward saved the root mean square, a second derivative would treat it as a constant."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, eps: float) -> Tensor:
        return (normalized(input, eps)[0] * weight).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        input, weight, ctx.eps = inputs
        ctx.save_for_backward(input, weight)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        input, weight = ctx.saved_tensors
        direction, scale, unit = normalized(input, ctx.eps)
        grad_input = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad = grad_output.to(scale.dtype) * weight  # a product of two float16 numbers can overflow
            along = (grad * direction).mean(-1, keepdim=True)
            grad_input = (torch.addcmul(grad, direction, along, value=-1) * scale / unit).to(input.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = rows(grad_output * direction).sum(0).to(weight.dtype)
        return grad_input, grad_weight, None


def rms_norm(input: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    r"""Divide each row by its root mean square, and scale the features.

    .. math::
        n = \frac{x}{r}, \quad r = \sqrt{\tfrac{1}{d} \textstyle\sum_i x_i^2 + \varepsilon}, \quad y = w \odot n, \qquad
        \bar{n} = w \odot \bar{y}, \quad
        \bar{x} = \frac{1}{r} \left( \bar{n} - n\,\tfrac{1}{d} \langle \bar{n}, n \rangle \right), \quad
        \bar{w} = \textstyle\sum \bar{y} \odot n

    The function divides each row by its largest absolute value, and then sums the squares in float32 or wider. Without
    the division, the squares of numbers above about 1e19 would overflow in float32. For such rows,
    :func:`torch.nn.functional.rms_norm` returns 0.

    Args:
        input: ``(..., features)``, real floating dtype; float16 and bfloat16 are computed in float32.
        weight: ``(features,)``.
        eps: added to the mean square, so that a row of zeros stays zero.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if ``input`` is not real and floating.
        RuntimeError: if ``weight`` has another shape.

    Source:
        Zhang and Sennrich, "Root mean square layer normalization", 2019.

    >>> rms_norm(torch.tensor([3.0, 4.0]) * 100, torch.ones(2))
    tensor([0.8485, 1.1314])
    """
    if not input.is_floating_point():
        raise TypeError(f"expected a real floating input, got {input.dtype}")
    if weight.shape != input.shape[-1:] or not input.dim():
        raise RuntimeError(f"expected weight of shape {tuple(input.shape[-1:])}, got {tuple(weight.shape)}")
    return RMSNormFunction.apply(input, weight, eps)
