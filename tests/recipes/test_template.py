"""The template and its activations: what is special beyond the catalog's own tests."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.template import Linear, linear, relu, sigmoid, tanh
from tests.support import assert_gradients_agree_at_special_points


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"input": torch.ones(2, 4)}, "2x4 and 3x5", id="features"),
        pytest.param({"bias": torch.ones(4)}, r"\(5,\), got \(4,\)", id="bias too short"),
        pytest.param({"bias": torch.ones(1)}, r"\(5,\), got \(1,\)", id="bias of one"),
        pytest.param({"bias": torch.ones(5).double()}, "float32, got torch.float64", id="dtype of the bias"),
        pytest.param({"input": torch.ones(2, 3).double()}, "(?i)double", id="dtype of the input"),
    ],
)
def test_bad_input_is_named(arguments, message) -> None:
    good = {"input": torch.ones(2, 3), "weight": torch.ones(5, 3), "bias": torch.ones(5)}
    with pytest.raises(RuntimeError, match=message):
        linear(**(good | arguments))


def test_the_module_starts_as_torchs_does() -> None:
    torch.manual_seed(0)
    ours = Linear(7, 5, dtype=torch.float64)
    torch.manual_seed(0)
    theirs = nn.Linear(7, 5, dtype=torch.float64)
    for name, parameter in theirs.named_parameters():
        assert torch.equal(ours.get_parameter(name), parameter)


def test_the_module_trains_as_torchs_does() -> None:
    torch.manual_seed(0)
    ours, theirs = Linear(3, 2).double(), nn.Linear(3, 2).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(4, 3, dtype=torch.float64)
    for module in (ours, theirs):
        optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-10, atol=1e-12)


def test_without_a_bias_there_is_no_parameter_for_it() -> None:
    assert [name for name, _ in Linear(3, 2, bias=False).named_parameters()] == ["weight"]


def test_a_frozen_input_costs_no_gradient() -> None:
    """Exact bytes: the gradient of the input is neither computed nor allocated."""
    x, w = torch.ones(100, 1000), torch.ones(10, 1000, requires_grad=True)
    needed = peak_bytes(linear(x, w).sum().backward)
    w.grad = None
    wanted = peak_bytes(linear(x.requires_grad_(), w).sum().backward)
    assert wanted - needed >= x.untyped_storage().nbytes()


def test_nothing_is_saved_beyond_the_arguments() -> None:
    args = [torch.ones(shape, requires_grad=True) for shape in ((2, 3), (5, 3), (5,))]
    assert saved_bytes(linear, *args) == 0
    assert saved_bytes(F.linear, *args) == 0


@pytest.mark.parametrize(("ours", "theirs"), [(relu, torch.relu), (sigmoid, torch.sigmoid), (tanh, torch.tanh)])
def test_special_points_give_what_torch_gives(ours, theirs) -> None:
    assert_gradients_agree_at_special_points(ours, theirs)


@pytest.mark.parametrize("function", [relu, sigmoid, tanh])
def test_integers_have_no_gradient(function) -> None:
    assert not function(torch.tensor([1, 2])).requires_grad


def test_the_gradient_of_tanh_keeps_its_digits_near_one() -> None:
    """1 - y² would lose them all: at 18 the output differs from 1 in its last bits only."""
    x = torch.tensor(18.0, dtype=torch.float64, requires_grad=True)
    y = tanh(x)
    y.backward()
    output = y.item()
    assert x.grad.item() == pytest.approx((1 - output) * (1 + output), rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_tanh_has_the_digits_that_torchs_has(dtype) -> None:
    """A rounded y² leaves few digits of 1 - y². torch fuses the product and the difference."""
    x = torch.linspace(-9, 9, 1003, dtype=dtype, requires_grad=True)
    y = tanh(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    (theirs,) = torch.autograd.grad(torch.tanh(x).sum(), x)
    torch.testing.assert_close(gradient, theirs, rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_relu_refuses_complex_numbers() -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        relu(torch.ones(1, dtype=torch.complex64))
