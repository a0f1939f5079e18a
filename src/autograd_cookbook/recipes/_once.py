"""A decorator for a backward that cannot be differentiated again. It raises also where PyTorch's decorator does not."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context


class LastDerivativeFunction(Function):
    """Returns the first tensors. The others only connect them with everything that they depend on."""

    generate_vmap_rule = True

    @staticmethod
    def forward(count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(None if t is None else t.view_as(t) for t in tensors[:count])

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor | None, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Context, *grad_outputs: Tensor | None) -> tuple[None, ...]:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def last_derivative(backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Decorate a backward, so that differentiating its result raises.

    ``torch.autograd.function.once_differentiable`` does the same, but connects the result with nothing. So PyTorch does
    not reach the error if a loss depends on an input in another way, too. The derivative is then silently incomplete.
    """

    @wraps(backward)
    def wrapper(ctx: Context, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        with torch.no_grad():
            grads = backward(ctx, *grad_outputs)
        if not torch.is_grad_enabled():
            return grads
        return LastDerivativeFunction.apply(len(grads), *grads, *grad_outputs, *ctx.saved_tensors)

    return wrapper
