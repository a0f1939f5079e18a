"""Softmax by kernels in Triton. They are compiled for a GPU, or interpreted, or replaced by PyTorch's operations."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._triton import backend, constexpr, jit, launch, operator, tl, triton

# The number of elements of a row that a program processes at a time. A longer row takes several rounds.
LARGEST_BLOCK = 4096


@jit
def softmax_kernel(input, output, width, DOUBLE: constexpr, BLOCK: constexpr):
    """One program per row. The first loop computes maximum and sum of the row, the second loop the probabilities."""
    wide = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64) * width
    lanes = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), wide)
    total = tl.zeros((BLOCK,), wide)
    for start in range(0, width, BLOCK):
        x = tl.load(input + row + start + lanes, mask=start + lanes < width, other=float("-inf")).to(wide)
        larger = tl.maximum(largest, x)
        # Where all values so far were -inf, x - larger would be NaN.
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * tl.exp(largest - shift) + tl.exp(x - shift)
        largest = larger
    of_row = tl.max(largest, 0)
    of_row = tl.where(of_row == float("-inf"), 0.0, of_row)
    sum_of_row = tl.sum(total * tl.exp(largest - of_row), 0)
    for start in range(0, width, BLOCK):
        inside = start + lanes < width
        x = tl.load(input + row + start + lanes, mask=inside, other=float("-inf")).to(wide)
        y = tl.exp(x - of_row) / sum_of_row
        tl.store(output + row + start + lanes, y.to(output.dtype.element_ty), mask=inside)


@jit
def gradient_kernel(
    grad_output,
    output,
    grad_input,
    width,
    DOUBLE: constexpr,
    BLOCK: constexpr,
):
    """One program per row. The first loop computes the mean of the gradient, the second loop the result.

    The weights of the mean are the outputs. Rounded outputs do not add up to 1, so divide by their sum: where one of
    them is nearly 1, the mean has to cancel its gradient to the last digit.
    """
    wide = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64) * width
    lanes = tl.arange(0, BLOCK)
    weighted = tl.zeros((BLOCK,), wide)
    weights = tl.zeros((BLOCK,), wide)
    for start in range(0, width, BLOCK):
        inside = start + lanes < width
        g = tl.load(grad_output + row + start + lanes, mask=inside, other=0.0).to(wide)
        y = tl.load(output + row + start + lanes, mask=inside, other=0.0).to(wide)
        weighted += g * y
        weights += y
    mean = tl.sum(weighted, 0) / tl.sum(weights, 0)
    for start in range(0, width, BLOCK):
        inside = start + lanes < width
        g = tl.load(grad_output + row + start + lanes, mask=inside, other=0.0).to(wide)
        y = tl.load(output + row + start + lanes, mask=inside, other=0.0).to(wide)
        tl.store(grad_input + row + start + lanes, (y * (g - mean)).to(grad_input.dtype.element_ty), mask=inside)


def launch_on_rows(kernel: Any, *tensors: Tensor) -> None:
    """Run a kernel on the rows of contiguous tensors, with one program per row. It writes to the last tensor."""
    width = tensors[-1].shape[-1]
    block = min(triton.next_power_of_2(width), LARGEST_BLOCK)
    launch(kernel, tensors[-1].numel() // width, *tensors, width, tensors[-1].dtype is torch.float64, block)


def like_last(*tensors: Tensor) -> Tensor:
    """Return a tensor like the results of the operators, without values: contiguous, and like the last argument."""
    return torch.empty_like(tensors[-1], memory_format=torch.contiguous_format)


@operator(like_last)
def triton_softmax_forward(input: Tensor) -> Tensor:
    """Return the softmax of the last dimension."""
    output = like_last(input)
    launch_on_rows(softmax_kernel, input.contiguous(), output)
    return output


@operator(like_last)
def triton_softmax_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of the softmax."""
    grad_input = like_last(output)
    launch_on_rows(gradient_kernel, grad_output.contiguous(), output.contiguous(), grad_input)
    return grad_input


