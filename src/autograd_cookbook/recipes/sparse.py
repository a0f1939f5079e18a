"""Sums over an index: sparse products, lookups and segments. Their gradients are again sums over an index."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._opaque import opaque
from autograd_cookbook.recipes.elementwise import wide

# The number of elements in a chunk. They take 1 MB in float32, so they stay in the cache from the lookup to the sum.
CHUNK = 2**18


def parts(count: int, width: int) -> list[slice]:
    """Return consecutive slices of the stored places, or one empty slice if there is no place.

    Under torch.compile, return one slice for all places, because the compiler looks up, multiplies and adds in one loop
    without storing products.
    """
    step = max(count, 1) if torch.compiler.is_compiling() else max(CHUNK // max(width, 1), 1)
    return [slice(start, start + step) for start in range(0, max(count, 1), step)]


def multiply(row: Tensor, column: Tensor, values: Tensor, input: Tensor, rows: int) -> Tensor:
    """Return the product of the sparse matrix and a dense matrix, computed for a few stored places at a time."""
    # The sum over no elements is a row of zeros. Under vmap, there is such a row for each element of the batch.
    nothing = wide(values)[:0, None] * wide(input).index_select(0, column[:0])
    output = nothing.sum(0).repeat(rows, 1)
    try:
        for part in parts(len(row), input.shape[1]):
            terms = wide(values[part])[:, None] * wide(input.index_select(0, column[part]))
            output.index_add_(0, row[part], terms)
    except (IndexError, RuntimeError):
        _expect_between("rows", row, rows)
        _expect_between("columns", column, len(input))
        raise
    return output.to(input.dtype)


def multiply_like(row: Tensor, column: Tensor, values: Tensor, input: Tensor, rows: int) -> Tensor:
    """Return a tensor like this product, but without values."""
    return input.new_empty(rows, input.shape[1])


# Without the opaque operator, torch.compile would save the looked-up rows for the sampled product in backward.
in_chunks = opaque("sparse_mm", multiply, multiply_like)


def sample(row: Tensor, column: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return the entries of ``left @ right.mT`` at some places, computed for a few places at a time."""
    try:
        entries = [
            (wide(left.index_select(0, row[part])) * wide(right.index_select(0, column[part]))).sum(1)
            for part in parts(len(row), left.shape[1])
        ]
    except IndexError:
        _expect_between("rows", row, len(left))
        _expect_between("columns", column, len(right))
        raise
    return torch.cat(entries).to(left.dtype)


def _expect_between(what: str, index: Tensor, size: int) -> None:
    if index.numel() and not (index.min() >= 0 and index.max() < size):
        raise IndexError(f"expected {what} from 0 to {size - 1}, got {index.min()} to {index.max()}")


class SparseMMFunction(Function):
    """Keeps its arguments. The gradient of the values is a sampled product, that of the input a sparse product."""

    generate_vmap_rule = True

    @staticmethod
    def forward(row: Tensor, column: Tensor, values: Tensor, input: Tensor, rows: int) -> Tensor:
        return in_chunks(row, column, values, input, rows)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:4])

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        row, column, values, input = ctx.saved_tensors
        grad_values = grad_input = None
        if ctx.needs_input_grad[2]:
            grad_values = SampledProductFunction.apply(row, column, grad_output, input.conj())
        if ctx.needs_input_grad[3]:
            grad_input = SparseMMFunction.apply(column, row, values.conj(), grad_output, len(input))
        return None, None, grad_values, grad_input, None


