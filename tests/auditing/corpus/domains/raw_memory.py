"""Functions that read and write memory as a kernel does: strides, blocks, tiles."""

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import leaf

# --- broken ---


def _strided_index(shape, strides):
    index = torch.zeros(shape, dtype=torch.long)
    for dim, stride in enumerate(strides):
        steps = torch.arange(shape[dim]) * stride
        index = index + steps.view(-1, *[1] * (len(shape) - dim - 1))
    return index


def _read(tensor, index, offset=None):
    """Read a tensor's storage as a kernel with a bare pointer does; beyond the end there are zeros."""
    offset = tensor.storage_offset() if offset is None else offset
    size = tensor.untyped_storage().nbytes() // tensor.element_size() - offset
    memory = F.pad(tensor.detach().as_strided((size,), (1,), offset), (0, 1))
    return memory[index.clamp(max=size)]


@broken("input_layouts", "grad_output_layouts", inputs=lambda: (leaf(4, 3),))
class SiluStridesOfInput(Function):
    """Reads grad_output with the strides of the input, as a kernel behind torch.cat did (pytorch/pytorch#194719)."""

    @staticmethod
    def forward(x):
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return _read(g, _strided_index(x.shape, x.stride())) * s * (1 + x * (1 - s))


@broken("grad_output_layouts", inputs=lambda: (leaf(5, 4),))
class RowLogSumExpUnitStride(Function):
    """Reads one gradient per row with stride 1, wrong for the expanded gradient of a sum (k2-fsa/k2#1101)."""

    @staticmethod
    def forward(ctx, x):
        out = torch.logsumexp(x, 1)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, out = ctx.saved_tensors
        rows = _read(g, torch.arange(x.shape[0]))
        return rows.unsqueeze(1) * torch.exp(x - out.unsqueeze(1))


@broken(
    "input_layouts", "special_points", inputs=lambda: (torch.randn(6, 3, dtype=torch.float64)[2:].requires_grad_(),)
)
class SignedSquareFromStorageStart(Function):
    """Reads the saved input from the start of its storage and so ignores the offset of a slice."""

    @staticmethod
    def forward(x):
        return x * x.abs()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * _read(x, _strided_index(x.shape, x.stride()), offset=0).abs()


def _channels_last(*shape):
    x = torch.randn(shape, dtype=torch.float64)
    return x.to(memory_format=torch.channels_last).requires_grad_()


@broken("input_layouts", "grad_output_layouts", inputs=lambda: (_channels_last(2, 3, 2, 2), leaf(3)))
class ChannelScaleLayoutOfGradient(Function):
    """Decides the memory format by grad_output and reads the input with the same one (pytorch/pytorch#64100)."""

    @staticmethod
    def forward(x, scale):
        return x * scale.view(-1, 1, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        same_order = _read(x, _strided_index(g.shape, g.stride()))
        return g * scale.view(-1, 1, 1), (g * same_order).sum((0, 2, 3))


@broken("unwritten_memory", "repeatable", inputs=lambda: (leaf(9, 2), [4, 2, 3], 3))
class PackSegmentsUnwrittenTail(Function):
    """Rows that the packing cuts off keep what was in the memory of the new gradient (pytorch/FBGEMM#5754)."""

    @staticmethod
    def forward(ctx, x, lengths, width):
        ctx.lengths = lengths
        ctx.rows = x.shape[0]
        packed = x.new_zeros(len(lengths), width, x.shape[1])
        for row, part in zip(packed, x.split(lengths), strict=True):
            kept = min(len(part), width)
            row[:kept] = part[:kept]
        return packed

    @staticmethod
    def backward(ctx, g):
        grad_x = g.new_empty(ctx.rows, g.shape[2])
        start = 0
        for row, length in enumerate(ctx.lengths):
            kept = min(length, g.shape[1])
            grad_x[start : start + kept] = g[row, :kept]
            start += length
        return grad_x, None, None


@broken("first_order", inputs=lambda: (leaf(7, 3), leaf(3), leaf(3)))
class AffineFloorOfBlocks(Function):
    """Rounds the number of row blocks down, so the last rows miss in the weight's gradient (BobMcDear/attorch#18)."""

    @staticmethod
    def forward(x, weight, bias):
        return x * weight + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        block = 4 if x.shape[0] >= 4 else 1
        rows = x.shape[0] // block * block
        partial = (g * x)[:rows].unflatten(0, (-1, block)).sum(1)
        return g * weight, partial.sum(0), g.sum(0)


@broken("sizes", inputs=lambda: (leaf(3, 6),))
class LogSoftmaxFirstTile(Function):
    """The sum over a row stops after one tile of 128 columns."""

    @staticmethod
    def forward(x):
        return torch.log_softmax(x, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (log_p,) = ctx.saved_tensors
        total = g[:, :128].sum(1, keepdim=True)
        return g - torch.exp(log_p) * total


@broken("first_order", "grad_output_layouts", inputs=lambda: (leaf(4, 3), leaf(2, 3)))
class LinearOwnOutputOrder(Function):
    """Returns a transposed result and expects grad_output to have the same strides."""

    @staticmethod
    def forward(x, weight):
        return (weight @ x.t()).t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.strides = output.stride()
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        g = _read(g, _strided_index(g.shape, ctx.strides))
        return g @ weight, g.t() @ x
