"""Functions in modules: what is special beyond the catalog's own tests."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.cuda_extension import swish
from autograd_cookbook.recipes.module import SmoothL1Loss, Swish, parametric_swish, smooth_l1


@pytest.mark.parametrize(
    ("beta", "message"),
    [
        (torch.ones(3, dtype=torch.float64), "beta of dtype torch.float32, got torch.float64"),
        (torch.ones(2), r"shape|size"),
        (torch.ones(5, 4, 3), r"beta of shape \(5, 4, 3\) to shape \(4, 3\)"),
    ],
)
def test_parametric_swish_names_a_beta_that_does_not_fit(beta, message) -> None:
    with pytest.raises(RuntimeError, match=message):
        parametric_swish(torch.ones(4, 3), beta)


def test_with_beta_one_it_is_silu() -> None:
    x = torch.linspace(-30, 30, 101, dtype=torch.float64, requires_grad=True)
    ours, theirs = parametric_swish(x, torch.ones((), dtype=torch.float64)), F.silu(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=0)
    grads = [torch.autograd.grad(y.sum(), x)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-15)


def test_the_module_learns_its_steepness() -> None:
    module = Swish(3, dtype=torch.float64)
    module(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
    slope = torch.sigmoid(torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(module.beta.grad, 2 * slope * (1 - slope))
    assert list(module.state_dict()) == ["beta"]
    assert Swish().beta.shape == ()


@pytest.mark.parametrize(
    ("beta", "reduction"), list(itertools.product([0.0, 0.5, 1.0, 3.0], ["none", "mean", "sum"])), ids=str
)
def test_smooth_l1_agrees_with_torch_on_both_sides_of_every_end(beta, reduction) -> None:
    target = torch.zeros(9, dtype=torch.float64)
    values = torch.tensor([-4.0, -3.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 5.0], dtype=torch.float64)
    results = []
    for function in (smooth_l1, lambda x, t, beta, r: F.smooth_l1_loss(x, t, beta=beta, reduction=r)):
        x, t = values.clone().requires_grad_(), target.clone().requires_grad_()
        loss = function(x, t, beta, reduction)
        loss.backward(torch.arange(1.0, 10.0, dtype=torch.float64) if reduction == "none" else None)
        results.append([loss.detach(), x.grad, t.grad])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=0)


def test_the_mean_of_nothing_is_nan() -> None:
    assert smooth_l1(torch.ones(0), torch.ones(0)).isnan()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beta": -1.0}, r"beta >= 0, got -1\.0"),
        ({"reduction": "avg"}, "'none', 'mean' or 'sum', got 'avg'"),
        ({"target": torch.ones(3, 1)}, r"shape \(3,\), got \(3, 1\)"),
    ],
)
def test_bad_arguments_are_named(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        smooth_l1(**({"input": torch.ones(3), "target": torch.ones(3)} | arguments))


def test_it_keeps_nothing_beyond_its_inputs() -> None:
    x, target = torch.randn(1000, requires_grad=True), torch.randn(1000)
    assert saved_bytes(smooth_l1, x, target) == 0


def test_the_module_is_the_function() -> None:
    x, target = torch.randn(7), torch.randn(7)
    assert torch.equal(SmoothL1Loss(0.5, "sum")(x, target), smooth_l1(x, target, 0.5, "sum"))


@pytest.mark.parametrize("function", [swish, parametric_swish])
def test_squares_that_float16_does_not_have_and_a_gradient_that_brings_them_back(function) -> None:
    x, grad = torch.tensor([700.0, -600.0]).half(), torch.tensor([1e-3, 2e-3]).half()
    beta = torch.tensor(1e-3).half().requires_grad_()
    (found,) = torch.autograd.grad(function(x, beta), beta, grad)
    gate = torch.sigmoid(beta.detach().double() * x.double())
    exact = (grad.double() * x.double().square() * gate * (1 - gate)).sum()
    torch.testing.assert_close(found.double(), exact, rtol=5e-3, atol=0)
