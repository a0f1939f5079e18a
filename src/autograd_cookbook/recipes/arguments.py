"""Functions with arguments that are not tensors or can be None. Backward returns one value for each argument."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.broadcasting import sum_to_shape


def expect_number(name: str, value: Any) -> None:
    """Raise for a tensor, because the caller probably wants a gradient, and the function does not compute one."""
    if isinstance(value, Tensor):
        raise TypeError(f"expected a number for {name}, got a tensor of shape {tuple(value.shape)}")


class ScaledTanhFunction(Function):
    """Keeps its output. The numbers are attributes of ctx."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, scale: float, slope: float) -> Tensor:
        return (slope * input).tanh_().mul_(scale)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        _, ctx.scale, ctx.slope = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (output,) = ctx.saved_tensors
        # Divide first, because the scale, or its square, can overflow or become 0 where the slope a * b at 0 does not.
        # One fused step for 1 - t²: where t is close to 1, a rounded square leaves few digits of the difference. Do not
        # use (1 - t)(1 + t): near t = 0, its derivative is a difference of two numbers close to 1, so digits cancel.
        tanh = output / ctx.scale
        slope = torch.addcmul(tanh.new_ones(()), tanh, tanh, value=-1).mul_(ctx.scale * ctx.slope)
        return grad_output * slope.conj(), None, None


def scaled_tanh(input: Tensor, scale: float = 1.7159, slope: float = 2 / 3) -> Tensor:
    r"""Hyperbolic tangent with a scale and a slope. With the default values, the output for 1 is 1.

    .. math:: y = a \tanh(b x), \qquad \bar{x} = \bar{y}\,(b\,(a - y^2 / a))^*

    Args:
        input: any shape, floating or complex dtype.
        scale: :math:`a`, a number, which has no gradient.
        slope: :math:`b`, a number, which has no gradient.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if ``scale`` or ``slope`` is a tensor.
        ValueError: if ``scale`` is 0, because then the output does not determine the gradient.

    Source: Y. LeCun, L. Bottou, G. Orr, K.-R. Müller, Efficient BackProp, 1998, section 4.4.

    >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
    >>> y = scaled_tanh(x)
    >>> y
    tensor([0.0000, 1.0000], grad_fn=<ScaledTanhFunctionBackward>)
    >>> y.sum().backward()
    >>> x.grad
    tensor([1.1439, 0.7554])
    """
    expect_number("scale", scale)
    expect_number("slope", slope)
    if scale == 0:
        raise ValueError(f"expected scale != 0, got {scale}")
    return ScaledTanhFunction.apply(input, scale, slope)


