"""The logistic function and its slope, accurate down to the smallest representable number."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.elementwise import wide


def logistic(input: Tensor) -> Tensor:
    """The logistic function, accurate down to the smallest number. ``torch.sigmoid`` is 0 below -89 in float32."""
    x = wide(input)
    # Below `floor`, torch.sigmoid is too small. The maximum picks the accurate result. On a CPU, `torch.where` takes as
    # long as fifty multiplications if its condition is True for some elements and False for others.
    floor = math.ceil(math.log(torch.finfo(x.dtype).smallest_normal))
    # Far below 0, the function grows by a factor of exp(shift) from x to x + shift. This sum is exact, and on a CPU,
    # torch.exp would take three times as long as torch.sigmoid.
    shift = -floor * 7 // 10
    tail = x.clamp(max=floor).add_(shift).sigmoid_().mul_(math.exp(-shift))
    return torch.sigmoid(x).clamp_min_(tail).to(input.dtype)


class LogisticFunction(Function):
    """Keeps its input. If it kept the output y, derivatives would use 1 - y, which is inaccurate for y close to 1."""

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
    """The slope of the logistic function. It is equal for x and -x, and ``exp(-|x|)`` cannot overflow."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        e = wide(input).abs().neg_().exp_()
        return e.div_((1 + e).pow_(2)).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return -grad_output * LogisticSlopeFunction.apply(input) * torch.tanh(input / 2)
