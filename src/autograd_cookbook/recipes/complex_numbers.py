"""Gradients of complex functions: where to conjugate, and when a gradient needs both Wirtinger derivatives."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.broadcasting import as_gradient


class AbsSquaredFunction(Function):
    """Maps complex numbers to real numbers. Keeps only its input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.real**2 + input.imag**2 if input.is_complex() else input**2

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return 2 * grad_output * input


def abs_squared(input: Tensor) -> Tensor:
    r"""Squared absolute value: a power, an intensity, or the probability of an amplitude.

    .. math:: y = |z|^2 = z \bar{z}, \qquad \operatorname{grad}_z = 2 z \, \operatorname{grad}_y

    Args:
        input: any shape, real or complex floating dtype.

    Returns:
        A real tensor of the same shape.

    Raises:
        TypeError: if the dtype is neither floating nor complex.

    >>> z = torch.tensor(3 + 4j, requires_grad=True)
    >>> y = abs_squared(z)
    >>> y
    tensor(25., grad_fn=<AbsSquaredFunctionBackward>)
    >>> torch.autograd.grad(y, z)
    (tensor(6.+8.j),)
    """
    expect_floating(input)
    return AbsSquaredFunction.apply(input)


def expect_floating(tensor: Tensor) -> None:
    """Raise if tensors of this dtype cannot have a gradient.

    Raises:
        TypeError: if the dtype is neither floating nor complex.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise TypeError(f"expected a floating or complex input, got {tensor.dtype}")


def in_range(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Multiply real and imaginary parts by a power of two, and return them and this factor.

    Without the factor, the length would lose digits if both parts are subnormal, and overflow if both parts are large.
    All three tensors are real: on a CPU, complex operations take much longer.
    """
    with torch.no_grad():
        size = z.real.abs() + z.imag.abs()
        factor = torch.where(size < 2.0**-64, 2.0**64, 0.25).to(size.dtype)
    return z.real * factor, z.imag * factor, factor


class PhasorFunction(Function):
    """Keeps its input. The function is not holomorphic, so its gradient needs both Wirtinger derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return torch.sgn(torch.complex(*in_range(input)[:2]) if input.is_complex() else input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        if not input.is_complex():  # the phasor is the sign, which has gradient 0
            return torch.zeros_like(input)
        re, im, factor = in_range(input)
        # Where z is 0, divide by 1 instead: this avoids 0 / 0 in the second derivative as well.
        length = torch.hypot(re.masked_fill((re == 0) & (im == 0), 1), im)
        # The length of z does not change the phasor, so only the part of the gradient across the phasor remains.
        cos, sin = re / length, im / length
        turn = (cos * grad_output.imag - sin * grad_output.real) * factor / length
        return torch.complex(-sin * turn, cos * turn)


def phasor(input: Tensor) -> Tensor:
    r"""Keep the phase of a complex number and drop its length: :math:`z / |z|`, and 0 at 0.

    .. math::
        y = \frac{z}{|z|}, \qquad
        \operatorname{grad}_z = \frac{g - y \operatorname{Re}(\bar{y} g)}{|z|}
        = \frac{i\,y \operatorname{Im}(\bar{y} g)}{|z|}
        \quad\text{with } g = \operatorname{grad}_y

    Args:
        input: any shape, complex dtype. For a real input the result is the sign, with gradient 0.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if the dtype is neither floating nor complex.

    >>> z = torch.tensor([3 + 4j, 0j], requires_grad=True)
    >>> y = phasor(z)
    >>> y.imag.sum().backward()
    >>> y.tolist()
    [(0.6000000238418579+0.800000011920929j), 0j]
    >>> z.grad.abs()
    tensor([0.1200, 0.0000])
    """
    expect_floating(input)
    return PhasorFunction.apply(input)


class PolyvalFunction(Function):
    """Keeps only its arguments. Backward calls the function again, with the coefficients of the derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(coefficients: Tensor, input: Tensor) -> Tensor:
        dtype = torch.promote_types(coefficients.dtype, input.dtype)
        output = torch.zeros_like(input, dtype=dtype)
        for coefficient in coefficients.unbind():
            output = output * input + coefficient
        return output

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        coefficients, input = ctx.saved_tensors
        degree = coefficients.shape[0] - 1
        grad_coefficients = grad_input = None
        if ctx.needs_input_grad[0]:
            term, terms = grad_output, []
            for _ in range(degree + 1):  # a separate power could overflow or underflow although the term does not
                terms.append(term.sum())
                term = term * input.conj()
            stacked = torch.stack(terms[::-1]) if terms else torch.zeros_like(coefficients)
            grad_coefficients = as_gradient(stacked, coefficients)
        if ctx.needs_input_grad[1]:
            exponents = torch.arange(max(degree, 0), 0, -1, device=coefficients.device)
            slope = PolyvalFunction.apply(coefficients[:-1] * exponents, input)
            grad_input = as_gradient(grad_output * slope.conj(), input)
        return grad_coefficients, grad_input


def polyval(coefficients: Tensor, input: Tensor) -> Tensor:
    r"""Evaluate a real or complex polynomial by Horner's rule, without saving the steps.

    .. math::
        y = p(z) = \sum_{k=0}^{n} c_k z^{n-k}, \qquad
        \operatorname{grad}_z = p'(z)^*\, \operatorname{grad}_y, \quad
        \operatorname{grad}_{c_k} = \sum (z^{n-k})^*\, \operatorname{grad}_y

    Args:
        coefficients: ``(n + 1,)``, floating or complex, the highest power first as in ``numpy.polyval``.
        input: any shape, floating or complex.

    Returns:
        A tensor of the shape of ``input`` and the promoted dtype.

    Raises:
        TypeError: if a dtype is neither floating nor complex.
        RuntimeError: if ``coefficients`` is not a vector.

    >>> z = torch.tensor(1 + 1j, requires_grad=True)
    >>> y = polyval(torch.tensor([1.0, 0.0, 0.0, -1.0]), z)
    >>> y
    tensor(-3.+2.j, grad_fn=<PolyvalFunctionBackward>)
    >>> torch.autograd.grad(y.real, z)
    (tensor(0.-6.j),)
    """
    expect_floating(coefficients)
    expect_floating(input)
    if coefficients.dim() != 1:
        raise RuntimeError(f"expected a vector of coefficients, got shape {tuple(coefficients.shape)}")
    return PolyvalFunction.apply(coefficients, input)