class AffineFunction(Function):
    """Keeps the input only if there is a weight. A missing weight is saved as None."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        if weight is None:
            return input.clone() if bias is None else input + bias  # a new tensor, not the input itself
        if bias is None:
            return input * weight
        return torch.addcmul(bias, input, weight)  # one pass, and one rounding if the processor supports it

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor | None, Tensor | None], output: Tensor) -> None:
        input, weight, bias = inputs
        ctx.save_for_backward(None if weight is None else input, weight)
        ctx.bias_shape = None if bias is None else bias.shape

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output if weight is None else grad_output * weight.conj()
        if ctx.needs_input_grad[1]:
            grad_weight = sum_to_shape(grad_output * input.conj(), weight.shape)
        if ctx.needs_input_grad[2]:
            grad_bias = sum_to_shape(grad_output, ctx.bias_shape)
        return grad_input, grad_weight, grad_bias


def affine(input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    r"""Scale and shift the last dimensions, as in the last step of a normalization. Weight and bias are optional.

    .. math::
        Y = X \odot w + b, \qquad
        \bar{X} = \bar{Y} \odot w^*, \quad
        \bar{w} = \operatorname{sum}_w(\bar{Y} \odot X^*), \quad
        \bar{b} = \operatorname{sum}_b(\bar{Y})

    Args:
        input: any shape, floating or complex.
        weight: a tensor with the dtype of ``input`` and the shape of its last dimensions, as in
            :func:`torch.nn.functional.layer_norm`; or None for a weight of 1.
        bias: a tensor with the dtype of ``input`` and the shape of its last dimensions, or None for a bias of 0. Its
            shape can differ from the shape of ``weight``.

    Returns:
        A new tensor like ``input``, also if weight and bias are None.

    Raises:
        RuntimeError: if ``weight`` or ``bias`` does not have the shape of the last dimensions, or has another dtype.

    >>> x = torch.ones(4, 3)
    >>> b = torch.zeros(3, requires_grad=True)
    >>> affine(x, None, b).sum().backward()
    >>> b.grad
    tensor([4., 4., 4.])
    """
    for name, value in (("weight", weight), ("bias", bias)):
        if value is None:
            continue
        expected = input.shape[max(input.dim() - value.dim(), 0) :]
        if value.shape != expected:
            raise RuntimeError(f"expected {name} of shape {tuple(expected)}, got {tuple(value.shape)}")
        if value.dtype != input.dtype:
            raise RuntimeError(f"expected {name} of dtype {input.dtype}, got {value.dtype}")
    return AffineFunction.apply(input, weight, bias)


def pinball(input: Tensor, target: Tensor, quantile: float) -> Tensor:
    """Return the loss of each element: ``q * e`` for a positive error ``e``, and ``(q - 1) * e`` for a negative one."""
    half = torch.sub(target / 2, input, alpha=0.5)  # half the error, which does not overflow
    return torch.maximum(2 * quantile * half, 2 * (quantile - 1) * half)


class PinballLossFunction(Function):
    """Keeps its tensor arguments. The gradient depends on the sign of the error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, target: Tensor, weight: Tensor | None, quantile: float, reduction: str) -> Tensor:
        loss = pinball(input, target, quantile)
        if weight is not None:
            loss = loss * weight
        return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor | None, float, str], output: Tensor) -> None:
        *tensors, ctx.quantile, ctx.reduction = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        input, target, weight = ctx.saved_tensors
        error = target - input
        if ctx.reduction == "mean":
            grad_output = grad_output / error.numel()
        grad_input = grad_target = grad_weight = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            # lerp gives exactly q - 1 or q at its ends. The sum sgn(e) + 2q - 1 would lose a small quantile by
            # rounding.
            below, above = (
                torch.full((), slope, dtype=error.dtype, device=error.device)
                for slope in (ctx.quantile - 1, ctx.quantile)
            )
            slope = torch.lerp(below, above, (error.sgn() + 1).div_(2))
            grad_target = grad_output * (slope if weight is None else slope * weight)
            grad_input = -grad_target
        if ctx.needs_input_grad[2]:
            grad_weight = grad_output * pinball(input, target, ctx.quantile)
        return grad_input, grad_target, grad_weight, None, None


def pinball_loss(
    input: Tensor, target: Tensor, quantile: float = 0.5, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    r"""The loss of quantile regression. It is smallest if the share ``quantile`` of the targets is below the input.

    .. math::
        L_i = w_i \max(q\,e_i, (q - 1)\,e_i), \quad e = t - x, \qquad
        \bar{x}_i = -\bar{L}_i\,w_i\,\frac{\operatorname{sgn}(e_i) + 2q - 1}{2}, \quad \bar{t} = -\bar{x}

    The gradient at an error of 0 is the mean of the slopes on both sides, as in autograd's gradient of a maximum.

    Args:
        input: predicted quantiles, any shape, real floating dtype.
        target: observations, of the same shape.
        quantile: :math:`q`, a number above 0 and below 1. For 1/2, the loss is half the absolute error.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``. The mean divides by the number of elements, also with weights.
        weight: the weight of each element, with the shape of ``input``; None for weights of 1.

    Returns:
        A scalar, or the shape of ``input`` for ``"none"``.

    Raises:
        TypeError: if ``quantile`` is a tensor.
        ValueError: if ``quantile`` is not above 0 and below 1, ``reduction`` is unknown, or the shapes differ.
            Different shapes are refused because a column and a row would broadcast to a matrix of errors.

    Source: R. Koenker, G. Bassett, Regression Quantiles, Econometrica 46, 1978.

    >>> x = torch.tensor([1.0, 1.0], requires_grad=True)
    >>> pinball_loss(x, torch.tensor([0.0, 3.0]), quantile=0.9, reduction="sum").backward()
    >>> x.grad
    tensor([ 0.1000, -0.9000])
    """
    expect_number("quantile", quantile)
    if not 0 < quantile < 1:
        raise ValueError(f"expected 0 < quantile < 1, got {quantile}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"expected reduction none, mean or sum, got {reduction!r}")
    for name, tensor in (("target", target), ("weight", weight)):
        if tensor is not None and tensor.shape != input.shape:
            raise ValueError(f"expected {name} of shape {tuple(input.shape)}, got {tuple(tensor.shape)}")
    return PinballLossFunction.apply(input, target, weight, quantile, reduction)
