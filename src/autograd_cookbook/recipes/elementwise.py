"""Element-wise functions. Each one saves the cheapest tensor from which backward can compute the gradient."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context


class SquareFunction(Function):
    """Keeps its input, because the output no longer shows the sign of the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input * input

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return (grad_output * input.conj()).mul_(2)  # in place: no other code holds this product


def square(input: Tensor) -> Tensor:
    r"""Square each element.

    .. math:: y = x^2, \qquad \bar{x} = 2\,\bar{y}\,x^*

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
    """Keeps its input, because an even power hides the sign of the input. For exponents 0 and 1, it keeps nothing."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, exponent: int) -> Tensor:
        return input**exponent

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, int], output: Tensor) -> None:
        input, ctx.exponent = inputs
        if ctx.exponent not in (0, 1):
            ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        if ctx.exponent == 0:
            # The formula gives 0 · 1/x, which is NaN at 0.
            return torch.zeros_like(grad_output), None
        if ctx.exponent == 1:
            return grad_output, None
        (input,) = ctx.saved_tensors
        return grad_output * (ctx.exponent * input ** (ctx.exponent - 1)).conj(), None


def power(input: Tensor, exponent: int) -> Tensor:
    r"""Raise each element to a whole power.

    .. math:: y = x^n, \qquad \bar{x} = \bar{y}\,(n\,x^{n-1})^*

    The gradient of :math:`x^0` is 0 everywhere, at :math:`x = 0` too.

    Args:
        input: any shape, any floating or complex dtype.
        exponent: a whole number :math:`n` of any sign.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if ``exponent`` is not an int.

    >>> x = torch.tensor([0.0, 2.0], requires_grad=True)
    >>> torch.autograd.grad(power(x, 3).sum() + power(x, 0).sum(), x)
    (tensor([ 0., 12.]),)
    """
    if not isinstance(exponent, int):
        raise TypeError(f"expected a whole exponent, got {exponent!r}")
    return PowerFunction.apply(input, exponent)


class QuadraticFunction(Function):
    """Keeps its input. The coefficients are numbers, so they are attributes of ctx."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, a: float, b: float, c: float) -> Tensor:
        return (a * input + b) * input + c

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float, float, float], output: Tensor) -> None:
        input, ctx.a, ctx.b, _ = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None, None]:
        (input,) = ctx.saved_tensors
        return grad_output * (2 * ctx.a * input + ctx.b).conj(), None, None, None


def quadratic(input: Tensor, a: float, b: float, c: float) -> Tensor:
    r"""Evaluate a polynomial of second degree.

    .. math:: y = a x^2 + b x + c, \qquad \bar{x} = \bar{y}\,(2 a x + b)^*

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
    """Keeps a mask of one byte per element. Saving the input would take four, unless another function saves it, too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, min: float, max: float) -> tuple[Tensor, Tensor]:
        # At a bound the gradient passes, as in torch up to 2.13. Later releases give 0 there. NaN counts as outside.
        return input.clamp(min, max), (input >= min) & (input <= max)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float, float], output: tuple[Tensor, Tensor]) -> None:
        _, inside = output
        ctx.mark_non_differentiable(inside)
        ctx.save_for_backward(inside)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor, _: Any) -> tuple[Tensor, None, None]:
        (inside,) = ctx.saved_tensors
        return torch.where(inside, grad_output, 0), None, None


def clamp(input: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    r"""Limit each element to an interval. The gradient passes inside the interval and at its ends.

    .. math:: y = \min(\max(x, a), b), \qquad \bar{x} = \bar{y}\,[a \le x \le b]

    Args:
        input: any shape, real floating dtype.
        min: the lower end :math:`a`, or None.
        max: the upper end :math:`b`, or None. If it is below ``min``, all values become ``max``, as in torch.

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


def wide(input: Tensor) -> Tensor:
    """Convert half precision to float32, because rounding after each step would leave no correct digits."""
    return input.float() if input.dtype in (torch.float16, torch.bfloat16) else input


def split(input: Tensor) -> tuple[Tensor, Tensor]:
    """Split a number into a coarse part with few digits and the remainder. The square of the coarse part is exact."""
    coarse = (16 * input.detach()).round_().div_(16)
    return coarse, input - coarse


def bell(input: Tensor) -> Tensor:
    """``exp(-x² / 2)``. For a large x, the rounding error of ``x²`` would make the exponential inaccurate.

    So ``x`` is split: the square of the coarse part is exact, and the remainder of the square is small. For the
    remainder, the faster ``torch.exp2`` is accurate enough.
    """
    coarse, rest = split(input)
    rest = rest.mul_(input + coarse).div_(-2 * math.log(2)).exp2_()
    return coarse.pow_(2).div_(-2).exp_().mul_(rest)


def upper_tail(size: Tensor) -> Tensor:
    """The probability that a standard normal number is above ``size``, for a ``size`` of at least 0.

    A rounded quotient ``x / √2`` would make the result as inaccurate as a rounded square does in :func:`bell`. So the
    function computes the rounding error ``lost`` and corrects for it with the slope of log(erfc). Two correct digits of
    this slope are enough.
    """
    short, rest_of_it = 2896 / 4096, 7.553118654752440084e-05  # their sum is √½, with more digits than a float
    coarse, rest = split(size)
    high = coarse * short  # exact
    low = coarse.mul_(rest_of_it).add_(rest, alpha=math.sqrt(0.5))
    quotient = high + low
    lost = low.sub_(high.sub_(quotient).neg_())
    slope = quotient.square().add_(4 / math.pi).sqrt_().add_(quotient)
    return quotient.erfc_().mul_(slope.mul_(lost).neg_().add_(1)).div_(2)


