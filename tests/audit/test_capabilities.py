"""The verifier says "yes" only where it may: each function below is broken in one way, and found out."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from autograd_cookbook.audit import CAPABILITIES, capabilities

X = torch.tensor([[0.3, -1.2, 0.7], [1.1, 0.4, -0.6]], dtype=torch.float64, requires_grad=True)


class Square(Function):
    """Right in everything but forward mode, which it does not have."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input**2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return 2 * input.conj() * grad_output


class WrongFactor(Square):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return 2.1 * input * grad_output


class DetachedInside(Square):
    """The first derivative is right; the second is silently zero."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return 2 * input.detach() * grad_output


class OnlyOnce(Square):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return 2 * input * grad_output


class AssumesContiguous(Square):
    """Reads the memory of grad_output in order, as a kernel does that was never told of strides."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        steps = [1]
        for size in reversed(input.shape[1:]):
            steps.insert(0, steps[0] * size)
        return 2 * input * grad_output.as_strided(input.shape, steps)


class WrongVmapRule(Square):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], input: Tensor) -> tuple[Tensor, int]:
        return input**2 + 1, in_dims[0]


class ForgetsConjugate(Square):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return 2 * input * grad_output


class CastsToFloat32(Square):
    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.float() ** 2


class PrintsUnderCompile(Square):
    @staticmethod
    def forward(input: Tensor) -> Tensor:
        if input.sum().item() > 1e9:  # a number that Python must see: no whole graph
            return input
        return input**2


class OldStyle(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor) -> Tensor:
        ctx.save_for_backward(input)
        return input**2

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return 2 * input * grad_output


def test_a_right_function_can_everything_but_what_it_lacks() -> None:
    found = capabilities(Square.apply, (X,))
    assert found == {name: "no" if name == "forward_mode" else "yes" for name in CAPABILITIES}


def test_a_built_in_can_everything() -> None:
    assert set(capabilities(torch.square, (X,)).values()) == {"yes"}


@pytest.mark.parametrize(
    ("function", "capability", "verdict"),
    [
        (WrongFactor, "first_order", "wrong"),
        (DetachedInside, "second_order", "wrong"),
        (OnlyOnce, "second_order", "no"),
        (AssumesContiguous, "non_contiguous", "wrong"),
        (WrongVmapRule, "vmap", "wrong"),
        (ForgetsConjugate, "complex128", "wrong"),
        (CastsToFloat32, "float16", "wrong"),
        (PrintsUnderCompile, "compile", "no"),
        (OldStyle, "func_grad", "no"),
        (OldStyle, "vmap", "no"),
    ],
)
def test_a_broken_function_is_found_out(function: type[Function], capability: str, verdict: str) -> None:
    assert capabilities(function.apply, (X,))[capability] == verdict


def test_a_factor_near_one_is_seen() -> None:
    """gradcheck's own tolerance of 1e-3 would let it pass."""

    class Off(Square):
        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            (input,) = ctx.saved_tensors
            return 1.999 * input * grad_output

    assert capabilities(Off.apply, (X,))["first_order"] == "wrong"


def test_the_callers_state_is_left_alone() -> None:
    torch.manual_seed(7)
    before, values = torch.random.get_rng_state(), X.detach().clone()
    capabilities(lambda x: x * torch.rand_like(x).detach().mean(), (X,))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(X, values)
    assert X.grad is None


def test_without_a_sample_it_refuses() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        capabilities(torch.square)
