"""Element-wise functions at the points where formulas break."""

import pytest
import torch

from autograd_cookbook.elementwise import relu, sigmoid, tanh

INF, NAN = float("inf"), float("nan")
PAIRS = [(relu, torch.relu), (sigmoid, torch.sigmoid), (tanh, torch.tanh)]
each = pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["relu", "sigmoid", "tanh"])


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


@each
def test_integers_have_no_gradient(ours, theirs) -> None:
    assert not ours(torch.tensor([1, 2])).requires_grad


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
