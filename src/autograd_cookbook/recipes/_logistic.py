"""The logistic function and its slope, with all digits that are representable."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.elementwise import wide


def logistic(input: Tensor) -> Tensor:
    """The logistic function, of all that is representable; torch's is 0 in float32 below -89, and in bfloat16 too."""
    x = wide(input)
    # Where the exponential is normal both are the same, and below it is the larger one. No `torch.where`: on a CPU it
    # takes as long as fifty products where the condition is mixed.
    floor = math.ceil(math.log(torch.finfo(x.dtype).smallest_normal))
    return torch.maximum(torch.sigmoid(x), torch.exp(x.clamp(max=floor))).to(input.dtype)


class LogisticFunction(Function):
    """Keeps its input: from the output, 1 - y would lose the digits of all derivatives where y is close to 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return logistic(input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return grad_output * LogisticSlopeFunction.apply(input)


class LogisticSlopeFunction(Function):
    """The slope of the logistic function: even, and of the size of an exponential that does not overflow."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        e = wide(input).abs().neg_().exp_()
        return (e / (1 + e).square()).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return -grad_output * LogisticSlopeFunction.apply(input) * torch.tanh(input / 2)
