"""Exports keep the gradients of operators, lose those of Functions, and do not say so: the recipe does."""

import pytest
import torch
from torch import nn

from autograd_cookbook.recipes.custom_operator import recursive_filter
from autograd_cookbook.recipes.export import export_with_gradients
from autograd_cookbook.recipes.reversal import reverse_gradient
from autograd_cookbook.recipes.straight_through import round_ste


class Applied(nn.Module):
    """A parameter, put through a function."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([0.3, 1.4, -2.2]))

    def forward(self, x):
        return x * self.function(self.weight)


X = torch.tensor([[1.0, -2.0, 0.5]])


def test_an_export_loses_the_backward_of_a_function() -> None:
    """On torch 2.13; outputs are equal, gradients are those of round."""
    module = Applied(round_ste)
    program = torch.export.export(module, (X,)).module()
    assert torch.equal(program(X), module(X))
    assert torch.autograd.grad(module(X).sum(), module.weight)[0].tolist() == X[0].tolist()
    assert torch.autograd.grad(program(X).sum(), program.weight)[0].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("function", [round_ste, reverse_gradient], ids=["straight-through", "reversed"])
def test_a_lost_gradient_is_named(function) -> None:
    with pytest.raises(RuntimeError, match=r"other gradients than the module, for weight$"):
        export_with_gradients(Applied(function), (X,))


class OfInput(nn.Module):
    def forward(self, x, scale):
        return round_ste(x) * scale


def test_inputs_are_compared_as_well() -> None:
    with pytest.raises(RuntimeError, match=r"for input 0$"):
        export_with_gradients(OfInput(), (X, 2))


class Resonator(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout())
        self.a = nn.Parameter(torch.tensor([-0.9, 0.4]))

    def forward(self, x):
        return recursive_filter(self.mix(x), self.a)


def test_an_operator_keeps_its_gradient_and_the_module_its_state() -> None:
    """With random numbers and running statistics, neither of which the comparison may move."""
    torch.manual_seed(0)
    model, x = Resonator(), torch.randn(5, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    program = export_with_gradients(model, (x,))
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} was changed"
        assert torch.equal(program.state_dict[name], value), f"{name} is another one in the program"
    assert all(p.grad is None for p in model.parameters())
    names = [str(node.target) for node in program.graph.nodes]
    assert "autograd_cookbook.recursive_filter.default" in names


def test_options_are_passed_on() -> None:
    options = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}
    program = export_with_gradients(nn.Linear(3, 2), (torch.randn(4, 3),), **options)
    assert program.module()(torch.ones(7, 3)).shape == (7, 2)


def test_a_module_without_gradients_has_none_to_lose() -> None:
    class Counts(nn.Module):
        def forward(self, x):
            return (x > 0).sum()

    export_with_gradients(Counts(), (X,))
