"""The logistic function and its slope, accurate down to the smallest representable number."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context


def gated(input: Tensor, gate: Tensor, sign: int = 1) -> Tensor:
    """Multiply ``input`` by the logistic function of ``gate`` or, with the sign -1, of ``-gate``, in one pass.

    The kernel is the backward of torch's softplus. It computes ``e / (1 + e)`` with ``e = exp(gate)``, which is
    accurate down to the smallest number. But ``torch.sigmoid`` is 0 below -89 in float32.
    """
    # Above 40, where e could overflow, the kernel returns the input. There, the factor is 1 in every dtype.
    return torch.ops.aten.softplus_backward(input, gate, sign, 40)


def logistic(input: Tensor) -> Tensor:
    """The logistic function, accurate down to the smallest number."""
    return gated(input.new_ones(()).expand_as(input), input)


class GatedFunction(Function):
    """``input`` times the logistic function of ``gate``, which has the same shape. Keeps both, and not the output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, gate: Tensor) -> Tensor:
        return gated(input, gate)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, gate = ctx.saved_tensors
        grad_input = grad_gate = None
        if ctx.needs_input_grad[0]:
            grad_input = GatedFunction.apply(grad_output, gate)
        if ctx.needs_input_grad[1]:
            grad_gate = grad_output * GateSlopeFunction.apply(input, gate)
        return grad_input, grad_gate


class GateSlopeFunction(Function):
    """``input`` times the slope of the logistic function at ``gate``. This slope is a product of two such functions."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, gate: Tensor) -> Tensor:
        return gated(gated(input, gate), gate, -1)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, gate = ctx.saved_tensors
        grad_input = grad_gate = None
        if ctx.needs_input_grad[0]:
            grad_input = GateSlopeFunction.apply(grad_output, gate)
        if ctx.needs_input_grad[1]:
            grad_gate = -grad_output * GateSlopeFunction.apply(input, gate) * torch.tanh(gate / 2)
        return grad_input, grad_gate
