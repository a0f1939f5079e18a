"""A gated activation with kernels in C++ and CUDA: element by element, and one sum over all of them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._logistic import LogisticFunction, LogisticSlopeFunction, logistic
from autograd_cookbook.recipes._native import Library
from autograd_cookbook.recipes.elementwise import wide

SOURCES = {
    name: (Path(__file__).parent / "_native" / name).read_text()
    for name in ("kernels.h", "device.cuh", "swish_math.h", "swish.cpp", "swish.cu")
}


def fake_forward(input: Tensor, beta: Tensor) -> Tensor:
    """Shape and dtype of the value."""
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def fake_backward(grad_output: Tensor, input: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Shapes and dtypes of the gradients."""
    return torch.empty_like(input, memory_format=torch.contiguous_format), torch.empty_like(beta)


SWISH = Library("swish", SOURCES, {"swish_forward": fake_forward, "swish_backward": fake_backward})


def composed(input: Tensor, beta: Tensor) -> Tensor:
    """The value, from torch's operations: what runs without a build."""
    x = wide(input)
    return (x * logistic(wide(beta) * x)).to(input.dtype)


def composed_gradients(grad_output: Tensor, input: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Both gradients, from torch's operations, and themselves differentiable."""
    x, factor = wide(input), wide(beta)
    product = factor * x
    # 1 - gate would have no digits where the gate is close to 1, and x * x may overflow.
    bend = x * LogisticSlopeFunction.apply(product)
    grad_input = grad_output * (LogisticFunction.apply(product) + factor * bend)
    return grad_input.to(input.dtype), (grad_output * x * bend).sum().to(beta.dtype)


class SwishFunction(Function):
    """Keeps both inputs; its gradient is a function with a gradient of its own."""

    @staticmethod
    def forward(input: Tensor, beta: Tensor) -> Tensor:
        if SWISH.backend(input.device) == "Python":
            return composed(input, beta)
        return torch.ops.autograd_cookbook.swish_forward(input, beta)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return SwishGradientFunction.apply(grad_output, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], input: Tensor, beta: Tensor) -> tuple[Tensor, int]:
        # A kernel sees one tensor and one beta; torch's operations can be mapped as they are.
        return torch.func.vmap(composed, in_dims)(input, beta), 0


class SwishGradientFunction(Function):
    """Keeps its inputs; the second derivative is rare, and left to torch's operations."""

    @staticmethod
    def forward(grad_output: Tensor, input: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        if SWISH.backend(input.device) == "Python":
            return composed_gradients(grad_output, input, beta)
        return torch.ops.autograd_cookbook.swish_backward(grad_output, input, beta)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.func.vjp(composed_gradients, *ctx.saved_tensors)[1](grad_outputs)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return torch.func.vmap(composed_gradients, in_dims)(*inputs), (0, 0)


def swish(input: Tensor, beta: Tensor) -> Tensor:
    r"""Gated activation with a learnable gate.

    .. math::
        y = x\,\sigma(\beta x), \qquad
        \bar{x} = \bar{y}\,(s + \beta x\, s (1 - s)), \quad
        \bar{\beta} = \sum \bar{y}\, x^2 s (1 - s), \quad s = \sigma(\beta x)

    Runs in C++ or CUDA once ``SWISH.build()`` has been called, in this process or before, and in torch's operations
    otherwise: ``SWISH.backend(device)`` says which.

    Args:
        input: any shape and layout; float16, bfloat16, float32 or float64.
        beta: 0-dim, of the same dtype and device.

    Returns:
        A tensor like ``input``, contiguous if a kernel has made it.

    Raises:
        TypeError: if ``input`` is no floating tensor, or ``beta`` no tensor of the same dtype.
        RuntimeError: if ``beta`` has dimensions, or is on another device.

    Source: P. Ramachandran et al., Searching for activation functions, arXiv:1710.05941.

    >>> x = torch.tensor([-1.0, 2.0])
    >>> beta = torch.tensor(1.0, requires_grad=True)
    >>> swish(x, beta).sum().backward()
    >>> print(f"{beta.grad:.4f}")
    0.6166
    """
    if not isinstance(input, Tensor) or not input.is_floating_point():
        raise TypeError(f"expected a floating input, got {getattr(input, 'dtype', type(input).__name__)}")
    if not isinstance(beta, Tensor) or beta.dtype != input.dtype:
        raise TypeError(f"expected beta of dtype {input.dtype}, got {getattr(beta, 'dtype', type(beta).__name__)}")
    if beta.dim() != 0:
        raise RuntimeError(f"expected beta without dimensions, got shape {tuple(beta.shape)}")
    if beta.device != input.device:
        raise RuntimeError(f"expected beta on {input.device}, got {beta.device}")
    return SwishFunction.apply(input, beta)
