"""Arguments: every combination of what may be missing, numbers of every kind, and what torch says of wrong returns."""

import itertools
import math

import pytest
import torch
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes, saved_bytes
from autograd_cookbook.recipes.arguments import affine, pinball_loss, scaled_tanh
from tests.support import since

INF = math.inf


@pytest.mark.parametrize(("scale", "slope"), [(1.7159, 2 / 3), (1, 1), (-2, 0.5), (0.5, -3), (3, 0)])
def test_scaled_tanh_has_the_derivative_of_tanh_scaled(scale, slope) -> None:
    x = torch.tensor([-2.0, -0.3, 0.0, 0.7, 4.0], dtype=torch.float64, requires_grad=True)
    y = scaled_tanh(x, scale, slope)
    torch.testing.assert_close(y, scale * torch.tanh(slope * x), rtol=1e-14, atol=0)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    square = torch.tanh(slope * x) ** 2
    torch.testing.assert_close(first, scale * slope * (1 - square), rtol=1e-12, atol=1e-14)
    expected = -2 * scale * slope**2 * torch.tanh(slope * x) * (1 - square)
    torch.testing.assert_close(second, expected, rtol=1e-11, atol=1e-13)


def test_the_gradient_of_scaled_tanh_has_the_digits_that_the_output_has() -> None:
    """The rounding error of t changes 1 - t² by 2t times as much. A rounded t² would change it by more."""
    x = torch.linspace(-9, 9, 1003, requires_grad=True)
    (gradient,) = torch.autograd.grad(scaled_tanh(x, 1, 1).sum(), x)
    (theirs,) = torch.autograd.grad(torch.tanh(x).sum(), x)
    torch.testing.assert_close(gradient, theirs, rtol=4 * torch.finfo(x.dtype).eps, atol=0)


def test_scaled_tanh_of_complex_numbers() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, dtype=torch.complex128, requires_grad=True)
    weights = torch.randn_like(x)
    ours, theirs = (torch.autograd.grad(y, x, weights)[0] for y in (scaled_tanh(x, 3, 0.5), 3 * torch.tanh(0.5 * x)))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_scaled_tanh_as_given_is_one_at_one() -> None:
    assert scaled_tanh(torch.tensor([-1.0, 1.0])).tolist() == pytest.approx([-1, 1], abs=1e-4)


