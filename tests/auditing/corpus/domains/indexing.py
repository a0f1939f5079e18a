"""Gathering, scattering, slices and segments."""

import numpy as np
import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, between, leaf, only

# --- broken ---


@broken("second_order", "batched_grad", inputs=lambda: (leaf(4, 3), torch.tensor([2, 0, 2, 1, 3])))
class GatherRowsDataGrad(Function):
    """Scatters grad_output.data, so that the gradient is cut off from grad_output and a double backward from it."""

    @staticmethod
    def forward(x, index):
        return x.index_select(0, index)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, index = inputs
        ctx.rows = x.shape[0]
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        grad = g.new_zeros((ctx.rows, *g.shape[1:]))
        return grad.index_add(0, index, g.data), None


@broken("empty", "sizes", inputs=lambda: (leaf(4, 5), 3))
class FirstColumnsView(Function):
    """Pads by the columns that it was asked for, which is wrong where the input has fewer; it returns a view, too."""

    @staticmethod
    def forward(x, count):
        return x[..., :count]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.count = inputs
        ctx.size = x.shape[-1]

    @staticmethod
    def backward(ctx, g):
        return F.pad(g, (0, ctx.size - ctx.count)), None


@broken("returned", inputs=lambda: (leaf(3, 7), 2, 4))
class SliceBufferWithoutDtype(Function):
    """Makes its gradient buffer without a dtype, so that float64 gradients pass through float32."""

    @staticmethod
    def forward(x, start, length):
        return x.narrow(-1, start, length).clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.start, ctx.length = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        grad = torch.zeros(ctx.shape, device=g.device)
        grad[..., ctx.start : ctx.start + ctx.length] = g
        return grad, None, None


@broken("first_order", inputs=lambda: (leaf(4, 3), torch.tensor([0, 2, 2, 3, 1])))
class EmbeddingRowsAssigned(Function):
    """Adds the rows' gradients with `grad[index] += g`, which keeps one of them where an index occurs twice."""

    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = table.shape[0]
        return table[index]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        grad = g.new_zeros(ctx.rows, *g.shape[1:])
        grad[index] += g
        return grad, None


@broken(
    "first_order",
    "second_order",
    inputs=lambda: (between(-1.5, 1.5, 8, 2), torch.tensor([[3, 1], [0, 5], [7, 2], [3, 1], [6, 6], [2, 4]])),
)
class HashGridLookup(Function):
    """Writes the gradient of hashed grid features by assignment, so of two cells in one slot only one counts."""

    @staticmethod
    def forward(table, cells):
        return table[(cells[:, 0] ^ (cells[:, 1] * 2654435761)) % table.shape[0]]

    @staticmethod
    def setup_context(ctx, inputs, output):
        table, cells = inputs
        ctx.rows = table.shape[0]
        ctx.save_for_backward(cells)

    @staticmethod
    def backward(ctx, g):
        (cells,) = ctx.saved_tensors
        slot = (cells[:, 0] ^ (cells[:, 1] * 2654435761)) % ctx.rows
        grad = g.new_zeros(ctx.rows, g.shape[1])
        grad[slot] = g
        return grad, None


@broken(
    "unwritten_memory",
    "repeatable",
    "first_order",
    inputs=lambda: (between(-1.5, 1.5, 3, 5, 2), torch.tensor([5, 2, 3])),
)
class MeanOverTokens(Function):
    """Fills the gradient of the valid tokens into an empty tensor; what the padding gets is whatever was there."""

    @staticmethod
    def forward(hidden, lengths):
        return torch.stack([row[:n].sum(0) / max(n, 1) for row, n in zip(hidden, lengths.tolist(), strict=True)])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape
        ctx.lengths = inputs[1].tolist()

    @staticmethod
    def backward(ctx, g):
        grad = torch.empty(ctx.shape, dtype=g.dtype, device=g.device)
        for i, n in enumerate(ctx.lengths):
            grad[i, :n] = g[i] / max(n, 1)
        return grad, None


@broken("special_points", inputs=lambda: (leaf(8, 3), torch.tensor([5, 1, 7, 2])))
class RowsReadOnce(Function):
    """Writes the gradient of each row that was read, though a row may be read twice; the sample reads none twice."""

    @staticmethod
    def forward(table, index):
        return table[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        zeros = g.new_zeros(ctx.shape)
        return zeros.index_copy(0, index, g), None


# --- right ---


@right(inputs=lambda: (leaf(3, 5), torch.randint(0, 5, (3, 4))))
def gathered(x, index):
    """Takes integer positions that may repeat, so that gradients accumulate and some entries get none."""
    return torch.gather(x, 1, index)


@right(inputs=lambda: (leaf(4, 3), torch.tensor([2, 0, 2, 2, 1])))
def rows_by_number(x, index):
    """One row is read three times and one never."""
    return torch.index_select(x, 0, index)


@right(inputs=lambda: (torch.randint(0, 6, (2, 3)), leaf(6, 2)))
def looked_up(tokens, table):
    """The first argument is integer; most rows of the table have a zero gradient."""
    return F.embedding(tokens, table)


def _sparse_problem():
    rows = torch.tensor([0, 0, 1, 3, 3, 3])
    cols = torch.tensor([1, 4, 0, 2, 4, 2])
    return rows, cols, leaf(6), leaf(5), 4


@right(inputs=_sparse_problem)
class SparseMatVec(Function):
    """A sparse product by NumPy's add.at with integer coordinates, one of them repeated and one row empty."""

    @staticmethod
    def forward(rows, cols, values, x, size):
        if x.dim() != 1 or not rows.shape == cols.shape == values.shape or bool((cols < 0).any() or (rows < 0).any()):
            raise ValueError("expected a vector, and coordinates that are not negative for each value")
        values, x = values.detach().numpy(), x.detach().numpy()
        result = np.zeros(size, dtype=x.dtype)
        np.add.at(result, rows.numpy(), values * x[cols.numpy()])
        return torch.from_numpy(result)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:4])

    @staticmethod
    def backward(ctx, g):
        rows, cols, values, x = ctx.saved_tensors
        grad_values = grad_x = None
        if ctx.needs_input_grad[2]:
            grad_values = g[rows] * x[cols]
        if ctx.needs_input_grad[3]:
            grad_x = torch.zeros_like(x).index_add(0, cols, g[rows] * values)
        return None, None, grad_values, grad_x, None