def composed_gradient(grad_output: Tensor, output: Tensor) -> Tensor:
    """Return the gradient, computed with PyTorch's operations in float32 or wider."""
    wide = torch.promote_types(output.dtype, torch.float32)
    g, y = grad_output.to(wide), output.to(wide)
    return (y * (g - (g * y).sum(-1, keepdim=True) / y.sum(-1, keepdim=True))).to(output.dtype)


def batched(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> list[Tensor]:
    """Return the tensors under vmap, with the mapped dimension in front."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims, strict=True)
    ]


class TritonSoftmaxFunction(Function):
    """Softmax of the last dimension. Keeps its output."""

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        if backend(input.device) == "Python" or input.numel() == 0:
            return torch.softmax(input, -1)
        return triton_softmax_forward(input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        return TritonSoftmaxGradient.apply(grad_output, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], input: Tensor) -> tuple[Tensor, int]:
        # The kernel works on rows, for any number of leading dimensions.
        return TritonSoftmaxFunction.apply(*batched(info, in_dims, input)), 0


class TritonSoftmaxGradient(Function):
    """The gradient as a function of ``grad_output`` and the output. Keeps both."""

    @staticmethod
    def forward(grad_output: Tensor, output: Tensor) -> Tensor:
        if backend(output.device) == "Python" or output.numel() == 0:
            return composed_gradient(grad_output, output)
        return triton_softmax_backward(grad_output, output)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, tangent: Tensor) -> tuple[Tensor | None, Tensor | None]:
        grad_output, output = ctx.saved_tensors
        of_grad = of_output = None
        if ctx.needs_input_grad[0]:  # linear in grad_output, with a symmetric matrix: use the same kernel
            of_grad = TritonSoftmaxGradient.apply(tangent, output)
        if ctx.needs_input_grad[1]:
            wide = torch.promote_types(output.dtype, torch.float32)
            t, g, y = tangent.to(wide), grad_output.to(wide), output.to(wide)
            total = y.sum(-1, keepdim=True)
            of_output = (g - (g * y).sum(-1, keepdim=True) / total) * (t - (t * y).sum(-1, keepdim=True) / total)
            of_output = of_output.to(output.dtype)
        return of_grad, of_output

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], *tensors: Tensor) -> tuple[Tensor, int]:
        return TritonSoftmaxGradient.apply(*batched(info, in_dims, *tensors)), 0


def triton_softmax(input: Tensor, dim: int = -1) -> Tensor:
    r"""Softmax by kernels with one program per row, in forward and in backward.

    .. math::
        y_i = \frac{e^{x_i}}{\sum_j e^{x_j}}, \qquad
        \bar{x}_i = y_i \left( \bar{y}_i - \textstyle\sum_j \bar{y}_j y_j \right)

    For CUDA tensors, the kernels run in Triton. If the environment variable ``TRITON_INTERPRET`` was 1 when Triton was
    imported, they run in Triton's interpreter, for all tensors. Otherwise, the function uses PyTorch's operations.
    ``backend(device)`` says which code runs. float16 and bfloat16 are read and written in their dtype, and computed in
    float32. You can differentiate the result any number of times.

    Args:
        input: any shape and layout, real floating dtype. A row that contains only -inf gives NaN, as in torch.
        dim: the dimension along which the output sums to 1.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if ``input`` is not of a real floating dtype.
        IndexError: if there is no such dimension.

    Source: P. Tillet et al., Triton: an intermediate language and compiler for tiled neural network computations,
    2019, for the language.

    >>> x = torch.zeros(2, requires_grad=True)
    >>> y = triton_softmax(x)
    >>> y[0].backward()
    >>> y.detach(), x.grad
    (tensor([0.5000, 0.5000]), tensor([ 0.2500, -0.2500]))
    """
    if not input.is_floating_point():
        raise TypeError(f"expected input of a real floating dtype, got {input.dtype}")
    rows = input.movedim(dim, -1)
    if input.dim() == 0:  # make it a row, because otherwise the dimension of vmap would be the row
        return TritonSoftmaxFunction.apply(rows.unsqueeze(-1)).squeeze(-1)
    return TritonSoftmaxFunction.apply(rows).movedim(-1, dim)
