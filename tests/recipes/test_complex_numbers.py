"""Complex gradients: the convention, real and complex mixed, zeros, and the formulas against torch."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.complex_numbers import abs_squared, phasor, polyval

SURVIVORS = {
    "PhasorFunction.backward: 1 -> 2": "where the input is 0 the numerator is 0",
    "PolyvalFunction.backward: max(degree, {0 -> 1})": "a constant has no coefficient to multiply",
}

REAL, COMPLEX = torch.float64, torch.complex128


def point(*shape: int, dtype: torch.dtype = COMPLEX, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def numbers(*values: complex) -> Tensor:
    return torch.tensor(values, dtype=COMPLEX)


def by_differences(loss, z: Tensor, step: float = 1e-5) -> Tensor:
    """dL/dx + i dL/dy of a real loss, one entry at a time."""
    found = torch.zeros_like(z)
    for i in range(z.numel()):
        unit = torch.zeros_like(z)
        unit[i] = step
        slopes = [(loss(z + s * unit) - loss(z - s * unit)) / (2 * step) for s in (1, 1j)]
        found[i] = torch.complex(*slopes)
    return found


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(abs_squared, id="abs_squared"),
        pytest.param(phasor, id="phasor"),
        pytest.param(lambda z: polyval(point(4, seed=3), z), id="polyval"),
        pytest.param(lambda c: polyval(c, point(5, seed=3)), id="polyval of its coefficients"),
    ],
)
def test_the_gradient_is_the_direction_of_steepest_ascent(function) -> None:
    z, weight = point(3), point(5, seed=1)

    def loss(z):
        output = function(z)
        return (weight[: len(output)] * output).real.sum()

    torch.testing.assert_close(grad(loss)(z), by_differences(loss, z), rtol=1e-8, atol=1e-8)


def test_descent_finds_a_root() -> None:
    cubic, z = torch.tensor([1.0, 0.0, 0.0, -1.0], dtype=REAL), numbers(-0.7 + 0.9j)
    for _ in range(100):
        z = z - 0.05 * grad(lambda z: abs_squared(polyval(cubic, z)).sum())(z)
    torch.testing.assert_close(z, numbers(-0.5 + 0.75**0.5 * 1j))


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("function", [abs_squared, phasor])
def test_first_and_second_derivatives_of_one_argument(function, dtype) -> None:
    z = point(3, dtype=dtype).requires_grad_()
    options = {"atol": 1e-8, "rtol": 1e-6}
    assert gradcheck(function, (z,), **options)
    assert gradgradcheck(function, (z,), **options)


@pytest.mark.parametrize("of", [REAL, COMPLEX])
@pytest.mark.parametrize("at", [REAL, COMPLEX])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_polyval_of_real_and_complex_numbers(of, at, count) -> None:
    c, z = point(count, dtype=of).requires_grad_(), point(2, 2, dtype=at, seed=1).requires_grad_()
    found = polyval(c, z)
    expected = sum(c[k] * z ** (count - 1 - k) for k in range(count))
    torch.testing.assert_close(found, expected.expand_as(found).to(found.dtype))
    assert found.dtype == torch.promote_types(of, at)
    weight = point(2, 2, dtype=found.dtype, seed=2)
    ours = torch.autograd.grad(found, (c, z), weight)
    theirs = torch.autograd.grad(expected.expand(2, 2), (c, z), weight, materialize_grads=True, allow_unused=True)
    assert [g.dtype for g in ours] == [of, at]
    torch.testing.assert_close(ours, theirs)
    options = {"atol": 1e-8, "rtol": 1e-6}
    assert gradcheck(polyval, (c, z), **options)
    assert gradgradcheck(polyval, (c, z), **options)
    assert gradcheck(polyval, (c.detach(), z), **options)
    assert gradcheck(polyval, (c, z.detach()), **options)


def test_polyval_keeps_nothing_where_horner_keeps_every_step() -> None:
    c, z = torch.randn(9, dtype=torch.complex64), torch.randn(100, dtype=torch.complex64, requires_grad=True)

    def horner(c, z):
        output = torch.zeros_like(z)
        for k in c:
            output = output * z + k
        return output

    assert saved_bytes(polyval, c, z) == 0
    assert saved_bytes(horner, c, z) == 9 * 800


def test_a_polynomial_without_coefficients_is_zero() -> None:
    c, z = torch.empty(0, dtype=REAL, requires_grad=True), point(3).requires_grad_()
    y = polyval(c, z)
    assert y.tolist() == [0, 0, 0]
    found = torch.autograd.grad(y.real.sum(), (c, z))
    assert found[0].shape == (0,)
    assert found[1].tolist() == [0, 0, 0]


def test_third_derivative_of_a_polynomial() -> None:
    c = torch.tensor([2.0, 1.0, 1.0, 1.0], dtype=REAL)
    third = grad(grad(grad(lambda x: polyval(c, x))))
    assert third(torch.tensor(0.3, dtype=REAL)).item() == pytest.approx(12.0)


def test_phasor_is_sgn() -> None:
    z = torch.cat([point(20), numbers(0, 1e-200, 1e200j, -3)])
    torch.testing.assert_close(phasor(z), torch.sgn(z))
    weight = point(24, seed=1)
    losses = [lambda z, f=f: (weight * f(z)).real.sum() for f in (phasor, torch.sgn)]
    torch.testing.assert_close(*(grad(loss)(z) for loss in losses))


def test_phasor_at_zero_has_gradients_of_zero() -> None:
    z = numbers(0, 3 + 4j).requires_grad_()
    (first,) = torch.autograd.grad(phasor(z).imag.sum(), z, create_graph=True)
    torch.testing.assert_close(first.detach(), numbers(0, -0.096 + 0.072j))
    (second,) = torch.autograd.grad(first.real.sum(), z)
    assert second.isfinite().all()
    assert second[0] == 0


def test_phasor_of_a_real_number_is_its_sign() -> None:
    x = torch.tensor([-2.0, 0.0, 5.0], requires_grad=True)
    y = phasor(x)
    assert y.tolist() == [-1, 0, 1]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [0, 0, 0]


def test_abs_squared_is_real_and_smooth_at_zero() -> None:
    z = numbers(0, 3 + 4j, -2j).requires_grad_()
    y = abs_squared(z)
    assert y.tolist() == [0, 25, 4]
    assert y.dtype is REAL
    (found,) = torch.autograd.grad(y, z, torch.tensor([1.0, 2.0, 3.0], dtype=REAL))
    assert found.tolist() == [0, 12 + 16j, -12j]
    x = torch.tensor([-3.0, 2.0], requires_grad=True)
    assert torch.autograd.grad(abs_squared(x).sum(), x)[0].tolist() == [-6, 4]


@pytest.mark.parametrize("function", [abs_squared, phasor])
def test_no_bytes_are_kept(function) -> None:
    assert saved_bytes(function, point(100).requires_grad_()) == 0


def test_conjugated_views_give_the_same_numbers() -> None:
    z = point(4)
    for function in (abs_squared, phasor, lambda z: polyval(point(3, seed=1), z)):
        torch.testing.assert_close(function(z.conj()), function(z.conj().resolve_conj()))


def test_bad_input_is_named() -> None:
    for function in (abs_squared, phasor, lambda x: polyval(torch.ones(2), x), lambda x: polyval(x, torch.ones(2))):
        with pytest.raises(TypeError, match=r"floating or complex input, got torch\.int64"):
            function(torch.ones(3, dtype=torch.int64))
    with pytest.raises(RuntimeError, match=r"vector of coefficients, got shape \(2, 2\)"):
        polyval(torch.ones(2, 2), torch.ones(2))


@pytest.mark.parametrize(("size", "grad"), [(1e-30, 1e30), (1e20, 1e-20)])
def test_a_power_that_float32_does_not_have_and_a_gradient_that_brings_it_back(size: float, grad: float) -> None:
    x, coefficients = torch.tensor([size, 2 * size]), torch.ones(3, requires_grad=True)
    grads = torch.full((2,), grad)
    (found,) = torch.autograd.grad(polyval(coefficients, x), coefficients, grads)
    exact = torch.stack([(grads.double() * x.double() ** k).sum() for k in (2, 1, 0)])
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=0)
