"""Convolution in one and two dimensions. Its gradients are convolutions, too."""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.recipes._context import Context

Size = int | tuple[int, ...]


CONVOLVE = {1: F.conv1d, 2: F.conv2d}


TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d}


class ConvolutionFunction(Function):
    """Keeps input and weight. It does not store the windows of the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
    ) -> Tensor:
        return CONVOLVE[len(stride)](input, weight, bias, stride, padding, dilation, groups)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, _, *ctx.geometry = inputs
        ctx.save_for_backward(input, weight)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        if grad_output.numel() == 0:  # the batch or the channels have size 0
            # Sums of no elements are zeros that can be differentiated.
            zero = grad_output.sum() + input.flatten()[:0].sum() + weight.flatten()[:0].sum()
            grad_bias = zero.expand(len(weight)) if ctx.needs_input_grad[2] else None
            return zero.expand_as(input), zero.expand_as(weight), grad_bias, None, None, None, None
        grad_output = grad_output.to(weight.dtype)  # autocast lowers the dtype in forward and is off in backward
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = input_gradient(grad_output, input, weight, *ctx.geometry)
        if ctx.needs_input_grad[1]:
            grad_weight = weight_gradient(grad_output, input, weight, *ctx.geometry)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum([0, *range(2, grad_output.dim())])
        return grad_input, grad_weight, grad_bias, None, None, None, None


def input_gradient(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Tensor:
    """Return the gradient of the input: a transposed convolution of the output's gradient with the weight."""
    # With a stride, the last window can end before the last rows of the input. output_padding adds these rows again.
    left_over = [
        size + 2 * p - d * (k - 1) - 1 - s * (out - 1)
        for size, k, out, s, p, d in zip(
            input.shape[2:], weight.shape[2:], grad_output.shape[2:], stride, padding, dilation, strict=True
        )
    ]
    transpose = TRANSPOSE[len(stride)]
    return transpose(grad_output, weight.conj(), None, stride, padding, left_over, groups, dilation)


