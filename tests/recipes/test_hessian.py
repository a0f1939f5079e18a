"""Second derivatives: against torch's own, and where they are commonly lost."""

import math

import pytest
import torch
from torch import nn

from autograd_cookbook.recipes.hessian import hessian, hvp, jacobian, log_cosh

MODES = ["reverse", "forward_over_reverse"]
each_mode = pytest.mark.parametrize("mode", MODES)


def point(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def coupled(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.sum()).square().sum()


@each_mode
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (2, 1, 2)])
def test_agrees_with_torch_for_inputs_of_any_shape(mode, shape) -> None:
    x, v = point(*shape), point(*shape)
    full = torch.func.hessian(coupled)(x)
    torch.testing.assert_close(hessian(coupled, x, mode), full)
    product = full.reshape(x.numel(), x.numel()) @ v.flatten()
    torch.testing.assert_close(hvp(coupled, x, v, mode), product.reshape(shape))


@each_mode
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.sum(), id="linear"),
        pytest.param(lambda x: x.new_ones(()), id="constant"),
        pytest.param(lambda x: x[:1].sum() ** 1, id="ignores a part"),
    ],
)
def test_a_hessian_of_zeros_is_zeros_and_no_error(mode, function) -> None:
    x = point(3)
    assert torch.equal(hessian(function, x, mode), torch.zeros(3, 3, dtype=torch.float64))
    assert torch.equal(hvp(function, x, x, mode), torch.zeros_like(x))


@each_mode
def test_jacobian_of_any_output_shape(mode) -> None:
    x = point(2, 3)

    def function(x):
        return torch.stack([x.sin(), x * x.sum()])

    found = jacobian(function, x, mode)
    assert found.shape == (2, 2, 3, 2, 3)
    torch.testing.assert_close(found, torch.func.jacrev(function)(x))


@each_mode
def test_an_output_that_is_no_scalar_is_named(mode) -> None:
    with pytest.raises(ValueError, match=r"scalar output, got shape \(3,\)"):
        hessian(torch.sin, point(3), mode)
    with pytest.raises(ValueError, match=r"scalar output, got shape \(3,\)"):
        hvp(torch.sin, point(3), point(3), mode)


def test_other_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\), got \(2,\)"):
        hvp(coupled, point(3), point(2))
    for function in (lambda m: hvp(coupled, point(2), point(2), m), lambda m: jacobian(torch.sin, point(2), m)):
        with pytest.raises(ValueError, match="'backward'"):
            function("backward")
    with pytest.raises(TypeError, match="complex64"):
        log_cosh(torch.ones(1, dtype=torch.complex64))


def test_parameters_of_a_network_as_one_vector() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    data = point(5, 2)
    vector = nn.utils.parameters_to_vector(net.parameters()).detach()

    def loss(vector):
        pieces, start = {}, 0
        for name, p in net.named_parameters():
            pieces[name] = vector[start : start + p.numel()].view_as(p)
            start += p.numel()
        return log_cosh(torch.func.functional_call(net, pieces, data)).mean()

    full = hessian(loss, vector)
    torch.testing.assert_close(full, full.mT)
    direction = torch.ones_like(vector)
    torch.testing.assert_close(hvp(loss, vector, direction), full @ direction)


@pytest.mark.parametrize("value", [0.0, 1e-8, 50.0, -700.0, float("inf")])
def test_log_cosh_is_finite_where_cosh_is_not(value) -> None:
    x = torch.tensor(value, requires_grad=True)
    y = log_cosh(x)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    expected = torch.tensor(value).double()
    assert first.item() == pytest.approx(expected.tanh().item(), rel=1e-6)
    assert second.item() == pytest.approx(1 - expected.tanh().item() ** 2, abs=1e-6)


def test_forward_over_reverse_needs_a_jvp_and_says_so() -> None:
    with pytest.raises(RuntimeError, match="jvp"):
        hvp(lambda x: log_cosh(x).sum(), point(3), point(3), "forward_over_reverse")


def test_a_curvature_of_log_cosh_below_the_range_of_float16_times_a_scaled_gradient() -> None:
    x = torch.tensor(-10.0, dtype=torch.float16, requires_grad=True)
    (first,) = torch.autograd.grad(8192 * log_cosh(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert second.item() == pytest.approx(8192 / math.cosh(10) ** 2, rel=2e-3)
