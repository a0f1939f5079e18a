"""A gated activation with kernels in C++ and CUDA, for its element-wise results and for a sum over all elements."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._logistic import GatedFunction, GateSlopeFunction, gated, logistic
from autograd_cookbook.recipes._native import Library
from autograd_cookbook.recipes.elementwise import wide

SOURCES = {
    name: (Path(__file__).parent / "_native" / name).read_text()
    for name in ("kernels.h", "device.cuh", "swish_math.h", "swish.cpp", "swish.cu")
}


def fake_forward(input: Tensor, beta: Tensor) -> Tensor:
    """Return a tensor like the output, but without values."""
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def fake_backward(grad_output: Tensor, input: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return tensors like the gradients, but without values."""
    return torch.empty_like(input, memory_format=torch.contiguous_format), torch.empty_like(beta)


SWISH = Library("swish", SOURCES, {"swish_forward": fake_forward, "swish_backward": fake_backward})


def composed(input: Tensor, beta: Tensor) -> Tensor:
    """Return the output, computed with PyTorch's operations. It is used if the kernels are not built."""
    x = wide(input)
    return GatedFunction.apply(x, wide(beta) * x).to(input.dtype)


def composed_gradients(grad_output: Tensor, input: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return both gradients, computed with PyTorch's operations. It is used if the kernels are not built."""
    x, factor = wide(input), wide(beta)
    product = factor * x
    # 1 - gate would lose its digits where the gate is close to 1, and x * x could overflow.
    gate, rest = logistic(product), gated(x, product, -1)
    grad_input = grad_output * (gate + factor * gate * rest)
    return grad_input.to(input.dtype), (grad_output * x * (gate * rest)).sum().to(beta.dtype)


def differentiable_gradients(grad_output: Tensor, input: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same gradients, in a slower form. The derivatives of this form do not overflow."""
    x, factor = wide(input), wide(beta)
    product = factor * x
    bend = GateSlopeFunction.apply(x, product)
    gate = GatedFunction.apply(torch.ones_like(product), product)
    grad_input = grad_output * (gate + factor * bend)
    return grad_input.to(input.dtype), (grad_output * x * bend).sum().to(beta.dtype)


class SwishFunction(Function):
    """Keeps both inputs. Its gradient is a ``Function`` that has its own gradient."""

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
        # A kernel takes only one beta, so vmap uses PyTorch's operations.
        return torch.func.vmap(composed, in_dims)(input, beta), 0


class SwishGradientFunction(Function):
    """Keeps its inputs. The second derivative is rarely needed, so PyTorch's operations compute it."""

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
        return torch.func.vjp(differentiable_gradients, *ctx.saved_tensors)[1](grad_outputs)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return torch.func.vmap(differentiable_gradients, in_dims)(*inputs), (0, 0)


def swish(input: Tensor, beta: Tensor) -> Tensor:
    r"""Gated activation with a learnable gate.

    .. math::
        y = x\,\sigma(\beta x), \qquad
        \bar{x} = \bar{y}\,(s + \beta x\, s (1 - s)), \quad
        \bar{\beta} = \sum \bar{y}\, x^2 s (1 - s), \quad s = \sigma(\beta x)

    Call ``SWISH.build()`` once, in this process or in an earlier one, to build the kernels in C++ and CUDA. Without
    them, the function uses PyTorch's operations. ``SWISH.backend(device)`` says which code runs.

    Args:
        input: any shape and layout; float16, bfloat16, float32 or float64.
        beta: a tensor without dimensions, with the dtype and device of ``input``.

    Returns:
        A tensor like ``input``. It is contiguous if a kernel computed it.

    Raises:
        TypeError: if ``input`` is not a floating tensor, or ``beta`` not a tensor of the same dtype.
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
