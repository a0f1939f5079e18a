"""Functions that are differentiated again: Lambert W and the log-determinant."""

import math

import mpmath
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.double_backward import (
    LambertWBackward,
    LambertWFunction,
    LogDetFunction,
    lambert_w,
    logdet,
)

INF, NAN = float("inf"), float("nan")
# The smallest float64 that is not below -1/e.
BRANCH = math.nextafter(-1 / math.e, 0)


def leaf(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def matrices(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    factor = torch.randn(*shape, shape[-1], dtype=dtype, generator=torch.Generator().manual_seed(0))
    return (factor @ factor.mH + torch.eye(shape[-1], dtype=dtype)).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lambert_w_solves_its_equation_on_the_whole_range(dtype) -> None:
    largest = math.log10(torch.finfo(dtype).max)
    powers = torch.logspace(-30, largest - 1e-3, 500, dtype=torch.float64)
    x = torch.cat([powers, torch.linspace(-0.35, 4, 500)]).to(dtype)
    x = torch.cat([x, torch.full((1,), torch.finfo(dtype).max, dtype=dtype)])
    w = lambert_w(x).double()
    torch.testing.assert_close(w, x.double() * torch.exp(-w), rtol=1000 * torch.finfo(dtype).eps, atol=0)


def test_lambert_w_at_points_that_are_known() -> None:
    x = torch.tensor([0.0, math.e, 2 * math.e**2, -0.5 * math.exp(-0.5), INF, -INF, NAN, -0.4], dtype=torch.float64)
    expected = torch.tensor([0.0, 1.0, 2.0, -0.5, INF, NAN, NAN, NAN], dtype=torch.float64)
    torch.testing.assert_close(lambert_w(x), expected, rtol=1e-14, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_lambert_w_keeps_its_digits_near_its_branch_point(dtype) -> None:
    """Both ``e x + 1`` and ``1 + w`` have few digits there, if they are computed so."""
    distance = torch.logspace(-15, -1, 60, dtype=torch.float64)
    x = (distance - 1 / math.e).to(dtype).unique()
    x = x[x.double() >= BRANCH].requires_grad_()
    y = lambert_w(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    with mpmath.workdps(40):
        exact = [mpmath.lambertw(mpmath.mpf(number)).real for number in x.tolist()]
        slopes = [float(mpmath.exp(-w) / (1 + w)) for w in exact]
    eps = torch.finfo(dtype).eps
    values = torch.tensor([float(w) for w in exact], dtype=torch.float64)
    torch.testing.assert_close(y.double(), values, rtol=2 * eps, atol=0)
    torch.testing.assert_close(grad.double(), torch.tensor(slopes, dtype=torch.float64), rtol=4 * eps, atol=0)


def test_lambert_w_at_its_branch_point() -> None:
    x = leaf(BRANCH)
    y = lambert_w(x)
    assert y.item() == pytest.approx(-1, abs=1e-7)
    (grad,) = torch.autograd.grad(y, x)
    assert grad.item() > 1e7


def test_lambert_w_has_slope_zero_at_infinity_and_one_at_zero() -> None:
    x = leaf(INF, 0.0, 1e308)
    (grad,) = torch.autograd.grad(lambert_w(x).sum(), x)
    assert grad[:2].tolist() == [0, 1]
    assert grad[2].item() == pytest.approx(1e-308 * 703 / 704, rel=1e-2)  # W / (x (1 + W)), and W is near 703


def test_derivatives_of_lambert_w_to_fourth_order() -> None:
    x = torch.linspace(-0.3, 5, 40, dtype=torch.float64, requires_grad=True)
    y = w = lambert_w(x)
    w = w.detach()
    # W^(n) = exp(-nW) p_n(W) / (1 + W)^(2n - 1), with p_n as on MathWorld, Lambert W-Function
    for n, p in enumerate((w**0, -2 - w, 9 + 8 * w + 2 * w**2, -64 - 79 * w - 36 * w**2 - 6 * w**3), start=1):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        torch.testing.assert_close(y.detach(), torch.exp(-n * w) * p / (1 + w) ** (2 * n - 1), rtol=1e-9, atol=0)


def test_the_backward_of_lambert_w_is_a_function_with_a_right_gradient() -> None:
    def slope(grad_output, w):
        return LambertWBackward.apply(grad_output, (w * w.exp()).detach(), w)

    grad_output, w = leaf(0.5, -2.0, 1.5), leaf(-0.7, 0.3, 2.0)
    for frozen in (None, 0, 1):
        args = [a.detach() if i == frozen else a for i, a in enumerate((grad_output, w))]
        assert gradcheck(slope, args, atol=1e-8, rtol=1e-6)
        assert gradgradcheck(slope, args, atol=1e-8, rtol=1e-6)


def test_lambert_w_keeps_its_output_and_its_second_graph_nothing_more() -> None:
    x = torch.rand(100, requires_grad=True)
    weight = torch.rand(100)

    def twice(function):
        return lambda x, weight: torch.autograd.grad(function(x), x, weight, create_graph=True)

    assert saved_bytes(lambert_w, x) == 400
    assert saved_bytes(twice(lambert_w), x, weight) == 400
    assert saved_bytes(LambertWFunction.forward, x) > 30 * 400


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_lambert_w_is_exact_in_half_precision(dtype) -> None:
    x = torch.linspace(-0.3, 60, 200).to(dtype)
    assert torch.equal(lambert_w(x), lambert_w(x.double()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.bool])
def test_lambert_w_of_other_numbers_raises(dtype) -> None:
    with pytest.raises(TypeError, match=f"real floating input, got {dtype}"):
        lambert_w(torch.ones(2, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_logdet_agrees_with_torch(dtype) -> None:
    a = matrices(2, 4, dtype=dtype)
    found, expected = logdet(a), torch.linalg.slogdet(a).logabsdet
    assert found.dtype is torch.float64
    torch.testing.assert_close(found, expected)
    weight = torch.tensor([1.0, -2.0], dtype=torch.float64)
    torch.testing.assert_close(*(torch.autograd.grad(y, a, weight)[0] for y in (found, expected)))
    assert gradcheck(logdet, (a,))
    assert gradgradcheck(logdet, (a,))


def test_logdet_looks_at_the_symmetric_part_alone() -> None:
    a, b = matrices(3).detach(), torch.randn(3, 3, dtype=torch.float64)
    skewed = (a + b - b.mT).requires_grad_()
    torch.testing.assert_close(logdet(skewed), logdet(a))
    (grad,) = torch.autograd.grad(logdet(skewed), skewed)
    torch.testing.assert_close(grad, torch.linalg.inv(a))


def test_the_inverse_is_an_output_with_a_gradient_of_its_own() -> None:
    a = matrices(3)
    assert gradcheck(LogDetFunction.apply, (a,))
    assert gradgradcheck(LogDetFunction.apply, (a,))
    assert gradcheck(lambda a: LogDetFunction.apply(a)[1], (a,))
    weight = torch.randn(3, 3, dtype=torch.float64)

    def both(a: Tensor) -> Tensor:
        value, inverse = LogDetFunction.apply(a)
        return value + (weight * inverse).sum()

    assert gradcheck(both, (a,))
    torch.testing.assert_close(LogDetFunction.apply(a)[1], torch.linalg.inv(a))


def test_the_hessian_of_logdet_is_that_of_the_formula() -> None:
    a, v = matrices(3).detach(), torch.randn(3, 3, dtype=torch.float64)
    v = v + v.mT
    inverse = torch.linalg.inv(a)
    found = torch.func.vjp(torch.func.grad(logdet), a)[1](v)[0]
    torch.testing.assert_close(found, -inverse @ v @ inverse)


def test_logdet_keeps_one_matrix() -> None:
    a = matrices(20)
    assert saved_bytes(logdet, a) == 20 * 20 * 8


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.zeros(2, 2), "not positive-definite"),
        (-torch.eye(2), "not positive-definite"),
        (torch.ones(2, 3), "must match the size|square"),
        (torch.ones(3), "at least 2 dimensions|only supported on matrices"),
    ],
)
def test_logdet_of_a_bad_matrix_raises(matrix, message) -> None:
    with pytest.raises(RuntimeError, match=message):
        logdet(matrix)


def test_logdet_of_an_empty_matrix_is_zero() -> None:
    a = torch.ones(2, 0, 0, requires_grad=True)
    y = logdet(a)
    assert y.tolist() == [0, 0]
    (grad,) = torch.autograd.grad(y.sum(), a)
    assert grad.shape == (2, 0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_second_derivative_of_lambert_w_near_the_branch_point(dtype) -> None:
    """There, 1 + w of the rounded w has few digits, and the second derivative divides by it."""
    distance = torch.logspace(-1.5, math.log10(8 * torch.finfo(dtype).eps), 40, dtype=torch.float64)
    x = (distance - 1 / math.e).to(dtype).requires_grad_()
    (first,) = torch.autograd.grad(lambert_w(x).sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(first.sum(), x)
    with mpmath.workdps(50):
        solutions = [mpmath.lambertw(mpmath.mpf(v)).real for v in x.tolist()]
        exact = [float(-mpmath.exp(-2 * w) * (2 + w) / (1 + w) ** 3) for w in solutions]
    torch.testing.assert_close(
        found.double(), torch.tensor(exact, dtype=torch.float64), rtol=32 * torch.finfo(dtype).eps, atol=0
    )
