"""Reductions over any set of dimensions, and their gradients."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.elementwise import wide

Dim = int | Sequence[int] | None


def as_dims(dim: Dim, rank: int) -> tuple[int, ...]:
    """Convert any form of ``dim`` to a tuple of non-negative ints. None and ``()`` mean all dimensions.

    Raises:
        IndexError: if a dimension is out of range.
        RuntimeError: if a dimension is given twice.
    """
    if dim is None or dim == ():
        return tuple(range(rank))
    limit = max(rank, 1)  # a tensor without dimensions accepts 0 and -1, as in torch
    dims = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -limit <= d < limit:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {d})"
            )
        if d % limit in dims:
            raise RuntimeError(f"dim {d % limit} appears multiple times in the list of dims")
        dims.append(d % limit)
    return tuple(dims)


def kept(shape: Sequence[int], dims: tuple[int, ...]) -> list[int]:
    """Return the shape after a reduction over ``dims`` with ``keepdim=True``. The result broadcasts to ``shape``."""
    return [1 if i in dims else size for i, size in enumerate(shape)]


class SumFunction(Function):
    """Keeps the shape of the input and none of its values."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        return input.sum(dims, keepdim)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, tuple[int, ...], bool], output: Tensor) -> None:
        ctx.shape, ctx.dims = inputs[0].shape, inputs[1]

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        return grad_output.reshape(kept(ctx.shape, ctx.dims)).expand(ctx.shape), None, None