class GELUFunction(Function):
    """Keeps its input. Below 0, two inputs have the same output, so the output does not determine the slope."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        # Compute relu(x) minus |x| times the tail beyond |x|, so that no digits cancel on either side of 0. The limit
        # of 40 avoids NaN from infinity times 0. Beyond 40, the tail is 0 in every dtype.
        x = wide(input)
        size = x.abs().clamp_max_(40)
        return (x.clamp(min=0).sub_(upper_tail(size).mul_(size))).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        # In float16, the slope would become 0 where its product with a scaled gradient does not.
        return (grad_output * GELUSlopeFunction.apply(wide(input))).to(grad_output.dtype)


class GELUSlopeFunction(Function):
    """The slope of GELU: the slope of relu plus a correction. For -x, the correction has the opposite sign as for x."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        size = x.abs().clamp_max_(40)
        correction = bell(size).mul_(size).div_(math.sqrt(2 * math.pi)).sub_(upper_tail(size))
        side = torch.ones_like(x).copysign_(x)
        return correction.mul_(side).add_(side.clamp(min=0))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        x = input.clamp(-40, 40)
        return grad_output * bell(x) * (2 - x.square()) / math.sqrt(2 * math.pi)


def gelu(input: Tensor) -> Tensor:
    r"""Gaussian error linear unit, the exact form.

    .. math:: y = x\,\Phi(x), \qquad \bar{x} = \bar{y}\,(\Phi(x) + x\,\varphi(x))

    where :math:`\Phi` is the distribution function and :math:`\varphi` the density of the standard normal distribution.
    At :math:`-\infty` the output is 0.

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
    """Keeps its input and none of the three intermediate results."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        x = wide(input)
        _, top = powers(x)
        bottom = top + 2
        return top.div_(bottom).mul_(x.clamp(min=-750)).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return (grad_output * MishSlopeFunction.apply(wide(input))).to(grad_output.dtype)


class MishSlopeFunction(Function):
    """The slope of mish. Autograd's derivative of this formula would be a difference of nearly equal numbers."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        e, top = powers(x)
        bottom = top + 2
        bend = (e + 1).mul_(4).div_(bottom).mul_(e.div_(bottom))  # the slope of the tanh
        # For an infinite input, the slope of the tanh is 0. Without the clamp, infinity times 0 would be NaN.
        return bend.mul_(x.clamp(-750, 750)).add_(top.div_(bottom))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        e, top = powers(x)
        bottom = top + 2
        bend = 4 * (e / bottom) * ((e + 1) / bottom)
        turn = (1 - 2 * (top / bottom) * e) / (1 + e)  # the slope of log(bend)
        return grad_output * (bend * (2 + x.clamp(-750, 750) * turn))


def powers(input: Tensor) -> tuple[Tensor, Tensor]:
    """``e = exp(x)`` and ``e² + 2e``. With these, ``tanh(log(1 + e))`` and its slope are ratios of positive numbers."""
    # Beyond this limit e² would overflow. There the tanh is 1, and its slope is too small to be represented.
    e = input.clamp(max=math.log(torch.finfo(input.dtype).max) // 2.05).exp_()
    return e, e.square().add_(e, alpha=2)


def mish(input: Tensor) -> Tensor:
    r"""Input times the hyperbolic tangent of its softplus.

    .. math::
        y = x\,t, \qquad \bar{x} = \bar{y}\,(t + x\,(1 - t^2)\,\sigma(x)), \qquad t = \tanh \log(1 + e^x)

    At :math:`-\infty` the output is 0.

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
    """Keeps its input. The slope from the output y would be y + α, which is inaccurate where y is close to -α."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, alpha: float, scale: float) -> Tensor:
        x = wide(input)
        # One of the two terms is 0, so add them. `torch.where` takes many times as long if the signs are mixed.
        below = torch.expm1(x.clamp(max=0)).mul_(alpha)
        return below.add_(x.clamp(min=0)).mul_(scale).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        input, ctx.alpha, ctx.scale = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (input,) = ctx.saved_tensors
        x = wide(input)
        # The slope is 1 above 0 and alpha times the exponential below. `step` is 1 above 0, and 0 elsewhere.
        step = x.sign().clamp(min=0)
        slope = torch.add(step, BoundedExpFunction.apply(x) - step, alpha=ctx.alpha)
        return (grad_output * slope * ctx.scale).to(grad_output.dtype), None, None


class BoundedExpFunction(Function):
    """``exp(min(x, 0))``, with slope 1 at 0. The slope of ``clamp`` at 0 differs between releases of torch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return torch.exp(input.clamp(max=0))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return torch.where(input > 0, 0, grad_output * BoundedExpFunction.apply(input))


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    r"""Exponential linear unit.

    .. math::
        y = \begin{cases} x & x > 0 \\ \alpha\,(e^x - 1) & \text{else} \end{cases}, \qquad
        \bar{x} = \bar{y} \begin{cases} 1 & x > 0 \\ \alpha\,e^x & \text{else} \end{cases}

    Args:
        input: any shape, real floating dtype.
        alpha: a number of at least 0. At :math:`-\infty`, the output is minus this number.

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
    r"""Exponential linear unit, with constants that keep mean 0 and variance 1 in wide layers with LeCun's weights.

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
