"""The recipes of the page ``eigenvalues``."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn
from autograd_cookbook.recipes import eigenvalues


def _eigh() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 4),))
    yield Sample("batch", (randn(2, 3, 3),))
    yield Sample("complex", (complex_randn(3, 3),))
    yield Sample("empty batch", (randn(0, 2, 2),))


def _torch_eigh(input: Tensor, gap: float | None = None) -> tuple[Tensor, Tensor]:
    """With the signs, or phases, that the recipe chooses."""
    values, vectors = torch.linalg.eigh((input + input.mH) / 2)
    return values, vectors * eigenvalues.phase(vectors).conj() if vectors.numel() else vectors


EIGH = Recipe(
    name="eigh",
    function=eigenvalues.eigh,
    exports=("eigh",),
    samples=_eigh,
    reference=_torch_eigh,
)


def _svd() -> Iterator[Sample]:
    yield Sample("square", (randn(3, 3),))
    yield Sample("tall", (randn(4, 2),))
    yield Sample("wide batch", (randn(2, 2, 3),))
    yield Sample("complex", (complex_randn(3, 2),))
    yield Sample("empty batch", (randn(0, 3, 2),))


def _torch_svd(input: Tensor, gap: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """With the signs, or phases, that the recipe chooses."""
    u, s, vh = torch.linalg.svd(input, full_matrices=False)
    turn = eigenvalues.phase(u) if s.numel() else u.new_ones(1, 1)
    return u * turn.conj(), s, vh * turn.mT


SVD = Recipe(
    name="svd",
    function=eigenvalues.svd,
    exports=("svd",),
    samples=_svd,
    reference=_torch_svd,
)


def _matrix_function() -> Iterator[Sample]:
    yield Sample("exponential", (randn(4, 4), torch.exp, torch.exp))
    yield Sample("sine of a batch", (randn(2, 3, 3), torch.sin, torch.cos))
    yield Sample("complex", (complex_randn(3, 3), torch.exp, torch.exp))
    yield Sample("empty batch", (randn(0, 2, 2), torch.exp, torch.exp))


def _composed_matrix_function(
    input: Tensor, function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> Tensor:
    values, vectors = torch.linalg.eigh((input + input.mH) / 2)
    return (vectors * function(values).unsqueeze(-2)) @ vectors.mH


MATRIX_FUNCTION = Recipe(
    name="matrix_function",
    function=eigenvalues.matrix_function,
    exports=("matrix_function",),
    samples=_matrix_function,
    reference=_composed_matrix_function,
    promises=("first_order", "vmap"),
)
