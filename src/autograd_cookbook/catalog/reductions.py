"""The recipes of the page ``reductions``."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, million, randn
from autograd_cookbook.recipes import reductions


def _reduction() -> Iterator[Sample]:
    yield Sample("all", (randn(2, 3, 4),))
    yield Sample("int", (randn(2, 3), 1))
    yield Sample("negative", (randn(2, 3, 4), -2))
    yield Sample("tuple", (randn(2, 3, 4), (0, -1)))
    yield Sample("None", (randn(2, 3), None, True))
    yield Sample("keepdim", (randn(2, 3), 0, True))
    yield Sample("tuple keepdim", (randn(2, 3, 4), (2, 0), True))
    yield Sample("scalar", (randn(),))
    yield Sample("scalar with dim", (randn(), -1))
    yield Sample("empty batch", (randn(0, 3), 1))


def _complex_reduction() -> Iterator[Sample]:
    yield from _reduction()
    yield Sample("complex", (complex_randn(2, 3), 1))


def _reduction_of_nothing() -> Iterator[Sample]:
    yield from _complex_reduction()
    yield Sample("empty dim", (randn(0, 3), 0))


SUM = Recipe(
    name="sum",
    function=reductions.sum,
    exports=("sum",),
    samples=_reduction_of_nothing,
    reference=torch.sum,
    cost=Cost(lambda: (*million(), 1), 0, 0, built_in=torch.sum),
    limits=(COMPLEX_HALF,),
)


MEAN = Recipe(
    name="mean",
    function=reductions.mean,
    exports=("mean",),
    samples=_complex_reduction,
    reference=torch.mean,
    cost=Cost(lambda: (*million(), 1), 0, 0, lambda x, dim: x.sum(dim) / x.shape[dim], torch.mean),
    limits=(COMPLEX_HALF,),
)


AMAX = Recipe(
    name="amax",
    function=reductions.amax,
    exports=("amax",),
    samples=_reduction,
    reference=lambda input, dim=None, keepdim=False: input.amax(() if dim is None else dim, keepdim),
    cost=Cost(lambda: (*million(), 1), saved=0.004, minimum=0.004, built_in=torch.amax),
)


AMIN = Recipe(
    name="amin",
    function=reductions.amin,
    exports=("amin",),
    samples=_reduction,
    reference=lambda input, dim=None, keepdim=False: input.amin(() if dim is None else dim, keepdim),
    cost=Cost(lambda: (*million(), 1), saved=0.004, minimum=0.004, built_in=torch.amin),
)


def _var() -> Iterator[Sample]:
    yield Sample("int", (randn(2, 3), 1))
    yield Sample("all", (randn(2, 3, 4),))
    yield Sample("tuple keepdim", (randn(2, 3, 4), (2, 0), True))
    yield Sample("of a population", (randn(2, 3), -1, False, 0))
    yield Sample("scalar", (randn(), None, True, 0))
    yield Sample("complex", (complex_randn(2, 3), 1))


VAR = Recipe(
    name="var",
    function=reductions.var,
    exports=("var",),
    samples=_var,
    reference=lambda input, dim=None, keepdim=False, correction=1: torch.var(
        input, dim, correction=correction, keepdim=keepdim
    ),
    cost=Cost(
        lambda: (*million(), 1),
        saved=0,
        minimum=0,
        composition=lambda x, dim: (x - x.mean(dim, keepdim=True)).square().sum(dim) / (x.shape[dim] - 1),
        built_in=torch.var,
    ),
    limits=(COMPLEX_HALF,),
)


def _norm() -> Iterator[Sample]:
    yield Sample("Euclidean", (randn(2, 3),))
    yield Sample("of each row", (randn(2, 3), 2, -1, True))
    yield Sample("sum of sizes", (randn(2, 3, 4), 1, (0, -1)))
    yield Sample("largest", (randn(2, 3), float("inf"), 0))
    yield Sample("below 2", (randn(2, 3), 1.5, 1))
    yield Sample("above 2", (randn(2, 3), 3, None, True))
    yield Sample("scalar", (randn(),))
    yield Sample("nothing", (randn(0, 3), 2, 0))
    yield Sample("complex", (complex_randn(2, 3), 3, 1))


NORM = Recipe(
    name="norm",
    function=reductions.norm,
    exports=("norm",),
    samples=_norm,
    reference=torch.linalg.vector_norm,
    cost=Cost(
        lambda: (*million(), 2, 1),
        saved=0.004,
        minimum=0.004,
        composition=lambda x, ord, dim: x.square().sum(dim).sqrt(),
        built_in=torch.linalg.vector_norm,
        wins=("range", "second order"),
    ),
    limits=(COMPLEX_HALF,),
)


def _torch_logsumexp(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return torch.logsumexp(input, tuple(range(input.dim())) if dim is None else dim, keepdim)


LOGSUMEXP = Recipe(
    name="logsumexp",
    function=reductions.logsumexp,
    exports=("logsumexp",),
    samples=_reduction_of_nothing,
    reference=_torch_logsumexp,
    cost=Cost(
        lambda: (*million(), 1),
        saved=0,
        minimum=0,
        composition=lambda x, dim: x.exp().sum(dim).log(),
        built_in=torch.logsumexp,
        wins=("bytes", "range"),
    ),
    limits=(COMPLEX_HALF,),
)
