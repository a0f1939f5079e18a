"""Functions of explicit arguments: their vector-Jacobian products, with hooks on saved tensors and without."""

import contextlib

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from autograd_cookbook.recipes._explicit import vjp


@pytest.fixture(params=[False, True], ids=["no hooks", "hooks"])
def hooks(request: pytest.FixtureRequest):
    identity = saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    return identity if request.param else contextlib.nullcontext()


def test_an_input_that_does_not_matter_gets_zeros_and_one_that_is_not_wanted_none(hooks) -> None:
    with hooks:
        output, pull_back = vjp(lambda a, b, c: a.sin() + c, *torch.ones(3, 2), wanted=(True, True, False))
        first, second, third = pull_back(torch.ones(2))
    torch.testing.assert_close(output, torch.ones(2).sin() + 1)
    torch.testing.assert_close(first, torch.ones(2).cos())
    assert second.tolist() == [0, 0]
    assert third is None


def test_the_product_can_be_taken_twice_and_differentiated(hooks) -> None:
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    with hooks:
        _, pull_back = vjp(torch.sin, x)
        (once,), (again,) = pull_back(torch.ones_like(x)), pull_back(torch.ones_like(x))
        (second,) = torch.autograd.grad(once.sum(), x)
    assert torch.equal(once, again)
    torch.testing.assert_close(second, -x.detach().sin())


def test_an_input_that_needs_no_gradient_stays_so(hooks) -> None:
    x = torch.ones(2)
    with hooks:
        vjp(torch.sin, x)
    assert not x.requires_grad


def test_the_compiler_takes_it_whole() -> None:
    def cosine(x):
        return vjp(torch.sin, x)[1](torch.ones_like(x))[0]

    x = torch.tensor([0.5, 2.0], dtype=torch.float64)
    torch.testing.assert_close(torch.compile(cosine, fullgraph=True, backend="eager")(x), x.cos())