def test_scaled_tanh_at_infinity() -> None:
    x = torch.tensor([-INF, INF], requires_grad=True)
    y = scaled_tanh(x)
    assert y.tolist() == pytest.approx([-1.7159, 1.7159])
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scale": 0}, ValueError, "expected scale != 0, got 0"),
        ({"scale": torch.ones(2)}, TypeError, r"a number for scale, got a tensor of shape \(2,\)"),
        ({"slope": torch.tensor(2.0)}, TypeError, r"a number for slope, got a tensor of shape \(\)"),
    ],
    ids=["zero", "scale", "slope"],
)
def test_scaled_tanh_names_a_bad_number(arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        scaled_tanh(torch.ones(2), **arguments)


def test_scaled_tanh_keeps_its_output_alone() -> None:
    x = torch.ones(1000, requires_grad=True)
    assert saved_bytes(scaled_tanh, x) == 4000
    assert held_bytes(scaled_tanh, x) == 4000, "more than the output is alive"


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize(("has_weight", "has_bias"), [*itertools.product([False, True], repeat=2)])
def test_affine_is_the_last_step_of_a_layer_norm(has_weight, has_bias, dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 3, dtype=dtype, requires_grad=True)
    weight = torch.randn(4, 3, dtype=dtype, requires_grad=True) if has_weight else None
    bias = torch.randn(4, 3, dtype=dtype, requires_grad=True) if has_bias else None
    ours = affine(x, weight, bias)
    theirs = x * (1 if weight is None else weight) + (0 if bias is None else bias)
    torch.testing.assert_close(ours, theirs)
    leaves = [t for t in (x, weight, bias) if t is not None]
    weights = torch.randn_like(theirs)
    for a, e in zip(
        torch.autograd.grad(ours, leaves, weights), torch.autograd.grad(theirs, leaves, weights), strict=True
    ):
        torch.testing.assert_close(a, e, rtol=1e-13, atol=1e-14)
    if not dtype.is_complex:
        normal = F.layer_norm(x, (4, 3))
        expected = F.layer_norm(x, (4, 3), weight, bias)
        torch.testing.assert_close(affine(normal, weight, bias), expected, rtol=1e-12, atol=1e-13)


def test_affine_of_nothing_is_a_new_tensor() -> None:
    x = torch.ones(3, requires_grad=True)
    y = affine(x)
    assert y.data_ptr() != x.data_ptr()
    y.add_(1)  # no view of a leaf, no complaint
    y.backward(torch.tensor([1.0, 2.0, 3.0]))
    assert x.grad.tolist() == [1, 2, 3]
    assert x.tolist() == [1, 1, 1]


def test_affine_without_a_weight_does_not_keep_its_input_alive() -> None:
    bias = torch.ones(1000, requires_grad=True)

    def shifted(bias):
        return affine(torch.ones(50, 1000), None, bias)

    output = 50 * 1000 * 4
    assert held_bytes(shifted, bias) == output
    assert held_bytes(lambda bias: affine(torch.ones(50, 1000), bias, bias), bias) == 2 * output


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.ones(4), r"shape \(3,\), got \(4,\)"),
        (torch.ones(1), r"shape \(3,\), got \(1,\)"),
        (torch.ones(4, 1), r"shape \(4, 3\), got \(4, 1\)"),
        (torch.ones(1, 4, 3), r"shape \(4, 3\), got \(1, 4, 3\)"),
        (torch.ones(3).double(), "dtype torch.float32, got torch.float64"),
    ],
    ids=["size", "one", "column", "dimensions", "dtype"],
)
def test_affine_names_what_does_not_fit(name, value, message) -> None:
    with pytest.raises(RuntimeError, match=f"expected {name} of {message}"):
        affine(torch.ones(4, 3), **{name: value})


