"""A normalization of rows, with kernels in C++ and CUDA that sum along each row and over all rows."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._native import Library

SOURCES = {
    name: (Path(__file__).parent / "_native" / name).read_text()
    for name in ("kernels.h", "device.cuh", "rms_norm.cpp", "rms_norm.cu")
}


def fake_forward(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return a tensor like the output, but without values."""
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def fake_backward(grad_output: Tensor, input: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return tensors like the gradients, but without values."""
    contiguous = torch.contiguous_format
    return torch.empty_like(input, memory_format=contiguous), torch.empty_like(weight, memory_format=contiguous)


RMS_NORM = Library("rms_norm", SOURCES, {"rms_norm_forward": fake_forward, "rms_norm_backward": fake_backward})


def normalized(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the rows divided by their root mean squares, and the factors. This uses PyTorch's operations."""
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    # Squares of large numbers overflow, and those of small numbers become 0. So divide each row by its largest absolute
    # value first. This factor cancels.
    largest = wide.detach().abs().amax(-1, keepdim=True) if wide.numel() else wide.new_ones(())
    info = torch.finfo(wide.dtype)
    unit = largest.clamp(max(math.sqrt(eps), info.smallest_normal), info.max)
    scaled = wide / unit
    scale = torch.rsqrt(scaled.square().mean(-1, keepdim=True) + eps / unit / unit)
    return scaled * scale, scale / unit


def composed(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the output, computed with PyTorch's operations."""
    return (normalized(input, eps)[0] * weight).to(input.dtype)


def composed_gradients(grad_output: Tensor, input: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return both gradients, computed with PyTorch's operations: without a build, and for second derivatives."""
    normal, scale = normalized(input, eps)
    pulled = grad_output.to(normal.dtype) * weight
    grad_input = scale * (pulled - normal * (pulled * normal).mean(-1, keepdim=True))
    grad_weight = (grad_output * normal).sum_to_size(weight.shape)
    return grad_input.to(input.dtype), grad_weight.to(weight.dtype)


class RMSNormFunction(Function):
    """Keeps both inputs. Backward computes the sum of squares again, because it has to read each row anyway."""

    @staticmethod
    def forward(input: Tensor, weight: Tensor, eps: float) -> Tensor:
        if RMS_NORM.backend(input.device) == "Python":
            return composed(input, weight, eps)
        return torch.ops.autograd_cookbook.rms_norm_forward(input, weight, eps)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        *tensors, ctx.eps = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, Tensor, None]:
        return *RMSNormGradientFunction.apply(grad_output, *ctx.saved_tensors, ctx.eps), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None, None], input: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, int]:
        of_input, of_weight, _ = in_dims
        if of_weight is None:  # the batch becomes more rows for the kernel
            assert of_input is not None  # vmap maps at least one argument
            return RMSNormFunction.apply(input.movedim(of_input, 0), weight, eps), 0
        return torch.func.vmap(composed, in_dims)(input, weight, eps), 0


class RMSNormGradientFunction(Function):
    """Keeps its inputs. The second derivative is rarely needed, so PyTorch's operations compute it."""

    @staticmethod
    def forward(grad_output: Tensor, input: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        if RMS_NORM.backend(input.device) == "Python":
            return composed_gradients(grad_output, input, weight, eps)
        return torch.ops.autograd_cookbook.rms_norm_backward(grad_output, input, weight, eps)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor, float], output: Any) -> None:
        *tensors, ctx.eps = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Context, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        pull_back = torch.func.vjp(lambda g, x, w: composed_gradients(g, x, w, ctx.eps), *ctx.saved_tensors)[1]
        return *pull_back(grad_outputs), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        # Each sample needs its own gradient of the weight, but the kernel computes only one.
        return torch.func.vmap(composed_gradients, in_dims)(*inputs), (0, 0)


def fused_rms_norm(input: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    r"""Rows divided by their root mean squares, with a learnable weight for each column.

    .. math::
        y = w\,\hat{x}, \quad \hat{x} = r x, \quad r = \Big(\frac{1}{n} \sum_j x_j^2 + \varepsilon\Big)^{-1/2},
        \qquad \bar{x} = r \Big(w \bar{y} - \hat{x}\,\frac{1}{n} \sum_j w_j \bar{y}_j \hat{x}_j\Big), \quad
        \bar{w} = \sum_{\text{rows}} \bar{y}\,\hat{x}

    Call ``RMS_NORM.build()`` once, in this process or in an earlier one, to build the kernels in C++ and CUDA. Without
    them, the function uses PyTorch's operations. ``RMS_NORM.backend(device)`` says which code runs. The result is also
    right for rows whose squares overflow. In float32 and bfloat16, these are rows with numbers above about
    :math:`10^{19}`.

    Args:
        input: of shape (\*, n) and any layout; float16, bfloat16, float32 or float64.
        weight: of shape (n,), same dtype and device.
        eps: added to the mean of squares. With 0, a row of zeros gives NaN.

    Returns:
        A tensor like ``input``. It is contiguous if a kernel computed it.

    Raises:
        TypeError: if ``input`` is not a floating tensor, ``weight`` not a tensor of the same dtype, or ``eps`` not a
            number.
        RuntimeError: if the shapes do not fit, or ``weight`` is on another device.

    Source: B. Zhang, R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.

    >>> x = torch.tensor([[3.0, 4.0]], requires_grad=True)
    >>> fused_rms_norm(x, torch.ones(2))[0, 0].backward()
    >>> x.grad
    tensor([[ 0.1810, -0.1358]])
    """
    if not isinstance(input, Tensor) or not input.is_floating_point():
        raise TypeError(f"expected a floating input, got {getattr(input, 'dtype', type(input).__name__)}")
    if not isinstance(weight, Tensor) or weight.dtype != input.dtype:
        found = getattr(weight, "dtype", type(weight).__name__)
        raise TypeError(f"expected weight of dtype {input.dtype}, got {found}")
    if weight.dim() != 1 or input.shape[-1:] != weight.shape:
        shapes = f"{tuple(input.shape)} and {tuple(weight.shape)}"
        raise RuntimeError(f"expected input of shape (*, n) and weight of shape (n,), got {shapes}")
    if weight.device != input.device:
        raise RuntimeError(f"expected weight on {input.device}, got {weight.device}")
    if not isinstance(eps, int | float):
        raise TypeError(f"expected a number as eps, got {type(eps).__name__}")
    return RMSNormFunction.apply(input, weight, eps)