def weight_gradient(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Tensor:
    """Return the gradient of the weight: the input convolved with the output's gradient.

    In this convolution, stride and dilation are exchanged.
    """
    batch, outputs = grad_output.shape[:2]
    # The gradient sums over the batch, and a convolution sums over channels. So move the batch of size N to the
    # position of the channels. With C channels in G groups and F output channels: (C/G, G·N, ...) and (F, N, ...).
    space, out_space = input.shape[2:], grad_output.shape[2:]
    data = input.reshape(batch, groups, -1, *space).transpose(0, 2).reshape(-1, groups * batch, *space)
    kernel = grad_output.reshape(batch, groups, -1, *out_space).movedim(0, 2).reshape(outputs, batch, *out_space)
    result = CONVOLVE[len(stride)](data, kernel.conj(), None, dilation, padding, stride, groups)
    # Rows of the input that the windows did not reach make the result larger than the kernel, so cut the result.
    for dim, size in enumerate(weight.shape[2:], start=2):
        result = result.narrow(dim, 0, size)
    return result.transpose(0, 1).conj()


def convolve(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size | str,
    dilation: Size,
    groups: int,
) -> Tensor:
    """The common part of conv1d and conv2d. It accepts all forms of arguments that torch accepts."""
    if input.dim() not in (rank + 1, rank + 2):
        raise RuntimeError(f"expected an input of {rank + 1} or {rank + 2} dimensions, got {tuple(input.shape)}")

    def per_dim(name: str, value: Size) -> tuple[int, ...]:
        values = (value,) * rank if isinstance(value, int) else tuple(value)
        if len(values) != rank:
            raise RuntimeError(f"expected {name} to be an int or {rank} of them, got {value}")
        return values

    strides, dilations = per_dim("stride", stride), per_dim("dilation", dilation)
    if padding == "same":
        if any(s != 1 for s in strides):
            raise ValueError(f"padding='same' needs stride 1, got {stride}")
        sides: list[int] = []
        for size, d in zip(reversed(weight.shape[2:]), reversed(dilations), strict=True):
            sides += [d * (size - 1) // 2, d * (size - 1) - d * (size - 1) // 2]
        input, padding = F.pad(input, sides), 0
    elif padding == "valid":
        padding = 0
    elif isinstance(padding, str):
        raise ValueError(f"expected padding to be 'same', 'valid' or a size, got {padding!r}")

    batched = input if input.dim() == rank + 2 else input.unsqueeze(0)
    geometry = (strides, per_dim("padding", padding), dilations, groups)
    output = ConvolutionFunction.apply(batched, weight, bias, *geometry)
    return output if batched is input else output.squeeze(0)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    r"""Convolve sequences.

    .. math::
        y_t = b + \sum_k w_k\, x_{st + dk - p}, \qquad
        \bar{x}_i = \sum_{st + dk - p = i} \bar{y}_t\, w_k^*, \quad
        \bar{w}_k = \sum_t \bar{y}_t\, x_{st + dk - p}^*

    with stride :math:`s`, dilation :math:`d` and padding :math:`p`. The first formula also sums over input channels,
    the second over output channels and the third over the batch.

    Args:
        input: ``(batch, channels, length)`` or ``(channels, length)``, floating or complex.
        weight: ``(out_channels, channels / groups, kernel)``, same dtype and device.
        bias: ``(out_channels,)`` or None.
        stride: the distance between two windows.
        padding: the number of zeros on both sides, or "valid" for no zeros, or "same" for as many zeros as keep the
            length. "same" needs stride 1.
        dilation: the distance between two elements of a window.
        groups: the number of blocks of channels. An output channel reads only the input channels of its block.

    Returns:
        ``(batch, out_channels, new_length)``, without the batch if the input had none.

    Raises:
        RuntimeError: if shapes, dtypes or sizes do not fit, as in :func:`torch.nn.functional.conv1d`.
        ValueError: if ``padding`` is an unknown word, or "same" with a stride above 1.

    >>> import torch
    >>> x = torch.arange(5.0, requires_grad=True)
    >>> conv1d(x.reshape(1, 1, 5), torch.tensor([[[1.0, 10.0]]]), stride=2).sum().backward()
    >>> x.grad
    tensor([ 1., 10.,  1., 10.,  0.])
    """
    return convolve(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    r"""Convolve images.

    .. math::
        y_t = b + \sum_k w_k\, x_{st + dk - p}, \qquad
        \bar{x}_i = \sum_{st + dk - p = i} \bar{y}_t\, w_k^*, \quad
        \bar{w}_k = \sum_t \bar{y}_t\, x_{st + dk - p}^*

    where the positions :math:`t, k, i` are pairs. Stride :math:`s`, dilation :math:`d` and padding :math:`p` act on
    each of the two dimensions.

    Args:
        input: ``(batch, channels, height, width)`` or ``(channels, height, width)``, floating or complex.
        weight: ``(out_channels, channels / groups, kernel_height, kernel_width)``, same dtype and device.
        bias: ``(out_channels,)`` or None.
        stride: the distance between two windows.
        padding: the number of zeros on all sides, or "valid" for no zeros, or "same" for as many zeros as keep the
            size. "same" needs stride 1.
        dilation: the distance between two elements of a window.
        groups: the number of blocks of channels. An output channel reads only the input channels of its block.

    Returns:
        ``(batch, out_channels, new_height, new_width)``, without the batch if the input had none.

    Raises:
        RuntimeError: if shapes, dtypes or sizes do not fit, as in :func:`torch.nn.functional.conv2d`.
        ValueError: if ``padding`` is an unknown word, or "same" with a stride above 1.

    >>> import torch
    >>> x = torch.ones(1, 1, 3, 3, requires_grad=True)
    >>> conv2d(x, torch.ones(1, 1, 2, 2)).sum().backward()
    >>> x.grad[0, 0]
    tensor([[1., 2., 1.],
            [2., 4., 2.],
            [1., 2., 1.]])
    """
    return convolve(2, input, weight, bias, stride, padding, dilation, groups)
