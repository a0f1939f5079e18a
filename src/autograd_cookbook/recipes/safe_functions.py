"""Functions with finite and accurate derivatives at points where their formulas divide by zero or overflow."""

import math

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._logistic import GatedFunction
from autograd_cookbook.recipes.broadcasting import as_gradient
from autograd_cookbook.recipes.elementwise import wide


class SoftplusFunction(Function):
    """Keeps its input. All derivatives are products of logistic functions of the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, beta: float) -> Tensor:
        # Above 20, torch's function returns its input by default, which is wrong in float64. Above 40, it is right.
        return F.softplus(input, beta, threshold=40)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float], output: Tensor) -> None:
        input, ctx.beta = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (input,) = ctx.saved_tensors
        # In float16, the slope would become 0 where its product with a scaled gradient does not.
        return GatedFunction.apply(wide(grad_output), ctx.beta * wide(input)).to(grad_output.dtype), None


def softplus(input: Tensor, beta: float = 1.0) -> Tensor:
    r"""Smooth version of relu, with an accurate value, gradient and second derivative for inputs of any size.

    .. math::
        y = \tfrac{1}{\beta} \log(1 + e^{\beta x}) = \max(x, 0) + \tfrac{1}{\beta} \log(1 + e^{-\beta |x|}), \qquad
        \bar{x} = \bar{y}\,\sigma(\beta x), \quad \sigma'(x) = \sigma(x)\,\sigma(-x)

    Args:
        input: any shape, real floating dtype.
        beta: the sharpness of the bend at 0.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if ``input`` is not of a real floating dtype.
        ValueError: if ``beta`` is not positive and finite.

    >>> x = torch.tensor([-1000.0, 0.0, 1000.0], requires_grad=True)
    >>> y = softplus(x)
    >>> y.sum().backward()
    >>> y.tolist()[2], x.grad
    (1000.0, tensor([0.0000, 0.5000, 1.0000]))
    """
    if not input.is_floating_point():
        raise TypeError(f"expected input of a floating dtype, got {input.dtype}")
    if not 0 < beta < math.inf:
        raise ValueError(f"expected a finite beta > 0, got {beta}")
    return SoftplusFunction.apply(input, beta)


class XlogyFunction(Function):
    """Keeps both inputs in their own shapes, not expanded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, other: Tensor) -> Tensor:
        return torch.xlogy(input, other)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, other = ctx.saved_tensors
        grad_input = grad_other = None
        constant = (input == 0) & (other <= 0)
        inside = torch.where(constant, 1, other)  # so that log and quotient are finite everywhere
        if ctx.needs_input_grad[0]:
            # Use xlogy instead of a product, because 0 times the logarithm of 0 would be NaN.
            grad_input = as_gradient(XlogyFunction.apply(grad_output, inside), input)
        if ctx.needs_input_grad[1]:
            grad_other = as_gradient(torch.where(constant, 0, grad_output * input / inside), other)
        return grad_input, grad_other


def xlogy(input: Tensor, other: Tensor) -> Tensor:
    r"""The product :math:`x \log y`, which is 0 where :math:`x = 0`, with gradients that are finite there.

    .. math:: z = x \log y, \qquad \bar{x} = \bar{z} \log y, \quad \bar{y} = \bar{z}\,\frac{x}{y}, \qquad
        \bar{x} = \bar{y} = 0 \text{ where } x = 0,\ y \le 0

    If :math:`y` is 0 and :math:`x` is not, the value and the gradients are infinite.

    Args:
        input: any shape, real.
        other: any shape that broadcasts with the shape of ``input``.

    Returns:
        The same values as :func:`torch.xlogy`. PyTorch's function has the same gradient for ``input``, but its gradient
        for ``other`` is NaN where both arguments are 0.

    Raises:
        RuntimeError: if the shapes do not broadcast, or an input is complex.

    >>> p, q = torch.tensor([0.0, 1.0], requires_grad=True), torch.tensor([0.0, 0.5], requires_grad=True)
    >>> xlogy(p, q).sum().backward()
    >>> p.grad, q.grad
    (tensor([ 0.0000, -0.6931]), tensor([0., 2.]))
    """
    return XlogyFunction.apply(input, other)


class SafeSqrtFunction(Function):
    """Keeps its output, as ``torch.sqrt`` does."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.sqrt()

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return SafeDivideFunction.apply(grad_output, 2 * output.conj())


def safe_sqrt(input: Tensor) -> Tensor:
    r"""Square root with gradient 0 at 0, where the derivative is infinite.

    .. math:: z = \sqrt{x}, \qquad \bar{x} = \frac{\bar{z}}{2 z^*} \text{ where } x \ne 0, \qquad
        \bar{x} = 0 \text{ where } x = 0

    The gradient 0 is right for :math:`\sqrt{f(u)}` if 0 is the smallest value of :math:`f`, as for norms and standard
    deviations. In this case, it is a subgradient or the mean of the slopes on both sides. If :math:`x` itself is a
    trained parameter, this gradient cannot move it away from 0.

    Args:
        input: any shape, floating or complex. Negative numbers give NaN.

    Returns:
        A tensor like ``input``.

    >>> x = torch.tensor([0.0, 4.0], requires_grad=True)
    >>> safe_sqrt(x).sum().backward()
    >>> x.grad
    tensor([0.0000, 0.2500])
    """
    return SafeSqrtFunction.apply(input)


class SafeDivideFunction(Function):
    """Keeps both inputs in their own shapes, not expanded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, other: Tensor) -> Tensor:
        return torch.where(other == 0, 0, input / other)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, other = ctx.saved_tensors
        grad_output, x, y = map(wide, (grad_output, input, other))
        grad_input = grad_other = None
        # Use the same safe division, so that second derivatives are 0 for a denominator of 0, too.
        if ctx.needs_input_grad[0]:
            grad_input = as_gradient(SafeDivideFunction.apply(grad_output, y.conj()), input)
        if ctx.needs_input_grad[1]:
            # Divide twice instead of dividing by the square, which can underflow to 0. Divide the input, because 1 / y
            # can overflow where the input is 0.
            twice = SafeDivideFunction.apply(SafeDivideFunction.apply(x, y), y)
            grad_other = as_gradient(-grad_output * twice.conj(), other)
        return grad_input, grad_other


def safe_divide(input: Tensor, other: Tensor) -> Tensor:
    r"""Quotient that is 0 where the denominator is 0, with gradient 0 there.

    .. math::
        z = \frac{x}{y}, \qquad
        \bar{x} = \frac{\bar{z}}{y^*}, \quad
        \bar{y} = -\bar{z}\,\left(\frac{x / y}{y}\right)^*, \qquad
        z = \bar{x} = \bar{y} = 0 \text{ where } y = 0

    For example, use it for the mean of a group that can be empty. Only a denominator of exactly 0 is treated
    differently. For other small denominators, the quotient is large, as usual.

    Args:
        input: any shape and dtype.
        other: any shape that broadcasts with the shape of ``input``.

    Returns:
        The quotient, of the broadcast shape and the dtype of :func:`torch.div`.

    Raises:
        RuntimeError: if the shapes do not broadcast.

    >>> total, count = torch.tensor([6.0, 0.0], requires_grad=True), torch.tensor([3, 0])
    >>> mean = safe_divide(total, count)
    >>> mean.sum().backward()
    >>> mean.tolist(), total.grad
    ([2.0, 0.0], tensor([0.3333, 0.0000]))
    """
    return SafeDivideFunction.apply(input, other)
