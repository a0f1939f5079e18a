"""Element-wise functions and activations: what is special beyond the catalog's own tests."""

import math

import pytest
import torch
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes._logistic import GatedFunction, logistic
from autograd_cookbook.recipes.elementwise import (
    clamp,
    elu,
    gelu,
    mish,
    power,
    quadratic,
    selu,
    square,
)
from tests.support import assert_gradients_agree_at_special_points

SURVIVORS = {
    "split: input.detach() -> input": "a part that is rounded has no slope",
    "powers: 2.05 -> 3.05": "the gate is 1, and its slope nothing, from 20 on",
    "GELUSlopeFunction.backward: -{40 -> 41}": "beyond any such limit the density is 0",
    "GELUSlopeFunction.backward: input.clamp(-40, {40 -> 41})": "beyond any such limit the density is 0",
    "MishSlopeFunction.backward: -{750 -> 751}": "beyond any such limit the factor is 0",
    "MishSlopeFunction.backward: x.clamp(-750, {750 -> 751})": "beyond any such limit the factor is 0",
}

INF, NAN = float("inf"), float("nan")


def closed_clamp(x, min=-INF, max=INF):
    """torch.clamp as it was up to torch 2.13: the gradient is 1 at the ends, too."""
    return torch.where((x >= min) & (x <= max), x, x.detach().clamp(min, max))


PAIRS = {
    "square": (square, torch.square),
    "clamp": (lambda x: clamp(x, 0, 1), lambda x: closed_clamp(x, 0, 1)),
    "clamp, one end": (lambda x: clamp(x, min=-100), lambda x: closed_clamp(x, min=-100)),
    "clamp, ends exchanged": (lambda x: clamp(x, 1, -1), lambda x: x.clamp(1, -1)),
    "power": (lambda x: power(x, 3), lambda x: x**3),
    "inverse": (lambda x: power(x, -2), lambda x: x**-2),
}


each = pytest.mark.parametrize(("ours", "theirs"), PAIRS.values(), ids=PAIRS)


@each
def test_special_points_give_what_torch_gives(ours, theirs) -> None:
    assert_gradients_agree_at_special_points(ours, theirs)


@pytest.mark.parametrize(
    "function",
    [square, lambda x: power(x, 2), lambda x: quadratic(x, 1, 2, 3)],
    ids=["square", "power", "quadratic"],
)
def test_integers_have_no_gradient(function) -> None:
    assert not function(torch.tensor([1, 2])).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_the_zeroth_power_of_zero_is_one_and_its_gradient_zero(dtype) -> None:
    x = torch.zeros(3, dtype=dtype, requires_grad=True)
    y = power(x, 0)
    y.backward(torch.full_like(y, INF))
    assert y.tolist() == [1, 1, 1]
    assert x.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("exponent", "expected"), [(0, 0), (1, 0), (2, 4 * 3), (-1, 4 * 3)])
def test_power_keeps_its_input_only_if_the_slope_depends_on_it(exponent, expected) -> None:
    x = torch.ones(3, requires_grad=True)
    # Taken apart from the caller's tensor, so that what is saved counts.
    assert saved_bytes(lambda x: power(x + 0, exponent), x) == expected


@pytest.mark.parametrize("exponent", [0.5, 2.0, None])
def test_power_names_an_exponent_that_is_not_whole(exponent) -> None:
    with pytest.raises(TypeError, match=f"whole exponent, got {exponent}"):
        power(torch.ones(2), exponent)


def test_clamp_needs_an_end() -> None:
    with pytest.raises(ValueError, match="expected min or max, got None for both"):
        clamp(torch.ones(2))


def test_clamp_keeps_one_byte_an_element() -> None:
    x = torch.randn(1000, requires_grad=True)
    assert saved_bytes(lambda x: clamp(x + 0, -1, 1), x) == 1000
    assert saved_bytes(lambda x: (x + 0).clamp(-1, 1), x) == 4000


ACTIVATIONS = {
    "gelu": (gelu, F.gelu),
    "mish": (mish, F.mish),
    "elu": (elu, F.elu),
    "elu, alpha": (lambda x: elu(x, 0.3), lambda x: F.elu(x, 0.3)),
    "selu": (selu, F.selu),
}


each_activation = pytest.mark.parametrize(("ours", "theirs"), ACTIVATIONS.values(), ids=ACTIVATIONS)


