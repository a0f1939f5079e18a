"""Convolutions, pooling and other windows."""

import numpy as np
import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import between, leaf

# --- broken ---


@broken("first_order", inputs=lambda: (leaf(2, 9), 3, 2))
class MaxPoolWindowOffset(Function):
    """Places the winner of each window with the window's width, not with the stride of the windows."""

    @staticmethod
    def forward(x, width, stride):
        return x.unfold(1, width, stride).amax(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.width, ctx.stride = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        winner = x.unfold(1, ctx.width, ctx.stride).argmax(2)
        start = torch.arange(g.shape[1]) * ctx.width
        index = (start + winner).clamp(max=x.shape[1] - 1)
        return torch.zeros_like(x).scatter_add(1, index, g), None, None


@broken("first_order", "second_order", inputs=lambda: (leaf(8), leaf(3)))
class SlidingDotOverwrites(Function):
    """Adds the windows' gradients through an index that repeats positions, so that overlaps overwrite each other."""

    @staticmethod
    def forward(x, weight):
        return x.unfold(0, weight.shape[0], 1) @ weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        width = weight.shape[0]
        index = torch.arange(g.shape[0]).unsqueeze(1) + torch.arange(width)
        grad_x = torch.zeros_like(x)
        grad_x[index] += torch.outer(g, weight)
        return grad_x, x.unfold(0, width, 1).t() @ g


@broken("unneeded_gradients", inputs=lambda: (leaf(2, 3, 5, 5), leaf(4, 3, 3, 3)))
class ConvAlwaysBothGradients(Function):
    """Computes both gradients even where the weight is frozen or the input is data (NVIDIA/apex#1517)."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, padding=1)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = torch.nn.grad.conv2d_input(x.shape, weight, g, padding=1)
        grad_weight = torch.nn.grad.conv2d_weight(x, weight.shape, g, padding=1)
        return grad_x, grad_weight


@broken("empty", "sizes", inputs=lambda: (leaf(2, 3, 7), leaf(4, 3, 3)))
class StridedConvolutionRemainderLost(Function):
    """The input gradient of a stride-2 convolution lacks output_padding: it is one too short for even lengths."""

    @staticmethod
    def forward(x, weight):
        return F.conv1d(x, weight, stride=2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = F.conv_transpose1d(g, weight, stride=2)
        if ctx.needs_input_grad[1]:
            gw = torch.nn.grad.conv1d_weight(x, weight.shape, g, stride=2)
        return gx, gw


@broken("grad_output_layouts", inputs=lambda: (between(-1.5, 1.5, 2, 3, 3, 2),))
class UpsampleNearestTwice(Function):
    """Merges batch and channel of grad_output with view, which raises when the next layer works channels-last."""

    @staticmethod
    def forward(x):
        return x.repeat_interleave(2, dim=-1).repeat_interleave(2, dim=-2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, g):
        b, c, h, w = ctx.shape
        return g.view(b * c, h, 2, w, 2).sum((2, 4)).reshape(ctx.shape)


# --- right ---


@right(inputs=lambda: (leaf(1, 2, 5, 4), leaf(3, 2, 3, 2), leaf(3)))
def strided_conv2d(image, kernel, bias):
    """With stride 3 the window leaves some pixels out, and their gradient is zero."""
    return F.conv2d(image, kernel, bias, stride=3, padding=(0, 1))


@right(inputs=lambda: (leaf(3, 8), (0.25, 0.5, 0.25)))
class SymmetricBlur(Function):
    """A blur with a symmetric kernel and zero padding is its own adjoint, so the backward repeats the forward."""

    @staticmethod
    def _blur(x, kernel):
        rows = x.detach().numpy().reshape(-1, x.shape[-1])
        result = np.empty(rows.shape, dtype=rows.dtype)
        for i, row in enumerate(rows):
            result[i] = np.convolve(row, kernel, mode="same")
        return torch.from_numpy(result).reshape(x.shape)

    @staticmethod
    def forward(x, kernel):
        if len(kernel) % 2 == 0 or tuple(kernel) != tuple(kernel[::-1]) or x.shape[-1] < len(kernel):
            raise ValueError("expected a symmetric kernel of odd length, no longer than the rows")
        return SymmetricBlur._blur(x, kernel)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.kernel = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return SymmetricBlur._blur(g, ctx.kernel), None


@right(inputs=lambda: (leaf(2, 9), 3))
class MaxPoolWithSource(Function):
    """Max pooling that cuts the rest of each row off and returns the place of each maximum."""

    @staticmethod
    def forward(ctx, x, window):
        count = x.shape[-1] // window
        values, source = x[..., : count * window].unflatten(-1, (count, window)).max(-1)
        source = source + window * torch.arange(count, device=x.device)
        ctx.save_for_backward(source)
        ctx.mark_non_differentiable(source)
        ctx.length = x.shape[-1]
        return values, source

    @staticmethod
    def backward(ctx, g, _):
        (source,) = ctx.saved_tensors
        return g.new_zeros(*g.shape[:-1], ctx.length).scatter(-1, source, g), None
