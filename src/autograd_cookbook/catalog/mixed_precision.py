"""The recipes of the page ``mixed_precision``."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import above, randn
from autograd_cookbook.recipes import mixed_precision, template


def _cosine_similarity() -> Iterator[Sample]:
    yield Sample("rows", (randn(4, 3), randn(4, 3)))
    yield Sample("columns", (randn(4, 3), randn(4, 3), 0))
    yield Sample("one against many", (randn(3), randn(4, 3)))
    yield Sample("two vectors", (randn(5), randn(5)))
    yield Sample("nearly parallel", (above(1, 3, 4), torch.ones(3, 4, dtype=torch.float64).requires_grad_()))
    yield Sample("frozen", (randn(4, 3), randn(4, 3).detach()))
    yield Sample("no vectors", (randn(0, 3), randn(0, 3)))
    yield Sample("no features", (randn(3, 0), randn(3, 0)))


def _cosine_by_parts(input: Tensor, other: Tensor, dim: int = -1, eps: float = 1e-8) -> Tensor:
    exact = torch.promote_types(input.dtype, torch.float32)
    units = (F.normalize(t.to(exact), dim=dim, eps=eps) for t in (input, other))
    return (next(units) * next(units)).sum(dim).to(input.dtype)


COSINE_SIMILARITY = Recipe(
    name="cosine_similarity",
    function=mixed_precision.cosine_similarity,
    exports=("cosine_similarity",),
    samples=_cosine_similarity,
    reference=lambda input, other, dim=-1, eps=1e-8: F.cosine_similarity(input, other, dim, eps),
    cost=Cost(
        lambda: tuple(torch.randn(4000, 250).requires_grad_() for _ in range(2)),
        saved=0,
        minimum=0,
        composition=_cosine_by_parts,
        built_in=lambda x, y: F.cosine_similarity(x, y, -1),
        wins=("bytes", "range"),
    ),
)


def _cast_inputs() -> Iterator[Sample]:
    yield Sample("linear", (template.linear, randn(4, 3), randn(2, 3)))
    yield Sample("chain", (lambda x: x.exp().sin() * x.tanh(), randn(4, 3)))
    yield Sample("two outputs", (lambda x, w: ((x @ w).sigmoid(), x.sin()), randn(4, 3), randn(3, 2)))
    yield Sample("scalar", (torch.sin, randn()))
    yield Sample("empty", (torch.exp, randn(0, 3)))


CAST_INPUTS = Recipe(
    name="cast_inputs",
    function=mixed_precision.cast_inputs,
    exports=("cast_inputs",),
    samples=_cast_inputs,
    reference=lambda function, *args: function(*args),
)