def sum(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    r"""Sum over some dimensions.

    .. math:: y = \sum_i x_i, \qquad \bar{x}_i = \bar{y}

    Args:
        input: any shape and dtype; integers and bools are summed as int64.
        dim: one int, which may be negative, several ints, or None for all dimensions.
        keepdim: whether the reduced dimensions stay, with size 1.

    Raises:
        IndexError: if a dimension is out of range.
        RuntimeError: if a dimension is given twice.

    >>> x = torch.ones(2, 3, requires_grad=True)
    >>> sum(x, dim=(0, -1)).backward()
    >>> x.grad
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    return SumFunction.apply(input, as_dims(dim, input.dim()), keepdim)


class MeanFunction(Function):
    """Keeps the shape of the input and none of its values."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        return input.mean(dims, keepdim)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, tuple[int, ...], bool], output: Tensor) -> None:
        input, ctx.dims, _ = inputs
        ctx.shape, ctx.count = input.shape, input.numel() // max(output.numel(), 1)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        # Divide before expanding, so that there is one division for each output, not for each input.
        share = grad_output.reshape(kept(ctx.shape, ctx.dims)) / ctx.count
        return share.expand(ctx.shape), None, None


def mean(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    r"""Average over some dimensions.

    .. math:: y = \frac{1}{n} \sum_i x_i, \qquad \bar{x}_i = \frac{\bar{y}}{n}

    Args:
        input: any shape, floating or complex. The mean of no elements is NaN.
        dim: one int, which may be negative, several ints, or None for all dimensions.
        keepdim: whether the reduced dimensions stay, with size 1.

    Raises:
        IndexError: if a dimension is out of range.
        RuntimeError: if a dimension is given twice, or the input is neither floating nor complex.

    >>> x = torch.ones(2, 4, requires_grad=True)
    >>> mean(x, dim=1).sum().backward()
    >>> x.grad[0]
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    return MeanFunction.apply(input, as_dims(dim, input.dim()), keepdim)


class AmaxFunction(Function):
    """Keeps input and output. The maximum is at the elements where input and output are equal."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        return input.amax(dims, keepdim)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, tuple[int, ...], bool], output: Tensor) -> None:
        input, ctx.dims, _ = inputs
        ctx.save_for_backward(input, output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        input, output = ctx.saved_tensors
        shape = kept(input.shape, ctx.dims)
        is_max = input == output.reshape(shape)
        # If dims is (), Tensor.sum sums over all dimensions. That is right, because then the input has no dimension.
        count = is_max.sum(ctx.dims, keepdim=True)
        return grad_output.reshape(shape) * is_max / count, None, None


def amax(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    r"""Maximum over some dimensions. Equal maxima share the gradient evenly, as in torch.

    .. math:: y = \max_i x_i, \qquad \bar{x}_i = \bar{y}\,\frac{[x_i = y]}{\sum_j [x_j = y]}

    Args:
        input: any shape, real dtype.
        dim: one int, which may be negative, several ints, or None for all dimensions.
        keepdim: whether the reduced dimensions stay, with size 1.

    Raises:
        IndexError: if a dimension is out of range, or has size 0, because there is no maximum of no elements.
        RuntimeError: if a dimension is given twice.

    >>> x = torch.tensor([1.0, 3.0, 3.0], requires_grad=True)
    >>> amax(x).backward()
    >>> x.grad
    tensor([0.0000, 0.5000, 0.5000])
    """
    return AmaxFunction.apply(input, as_dims(dim, input.dim()), keepdim)


class AminFunction(AmaxFunction):
    """Like :class:`AmaxFunction`, with the minimum in forward."""

    @staticmethod
    def forward(input: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        return input.amin(dims, keepdim)


def amin(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    r"""Minimum over some dimensions. Equal minima share the gradient evenly, as in torch.

    .. math:: y = \min_i x_i, \qquad \bar{x}_i = \bar{y}\,\frac{[x_i = y]}{\sum_j [x_j = y]}

    Args:
        input: any shape, real dtype.
        dim: one int, which may be negative, several ints, or None for all dimensions.
        keepdim: whether the reduced dimensions stay, with size 1.

    Raises:
        IndexError: if a dimension is out of range, or has size 0, because there is no minimum of no elements.
        RuntimeError: if a dimension is given twice.

    >>> x = torch.tensor([1.0, 1.0, 3.0], requires_grad=True)
    >>> amin(x).backward()
    >>> x.grad
    tensor([0.5000, 0.5000, 0.0000])
    """
    return AminFunction.apply(input, as_dims(dim, input.dim()), keepdim)


LONG = 2**15  # with more entries than this, torch.softmax is inaccurate in float32, but torch.sum is accurate


class LogSumExpFunction(Function):
    """Keeps only its input, because weights computed from the rounded output would not add up to 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        return torch.logsumexp(wide(input), dims, keepdim).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, tuple[int, ...], bool], output: Tensor) -> None:
        input, ctx.dims, _ = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (input,) = ctx.saved_tensors
        shape = kept(input.shape, ctx.dims)
        weights, nothing = _weights(wide(input), ctx.dims)
        grad = grad_output.reshape(shape).masked_fill(nothing, 0) * weights.conj()
        return grad.to(grad_output.dtype), None, None


def _weights(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the softmax, and a mask of the rows that contain only ``-inf``.

    In a row with ``+inf``, the entries of ``+inf`` share the weight, and the weight of all others is 0.
    """
    sizes = x.detach().real
    largest = sizes.amax(dims, keepdim=True) if x.numel() else sizes.sum(dims, True)
    nothing = largest == -torch.inf
    if not x.is_complex():
        # Replace infinity by the largest finite number, because inf - inf would be NaN.
        limit = torch.finfo(x.dtype).max
        ends = tuple(range(-len(dims), 0))
        last = x.clamp(-limit, limit).movedim(dims, ends)
        weights = last.flatten(-len(dims)).softmax(-1)
        if weights.shape[-1] > LONG:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.reshape(last.shape).movedim(ends, dims), nothing
    # In a row with +inf, replace +inf by 0 and all other entries by -inf.
    is_inf = x == torch.inf
    x = x.masked_fill(largest == torch.inf, -torch.inf).masked_fill(is_inf, 0)
    powers = torch.exp(x - largest.masked_fill(largest.isinf(), 0))
    return powers / powers.sum(dims, keepdim=True).masked_fill(nothing, 1), nothing


def logsumexp(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    r"""Logarithm of a sum of exponentials, without overflow and with a finite gradient for infinite entries.

    .. math:: y = \log \sum_i e^{x_i}, \qquad \bar{x}_i = \bar{y}\,w_i^*, \quad w = \operatorname{softmax}(x)

    A row that contains only :math:`-\infty` has gradient 0, and entries of :math:`+\infty` share the gradient of their
    row. In these cases, the gradient of :func:`torch.logsumexp` is NaN.

    Args:
        input: any shape, floating or complex dtype.
        dim: one int, which may be negative, several ints, or None for all dimensions.
        keepdim: whether the reduced dimensions stay, with size 1.

    Raises:
        IndexError: if a dimension is out of range.
        RuntimeError: if a dimension is given twice.

    >>> x = torch.tensor([0.0, 1000.0], requires_grad=True)
    >>> logsumexp(x).backward()
    >>> x.grad
    tensor([0., 1.])
    """
    return LogSumExpFunction.apply(input, as_dims(dim, input.dim()), keepdim)


class VarFunction(Function):
    """Keeps only the input. If forward saved the mean, the second derivative would treat it as a constant."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dims: tuple[int, ...], keepdim: bool, correction: float) -> Tensor:
        # This code reads the input more often than torch.var and is as accurate. On our CPU with torch 2.13, it takes
        # half of the time for 1000 rows of 1000 float32 numbers, but ten times as long for a single row.
        x = wide(input)
        first = x
        for dim in dims:
            first = first.narrow(dim, 0, min(1, x.shape[dim]))
        shifted = x - first  # so that the variance of equal numbers is exactly 0
        deviation = shifted.sub_(shifted.mean(dims, keepdim=True))
        if x.dtype in (torch.float64, torch.complex128):
            total = (deviation.abs() if x.is_complex() else deviation).square().sum(dims, keepdim)
        else:  # the sum of the squares could overflow although their mean does not
            double = torch.promote_types(x.dtype, torch.float64)
            total = torch.linalg.vector_norm(deviation, 2, dims, keepdim, dtype=double).square()
        return (total / freedom(input, total, correction)).to(input.real.dtype if x.is_complex() else input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, tuple[int, ...], bool, float], output: Tensor) -> None:
        input, ctx.dims, _, correction = inputs
        ctx.save_for_backward(input)
        ctx.freedom = freedom(input, output, correction)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None, None]:
        (input,) = ctx.saved_tensors
        share = 2 * grad_output.reshape(kept(input.shape, ctx.dims)) / ctx.freedom
        x = wide(input)
        return (share * (x - x.mean(ctx.dims, keepdim=True))).to(input.dtype), None, None, None


def freedom(input: Tensor, output: Tensor, correction: float) -> float:
    """The number of elements per output, minus the correction."""
    return max(input.numel() // max(output.numel(), 1) - correction, 0)


def var(input: Tensor, dim: Dim = None, keepdim: bool = False, correction: float = 1) -> Tensor:
    r"""Variance over some dimensions.

    .. math::
        y = \frac{1}{n - c} \sum_i |x_i - m|^2, \quad m = \frac{1}{n} \sum_i x_i, \qquad
        \bar{x}_i = \bar{y}\,\frac{2\,(x_i - m)}{n - c}

    The mean also depends on :math:`x`, but it adds nothing to the gradient, because the deviations add up to 0.

    Args:
        input: any shape, floating or complex.
        dim: one int, which may be negative, several ints, or None for all dimensions.
        keepdim: whether the reduced dimensions stay, with size 1.
        correction: the number :math:`c` that is subtracted from the number of elements: 1 for a sample, 0 for a
            population. If :math:`n - c` is 0 or less, value and gradient are NaN or infinite. The value is that of
            :func:`torch.var`, but without its warning.

    Returns:
        A real tensor, also for a complex input.

    Raises:
        IndexError: if a dimension is out of range.
        RuntimeError: if a dimension is given twice, or the input is neither floating nor complex.

    >>> x = torch.tensor([10000.0, 10001.0, 10002.0], requires_grad=True)
    >>> var(x).backward()
    >>> x.grad
    tensor([-1.,  0.,  1.])
    """
    return VarFunction.apply(input, as_dims(dim, input.dim()), keepdim, correction)


def largest_size(input: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return the largest absolute value over ``dims``, which stay. For real numbers, no absolute value is stored."""
    if input.is_complex():
        return input.abs().amax(dims, keepdim=True)
    return torch.maximum(input.amax(dims, keepdim=True), -input.amin(dims, keepdim=True))


def power_of_two(size: Tensor) -> Tensor:
    """Return the largest power of two that is not larger than ``size``, or 1 if ``size`` is 0, infinite or NaN."""
    mantissa, _ = torch.frexp(size)
    return torch.where((size > 0) & size.isfinite(), size / (2 * mantissa), 1)


HIGH = 32  # powers with at least this exponent


class NormFunction(Function):
    """Keeps input and output. Backward takes powers of their ratio. The ratio is at most 1, so no power overflows."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, ord: float, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        if ord in (1, math.inf) or not input.numel():
            return torch.linalg.vector_norm(input, ord, dims, keepdim)
        # Powers of large numbers overflow, and powers of small numbers become 0. So divide all elements by one number
        # of similar size. A power of two causes no rounding error, but leaves numbers up to 2, and high powers of
        # these overflow, too.
        x = wide(input)
        largest = largest_size(x, dims)
        unit = power_of_two(largest) if ord < HIGH else largest.where((largest > 0) & largest.isfinite(), 1)
        output = torch.linalg.vector_norm(x / unit, ord, dims, keepdim)
        output = output * unit.reshape(output.shape)
        return output if x.dtype == input.dtype else output.to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float, tuple[int, ...], bool], output: Tensor) -> None:
        input, ctx.ord, ctx.dims, _ = inputs
        # The gradient of the 1-norm needs only the signs of the input.
        ctx.save_for_backward(*((input,) if ctx.ord == 1 else (input, output)))

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None, None]:
        input, *output = ctx.saved_tensors
        shape = kept(input.shape, ctx.dims)
        if ctx.ord == 1:
            return grad_output.reshape(shape) * input.sgn(), None, None, None
        output = output[0].reshape(shape)
        if ctx.ord == math.inf:
            is_max = input.abs() == output
            weight = input.sgn() * is_max / is_max.sum(ctx.dims, keepdim=True).clamp(min=1)
        else:
            # Divide by infinity instead of 0, so that the quotient and all of its derivatives are 0.
            output = output.masked_fill(output == 0, math.inf)
            # In float16, a small ratio would have few correct digits, and so would a power of it.
            weight = wide(input) / wide(output)
            if ctx.ord == 2:
                # The output is rounded, and a subnormal output has few digits. But the exact ratios have the norm 1.
                total = torch.linalg.vector_norm(weight.detach(), 2, ctx.dims, keepdim=True)
                grad_output = wide(grad_output).reshape(shape) / total.where((total > 0) & total.isfinite(), 1)
            else:
                size = weight.abs()
                # At 0, the derivative of a power with an exponent below 1 is infinite, and infinity times sgn(0) is
                # NaN.
                power = size.masked_fill(size == 0, 1) ** (ctx.ord - 1)
                # A power magnifies the rounding error of the output. But the powers of the exact ratios add up to 1.
                total = (power * size).sum(ctx.dims, keepdim=True).detach()
                exact = (total > 0) & total.isfinite()
                weight = weight.sgn() * power * total.where(exact, 1) ** (1 / ctx.ord - 1)
        return (grad_output.reshape(shape) * weight).to(input.dtype), None, None, None


def norm(input: Tensor, ord: float = 2, dim: Dim = None, keepdim: bool = False) -> Tensor:
    r"""Norm of the vectors along some dimensions, with gradient 0 at the zero vector.

    .. math::
        y = \Bigl(\sum_i |x_i|^p\Bigr)^{1/p}, \qquad
        \bar{x}_i = \bar{y}\,\operatorname{sgn}(x_i) \left(\frac{|x_i|}{y}\right)^{p-1}

    For :math:`p = \infty`, the entries with the largest absolute value share the gradient evenly, as in torch. The
    second derivative does not exist at the zero vector. The recipe returns 0 there, but
    :func:`torch.linalg.vector_norm` returns NaN for :math:`1 < p < 3` (torch 2.13).

    Args:
        input: any shape, floating or complex. The gradient of an infinite entry is NaN if
            :math:`1 < p < \infty`.
        ord: :math:`p`, from 1 to infinity.
        dim: one int, which may be negative, several ints, or None for all dimensions.
        keepdim: whether the reduced dimensions stay, with size 1.

    Returns:
        A real tensor, also for a complex input.

    Raises:
        ValueError: if ``ord`` is less than 1 or NaN.
        IndexError: if a dimension is out of range.
        RuntimeError: if a dimension is given twice, or the input is neither floating nor complex.

    >>> x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    >>> norm(x, dim=1).sum().backward()
    >>> x.grad
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if not ord >= 1:
        raise ValueError(f"expected ord >= 1, got {ord}")
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(f"expected a floating point or complex input, got {input.dtype}")
    return NormFunction.apply(input, ord, as_dims(dim, input.dim()), keepdim)
