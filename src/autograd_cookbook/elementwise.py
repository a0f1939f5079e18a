"""Element-wise functions that keep the cheapest tensor from which their gradient follows."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class ReLUFunction(Function):
    """Rectifier; its sign is all that the gradient needs, and the output has it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.clamp(min=0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        # The output and not the input: a following linear layer keeps it anyway, so it costs nothing.
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        # where, not a product: an infinite grad_output times 0 would be NaN. And <=, not >: NaN stays NaN.
        return torch.where(output <= 0, 0, grad_output)


def relu(input: Tensor) -> Tensor:
    r"""Rectified linear unit, with gradient 0 at 0 as in PyTorch.

    .. math:: y = \max(x, 0), \qquad \bar{x} = \bar{y}\,[x > 0]

    Args:
        input: any shape, any floating dtype.

    Returns:
        A tensor like ``input``.

    >>> x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    >>> relu(x).sum().backward()
    >>> x.grad
    tensor([0., 0., 1.])
    """
    return ReLUFunction.apply(input)


class SigmoidFunction(Function):
    """Logistic function; the output alone gives the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.sigmoid()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return grad_output * (output * (1 - output)).conj()


def sigmoid(input: Tensor) -> Tensor:
    r"""Logistic function.

    .. math:: y = \frac{1}{1 + e^{-x}}, \qquad \bar{x} = \bar{y}\,\overline{y\,(1 - y)}

    Args:
        input: any shape, any floating or complex dtype.

    Returns:
        A tensor like ``input``.

    >>> x = torch.tensor([0.0, 1000.0], requires_grad=True)
    >>> sigmoid(x).sum().backward()
    >>> x.grad
    tensor([0.2500, 0.0000])
    """
    return SigmoidFunction.apply(input)


class TanhFunction(Function):
    """Hyperbolic tangent; the output alone gives the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.tanh()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        # The product keeps its digits where the output is close to 1, and 1 - output² loses them.
        return grad_output * ((1 - output) * (1 + output)).conj()


def tanh(input: Tensor) -> Tensor:
    r"""Hyperbolic tangent.

    .. math:: y = \tanh x, \qquad \bar{x} = \bar{y}\,\overline{(1 - y^2)}

    Args:
        input: any shape, any floating or complex dtype.

    Returns:
        A tensor like ``input``.

    >>> x = torch.zeros(3, requires_grad=True)
    >>> tanh(x).sum().backward()
    >>> x.grad
    tensor([1., 1., 1.])
    """
    return TanhFunction.apply(input)


class SquareFunction(Function):
    """Keeps its input; the output has lost the sign."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input * input

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return 2 * grad_output * input.conj()


def square(input: Tensor) -> Tensor:
    r"""Square.

    .. math:: y = x^2, \qquad \bar{x} = 2\,\bar{y}\,\overline{x}

    Args:
        input: any shape, any floating or complex dtype.

    Returns:
        A tensor like ``input``.

    >>> x = torch.tensor([-3.0, 0.5], requires_grad=True)
    >>> square(x).sum().backward()
    >>> x.grad
    tensor([-6.,  1.])
    """
    return SquareFunction.apply(input)


class PowerFunction(Function):
    """Keeps its input, for no root of the output would have its sign; nothing where the slope is a number."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, exponent: int) -> Tensor:
        return input**exponent

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        input, ctx.exponent = inputs
        if ctx.exponent not in (0, 1):
            ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        if ctx.exponent == 0:
            # The formula would say 0 · 1/x, which is NaN at 0.
            return torch.zeros_like(grad_output), None
        if ctx.exponent == 1:
            return grad_output, None
        (input,) = ctx.saved_tensors
        return grad_output * (ctx.exponent * input ** (ctx.exponent - 1)).conj(), None


def power(input: Tensor, exponent: int) -> Tensor:
    r"""Raise to a whole power.

    .. math:: y = x^n, \qquad \bar{x} = \bar{y}\,\overline{n\,x^{n-1}}

    The gradient of :math:`x^0` is 0 everywhere, at :math:`x = 0` too.

    Args:
        input: any shape, any floating or complex dtype.
        exponent: a whole number :math:`n` of any sign.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if ``exponent`` is no int.

    >>> x = torch.tensor([0.0, 2.0], requires_grad=True)
    >>> torch.autograd.grad(power(x, 3).sum() + power(x, 0).sum(), x)
    (tensor([ 0., 12.]),)
    """
    if not isinstance(exponent, int):
        raise TypeError(f"expected a whole exponent, got {exponent!r}")
    return PowerFunction.apply(input, exponent)


class QuadraticFunction(Function):
    """Keeps its input; the coefficients are numbers and live on ctx."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, a: float, b: float, c: float) -> Tensor:
        return (a * input + b) * input + c

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float, float], output: Tensor) -> None:
        input, ctx.a, ctx.b, _ = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None, None]:
        (input,) = ctx.saved_tensors
        return grad_output * (2 * ctx.a * input + ctx.b).conj(), None, None, None


def quadratic(input: Tensor, a: float, b: float, c: float) -> Tensor:
    r"""Evaluate a polynomial of second degree.

    .. math:: y = a x^2 + b x + c, \qquad \bar{x} = \bar{y}\,\overline{(2 a x + b)}

    Args:
        input: any shape, any floating or complex dtype.
        a: coefficient of the square.
        b: coefficient of the input.
        c: the constant.

    Returns:
        A tensor like ``input``.

    >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
    >>> quadratic(x, 3.0, 2.0, 1.0).sum().backward()
    >>> x.grad
    tensor([2., 8.])
    """
    return QuadraticFunction.apply(input, a, b, c)


class ClampFunction(Function):
    """Keeps a mask: one byte an element, where the input has four and may be needed by nobody else."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, min: float, max: float) -> tuple[Tensor, Tensor]:
        # At a bound the gradient passes, as in torch. NaN is not inside.
        return input.clamp(min, max), (input >= min) & (input <= max)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: tuple[Tensor, Tensor]) -> None:
        _, inside = output
        ctx.mark_non_differentiable(inside)
        ctx.save_for_backward(inside)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, _: Any) -> tuple[Tensor, None, None]:
        (inside,) = ctx.saved_tensors
        return torch.where(inside, grad_output, 0), None, None


def clamp(input: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    r"""Limit to an interval; the gradient passes inside of it and at its ends.

    .. math:: y = \min(\max(x, a), b), \qquad \bar{x} = \bar{y}\,[a \le x \le b]

    Args:
        input: any shape, real floating dtype.
        min: the lower end :math:`a`, or None.
        max: the upper end :math:`b`, or None; if it is below ``min``, all values become ``max``, as in torch.

    Returns:
        A tensor like ``input``.

    Raises:
        ValueError: if neither end is given.

    >>> x = torch.tensor([-2.0, 0.0, 1.0, 3.0], requires_grad=True)
    >>> clamp(x, 0, 1).sum().backward()
    >>> x.grad
    tensor([0., 1., 1., 0.])
    """
    if min is None and max is None:
        raise ValueError("expected min or max, got None for both")
    limits = -torch.inf if min is None else min, torch.inf if max is None else max
    return ClampFunction.apply(input, *limits)[0]
