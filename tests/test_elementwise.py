"""Element-wise functions at the points where formulas break."""

import pytest
import torch

from autograd_cookbook.audit import saved_bytes
from autograd_cookbook.elementwise import clamp, power, quadratic, relu, sigmoid, square, tanh

INF, NAN = float("inf"), float("nan")
PAIRS = {
    "relu": (relu, torch.relu),
    "sigmoid": (sigmoid, torch.sigmoid),
    "tanh": (tanh, torch.tanh),
    "square": (square, torch.square),
    "clamp": (lambda x: clamp(x, 0, 1), lambda x: x.clamp(0, 1)),
    "clamp, one end": (lambda x: clamp(x, min=-100), lambda x: x.clamp(min=-100)),
    "clamp, ends exchanged": (lambda x: clamp(x, 1, -1), lambda x: x.clamp(1, -1)),
    "power": (lambda x: power(x, 3), lambda x: x**3),
    "inverse": (lambda x: power(x, -2), lambda x: x**-2),
}
each = pytest.mark.parametrize(("ours", "theirs"), PAIRS.values(), ids=PAIRS)


@each
@pytest.mark.parametrize("upstream", [1.0, INF, NAN])
def test_special_points_give_what_torch_gives(ours, theirs, upstream) -> None:
    points = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 100.0, -100.0, INF, -INF, NAN], dtype=torch.float64)
    grads = []
    for function in (ours, theirs):
        x = points.clone().requires_grad_()
        function(x).backward(torch.full_like(x, upstream))
        grads.append(x.grad)
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-300, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [relu, sigmoid, tanh, square, lambda x: power(x, 2), lambda x: quadratic(x, 1, 2, 3)],
    ids=["relu", "sigmoid", "tanh", "square", "power", "quadratic"],
)
def test_integers_have_no_gradient(function) -> None:
    assert not function(torch.tensor([1, 2])).requires_grad


def test_the_gradient_of_tanh_keeps_its_digits_near_one() -> None:
    """1 - y² would lose them all: at 18 the output differs from 1 in its last bits only."""
    x = torch.tensor(18.0, dtype=torch.float64, requires_grad=True)
    y = tanh(x)
    y.backward()
    output = y.item()
    assert x.grad.item() == pytest.approx((1 - output) * (1 + output), rel=1e-15)


def test_relu_refuses_complex_numbers() -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        relu(torch.ones(1, dtype=torch.complex64))


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