@right(inputs=lambda: (leaf(4, 6), torch.rand(4, 6) > 0.4))
class SelectedSquares(Function):
    """The size of the output depends on a bool input, so no fixed shape describes it."""

    @staticmethod
    def forward(ctx, x, mask):
        if mask.shape != x.shape:
            raise ValueError("expected a mask of the shape of x")
        chosen = x[mask]
        ctx.save_for_backward(x, mask)
        return chosen * chosen, mask.sum()

    @staticmethod
    def backward(ctx, g, _):
        x, mask = ctx.saved_tensors
        return torch.zeros_like(x).masked_scatter(mask, g) * 2 * x, None


@right(inputs=lambda: (leaf(2, 4, 3), -1))
class DiagonalAsView(Function):
    """Returns a view of its input and saves a shape only; the gradient is written through a view of new zeros."""

    @staticmethod
    def forward(x, offset):
        return x.diagonal(offset, -2, -1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.offset = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        grad_x = g.new_zeros(ctx.shape)
        grad_x.diagonal(ctx.offset, -2, -1).copy_(g)
        return grad_x, None


def _bags():
    return leaf(6, 3), torch.tensor([[1, 4, 0, 0], [2, 2, 5, 0], [0, 0, 0, 0]]), 0


@right(inputs=_bags)
class MeanOfBags(Function):
    """Averages rows that integers choose, without the padding; one bag has padding only and row 3 is never used."""

    @staticmethod
    def forward(ctx, weight, index, padding):
        unused = index == padding
        share = 1 / (~unused).sum(1, keepdim=True).clamp_min(1).to(weight.dtype)
        ctx.save_for_backward(index, unused, share)
        ctx.shape = weight.shape
        return F.embedding(index, weight).masked_fill(unused[..., None], 0.0).sum(1) * share

    @staticmethod
    def backward(ctx, g):
        index, unused, share = ctx.saved_tensors
        rows = (g * share)[:, None].expand(*index.shape, g.shape[-1]).masked_fill(unused[..., None], 0.0)
        return g.new_zeros(ctx.shape).index_add(0, index.flatten(), rows.flatten(0, 1)), None, None


@right(inputs=lambda: (leaf(7, 3), torch.tensor([0, 0, 1, -1, 3, 3, 3]), 4))
class PoolWordPieces(Function):
    """Mean of the pieces of each word; special tokens (word -1) get zero gradient and a word may have no piece."""

    @staticmethod
    def _counts(word, words, like):
        ones = torch.where(word >= 0, 1, 0).to(like)
        return torch.zeros(words, dtype=like.dtype, device=like.device).index_add(0, word.clamp(min=0), ones)

    @staticmethod
    def forward(pieces, word, words):
        only(FULL, pieces)
        kept = torch.where((word >= 0).unsqueeze(1), pieces, 0)
        total = pieces.new_zeros(words, pieces.shape[1]).index_add(0, word.clamp(min=0), kept)
        return total / PoolWordPieces._counts(word, words, pieces).clamp(min=1).unsqueeze(1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, word, ctx.words = inputs
        ctx.save_for_backward(word)

    @staticmethod
    def backward(ctx, g):
        (word,) = ctx.saved_tensors
        share = g / PoolWordPieces._counts(word, ctx.words, g).clamp(min=1).unsqueeze(1)
        return torch.where((word >= 0).unsqueeze(1), share[word.clamp(min=0)], 0), None, None


@right(inputs=lambda: (leaf(10, 4), torch.randint(0, 10, (3, 5))))
class RowsWithoutColumns(Function):
    """Asks reshape for the number of rows, which cannot be told for rows without columns: no table has those."""

    @staticmethod
    def forward(table, index):
        return table[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.rows = inputs[0].shape[0]
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        zeros = g.new_zeros(ctx.rows, g.shape[-1])
        return zeros.index_add(0, index.reshape(-1), g.reshape(-1, g.shape[-1])), None


@right(inputs=lambda: (leaf(8, 3), torch.tensor([5, 1, 7, 2])))
class RowsReadOften(Function):
    """Adds the gradients of a row that is read more than once."""

    @staticmethod
    def forward(table, index):
        return table[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        zeros = g.new_zeros(ctx.shape)
        return zeros.index_add(0, index, g), None


@right(inputs=lambda: (leaf(5, 3), torch.tensor([3, 0, 4, 1, 2])))
class RowsInAnotherOrder(Function):
    """Takes a permutation, whose inverse the backward needs: no index may occur twice."""

    @staticmethod
    def forward(x, order):
        return x[order]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        return g[ctx.saved_tensors[0].argsort()], None
