"""Sorts, maxima and quantiles."""

import math

import numpy as np
import torch
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, REAL, leaf, only

# --- broken ---


@broken("inputs_unchanged", "checkpoint", inputs=lambda: (leaf(3, 5),))
class SortedRowsNumpy(Function):
    """Sorts the NumPy array that shares the memory of the input, so the input itself is sorted."""

    @staticmethod
    def forward(ctx, x):
        rows = x.detach().numpy()
        ctx.save_for_backward(torch.from_numpy(rows.argsort(axis=1)))
        rows.sort(axis=1)
        return torch.from_numpy(rows.copy())

    @staticmethod
    def backward(ctx, g):
        (order,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(1, order, g)


@broken("special_points", inputs=lambda: (leaf(3, 5),))
class MaxAllTies(Function):
    """Gives the whole gradient to every tied maximum, so that a row's gradient sums to more than grad_output."""

    @staticmethod
    def forward(x):
        return x.amax(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x == x.amax(-1, keepdim=True)).to(g.dtype)


@broken("input_layouts", "unused_saved", inputs=lambda: (leaf(3, 4),))
class RowMaximumScatterIntoCopy(Function):
    """Writes into zeros_like(x).reshape(-1), a copy when x is transposed: the gradient is silently all zeros."""

    @staticmethod
    def forward(ctx, x):
        values, index = x.max(-1)
        ctx.save_for_backward(x, index)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, index = ctx.saved_tensors
        grad = torch.zeros_like(x)
        flat = torch.arange(index.numel()) * x.shape[-1] + index.reshape(-1)
        grad.reshape(-1)[flat] = g.reshape(-1)
        return grad


@broken("unwritten_memory", "repeatable", inputs=lambda: (leaf(3, 6), 2))
class TopValuesUninitializedGradient(Function):
    """Scatters into empty_like, so entries outside the top k hold whatever the allocator left there."""

    @staticmethod
    def forward(ctx, x, k):
        values, index = torch.topk(x, k)
        ctx.save_for_backward(x, index)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, index = ctx.saved_tensors
        grad = torch.empty_like(x)
        return grad.scatter_(-1, index, g), None


# --- right ---


@right(inputs=lambda: (leaf(3, 5),))
def sorted_with_positions(x):
    """Returns a named tuple with an integer output, and has kinks where two entries tie."""
    return torch.sort(x, dim=-1)


@right(inputs=lambda: (leaf(3, 5), 2))
def largest_few(x, k):
    """Most entries have a zero gradient, and the positions are integers."""
    values, positions = torch.topk(x, k, dim=1)
    return values, positions


@right(inputs=lambda: (leaf(3, 4),))
def maximum_with_its_copy(x):
    """Every maximum ties with a copy of itself; each of them gets half the gradient, and the halves add up."""
    return torch.cat([x, x], dim=1).amax(dim=1)


@right(inputs=lambda: (leaf(3, 4),))
class DescendingWithRanks(Function):
    """The second output holds integers and is marked as not differentiable; its gradient is ignored."""

    @staticmethod
    def forward(x):
        values, positions = torch.sort(x, dim=-1, descending=True, stable=True)
        return values, positions

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, positions = output
        ctx.mark_non_differentiable(positions)
        ctx.save_for_backward(positions)

    @staticmethod
    def backward(ctx, g, _):
        (positions,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(-1, positions, g)


@right(inputs=lambda: (leaf(3, 5), True))
class SortedWithRank(Function):
    """Sorts each row and also returns two integer outputs, which have no gradient."""

    @staticmethod
    def forward(x, descending):
        values, order = x.sort(dim=-1, descending=descending)
        return values, order, order.argsort(dim=-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, order, rank = output
        ctx.mark_non_differentiable(order, rank)
        ctx.save_for_backward(rank)

    @staticmethod
    def backward(ctx, g, _order, _rank):
        (rank,) = ctx.saved_tensors
        return g.gather(-1, rank), None


@right(inputs=lambda: (leaf(3, 6),))
class SparseMaxRows(Function):
    """Projects each row on the simplex: piecewise linear, many exact zeros, and a backward that reads the support."""

    @staticmethod
    def forward(x):
        x = x - x.amax(-1, keepdim=True)
        ordered = x.sort(dim=-1, descending=True).values
        place = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
        excess = ordered.cumsum(-1) - 1
        size = (place * ordered > excess).sum(-1, keepdim=True)
        return (x - excess.gather(-1, size - 1) / size).clamp_min(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        support = (ctx.saved_tensors[0] > 0).to(g.dtype)
        mean = (g * support).sum(-1, keepdim=True) / support.sum(-1, keepdim=True)
        return support * (g - mean)


@right(inputs=lambda: (leaf(9), 0.3))
class InterpolatedQuantile(Function):
    """A quantile of all elements: at most two of them get a gradient, and the output is 0-dim."""

    @staticmethod
    def forward(ctx, x, level):
        if x.dim() != 1 or x.numel() == 0 or not 0 <= level <= 1:
            raise ValueError("expected a vector that is not empty and a level in [0, 1]")
        values, order = x.sort()
        place = level * (x.numel() - 1)
        low, high = math.floor(place), math.ceil(place)
        ctx.share, ctx.size = place - low, x.numel()
        ctx.save_for_backward(order[[low, high]])
        return values[low] + (values[high] - values[low]) * ctx.share

    @staticmethod
    def backward(ctx, g):
        (ends,) = ctx.saved_tensors
        parts = torch.stack([g * (1 - ctx.share), g * ctx.share])
        return g.new_zeros(ctx.size).index_add(0, ends, parts), None


@right(inputs=lambda: (leaf(3, 5),))
class OddEvenSort(Function):
    """Returns the permutation too, an integer output that carries no gradient."""

    @staticmethod
    def forward(x):
        only(REAL, x)
        n = x.shape[-1]
        values = list(x.unbind(-1))
        order = [torch.full_like(x[..., 0], i, dtype=torch.long) for i in range(n)]
        for phase in range(n):
            for i in range(phase % 2, n - 1, 2):
                a, b, p, q = values[i], values[i + 1], order[i], order[i + 1]
                swap = a > b
                values[i], values[i + 1] = torch.where(swap, b, a), torch.where(swap, a, b)
                order[i], order[i + 1] = torch.where(swap, q, p), torch.where(swap, p, q)
        return torch.stack(values, -1), torch.stack(order, -1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        (order,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(-1, order, g)


@right(inputs=lambda: (leaf(6), leaf(6)))
class SortedTransportCost(Function):
    """Saves two argsorts, which are locally constant, so the second derivative that treats them so is right."""

    @staticmethod
    def forward(x, y):
        only(FULL, x, y)
        if x.dim() != 1 or x.shape != y.shape or x.numel() == 0:
            raise ValueError("expects two samples of one size, not empty")
        return (x.sort().values - y.sort().values).square().mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y, x.argsort(), y.argsort())

    @staticmethod
    def backward(ctx, g):
        x, y, p, q = ctx.saved_tensors
        pull = g * 2 / x.numel() * (x[p] - y[q])
        grad_x = torch.zeros_like(pull).scatter(0, p, pull) if ctx.needs_input_grad[0] else None
        grad_y = torch.zeros_like(pull).scatter(0, q, -pull) if ctx.needs_input_grad[1] else None
        return grad_x, grad_y


@right(inputs=lambda: (leaf(8),))
class IsotonicFit(Function):
    """NumPy pool-adjacent-violators: piecewise linear, the gradient averages over the pooled blocks."""

    @staticmethod
    def forward(ctx, y):
        only(FULL, y)
        if y.dim() != 1:
            raise ValueError("expects one sequence")
        sums, sizes = [], []
        for value in y.detach().cpu().numpy().astype(np.float64):
            sums.append(value)
            sizes.append(1)
            while len(sums) > 1 and sums[-2] / sizes[-2] > sums[-1] / sizes[-1]:
                sums[-2:] = [sums[-2] + sums[-1]]
                sizes[-2:] = [sizes[-2] + sizes[-1]]
        means = np.array([s / n for s, n in zip(sums, sizes, strict=True)], dtype=np.float64)
        ctx.sizes = sizes
        return torch.from_numpy(np.repeat(means, np.array(sizes, dtype=np.int64))).to(y)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        parts = [part.mean().expand(part.shape[0]) for part in g.split(ctx.sizes)] if ctx.sizes else [g]
        return torch.cat(parts)


@right(inputs=lambda: (leaf(3, 6, 2), 1, 2))
class TrimmedMean(Function):
    """Drops the extremes along one dimension: their gradient is zero, and the kept set is locally constant."""

    @staticmethod
    def forward(x, dim, trim):
        only(FULL, x)
        if x.shape[dim] <= 2 * trim:
            raise ValueError("trims everything")
        return x.sort(dim).values.narrow(dim, trim, x.shape[dim] - 2 * trim).mean(dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, trim = inputs
        kept = x.argsort(dim=ctx.dim).narrow(ctx.dim, trim, x.shape[ctx.dim] - 2 * trim)
        ctx.save_for_backward(kept)
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        (kept,) = ctx.saved_tensors
        share = (g / kept.shape[ctx.dim]).unsqueeze(ctx.dim).expand(kept.shape)
        return g.new_zeros(ctx.shape).scatter(ctx.dim, kept, share), None, None
