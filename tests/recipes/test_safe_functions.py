"""Safe functions: digits where torch loses them, the singular points at both orders, and what is refused."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.safe_functions import safe_divide, safe_sqrt, softplus, xlogy

INF, NAN = float("inf"), float("nan")


def leaf(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def derivatives(function, x):
    """Value, first, second and third derivative of a function of one number at each x."""
    results = [function(x)]
    for _ in range(3):
        results.append(torch.autograd.grad(results[-1].sum(), x, create_graph=True)[0])
    return [r.detach() for r in results]


def second(function, *inputs):
    """Gradients, and the gradients of their sum; 0 where autograd finds nothing to differentiate."""
    first = torch.autograd.grad(function(*inputs).sum(), inputs, create_graph=True)
    again = torch.autograd.grad(sum(g.sum() for g in first), inputs, allow_unused=True, materialize_grads=True)
    return [g.detach() for g in first], again


@pytest.mark.parametrize("beta", [1.0, 0.3, 4.0])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 700), (torch.float32, 80)])
def test_softplus_has_all_digits_at_all_orders(dtype, limit, beta) -> None:
    x = (torch.linspace(-limit, limit, 4001, dtype=dtype) / beta).requires_grad_()
    z = beta * x.detach().double()
    tail = (-z.abs()).exp()
    logistic, other = torch.where(z > 0, 1, tail) / (1 + tail), torch.where(z > 0, tail, 1) / (1 + tail)
    exact = (
        (z.clamp(min=0) + tail.log1p()) / beta,
        logistic,
        beta * logistic * other,
        beta**2 * logistic * other * (other - logistic),
    )
    # beta * x is rounded before its exponential is taken: an error of |z| roundings.
    allowed = (4 if beta in (1.0, 4.0) else 2 * limit) * torch.finfo(dtype).eps
    for order, (found, wanted) in enumerate(zip(derivatives(lambda x: softplus(x, beta), x), exact, strict=True)):
        error = (found.double() - wanted).abs() / wanted.abs().clamp(min=1e-320)
        if order == 3:  # which goes through 0
            error = error[z.abs() > 0.1]
        assert error.max() < allowed * (1 + order), f"derivative {order}"


def test_what_is_said_of_torchs_softplus() -> None:
    x = leaf(20.5)
    exact = math.log1p(math.exp(-20.5)), 1 / (1 + math.exp(-20.5))
    value, first, curvature, _ = (d.item() for d in derivatives(F.softplus, x))
    assert (value, first, curvature) == (20.5, 1, 0)
    ours = [d.item() for d in derivatives(softplus, x)]
    assert ours[0] - 20.5 == pytest.approx(exact[0], abs=1e-14)
    assert ours[1] == exact[1]
    assert ours[2] == pytest.approx(exact[1] * (1 - exact[1]), rel=1e-6)


def test_softplus_at_infinity_and_nan() -> None:
    x = leaf(INF, -INF, NAN, 1e300, -1e300)
    value, first, again, _ = derivatives(softplus, x)
    assert value.tolist()[:2] + value.tolist()[3:] == [INF, 0, 1e300, 0]
    assert first.tolist()[:2] + first.tolist()[3:] == [1, 0, 1, 0]
    assert again[[0, 1, 3, 4]].tolist() == [0, 0, 0, 0]
    assert value[2].isnan()
    assert first[2].isnan()


@pytest.mark.parametrize("beta", [0.0, -1.0, INF, NAN])
def test_a_bad_beta_is_named(beta) -> None:
    with pytest.raises(ValueError, match=f"expected a finite beta > 0, got {beta}"):
        softplus(torch.ones(2), beta)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_softplus_refuses_other_dtypes(dtype) -> None:
    with pytest.raises(TypeError, match=f"floating dtype, got {dtype}"):
        softplus(torch.ones(2, dtype=dtype))


@pytest.mark.parametrize("y", [0.0, -0.0, -2.0, -INF])
def test_xlogy_is_constant_where_its_value_is_zero_for_want_of_a_logarithm(y) -> None:
    x, y = leaf(0.0), leaf(y)
    assert xlogy(x, y).item() == 0
    first, again = second(xlogy, x, y)
    assert [g.item() for g in (*first, *again)] == [0, 0, 0, 0]


def test_xlogy_at_x_zero_has_the_logarithm_as_its_slope() -> None:
    x, y = leaf(0.0), leaf(4.0)
    first, again = second(xlogy, x, y)
    assert [g.item() for g in first] == [math.log(4), 0]
    # The mixed derivative is 1 / y though x is 0: a mask on x alone would lose it.
    assert [g.item() for g in again] == [0.25, 0.25]


def test_xlogy_is_infinite_where_it_must_be() -> None:
    x, y = leaf(2.0, -2.0), leaf(0.0, 0.0)
    z = xlogy(x, y)
    z.sum().backward()
    assert z.tolist() == [-INF, INF]
    assert x.grad.tolist() == [-INF, -INF]
    assert y.grad.tolist() == [INF, -INF]


def test_a_gradient_of_zero_from_above_stays_zero_for_x() -> None:
    x, y = leaf(2.0), leaf(0.0)
    (gradient,) = torch.autograd.grad(xlogy(x, y), x, torch.zeros(1, dtype=torch.float64))
    assert gradient.item() == 0


@pytest.mark.parametrize(("x", "y"), [(1.0, -1.0), (NAN, 1.0), (0.0, NAN), (INF, 2.0), (2.0, INF), (0.0, INF)])
def test_xlogy_elsewhere_is_torchs(x, y) -> None:
    found = []
    for function in (xlogy, torch.xlogy):
        inputs = leaf(x), leaf(y)
        z = function(*inputs)
        found.append(torch.cat([z.detach(), *torch.autograd.grad(z, inputs)]))
    torch.testing.assert_close(*found, rtol=0, atol=0, equal_nan=True)


def test_torchs_xlogy_is_nan_at_zero_for_its_second_argument_alone() -> None:
    x, y = leaf(0.0), leaf(0.0)
    gradients = torch.autograd.grad(torch.xlogy(x, y), (x, y))
    assert gradients[0].item() == 0
    assert gradients[1].isnan()


def test_the_entropy_of_a_certain_outcome_has_finite_gradients() -> None:
    p = leaf(0.0, 1.0, 0.0)
    (-xlogy(p, p).sum()).backward()
    assert p.grad.tolist() == [0, -1, 0]


def test_xlogy_broadcasts_over_zeros_of_both() -> None:
    x = torch.tensor([[0.0], [2.0]], dtype=torch.float64, requires_grad=True)
    y = leaf(0.0, 0.5, 4.0)
    z = xlogy(x, y)[:, 1:].sum() + xlogy(x, y)[0, 0]
    grad_x, grad_y = torch.autograd.grad(z, (x, y))
    assert grad_x.shape == x.shape
    assert grad_x.flatten().tolist() == pytest.approx([math.log(2)] * 2)
    assert grad_y.tolist()[1:] == [4, 0.5]


def test_xlogy_of_integers_differentiates_the_other() -> None:
    y = leaf(0.5, 0.0)
    xlogy(torch.tensor([3, 0]), y).sum().backward()
    assert y.grad.tolist() == [6, 0]
    with pytest.raises((RuntimeError, NotImplementedError)):
        xlogy(torch.ones(1, dtype=torch.complex64), y)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_safe_sqrt_is_flat_at_zero_at_both_orders(dtype) -> None:
    x = leaf(0.0, 4.0, dtype=dtype)
    ones = torch.ones(2, dtype=dtype)
    (first,) = torch.autograd.grad(safe_sqrt(x), x, ones, create_graph=True)
    (again,) = torch.autograd.grad(first, x, ones)
    assert first.tolist() == [0, 0.25]
    assert again.tolist() == [0, -1 / 32]
    assert not torch.autograd.grad(torch.sqrt(x), x, ones)[0][0].isfinite()


def test_the_gradient_of_a_complex_root_is_conjugated() -> None:
    x = leaf(3 + 4j, dtype=torch.complex128)  # whose root is 2 + i
    (gradient,) = torch.autograd.grad(safe_sqrt(x), x, torch.ones_like(x))
    assert gradient.item() == pytest.approx((1 / (2 * (2 + 1j))).conjugate())


def test_gradients_of_a_complex_quotient_are_conjugated() -> None:
    x, y = leaf(1 + 2j, dtype=torch.complex128), leaf(3 - 1j, dtype=torch.complex128)
    grads = torch.autograd.grad(safe_divide(x, y), (x, y), torch.ones_like(x))
    assert grads[0].item() == pytest.approx((1 / (3 - 1j)).conjugate())
    assert grads[1].item() == pytest.approx((-(1 + 2j) / (3 - 1j) ** 2).conjugate())


def test_safe_sqrt_of_a_sum_of_squares_is_a_norm() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(safe_sqrt(x.square().sum(1)).sum(), x)
    (expected,) = torch.autograd.grad(torch.linalg.vector_norm(x, dim=1).sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-15, atol=0)
    assert gradient.tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]]


def test_safe_sqrt_outside_and_at_infinity() -> None:
    x = leaf(-1.0, INF, NAN, 1e-300)
    y = safe_sqrt(x)
    y.sum().backward()
    assert y.isnan().tolist() == x.grad.isnan().tolist() == [True, False, True, False]
    assert x.grad[1].item() == 0
    assert x.grad[3].item() == pytest.approx(0.5e150)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("x", [0.0, 3.0, -3.0, INF, NAN])
def test_safe_divide_by_zero_is_constant_zero(x, zero) -> None:
    x, y = leaf(x), leaf(zero)
    assert safe_divide(x, y).item() == 0
    first, again = second(safe_divide, x, y)
    assert [g.item() for g in (*first, *again)] == [0, 0, 0, 0]


def test_zeros_among_others_leave_the_others_alone() -> None:
    x, y = leaf(1.0, 2.0, 3.0), leaf(0.0, 4.0, -2.0)
    first, again = second(safe_divide, x, y)
    assert first[0].tolist() == [0, 0.25, -0.5]
    assert first[1].tolist() == [0, -2 / 16, -3 / 4]
    # Of the sum 1/y - x/y²: with respect to x, -1/y²; with respect to y, -1/y² + 2x/y³.
    assert again[0].tolist() == [0, -1 / 16, -1 / 4]
    assert again[1].tolist() == [0, -1 / 16 + 4 / 64, -1 / 4 - 6 / 8]


def test_a_mask_does_not_disturb_finite_differences_beside_it() -> None:
    keep = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    x, y = leaf(1.0, 2.0, 3.0), leaf(1.5, 4.0, -2.0)
    assert gradcheck(lambda x, y: safe_divide(x, y * keep), (x, y))
    assert gradgradcheck(lambda x, y: safe_divide(x, y * keep), (x, y))


def test_the_square_of_a_small_denominator_is_never_taken() -> None:
    x, y = leaf(1e-300), leaf(1e-200)
    safe_divide(x, y).backward()
    assert x.grad.item() == pytest.approx(1e200)
    assert y.grad.item() == pytest.approx(-1e100)


def test_safe_divide_takes_counts_and_mixed_dtypes() -> None:
    total = torch.tensor([[6.0], [1.0]], requires_grad=True)
    mean = safe_divide(total, torch.tensor([3, 0]))
    assert mean.tolist() == [[2, 0], [pytest.approx(1 / 3), 0]]
    mean.sum().backward()
    assert total.grad.flatten().tolist() == pytest.approx([1 / 3, 1 / 3])
    y = torch.tensor([2.0], dtype=torch.float16, requires_grad=True)
    safe_divide(total.detach(), y).sum().backward()
    assert y.grad.dtype is torch.float16
    assert y.grad.item() == -7 / 4
    assert safe_divide(torch.tensor(1), torch.tensor(2)).item() == 0.5


@pytest.mark.parametrize("function", [xlogy, safe_divide])
def test_shapes_that_do_not_broadcast_raise_what_torch_raises(function) -> None:
    with pytest.raises(RuntimeError, match="must match"):
        function(torch.ones(2), torch.ones(3))


def test_bytes() -> None:
    x, y = (torch.rand(1000) + 0.1).requires_grad_(), (torch.rand(1000) + 0.1).requires_grad_()
    assert saved_bytes(softplus, x) == 0
    assert saved_bytes(xlogy, x, y) == 0
    assert saved_bytes(safe_divide, x, y) == 0
    assert saved_bytes(safe_sqrt, x) == saved_bytes(torch.sqrt, x) == 4000


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_quotient_of_zero_has_slope_zero_by_the_least_denominator(dtype: torch.dtype) -> None:
    """1 / y overflows there, and times 0 it would be NaN."""
    info = torch.finfo(dtype)
    y = torch.tensor(info.smallest_normal * info.eps, dtype=dtype, requires_grad=True)
    safe_divide(torch.zeros((), dtype=dtype), y).backward()
    assert y.grad == 0


def test_a_slope_of_softplus_below_the_range_of_float16_times_a_scaled_gradient() -> None:
    x = torch.tensor([-20.0, -17.0], dtype=torch.float16, requires_grad=True)
    scale = torch.full_like(x, 8192)
    (gradient,) = torch.autograd.grad(softplus(x), x, scale)
    expected = 8192 * torch.sigmoid(x.detach().double())
    torch.testing.assert_close(gradient.double(), expected, rtol=2e-3, atol=6e-8)