@pytest.mark.parametrize(("quantile", "slopes"), [(0.9, [0.1, -0.4, -0.9]), (0.25, [0.75, 0.25, -0.25])])
def test_pinball_loss_by_hand(quantile, slopes) -> None:
    """Target below, at and above the prediction. At an error of 0: the middle of both slopes."""
    x = torch.tensor([3.0, 3.0, 3.0], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1.0, 3.0, 7.0], dtype=torch.float64, requires_grad=True)
    loss = pinball_loss(x, target, quantile, "none")
    assert loss.tolist() == pytest.approx([2 * (1 - quantile), 0, 4 * quantile])
    grad_x, grad_target = torch.autograd.grad(loss.sum(), (x, target))
    assert grad_x.tolist() == pytest.approx(slopes)
    assert grad_target.tolist() == pytest.approx([-s for s in slopes])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_pinball_loss_at_one_half_is_half_the_absolute_error(reduction, dtype) -> None:
    torch.manual_seed(0)
    x, target = torch.randn(2, 4, 3, dtype=dtype)
    x.requires_grad_()
    ours, theirs = pinball_loss(x, target, 0.5, reduction), F.l1_loss(x, target, reduction=reduction) / 2
    torch.testing.assert_close(ours, theirs)
    weights = torch.rand_like(theirs)
    got, expected = (torch.autograd.grad(y, x, weights)[0] for y in (ours, theirs))
    assert got.dtype is dtype
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_pinball_loss_with_a_weight_agrees_with_its_composition(reduction) -> None:
    torch.manual_seed(0)
    x, target, weight = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    error = target - x
    loss = torch.maximum(0.3 * error, -0.7 * error) * weight
    theirs = loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
    ours = pinball_loss(x, target, 0.3, reduction, weight)
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0)
    weights = torch.randn_like(theirs)
    leaves = (x, target, weight)
    for a, e in zip(
        torch.autograd.grad(ours, leaves, weights), torch.autograd.grad(theirs, leaves, weights), strict=True
    ):
        torch.testing.assert_close(a, e, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("place", [0, 1, 2], ids=["input", "target", "weight"])
def test_pinball_loss_with_one_gradient_wanted(place) -> None:
    tensors = [torch.full((2,), value, dtype=torch.float64) for value in (1.0, 3.0, 5.0)]
    tensors[place].requires_grad_()
    pinball_loss(*tensors[:2], 0.25, "sum", tensors[2]).backward()
    assert tensors[place].grad.tolist() == [[-1.25, 1.25, 0.5][place]] * 2


def test_the_least_pinball_loss_is_at_the_quantile() -> None:
    torch.manual_seed(0)
    targets = torch.randn(1001, dtype=torch.float64)
    for q in (0.1, 0.5, 0.9):
        quantile = targets.quantile(q)
        for x, sign in ((quantile - 0.1, -1), (quantile + 0.1, 1)):
            guess = x.clone().requires_grad_()
            pinball_loss(guess.expand(1001), targets, q).backward()
            assert guess.grad.sign() == sign


def test_pinball_loss_with_infinite_targets_has_finite_gradients() -> None:
    """As a plain sum of |e| and e has not: infinity minus infinity is NaN."""
    x = torch.zeros(2, requires_grad=True)
    loss = pinball_loss(x, torch.tensor([-INF, INF]), 0.9, "none")
    assert loss.tolist() == [INF, INF]
    loss.sum().backward()
    assert x.grad.tolist() == pytest.approx([0.1, -0.9])


def test_pinball_loss_keeps_nothing_and_its_composition_both_products() -> None:
    x, target = torch.randn(2, 1000)
    x.requires_grad_()
    assert saved_bytes(pinball_loss, x, target) == 0
    assert saved_bytes(lambda x, t: torch.maximum(0.9 * (t - x), -0.1 * (t - x)).mean(), x, target) == 8000


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"quantile": 0}, ValueError, "0 < quantile < 1, got 0"),
        ({"quantile": 1.0}, ValueError, "got 1.0"),
        ({"quantile": float("nan")}, ValueError, "got nan"),
        ({"quantile": torch.tensor(0.5)}, TypeError, "a number for quantile, got a tensor"),
        ({"reduction": "average"}, ValueError, "none, mean or sum, got 'average'"),
        ({"target": torch.ones(3, 1)}, ValueError, r"target of shape \(3,\), got \(3, 1\)"),
        ({"weight": torch.ones(1)}, ValueError, r"weight of shape \(3,\), got \(1,\)"),
    ],
    ids=["0", "1", "nan", "tensor", "reduction", "target", "weight"],
)
def test_pinball_loss_names_what_is_wrong(arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        pinball_loss(**({"input": torch.ones(3), "target": torch.ones(3)} | arguments))


class Returns(Function):
    """Backward returns the gradient of the first argument, and then ``rest``."""

    rest: tuple = ()

    @staticmethod
    def forward(input, exponent=2):
        return input**exponent

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.exponent = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * ctx.exponent * input ** (ctx.exponent - 1), *Returns.rest


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ((), "incorrect number of gradients \\(expected 2, got 1\\)"),
        ((0.0,), "different than None at position 2"),
        ((torch.tensor(1.0),), "different than None at position 2"),
        ((None, torch.tensor(1.0)), "incorrect number of gradients \\(expected 2, got 3\\)"),
    ],
    ids=["too few", "zero", "tensor", "too many"],
)
def test_what_backward_may_not_return(rest, message, monkeypatch) -> None:
    monkeypatch.setattr(Returns, "rest", rest)
    with pytest.raises(RuntimeError, match=message):
        Returns.apply(torch.ones((), requires_grad=True), 3).backward()


@pytest.mark.parametrize("rest", [(None,), (None, None, None)])
def test_nones_too_many_are_accepted(rest, monkeypatch) -> None:
    monkeypatch.setattr(Returns, "rest", rest)
    calls = [(lambda x: Returns.apply(x, 3), 12), (Returns.apply, 4)]
    if since("2.13"):  # before, apply takes no keyword arguments
        calls.append((lambda x: Returns.apply(x, exponent=3), 12))
    for call, expected in calls:
        x = torch.tensor(2.0, requires_grad=True)
        call(x).backward()
        assert x.grad.item() == expected
