"""The recipes of the page ``sparse``."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn
from autograd_cookbook.recipes import sparse

# The second and the last value are at the same place. Row 2 and column 0 have no value.
PLACES = torch.tensor([[3, 0, 1, 3, 0], [1, 2, 1, 3, 2]])
INDEX = torch.tensor([2, 0, 2, 3, 2])  # segment 1 is empty


def _sparse_mm() -> Iterator[Sample]:
    yield Sample("matrix", (PLACES, randn(5), randn(4, 3), 5))
    yield Sample("vector", (PLACES, randn(5), randn(4), 4))
    yield Sample("more dims", (PLACES, randn(5), randn(4, 2, 2), 4))
    yield Sample("frozen values", (PLACES, randn(5).detach(), randn(4, 3), 4))
    yield Sample("frozen input", (PLACES, randn(5), randn(4, 3).detach(), 4))
    yield Sample("complex", (PLACES, complex_randn(5), complex_randn(4, 3), 4))
    yield Sample("nothing stored", (PLACES[:, :0], randn(0), randn(4, 3), 4))
    yield Sample("no columns of input", (PLACES, randn(5), randn(4, 0), 4))


def dense(indices: Tensor, values: Tensor, rows: int, columns: int) -> Tensor:
    """The dense matrix, in float32 or wider, because otherwise a sum at one place would be rounded twice."""
    exact = values.to(torch.promote_types(values.dtype, torch.float32))
    return exact.new_zeros(rows, columns).index_put(tuple(indices), exact, accumulate=True)


def _dense_mm(indices: Tensor, values: Tensor, input: Tensor, rows: int) -> Tensor:
    matrix = dense(indices, values, rows, len(input))
    return torch.tensordot(matrix, input.to(matrix.dtype), 1).to(input.dtype)


def _gathered_mm(indices: Tensor, values: Tensor, input: Tensor, rows: int) -> Tensor:
    row, column = indices
    return input.new_zeros(rows, input.shape[1]).index_add(0, row, values[:, None] * input[column])


def _large() -> tuple[Tensor, Tensor, Tensor, int]:
    places = torch.randint(4000, (2, 40_000))
    return places, torch.randn(40_000).requires_grad_(), torch.randn(4000, 64).requires_grad_(), 4000


SPARSE_MM = Recipe(
    name="sparse_mm",
    function=sparse.sparse_mm,
    exports=("sparse_mm",),
    samples=_sparse_mm,
    reference=_dense_mm,
    cost=Cost(
        _large,
        saved=0,
        minimum=0,
        composition=_gathered_mm,
        unit="product",
        units=40_000 * 64,
        wins=("bytes",),
    ),
    limits=(COMPLEX_HALF,),
)


def _sampled_product() -> Iterator[Sample]:
    yield Sample("matrices", (PLACES, randn(4, 3), randn(5, 3)))
    yield Sample("one feature", (PLACES, randn(4, 1), randn(4, 1)))
    yield Sample("frozen right", (PLACES, randn(4, 3), randn(4, 3).detach()))
    yield Sample("complex", (PLACES, complex_randn(4, 2), complex_randn(4, 2)))
    yield Sample("no entries", (PLACES[:, :0], randn(4, 3), randn(4, 3)))
    yield Sample("no features", (PLACES, randn(4, 0), randn(4, 0)))


def _entries_of_product(indices: Tensor, left: Tensor, right: Tensor) -> Tensor:
    row, column = indices
    exact = torch.promote_types(left.dtype, torch.float32)
    return (left.to(exact) @ right.to(exact).mT)[row, column].to(left.dtype)


def _gathered_product(indices: Tensor, left: Tensor, right: Tensor) -> Tensor:
    row, column = indices
    return (left[row] * right[column]).sum(1)


SAMPLED_PRODUCT = Recipe(
    name="sampled_product",
    function=sparse.sampled_product,
    exports=("sampled_product",),
    samples=_sampled_product,
    reference=_entries_of_product,
    cost=Cost(
        lambda: (
            torch.randint(4000, (2, 40_000)),
            torch.randn(4000, 64).requires_grad_(),
            torch.randn(4000, 64).requires_grad_(),
        ),
        saved=0,
        minimum=0,
        composition=_gathered_product,
        unit="product",
        units=40_000 * 64,
    ),
    limits=(COMPLEX_HALF,),
)


def _take_rows() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), INDEX))
    yield Sample("vector", (randn(4), INDEX))
    yield Sample("index of two dims", (randn(4, 2), INDEX[:4].reshape(2, 2)))
    yield Sample("complex", (complex_randn(4, 3), INDEX))
    yield Sample("no rows taken", (randn(4, 3), INDEX[:0]))
    yield Sample("one number", (randn(4), torch.tensor(2)))


TAKE_ROWS = Recipe(
    name="take_rows",
    function=sparse.take_rows,
    exports=("take_rows",),
    samples=_take_rows,
    reference=lambda input, index: input[index],
    cost=Cost(
        lambda: (torch.randn(20_000, 64).requires_grad_(), torch.randint(20_000, (20_000,))),
        saved=0,
        minimum=0,
        built_in=lambda input, index: torch.nn.functional.embedding(index, input),
        wins=("peak", "range"),
    ),
    limits=(COMPLEX_HALF,),
)


def _segments() -> Iterator[Sample]:
    yield Sample("matrix", (randn(5, 3), INDEX, 5))
    yield Sample("vector", (randn(5), INDEX, 4))
    yield Sample("more dims", (randn(5, 2, 2), INDEX, 4))
    yield Sample("no rows", (randn(0, 3), INDEX[:0], 4))
    yield Sample("no features", (randn(5, 0), INDEX, 4))


def _complex_segments() -> Iterator[Sample]:
    yield from _segments()
    yield Sample("complex", (complex_randn(5, 3), INDEX, 4))


def _summed(input: Tensor, index: Tensor, size: int) -> Tensor:
    return input.new_zeros(size, *input.shape[1:]).index_add(0, index, input)


def _averaged(input: Tensor, index: Tensor, size: int) -> Tensor:
    count = torch.bincount(index, minlength=size).clamp(min=1).reshape(-1, *(1 for _ in input.shape[1:]))
    return _summed(input, index, size) / count


def _reduced(kind: str) -> Callable[[Tensor, Tensor, int], Tensor]:
    def reduced(input: Tensor, index: Tensor, size: int) -> Tensor:
        places = index.reshape(-1, *(1 for _ in input.shape[1:])).expand_as(input)
        empty = input.new_zeros(size, *input.shape[1:])
        return empty.scatter_reduce(0, places, input, kind, include_self=False)

    return reduced


def _largest_of_each(input: Tensor, index: Tensor, size: int) -> Tensor:
    """Use no buffer of zeros, because its 0 would share the gradient of a maximum that is 0."""
    segments = [input[index == j] for j in range(size)]
    return torch.stack([rows.amax(0) if len(rows) else rows.sum(0) for rows in segments])


def _normalized(input: Tensor, index: Tensor, size: int) -> Tensor:
    largest = _reduced("amax")(input.detach(), index, size)
    powers = torch.exp(input - largest[index])
    return powers / _summed(powers, index, size)[index]


def _edges() -> tuple[Tensor, Tensor, int]:
    return torch.randn(125_000, 8).requires_grad_(), torch.randint(10_000, (125_000,)), 10_000


SEGMENT_SUM = Recipe(
    name="segment_sum",
    function=sparse.segment_sum,
    exports=("segment_sum",),
    samples=_complex_segments,
    reference=_summed,
    cost=Cost(_edges, saved=0, minimum=0, built_in=_summed),
    limits=(COMPLEX_HALF,),
)


SEGMENT_MEAN = Recipe(
    name="segment_mean",
    function=sparse.segment_mean,
    exports=("segment_mean",),
    samples=_complex_segments,
    reference=_averaged,
    cost=Cost(_edges, saved=0, minimum=0, composition=_averaged, built_in=_reduced("mean"), wins=("bytes", "range")),
    limits=(COMPLEX_HALF,),
)


SEGMENT_MAX = Recipe(
    name="segment_max",
    function=sparse.segment_max,
    exports=("segment_max",),
    samples=_segments,
    reference=_largest_of_each,
    cost=Cost(_edges, saved=0.32, minimum=0.32, built_in=_reduced("amax"), wins=("bytes", "peak", "gradient")),
)


SEGMENT_SOFTMAX = Recipe(
    name="segment_softmax",
    function=sparse.segment_softmax,
    exports=("segment_softmax",),
    samples=_segments,
    reference=_normalized,
    cost=Cost(_edges, saved=4, minimum=0, composition=_normalized, wins=("bytes",)),
)
