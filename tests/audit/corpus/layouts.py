"""Functions that depend on memory or size: one for each finding of the family."""

import torch
import torch.nn.functional as F
from torch.autograd import Function

from tests.audit.corpus import broken, right


def leaf(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


# --- input_layouts ---


@broken("input_layouts", inputs=lambda: (leaf(4, 6), 3), shown=True)
class MovingAverageByStrides(Function):
    """Makes its windows with as_strided, for strides that only a contiguous input has."""

    @staticmethod
    def forward(x, width):
        rows, length = x.shape
        windows = x.as_strided((rows, length - width + 1, width), (length, 1, 1))
        return windows.mean(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.width = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        shifted = (F.pad(grad_output, (i, ctx.width - 1 - i)) for i in range(ctx.width))
        return sum(shifted) / ctx.width, None


@right(inputs=lambda: (leaf(4, 6), 3), mends="MovingAverageByStrides")
class MovingAverageByUnfold(Function):
    """Leaves it to unfold to heed the strides."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, width):
        return x.unfold(-1, width, 1).mean(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.width = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        shifted = (F.pad(grad_output, (i, ctx.width - 1 - i)) for i in range(ctx.width))
        return sum(shifted) / ctx.width, None


@broken("input_layouts", inputs=lambda: (leaf(4, 3),))
class ReluKeepsTheStrides(Function):
    """Gives the result the strides of the input; in an expanded one many elements are one place in memory."""

    @staticmethod
    def forward(x):
        result = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        return result.copy_(x.clamp(min=0))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * (y > 0)


@broken("input_layouts", inputs=lambda: (leaf(4, 3), 0.5))
class DropoutByView(Function):
    """Draws one number for each element in a row, and views the input as that row, which needs contiguous memory."""

    @staticmethod
    def forward(x, p):
        flat = x.view(-1)
        mask = (torch.rand(len(flat)) >= p).to(x) / (1 - p)
        return (flat * mask).view(x.shape), mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (mask,) = ctx.saved_tensors
        return grad_output * mask.view(grad_output.shape), None


@broken("input_layouts", inputs=lambda: (leaf(4, 3), 0.5))
class DropoutInMemoryOrder(Function):
    """Masks the elements in the order in which they lie in memory, and their gradients in the order of the rows."""

    @staticmethod
    def forward(x, p):
        mask = (torch.rand(x.numel()) >= p).to(x) / (1 - p)
        if x.stride(0) < x.stride(1):
            return (x.mT * mask.view(x.mT.shape)).mT.contiguous(), mask
        return x * mask.view(x.shape), mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (mask,) = ctx.saved_tensors
        return grad_output * mask.view(grad_output.shape), None


# --- grad_output_layouts ---


@broken("grad_output_layouts", inputs=lambda: (leaf(2, 3, 4), leaf(5, 4)), shown=True, source="NVIDIA/apex#1573")
class LinearViewsGradOutput(Function):
    """Flattens grad_output with view, which raises if the output was transposed or summed up."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_output @ weight if ctx.needs_input_grad[0] else None
        grad_weight = None
        if ctx.needs_input_grad[1]:
            rows = x.flatten(0, -2)
            grad_weight = grad_output.view(len(rows), len(weight)).mT @ rows
        return grad_x, grad_weight


@right(
    inputs=lambda: (leaf(2, 3, 4), leaf(5, 4)),
    mends="LinearViewsGradOutput",
    source="NVIDIA/apex#1573",
)
class LinearReshapesGradOutput(Function):
    """Flattens it with reshape, which copies where it must."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_output @ weight if ctx.needs_input_grad[0] else None
        grad_weight = None
        if ctx.needs_input_grad[1]:
            rows = x.flatten(0, -2)
            grad_weight = grad_output.reshape(len(rows), len(weight)).mT @ rows
        return grad_x, grad_weight


@broken("grad_output_layouts", inputs=lambda: (leaf(4, 3),))
class CumulativeSumHasAShortcut(Function):
    """Takes every stride of zero for a constant gradient, as behind sum(); one of them says less than that."""

    @staticmethod
    def forward(x):
        return x.cumsum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        if 0 in grad_output.stride():
            remaining = torch.arange(grad_output.shape[-1], 0, -1)
            return (remaining * grad_output.reshape(-1)[:1]).expand(grad_output.shape)
        return grad_output.flip(-1).cumsum(-1).flip(-1)


# --- given_layout ---


@broken("given_layout", inputs=lambda: (leaf(4, 8).detach()[:, :5].requires_grad_(),), shown=True)
class QueryNormAssumesDenseRows(Function):
    """Asks for neighbors in a row to be neighbors in memory, and takes it that the next row follows at once."""

    @staticmethod
    def forward(x):
        if x.stride(-1) != 1 or x.stride(0) < x.shape[-1]:
            x = x.contiguous()
        rows = x.as_strided(x.shape, (x.shape[-1], 1))  # what a kernel sees that is given a pointer and a shape
        return rows * (rows * rows).mean(-1, keepdim=True).add(1e-6).rsqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        scale = (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt()
        along = (grad_output * x).mean(-1, keepdim=True)
        return scale * grad_output - scale**3 * along * x


@right(inputs=lambda: (leaf(4, 8).detach()[:, :5].requires_grad_(),), mends="QueryNormAssumesDenseRows")
class QueryNormAsksForDenseRows(Function):
    """Makes the input contiguous unless it is, whatever its strides."""

    @staticmethod
    def forward(x):
        x = x.contiguous()
        rows = x.as_strided(x.shape, (x.shape[-1], 1))  # what a kernel sees that is given a pointer and a shape
        return rows * (rows * rows).mean(-1, keepdim=True).add(1e-6).rsqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        scale = (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt()
        along = (grad_output * x).mean(-1, keepdim=True)
        return scale * grad_output - scale**3 * along * x


@right(inputs=lambda: (leaf(9).detach().unfold(0, 4, 1).requires_grad_(),))
class OverlappingWindowsCentered(Function):
    """Its sample is a view in which windows share their memory; it reads it, and writes to memory of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(windows):
        return windows - windows.mean(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output - grad_output.mean(-1, keepdim=True)


# --- empty ---


@broken("empty", inputs=lambda: (leaf(4, 3), leaf(3, 3)), shown=True)
class QuadraticFormSumsInPython(Function):
    """Adds up the gradient of the matrix sample by sample, and the sum of no samples is the number 0."""

    @staticmethod
    def forward(x, matrix):
        return ((x @ matrix) * x).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, matrix = ctx.saved_tensors
        grad_x = grad_matrix = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output.unsqueeze(-1) * (x @ (matrix + matrix.mT))
        if ctx.needs_input_grad[1]:
            grad_matrix = sum(g * torch.outer(v, v) for g, v in zip(grad_output, x, strict=True))
        return grad_x, grad_matrix


@right(inputs=lambda: (leaf(4, 3), leaf(3, 3)), mends="QuadraticFormSumsInPython")
class QuadraticFormSumsByMatmul(Function):
    """A matrix product over no samples is a matrix of zeros."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, matrix):
        return ((x @ matrix) * x).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, matrix = ctx.saved_tensors
        grad_x = grad_matrix = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output.unsqueeze(-1) * (x @ (matrix + matrix.mT))
        if ctx.needs_input_grad[1]:
            grad_matrix = (grad_output.unsqueeze(-1) * x).mT @ x
        return grad_x, grad_matrix


@broken("empty", inputs=lambda: (leaf(4, 3), leaf(3)))
class BiasTakesAMeanOfNothing(Function):
    """Writes the sum over the batch as the mean times the size, which is NaN times zero for an empty batch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, bias):
        return x + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output.mean(0) * len(grad_output)


# --- sizes ---


@broken("sizes", inputs=lambda: (leaf(8, 3), leaf(3)), shown=True)
class PreluLeavesTheLastTile(Function):
    """Sums the gradient of the slope over tiles of four rows, and leaves out the rows after the last full tile."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, slope = ctx.saved_tensors
        grad_x = torch.where(x > 0, grad_output, slope * grad_output)
        per_row = grad_output * x.clamp(max=0)
        grad_slope = torch.zeros_like(slope)
        for tile in range(len(x) // 4):
            grad_slope = grad_slope + per_row[4 * tile : 4 * tile + 4].sum(0)
        return grad_x, grad_slope


@right(inputs=lambda: (leaf(8, 3), leaf(3)), mends="PreluLeavesTheLastTile")
class PreluTakesTheLastTile(Function):
    """Counts the tiles rounded up, so that the last one may have fewer rows."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, slope = ctx.saved_tensors
        grad_x = torch.where(x > 0, grad_output, slope * grad_output)
        per_row = grad_output * x.clamp(max=0)
        grad_slope = torch.zeros_like(slope, dtype=torch.promote_types(slope.dtype, torch.float32))
        for tile in range((len(x) + 3) // 4):
            grad_slope = grad_slope + per_row[4 * tile : 4 * tile + 4].sum(0)
        return grad_x, grad_slope.to(slope.dtype)


@broken("sizes", inputs=lambda: (leaf(4, 3), leaf(4, 1)))
class WeightedPoolSqueezesTheBatch(Function):
    """Squeezes all dims of size one: with a single sample the batch goes, too, and the product has no matrix."""

    @staticmethod
    def forward(x, weights):
        return weights.mT @ x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weights = ctx.saved_tensors
        grad_x = torch.outer(weights.squeeze(), grad_output.squeeze()) if ctx.needs_input_grad[0] else None
        return grad_x, (x @ grad_output.mT) if ctx.needs_input_grad[1] else None


def clipped_and_scaled(x):
    """What the gradient of SignScalesForTheSample is that of."""
    return x.clamp(-1, 1) / x.numel() ** 0.5


@broken("sizes", inputs=lambda: (leaf(4, 3),), surrogate=clipped_and_scaled)
class SignScalesForTheSample(Function):
    """Scales the surrogate gradient by the number of elements, written down as 12 because the sample had so many."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.where(x < 0, -1.0, 1.0).to(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1) / 12**0.5


# --- unwritten_memory ---


@broken(
    "unwritten_memory",
    inputs=lambda: (leaf(6, 3), torch.tensor([2, 3, 1])),
    shown=True,
    source="pytorch/pytorch#1347",
)
class RaggedMeanMasksGarbage(Function):
    """Multiplies memory that nobody wrote to by a mask of zeros, and zero times NaN is NaN."""

    @staticmethod
    def forward(x, lengths):
        padded = x.new_empty(len(lengths), int(lengths.max()), x.shape[-1])
        for row, part in zip(padded, x.split(lengths.tolist()), strict=True):
            row[: len(part)] = part
        mask = torch.arange(padded.shape[1]) < lengths.unsqueeze(-1)
        return (padded * mask.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        (lengths,) = ctx.saved_tensors
        return (grad_output / lengths.unsqueeze(-1)).repeat_interleave(lengths, 0), None


@right(
    inputs=lambda: (leaf(6, 3), torch.tensor([2, 3, 1])),
    mends="RaggedMeanMasksGarbage",
    source="pytorch/pytorch#1347",
)
class RaggedMeanPadsWithZeros(Function):
    """Begins with zeros, so that the padding is what the mask takes it for."""

    @staticmethod
    def forward(x, lengths):
        padded = x.new_zeros(len(lengths), int(lengths.max()), x.shape[-1])
        for row, part in zip(padded, x.split(lengths.tolist()), strict=True):
            row[: len(part)] = part
        mask = torch.arange(padded.shape[1]) < lengths.unsqueeze(-1)
        return (padded * mask.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        (lengths,) = ctx.saved_tensors
        return (grad_output / lengths.unsqueeze(-1)).repeat_interleave(lengths, 0), None
