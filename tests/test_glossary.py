"""What the glossary says of PyTorch, where a few lines can show it."""

import inspect

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Square(Function):
    """Remembers in which grad mode its forward ran, and its ctx."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        Square.recorded = torch.is_grad_enabled()
        return x**2

    @staticmethod
    def setup_context(ctx: Function, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        Square.ctx = ctx

    @staticmethod
    @once_differentiable
    def backward(ctx: Function, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output


@pytest.fixture
def x() -> Tensor:
    return torch.tensor([3.0], dtype=torch.float64, requires_grad=True)


def test_ctx_is_the_node_and_forward_is_not_recorded(x: Tensor) -> None:
    y = Square.apply(x)
    assert y.grad_fn is Square.ctx
    assert not Square.recorded


def test_once_differentiable_raises_or_leaves_its_part_out(x: Tensor) -> None:
    (gradient,) = torch.autograd.grad(Square.apply(x) * x, x, create_graph=True)
    (second,) = torch.autograd.grad(gradient, x, retain_graph=True)
    assert second.item() == 2 * x.item()  # of x cubed it is 6 x
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.backward()


def test_a_complex_gradient_is_twice_the_conjugate_derivative() -> None:
    z = torch.tensor(1 + 2j, dtype=torch.complex128, requires_grad=True)
    (z.real**2 + 3 * z.imag).backward()
    assert z.grad.item() == 2 * 1 + 3j


def test_an_expanded_tensor_cannot_be_written_to() -> None:
    expanded = torch.zeros(1).expand(3)
    assert expanded.stride() == (0,)
    with pytest.raises(RuntimeError, match="single memory location"):
        expanded.add_(1)


def test_the_gradient_of_a_sum_is_expanded() -> None:
    y = torch.ones(3, requires_grad=True)
    strides = []
    y.register_hook(lambda gradient: strides.append(gradient.stride()))
    y.sum().backward()
    assert strides == [(0,)]


def test_tensors_of_inference_mode_cannot_be_saved(x: Tensor) -> None:
    with torch.inference_mode():
        made = torch.ones(1, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        made * x
    with pytest.raises(RuntimeError, match="do not track version counter"):
        made._version  # noqa: B018


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_anomaly_mode_raises_at_nan_and_not_at_infinity() -> None:
    with torch.autograd.detect_anomaly():
        zero = torch.zeros(1, requires_grad=True)
        zero.sqrt().backward()
        assert zero.grad.isinf()
        with pytest.raises(RuntimeError, match=r"SqrtBackward0.*nan"):
            (zero.sqrt() * 0).backward()


def test_views_share_the_version_counter_and_detached_tensors_their_memory(x: Tensor) -> None:
    base = torch.zeros(2, 2)
    base[0].add_(1)
    assert base._version == base.T._version == 1
    assert x.detach().data_ptr() == x.data_ptr()
    assert x.clone().requires_grad


def test_gradients_of_intermediate_tensors_are_not_kept(x: Tensor) -> None:
    y, kept = 2 * x, 3 * x
    kept.retain_grad()
    (y + kept).backward()
    assert not y.is_leaf
    assert y.retains_grad is False
    assert kept.grad.item() == 1


def test_defaults_of_gradcheck() -> None:
    parameters = inspect.signature(torch.autograd.gradcheck).parameters
    assert (parameters["eps"].default, parameters["rtol"].default) == (1e-6, 1e-3)


def test_a_bool_takes_a_byte() -> None:
    assert torch.ones(8, dtype=torch.bool).untyped_storage().nbytes() == 8
