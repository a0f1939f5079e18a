"""Spikes: the three declared derivatives by hand, far from the threshold and at it, and how a surrogate is tested."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from autograd_cookbook.auditing import audit, saved_bytes
from autograd_cookbook.catalog import BY_NAME
from autograd_cookbook.recipes.surrogate_gradients import spike

INF, NAN = float("inf"), float("nan")
SHAPES = ["fast_sigmoid", "arctan", "triangle"]
each_shape = pytest.mark.parametrize("shape", SHAPES)


def derivatives(values, *options, dtype=torch.float64):
    """Values, first and second derivatives, element by element."""
    x = torch.tensor(values, dtype=dtype, requires_grad=True)
    y = spike(x, *options)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return y.detach(), first.detach(), second


@pytest.mark.parametrize(
    ("shape", "x", "slope", "first", "second"),
    [
        ("fast_sigmoid", 0.3, 10, 1 / 16, -2 * 10 / 64),
        ("fast_sigmoid", -0.5, 4, 1 / 9, 2 * 4 / 27),
        ("fast_sigmoid", 0.0, 10, 1, 0),
        ("arctan", 0.3, 10, 0.1, -2 * 100 * 0.3 / 100),
        ("arctan", -0.5, 4, 0.2, 2 * 16 * 0.5 / 25),
        ("arctan", 0.0, 10, 1, 0),
        ("triangle", 0.2, 2, 0.6, -2),
        ("triangle", -0.125, 4, 0.5, 4),
        ("triangle", 0.3, 10, 0, 0),
        ("triangle", -7.0, 1, 0, 0),
        ("triangle", 0.0, 10, 1, 0),
    ],
)
def test_derivatives_are_the_declared_ones(shape, x, slope, first, second) -> None:
    value, found, again = derivatives([x], slope, shape)
    assert value.item() == (x > 0)
    assert found.item() == pytest.approx(first, rel=1e-12)
    assert again.item() == pytest.approx(second, rel=1e-12)


@each_shape
def test_a_wider_bump_lets_more_through(shape) -> None:
    x = [-0.4, -0.1, 0.1, 0.4]
    assert (derivatives(x, 1.0, shape)[1] > derivatives(x, 2.0, shape)[1]).all()


def test_the_defaults() -> None:
    assert torch.equal(derivatives([0.5])[1], derivatives([0.5], 2.0, "fast_sigmoid")[1])
    assert derivatives([0.5])[1].item() == 0.25


@each_shape
def test_the_threshold_itself_is_silent(shape) -> None:
    assert spike(torch.tensor([0.0, -0.0, 1e-38, -1e-38]), 2.0, shape).tolist() == [0, 0, 1, 0]


@each_shape
def test_far_from_the_threshold_derivatives_vanish(shape) -> None:
    value, first, second = derivatives([INF, -INF, 1e200, -1e200], 25.0, shape)
    assert value.tolist() == [1, 0, 1, 0]
    assert first.abs().max() < 1e-100
    assert second[2:].isfinite().all()


def test_the_default_shape_is_finite_at_infinity_twice() -> None:
    assert derivatives([INF, -INF])[2].tolist() == [0, 0]
    assert derivatives([60000.0, -60000.0], 25.0, dtype=torch.float16)[2].isfinite().all()


@each_shape
def test_nan_stays_nan_which_heaviside_turns_into_silence(shape) -> None:
    x = torch.tensor([NAN, 1.0], requires_grad=True)
    y = spike(x, 2.0, shape)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.isnan().tolist() == gradient.isnan().tolist() == [True, False]
    assert torch.heaviside(torch.tensor(NAN), torch.tensor(0.0)).item() == 0


@each_shape
def test_gradcheck_fails_and_the_audit_with_the_declared_function_does_not(shape) -> None:
    x = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    args, checks = (x, 0.5, shape), ["first_order", "second_order", "special_points"]
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(spike, args)
    declared = BY_NAME["spike"].reference
    assert audit(spike, args, surrogate=declared, only=checks).ok
    assert not audit(spike, args, surrogate=lambda x, slope, shape: declared(x, 2 * slope, shape), only=checks).ok


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ((0.0,), ValueError, "expected a finite slope > 0, got 0"),
        ((-2.0,), ValueError, "got -2"),
        ((INF,), ValueError, "got inf"),
        ((math.nan,), ValueError, "got nan"),
        ((1.0, "sigmoid"), ValueError, "fast_sigmoid, arctan or triangle, got 'sigmoid'"),
    ],
)
def test_bad_options_are_named(options, error, message) -> None:
    with pytest.raises(error, match=message):
        spike(torch.ones(2), *options)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_other_dtypes_are_refused(dtype) -> None:
    with pytest.raises(TypeError, match=rf"floating dtype, got {dtype}"):
        spike(torch.ones(2, dtype=dtype))


def test_nothing_is_kept_beyond_the_input() -> None:
    x = torch.randn(1000, requires_grad=True)
    assert saved_bytes(spike, x) == 0
    assert saved_bytes(BY_NAME["spike"].reference, x) == 4000


@pytest.mark.parametrize("shape", ["fast_sigmoid", "arctan"])
def test_a_derivative_below_the_range_of_float16_times_a_scaled_gradient(shape) -> None:
    x = torch.tensor(16384.0, dtype=torch.float16, requires_grad=True)
    (gradient,) = torch.autograd.grad(spike(x, 2.0, shape), x, torch.tensor(8192.0, dtype=torch.float16))
    assert gradient.item() == pytest.approx(8192 / 32768**2, rel=0.01)
