"""Writing and calling a Function."""

import torch
from torch.autograd import Function

from tests.errors import mends, raises


@raises(
    "save_for_backward was given a number",
    cause="``ctx.save_for_backward`` keeps tensors, and ``None`` in the place of one; nothing else.",
    fix="Numbers, shapes, flags and strings become attributes: ``ctx.exponent = exponent``.",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def number_saved():
    class Power(Function):
        @staticmethod
        def forward(ctx, x, exponent):
            ctx.save_for_backward(x, exponent)
            return x**exponent

        @staticmethod
        def backward(ctx, grad_output):
            x, exponent = ctx.saved_tensors
            return exponent * x ** (exponent - 1) * grad_output, None

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    Power.apply(x, 3)


@mends(number_saved)
def number_on_ctx():
    class Power(Function):
        @staticmethod
        def forward(ctx, x, exponent):
            ctx.save_for_backward(x)
            ctx.exponent = exponent
            return x**exponent

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return ctx.exponent * x ** (ctx.exponent - 1) * grad_output, None

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    Power.apply(x, 3).sum().backward()