class SampledProductFunction(Function):
    """Keeps its arguments. Each gradient is a sparse product whose values are the gradients of the entries."""

    generate_vmap_rule = True

    @staticmethod
    def forward(row: Tensor, column: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return sample(row, column, left, right)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        row, column, left, right = ctx.saved_tensors
        grad_left = grad_right = None
        if ctx.needs_input_grad[2]:
            grad_left = SparseMMFunction.apply(row, column, grad_output, right.conj(), len(left))
        if ctx.needs_input_grad[3]:
            grad_right = SparseMMFunction.apply(column, row, grad_output, left.conj(), len(right))
        return None, None, grad_left, grad_right


def _expect_floating(*tensors: Tensor) -> None:
    for tensor in tensors:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise TypeError(f"expected a floating or complex dtype, got {tensor.dtype}")
    first, *others = (tensor.dtype for tensor in tensors)
    for other in others:
        if other != first:
            raise RuntimeError(f"expected two tensors of one dtype, got {first} and {other}")


def _expect_places(indices: Tensor) -> None:
    if indices.dtype is not torch.int64:
        raise RuntimeError(f"expected indices of dtype torch.int64, got {indices.dtype}")
    if indices.dim() != 2 or len(indices) != 2:
        raise ValueError(f"expected indices of shape (2, nnz), got {tuple(indices.shape)}")


def sparse_mm(indices: Tensor, values: Tensor, input: Tensor, rows: int) -> Tensor:
    r"""Multiply a sparse matrix by a dense one. Neither forward nor backward makes the sparse matrix dense.

    .. math::
        Y_{ik} = \sum_{e:\, r_e = i} a_e X_{c_e k}, \qquad
        \bar{a}_e = \sum_k \bar{Y}_{r_e k}\, X_{c_e k}^*, \qquad
        \bar{X}_{jk} = \sum_{e:\, c_e = j} a_e^*\, \bar{Y}_{r_e k}

    Only the stored values have a gradient. Gradients of any order are sparse or sampled products, computed a few stored
    places at a time. In float16 and bfloat16, products and sums are computed in float32 and rounded once.

    Args:
        indices: ``(2, nnz)``, int64: row and column of each value, in any order. Values at the same place are summed.
        values: ``(nnz,)``, floating or complex.
        input: ``(columns, ...)``, same dtype.
        rows: the number of rows of the sparse matrix. The matrix has as many columns as ``input`` has rows.

    Returns:
        A tensor of shape ``(rows, ...)``, dtype of ``input``.

    Raises:
        IndexError: if a row or a column is out of range; on a GPU, the device raises an assertion instead.
        RuntimeError: if dtypes do not fit.
        TypeError: if ``values`` or ``input`` is neither floating nor complex.
        ValueError: if shapes do not fit.

    >>> indices = torch.tensor([[0, 1, 1], [1, 0, 2]])
    >>> values = torch.tensor([2.0, 3.0, 4.0], requires_grad=True)
    >>> y = sparse_mm(indices, values, torch.tensor([[1.0], [10.0], [100.0]]), rows=2)
    >>> y.sum().backward()
    >>> y.flatten().tolist(), values.grad.tolist()
    ([20.0, 403.0], [10.0, 1.0, 100.0])
    """
    _expect_places(indices)
    _expect_floating(values, input)
    if values.shape != indices.shape[1:]:
        raise ValueError(f"expected values of shape {tuple(indices.shape[1:])}, got {tuple(values.shape)}")
    if input.dim() == 0:
        raise ValueError("expected input of shape (columns, ...), got a scalar")
    if rows < 0:
        raise ValueError(f"expected rows >= 0, got {rows}")
    width = math.prod(input.shape[1:])
    output = SparseMMFunction.apply(*indices.unbind(), values, input.reshape(len(input), width), rows)
    return output.reshape(rows, *input.shape[1:])


def sampled_product(indices: Tensor, left: Tensor, right: Tensor) -> Tensor:
    r"""Compute entries of ``left @ right.T`` at some places, without computing the other entries.

    .. math::
        s_e = \sum_k L_{r_e k} R_{c_e k}, \qquad
        \bar{L}_{ik} = \sum_{e:\, r_e = i} \bar{s}_e\, R_{c_e k}^*, \qquad
        \bar{R}_{jk} = \sum_{e:\, c_e = j} \bar{s}_e\, L_{r_e k}^*

    This function computes the gradient of the values in :func:`sparse_mm`. It is also useful by itself, for scores on
    the edges of a graph, or for predictions at the known entries of a matrix. In float16 and bfloat16, sums are
    computed in float32.

    Args:
        indices: ``(2, nnz)``, int64: row and column of each entry, in any order.
        left: ``(rows, features)``, floating or complex.
        right: ``(columns, features)``, same dtype.

    Returns:
        A tensor of shape ``(nnz,)``, dtype of ``left``.

    Raises:
        IndexError: if a row or a column is out of range; on a GPU, the device raises an assertion instead.
        RuntimeError: if dtypes do not fit.
        TypeError: if ``left`` or ``right`` is neither floating nor complex.
        ValueError: if shapes do not fit.

    >>> left = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> entries = sampled_product(torch.tensor([[0, 1], [1, 1]]), left, torch.eye(2))
    >>> entries.sum().backward()
    >>> entries.tolist(), left.grad.tolist()
    ([2.0, 4.0], [[0.0, 1.0], [0.0, 1.0]])
    """
    _expect_places(indices)
    _expect_floating(left, right)
    if left.dim() != 2 or right.dim() != 2 or left.shape[1] != right.shape[1]:
        raise ValueError(
            f"expected two matrices with as many columns, got shapes {tuple(left.shape)} and {tuple(right.shape)}"
        )
    return SampledProductFunction.apply(*indices.unbind(), left, right)


def total(input: Tensor, index: Tensor, size: int) -> Tensor:
    """Return the sum of the rows of each segment, in float32 or wider."""
    # The zeros are one row, expanded, so index_add makes the only tensor of full size.
    return torch.zeros_like(wide(input[:1]).sum(0)).expand(size, *input.shape[1:]).index_add(0, index, wide(input))


class TakeRowsFunction(Function):
    """Keeps the index. The gradient of a lookup is a sum over segments."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, index: Tensor) -> Tensor:
        return input.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        input, index = inputs
        ctx.size = len(input)
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return SegmentSumFunction.apply(grad_output, index, ctx.size), None


class SegmentSumFunction(Function):
    """Keeps the index. The gradient of a sum over segments is a lookup."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, index: Tensor, size: int) -> Tensor:
        return total(input, index, size).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return TakeRowsFunction.apply(grad_output, index), None, None


def _expect_index(input: Tensor, index: Tensor) -> None:
    _expect_floating(input)
    if index.dtype is not torch.int64:
        raise RuntimeError(f"expected index of dtype torch.int64, got {index.dtype}")
    if input.dim() == 0:
        raise ValueError("expected input of shape (rows, ...), got a scalar")


def _expect_segments(input: Tensor, index: Tensor, size: int) -> None:
    _expect_index(input, index)
    if index.shape != input.shape[:1]:
        raise ValueError(f"expected index of shape {tuple(input.shape[:1])}, got {tuple(index.shape)}")
    if size < 0:
        raise ValueError(f"expected size >= 0, got {size}")


def take_rows(input: Tensor, index: Tensor) -> Tensor:
    r"""Look up rows, as an embedding does. The gradients of a repeated row are summed in float32 or wider.

    .. math:: y_e = x_{i_e}, \qquad \bar{x}_j = \sum_{e:\, i_e = j} \bar{y}_e

    In bfloat16, :func:`torch.nn.functional.embedding` adds gradients in bfloat16, where ``256 + 1`` is 256 (torch 2.13,
    CPU). So a row that occurs 4000 times gets a gradient only 256 times as large as a row that occurs once.

    Args:
        input: ``(size, ...)``, floating or complex.
        index: any shape, int64.

    Returns:
        A tensor of shape ``(*index.shape, ...)``.

    Raises:
        IndexError: if an index is out of range; on a GPU, the device raises an assertion instead.
        RuntimeError: if ``index`` is not int64.
        TypeError: if ``input`` is neither floating nor complex.
        ValueError: if ``input`` is a scalar.

    >>> table = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    >>> take_rows(table, torch.zeros(4000, dtype=torch.int64)).sum().backward()
    >>> table.grad.flatten().tolist()
    [4000.0, 0.0]
    """
    _expect_index(input, index)
    return TakeRowsFunction.apply(input, index.reshape(-1)).reshape((*index.shape, *input.shape[1:]))


def segment_sum(input: Tensor, index: Tensor, size: int) -> Tensor:
    r"""Sum of the rows of each segment. An index says which segment each row belongs to.

    .. math:: y_j = \sum_{e:\, i_e = j} x_e, \qquad \bar{x}_e = \bar{y}_{i_e}

    Args:
        input: ``(rows, ...)``, floating or complex. float16 and bfloat16 are summed in float32.
        index: ``(rows,)``, int64, in any order.
        size: the number of segments. The sum of an empty segment is 0.

    Returns:
        A tensor of shape ``(size, ...)``.

    Raises:
        IndexError or RuntimeError: if an index is out of range, as in :meth:`torch.Tensor.index_add_`.
        RuntimeError: if ``index`` is not int64.
        TypeError: if ``input`` is neither floating nor complex.
        ValueError: if shapes do not fit.

    >>> x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> y = segment_sum(x, torch.tensor([0, 2, 0]), size=3)
    >>> y.square().sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([4.0, 0.0, 2.0], [8.0, 4.0, 8.0])
    """
    _expect_segments(input, index, size)
    return SegmentSumFunction.apply(input, index, size)


def counts(index: Tensor, input: Tensor, size: int) -> Tensor:
    """Return the number of rows of each segment, in a shape that broadcasts. It is 1 for an empty segment."""
    count = total(torch.ones_like(index), index, size).clamp(min=1)
    return count.reshape(size, *(1 for _ in input.shape[1:]))


class SegmentMeanFunction(Function):
    """Keeps the index. Forward divides the rows before it adds them, so that no sum overflows."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, index: Tensor, size: int) -> Tensor:
        share = wide(input) / counts(index, input, size).index_select(0, index)
        return total(share, index, size).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        _, index, ctx.size = inputs
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        share = (wide(grad_output) / counts(index, grad_output, ctx.size)).to(grad_output.dtype)
        return TakeRowsFunction.apply(share, index), None, None


def segment_mean(input: Tensor, index: Tensor, size: int) -> Tensor:
    r"""Average of the rows of each segment.

    .. math:: y_j = \frac{1}{n_j} \sum_{e:\, i_e = j} x_e, \qquad \bar{x}_e = \frac{\bar{y}_{i_e}}{n_{i_e}}

    Args:
        input: ``(rows, ...)``, floating or complex. float16 and bfloat16 are averaged in float32.
        index: ``(rows,)``, int64, in any order.
        size: the number of segments. The mean of an empty segment is 0.

    Returns:
        A tensor of shape ``(size, ...)``.

    Raises:
        IndexError or RuntimeError: if an index is out of range, as in :meth:`torch.Tensor.index_add_`.
        RuntimeError: if ``index`` is not int64.
        TypeError: if ``input`` is neither floating nor complex.
        ValueError: if shapes do not fit.

    >>> x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> y = segment_mean(x, torch.tensor([0, 2, 0]), size=3)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([2.0, 0.0, 2.0], [0.5, 1.0, 0.5])
    """
    _expect_segments(input, index, size)
    return SegmentMeanFunction.apply(input, index, size)


def largest(input: Tensor, index: Tensor, size: int) -> Tensor:
    """Return the maximum over the rows of each segment. It is 0 for an empty segment."""
    start = torch.zeros_like(input[:1].sum(0)).expand(size, *input.shape[1:])
    places = index.reshape(-1, *(1 for _ in input.shape[1:])).expand(input.shape)
    return start.scatter_reduce(0, places, input, "amax", include_self=False)


class SegmentMaxFunction(Function):
    """Keeps input, output and index. The maximum is at the elements where input and output are equal."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, index: Tensor, size: int) -> Tensor:
        return largest(input, index, size)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        input, index, ctx.size = inputs
        ctx.save_for_backward(input, index, output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        input, index, output = ctx.saved_tensors
        is_max = (input == output.index_select(0, index)).to(wide(input).dtype)
        share = is_max / total(is_max, index, ctx.size).index_select(0, index)
        return (TakeRowsFunction.apply(grad_output, index) * share).to(input.dtype), None, None


def segment_max(input: Tensor, index: Tensor, size: int) -> Tensor:
    r"""Maximum of the rows of each segment, entry by entry. Equal maxima share the gradient evenly.

    .. math::
        y_j = \max_{e:\, i_e = j} x_e, \qquad
        \bar{x}_e = \bar{y}_j \frac{[x_e = y_j]}{\sum_{f:\, i_f = j} [x_f = y_j]}, \quad j = i_e

    Args:
        input: ``(rows, ...)``, real floating dtype.
        index: ``(rows,)``, int64, in any order.
        size: the number of segments. The maximum of an empty segment is 0.

    Returns:
        A tensor of shape ``(size, ...)``.

    Raises:
        RuntimeError: if an index is out of range, or ``index`` is not int64.
        TypeError: if ``input`` is not of a real floating dtype.
        ValueError: if shapes do not fit.

    >>> x = torch.tensor([3.0, 2.0, 3.0], requires_grad=True)
    >>> y = segment_max(x, torch.tensor([0, 1, 0]), size=2)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([3.0, 2.0], [0.5, 1.0, 0.5])
    """
    if input.is_complex():
        raise TypeError(f"expected input of a real floating dtype, got {input.dtype}")
    _expect_segments(input, index, size)
    return SegmentMaxFunction.apply(input, index, size)


class SegmentSoftmaxFunction(Function):
    """Keeps output and index."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, index: Tensor, size: int) -> Tensor:
        # inf - inf is NaN, so replace both infinities by the largest finite numbers.
        limit = torch.finfo(wide(input).dtype).max
        x = wide(input).clamp(-limit, limit)
        powers = torch.exp(x - largest(x, index, size).index_select(0, index)).masked_fill(input == -torch.inf, 0)
        sums = total(powers, index, size)
        return (powers / sums.masked_fill(sums == 0, 1).index_select(0, index)).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        _, index, ctx.size = inputs
        ctx.save_for_backward(index, output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        index, output = ctx.saved_tensors
        y, g = wide(output), wide(grad_output)
        # Rounded weights do not add up to 1. Where one of them is nearly 1, the mean has to cancel its gradient to the
        # last digit, so divide by their sum.
        sums = SegmentSumFunction.apply(y, index, ctx.size)
        mean = SegmentSumFunction.apply(y * g, index, ctx.size) / sums.masked_fill(sums == 0, 1)
        return (y * (g - TakeRowsFunction.apply(mean, index))).to(grad_output.dtype), None, None


def segment_softmax(input: Tensor, index: Tensor, size: int) -> Tensor:
    r"""Softmax over the rows of each segment, entry by entry, as for attention over the edges that end in one node.

    .. math::
        p_e = \frac{e^{x_e}}{\sum_{f:\, i_f = i_e} e^{x_f}}, \qquad
        \bar{x}_e = p_e \Big(\bar{p}_e - \sum_{f:\, i_f = i_e} p_f \bar{p}_f\Big)

    An entry :math:`-\infty` has probability 0. A segment that contains only :math:`-\infty` has
    probabilities and gradients of 0. If a segment contains entries of :math:`+\infty`, these entries share its
    probability.

    Args:
        input: ``(rows, ...)``, real floating dtype. For float16 and bfloat16, the function computes in float32.
        index: ``(rows,)``, int64, in any order.
        size: the number of segments.

    Returns:
        A tensor like ``input``.

    Raises:
        RuntimeError: if an index is out of range, or ``index`` is not int64.
        TypeError: if ``input`` is not of a real floating dtype.
        ValueError: if shapes do not fit.

    >>> x = torch.tensor([0.0, 5.0, 0.0], requires_grad=True)
    >>> p = segment_softmax(x, torch.tensor([0, 1, 0]), size=2)
    >>> p[0].backward()
    >>> p.tolist(), x.grad.tolist()
    ([0.5, 1.0, 0.5], [0.25, 0.0, -0.25])
    """
    if input.is_complex():
        raise TypeError(f"expected input of a real floating dtype, got {input.dtype}")
    _expect_segments(input, index, size)
    return SegmentSoftmaxFunction.apply(input, index, size)
