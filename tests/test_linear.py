"""The template: bad input, the module, and no work for gradients that nobody wants."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from autograd_cookbook.audit import peak_bytes, saved_bytes
from autograd_cookbook.linear import Linear, linear


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
