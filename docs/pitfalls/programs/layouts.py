"""Functions that depend on memory or size."""

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, fixes, leaf
from torch.autograd import Function

# --- input_layouts ---


@broken("input_layouts", inputs=lambda: (leaf(4, 6), 3))
class MovingAverageByStrides(Function):
    """Forward makes its windows with as_strided, for the strides of a contiguous input."""

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


@fixes(MovingAverageByStrides)
class MovingAverageByUnfold(Function):
    """Forward uses unfold, which respects the strides."""

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


# --- grad_output_layouts ---


@broken("grad_output_layouts", inputs=lambda: (leaf(2, 3, 4), leaf(5, 4)), source="NVIDIA/apex#1573")
class LinearViewsGradOutput(Function):
    """Backward flattens grad_output with view, which raises if a transpose or a sum follows the function."""

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


@fixes(LinearViewsGradOutput)
class LinearReshapesGradOutput(Function):
    """Backward flattens grad_output with reshape, which copies if necessary."""

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


# --- given_layout ---


@broken("given_layout", inputs=lambda: (leaf(4, 8).detach()[:, :5].requires_grad_(),))
class QueryNormAssumesDenseRows(Function):
    """The function checks that neighbors in a row are neighbors in memory, but it assumes that each row starts in
    memory where the row before it ends. The input of this call, ``wider[:, :5]``, is a part of rows with 8 elements, so
    each row starts 3 elements later.
    """

    @staticmethod
    def forward(x):
        if x.stride(-1) != 1 or x.stride(0) < x.shape[-1]:
            x = x.contiguous()
        rows = x.as_strided(x.shape, (x.shape[-1], 1))  # a kernel that gets only a pointer and a shape reads this
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


@fixes(QueryNormAssumesDenseRows)
class QueryNormAsksForDenseRows(Function):
    """The function makes the input contiguous if it is not."""

    @staticmethod
    def forward(x):
        x = x.contiguous()
        rows = x.as_strided(x.shape, (x.shape[-1], 1))  # a kernel that gets only a pointer and a shape reads this
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


# --- empty ---


@broken("empty", inputs=lambda: (leaf(4, 3), leaf(3, 3)))
class QuadraticFormSumsInPython(Function):
    """Backward adds the matrix gradient sample by sample. For an empty batch, this sum is the Python number 0."""

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


@fixes(QuadraticFormSumsInPython)
class QuadraticFormSumsByMatmul(Function):
    """Backward uses a matrix product, which returns a matrix of zeros for an empty batch."""

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


# --- sizes ---


@broken("sizes", inputs=lambda: (leaf(8, 3), leaf(3)))
class PreluLeavesTheLastTile(Function):
    """Backward sums the gradient of the slope over tiles of four rows, and skips the rows after the last full tile."""

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


@fixes(PreluLeavesTheLastTile)
class PreluTakesTheLastTile(Function):
    """Backward rounds the number of tiles up, so that the last tile may have fewer rows."""

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


# --- unwritten_memory ---


@broken(
    "unwritten_memory",
    "repeatable",
    inputs=lambda: (leaf(6, 3), torch.tensor([2, 3, 1])),
    source="pytorch/pytorch#1347",
)
class RaggedMeanMasksGarbage(Function):
    """The function multiplies unwritten memory by a mask of zeros. If the memory holds NaN, the product is NaN."""

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


@fixes(RaggedMeanMasksGarbage)
class RaggedMeanPadsWithZeros(Function):
    """The function starts with zeros, so the padding is zero before the function applies the mask."""

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