@each_activation
def test_values_and_slopes_agree_with_torch_everywhere(ours, theirs) -> None:
    grads = []
    for function in (ours, theirs):
        x = torch.linspace(-60, 60, 1001, dtype=torch.float64).requires_grad_()
        y = function(x)
        grads.append(torch.stack([y.detach(), *torch.autograd.grad(y.sum(), x)]))
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("function", [gelu, mish])
def test_limits_at_infinity(function, dtype) -> None:
    x = torch.tensor([-INF, INF, -1e4, 1e4], dtype=dtype, requires_grad=True)
    y = function(x)
    y.sum().backward()
    assert y.tolist() == [0, INF, 0, x[3].item()]
    assert x.grad.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("theirs", [F.gelu, F.mish])
def test_torch_gives_nan_there(theirs) -> None:
    """Why the recipes say that they win range; when torch has fixed it, they say so no longer."""
    x = torch.tensor([-INF, INF], requires_grad=True)
    theirs(x).sum().backward()
    assert x.grad.isnan().all()


@pytest.mark.parametrize("function", [elu, selu])
def test_the_kink_has_the_slope_of_its_left_side_as_in_torch(function) -> None:
    for theirs in (function, getattr(F, function.__name__)):
        x = torch.zeros((), dtype=torch.float64, requires_grad=True)
        theirs(x).backward()
        assert x.grad.item() == pytest.approx(1.0 if function is elu else 1.7580993408473766, rel=1e-15)


def test_elu_has_no_gradient_where_the_input_is_nan() -> None:
    x = torch.tensor([float("nan")], requires_grad=True)
    elu(x).backward()
    assert x.grad.isnan().all()


def test_elu_names_a_negative_alpha() -> None:
    with pytest.raises(ValueError, match=r"alpha >= 0, got -0\.5"):
        elu(torch.ones(2), -0.5)


def test_selu_keeps_mean_and_variance() -> None:
    """What its two constants are for."""
    x = torch.randn(400_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = selu(x)
    assert abs(y.mean().item()) < 0.01
    assert y.var().item() == pytest.approx(1, abs=0.01)


def test_the_logistic_function_has_all_that_is_representable() -> None:
    x = torch.tensor([-100.0, -2.0, 0.0, 2.0, 100.0])
    expected = (1 / (1 + torch.exp(-x.double()))).float()
    torch.testing.assert_close(logistic(x), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(logistic(x.bfloat16()), expected.bfloat16(), rtol=0, atol=0)


def test_the_logistic_function_has_three_derivatives() -> None:
    """At 0 too, where the absolute value in the slope has no derivative."""
    x = torch.tensor([-3.0, -0.5, 0.0, 0.5, 3.0, 30.0], dtype=torch.float64, requires_grad=True)
    ours, theirs = GatedFunction.apply(torch.ones_like(x), x), torch.sigmoid(x)
    weight = torch.tensor([1.0, -2.0, 3.0, 0.5, 0.7, 1.1], dtype=torch.float64)
    for _ in range(3):
        (ours,) = torch.autograd.grad(ours, x, weight, create_graph=True)
        (theirs,) = torch.autograd.grad(theirs, x, weight, create_graph=True)
        torch.testing.assert_close(ours[:-1], theirs[:-1])
    # There torch's has lost its digits: 1 - y is 1e-13.
    torch.testing.assert_close(ours[-1], 1.1**3 * torch.exp(-x.detach()[-1]), rtol=1e-10, atol=0)


def test_the_second_derivative_of_elu_at_0_is_that_of_its_left_side() -> None:
    """As the first one is; that of torch is the other side's, which is 0."""
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(elu(x, 0.5), x, create_graph=True)
    assert first.item() == torch.autograd.grad(first, x)[0].item() == 0.5


def test_the_second_derivative_of_mish_keeps_its_digits() -> None:
    """Autograd's derivative of the slope would be a difference of nearly equal numbers."""
    x = torch.linspace(4, 12, 81, dtype=torch.float64)
    results = []
    for input in (x.float().requires_grad_(), x.float().double().requires_grad_()):
        (first,) = torch.autograd.grad(mish(input).sum(), input, create_graph=True)
        results += torch.autograd.grad(first.sum(), input)
    torch.testing.assert_close(results[0].double(), results[1], rtol=1e-5, atol=0)


def test_the_slope_of_elu_above_zero_is_one_for_every_alpha() -> None:
    x = torch.tensor([-1.0, 0.5, 3.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(elu(x, 1e9).sum(), x)
    torch.testing.assert_close(gradient, torch.tensor([1e9 / math.e, 1, 1]))


def test_a_slope_below_the_range_of_float16_times_a_scaled_gradient() -> None:
    x = torch.tensor(-6.5, dtype=torch.float16, requires_grad=True)
    scale = torch.tensor(8192.0, dtype=torch.float16)
    for function in (gelu, F.gelu):
        (gradient,) = torch.autograd.grad(function(x), x, scale)
        assert gradient.item() == pytest.approx(-1.3886e-5, rel=0.03)
