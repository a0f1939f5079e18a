"""The recipes of the page ``scipy_functions``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_BFLOAT16, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn
from autograd_cookbook.recipes import scipy_functions


def _dct() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 5),))
    yield Sample("type 1 of columns", (randn(4, 3), 1, 0))
    yield Sample("type 3", (randn(7), 3))
    yield Sample("type 4 of the middle", (randn(2, 6, 3), 4, -2))
    yield Sample("one element", (randn(3, 1),))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("complex", (complex_randn(2, 4),))


def _cosines(size: int, type: int) -> Tensor:
    """The matrix of an orthogonal cosine transform."""
    k = torch.arange(size, dtype=torch.float64)
    if type == 1:
        ends = (1 - 0.5 * ((k == 0) | (k == size - 1)).to(k)).sqrt()
        return torch.outer(ends, ends) * torch.cos(torch.pi * torch.outer(k, k) / (size - 1)) * (2 / (size - 1)) ** 0.5
    if type == 4:
        return torch.cos(torch.pi * torch.outer(k + 0.5, k + 0.5) / size) * (2 / size) ** 0.5
    matrix = torch.cos(torch.pi * torch.outer(k, k + 0.5) / size) * (2 / size) ** 0.5
    matrix[0] /= 2**0.5
    return matrix if type == 2 else matrix.mT


def _cosine_product(input: Tensor, type: int = 2, dim: int = -1) -> Tensor:
    """The transform as a product with the matrix of the transform."""
    return (input.movedim(dim, -1) @ _cosines(input.size(dim), type).to(input).mT).movedim(-1, dim)


DCT = Recipe(
    name="dct",
    function=scipy_functions.dct,
    exports=("dct",),
    samples=_dct,
    # With one infinite number, an FFT returns NaN for the whole line, but a matrix product need not.
    reference=lambda input, type=2, dim=-1: _cosine_product(input, type, dim) + 0 * input.sum(dim, keepdim=True),
    promises=("first_order", "second_order", "forward_mode", "vmap"),
    limits=(COMPLEX_BFLOAT16,),
)


def _sparse_system(size: int, *columns: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix with a dominant diagonal and some more stored places. A few places occur twice."""
    more = torch.randint(0, max(size, 1), (2, 2 * size))
    indices = torch.cat([torch.arange(size).expand(2, size), more], dim=1)
    values = torch.randn(3 * size, dtype=dtype)
    values[:size] += 4
    return indices, values.requires_grad_(), torch.randn(size, *columns, dtype=dtype).requires_grad_()


def _sparse_solve() -> Iterator[Sample]:
    yield Sample("two right-hand sides", _sparse_system(5, 2))
    yield Sample("vector", _sparse_system(5))
    yield Sample("one unknown", _sparse_system(1))
    yield Sample("no unknown", _sparse_system(0))
    yield Sample("no right-hand side", _sparse_system(3, 0))
    yield Sample("complex", _sparse_system(4, dtype=torch.complex128))
    indices, values, rhs = _sparse_system(4)
    yield Sample("constant matrix", (indices, values.detach(), rhs))
    yield Sample("constant right-hand side", (indices, values, rhs.detach()))


def _dense_solve(indices: Tensor, values: Tensor, rhs: Tensor) -> Tensor:
    """The same system as a full matrix."""
    matrix = values.new_zeros(len(rhs), len(rhs)).index_put(tuple(indices), values, accumulate=True)
    solution = torch.linalg.solve(matrix, rhs)
    # With an infinite value, what the dense solver returns depends on the order of its pivots.
    return solution if values.isfinite().all() else solution * torch.nan


SPARSE_SOLVE = Recipe(
    name="sparse_solve",
    function=scipy_functions.sparse_solve,
    exports=("sparse_solve",),
    samples=_sparse_solve,
    reference=_dense_solve,
    promises=("first_order", "second_order", "forward_mode", "vmap"),
)
