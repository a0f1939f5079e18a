"""main_grad: what arrives in the buffer, whatever the layer is used for, and what is refused."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autograd_cookbook.recipes.main_grad import MainGrad, linear_main_grad

LOW = [torch.float32, torch.bfloat16, torch.float16]


def problem(dtype=torch.float64, lead=(5,)):
    torch.manual_seed(0)
    input = torch.randn(*lead, 4, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(3, 4, dtype=torch.float64).to(dtype).requires_grad_()
    return input, weight, torch.zeros(3, 4, dtype=torch.float64 if dtype is torch.float64 else torch.float32)


@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (0,)])
def test_buffer_and_input_get_the_gradients_of_a_linear_layer(lead) -> None:
    input, weight, buffer = problem(lead=lead)
    for loss in (torch.sum, lambda y: y.square().sum()):
        expected = torch.autograd.grad(loss(nn.functional.linear(input, weight)), (input, weight))
        before, input.grad = buffer.clone(), None
        loss(linear_main_grad(input, weight, buffer)).backward()
        torch.testing.assert_close(input.grad, expected[0])
        torch.testing.assert_close(buffer - before, expected[1])
        assert weight.grad is None


def test_a_frozen_weight_gets_nothing_and_any_backward_adds() -> None:
    """Also one that asks for the gradient of the input alone: needs_input_grad tells what requires grad."""
    input, weight, buffer = problem()
    torch.autograd.grad(linear_main_grad(input, weight.detach(), buffer).sum(), input)
    assert not buffer.any()
    torch.autograd.grad(linear_main_grad(input, weight, buffer).sum(), input)
    torch.testing.assert_close(buffer, input.detach().sum(0).expand(3, 4))


@pytest.mark.parametrize("dtype", LOW)
def test_the_product_is_not_rounded_to_the_dtype_of_the_weight(dtype) -> None:
    input, weight, buffer = problem(dtype, (200,))
    output = linear_main_grad(input, weight, buffer)
    grad_output = torch.randn(200, 3).to(dtype)
    output.backward(grad_output)
    exact = grad_output.double().T @ input.detach().double()
    torch.testing.assert_close(buffer.double(), exact, rtol=1e-5, atol=1e-5)


def test_no_columns() -> None:
    input, weight = torch.ones(5, 0, requires_grad=True), torch.ones(3, 0, requires_grad=True)
    linear_main_grad(input, weight, torch.zeros(3, 0)).sum().backward()
    assert input.grad.shape == (5, 0)


def test_two_uses_of_one_weight_add_up_and_so_do_backwards() -> None:
    input, weight, buffer = problem()
    loss = sum(linear_main_grad(x, weight, buffer).sum() for x in (input, 2 * input))
    loss.backward(retain_graph=True)
    once = buffer.clone()
    (expected,) = torch.autograd.grad(nn.functional.linear(3 * input, weight).sum(), weight)
    torch.testing.assert_close(once, expected)
    loss.backward()
    torch.testing.assert_close(buffer, 2 * expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_adds_once(reentrant) -> None:
    input, weight, buffer = problem()
    checkpoint(linear_main_grad, input, weight, buffer, use_reentrant=reentrant).sum().backward()
    (expected,) = torch.autograd.grad(nn.functional.linear(input, weight).sum(), weight)
    torch.testing.assert_close(buffer, expected)


def test_under_autocast_the_buffer_gets_what_the_layer_computed() -> None:
    input, weight, buffer = problem(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        output = linear_main_grad(input, weight, buffer)
    assert output.dtype is torch.bfloat16
    output.sum().backward()
    torch.testing.assert_close(buffer, input.detach().sum(0).expand(3, 4))


def test_a_second_derivative_raises() -> None:
    input, weight, buffer = problem()
    (grad,) = torch.autograd.grad(linear_main_grad(input, weight, buffer).square().sum(), input, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("buffer", "error", "said"),
    [
        (torch.zeros(3, 4, dtype=torch.int64), TypeError, r"floating dtype, got torch\.int64"),
        (torch.zeros(4, 3), ValueError, r"shape \(3, 4\), got \(4, 3\)"),
        (torch.zeros(3, 4, requires_grad=True), ValueError, "main_grad requires grad"),
    ],
)
def test_a_buffer_that_cannot_hold_the_gradient_is_refused(buffer, error, said) -> None:
    input, weight, _ = problem()
    with pytest.raises(error, match=said):
        linear_main_grad(input, weight, buffer)


def test_the_hook_moves_what_a_layer_of_any_kind_gets() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 1)).double()
    x = torch.randn(4, 2, 6, dtype=torch.float64)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(model(x).sum(), parameters)
    with MainGrad(parameters, torch.float64) as sums:
        for _ in range(2):
            model(x).sum().backward()
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert parameter.grad is None
        torch.testing.assert_close(sums.main_grad[parameter], 2 * gradient)
    model(x).sum().backward()
    torch.testing.assert_close(sums.main_grad[parameters[0]], 2 * expected[0], msg="the hook is still there")
    sums.zero()
    assert not any(buffer.any() for buffer in sums.main_grad.values())


def test_what_was_in_grad_before_is_moved_too() -> None:
    weight = torch.ones(2, requires_grad=True)
    weight.sum().backward()
    with MainGrad([weight]) as sums:
        weight.sum().backward()
    assert sums.main_grad[weight].tolist() == [2, 2]


def test_the_buffer_has_no_history_when_the_gradient_has_one() -> None:
    weight = torch.ones(2, requires_grad=True)
    with MainGrad([weight]) as sums, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of create_graph=True; PyTorch warns once in a process
        weight.square().sum().backward(create_graph=True)
    assert not sums.main_grad[weight].requires_grad


def test_parameters_that_cannot_be_hooked_are_refused() -> None:
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="given twice"):
        MainGrad([weight, weight])
    for wrong in (torch.ones(3), weight * 2):
        with pytest.raises(ValueError, match="leaves that require grad"):
            MainGrad([wrong])
