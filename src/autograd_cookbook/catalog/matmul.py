"""The recipes of the page ``matmul``."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn, weights
from autograd_cookbook.recipes import matmul


def _matmul() -> Iterator[Sample]:
    yield Sample("one weight", (randn(2, 3, 4), randn(4, 5)))
    yield Sample("batches that broadcast", (randn(2, 1, 3, 2), randn(4, 2, 3)))
    yield Sample("one matrix on the left", (randn(2, 3), randn(4, 3, 2)))
    yield Sample("two vectors", (randn(3), randn(3)))
    yield Sample("vector and batch", (randn(3), randn(2, 3, 4)))
    yield Sample("batch and vector", (randn(2, 3, 4), randn(4)))
    yield Sample("nothing to sum over", (randn(2, 0), randn(0, 3)))
    yield Sample("empty batch", (randn(0, 2, 3), randn(3, 2)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(2, 3, 2)))


MATMUL = Recipe(
    name="matmul",
    function=matmul.matmul,
    exports=("matmul",),
    samples=_matmul,
    reference=torch.matmul,
    cost=Cost(
        lambda: (torch.randn(64, 128, 128).requires_grad_(), weights(128, 128)),
        saved=0,
        minimum=0,
        composition=lambda a, b: torch.bmm(a, b.expand(len(a), -1, -1)),
        built_in=torch.matmul,
    ),
    limits=(COMPLEX_HALF,),
)


def _masked_linear() -> Iterator[Sample]:
    mask = torch.rand(5, 3) < 0.5
    yield Sample("batch", (randn(4, 3), randn(5, 3), mask, randn(5)))
    yield Sample("no bias", (randn(4, 3), randn(5, 3), mask, None))
    yield Sample("vector", (randn(3), randn(5, 3), mask))
    yield Sample("two batch dims", (randn(2, 2, 3), randn(5, 3), mask, randn(5)))
    yield Sample("all there", (randn(4, 3), randn(5, 3), torch.ones(5, 3, dtype=torch.bool)))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), mask, randn(5)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(5, 3), mask, complex_randn(5)))


def _linear_of_a_product(input: Tensor, weight: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(input, weight * mask, bias)


MASKED_LINEAR = Recipe(
    name="masked_linear",
    function=matmul.masked_linear,
    exports=("masked_linear",),
    samples=_masked_linear,
    reference=_linear_of_a_product,
    cost=Cost(
        lambda: (weights(64, 1000), weights(1000, 1000), torch.rand(1000, 1000) < 0.1, weights(1000)),
        saved=0,
        minimum=0,
        composition=_linear_of_a_product,
        unit="weight",
        units=1_000_000,
        wins=("bytes",),
    ),
    limits=(COMPLEX_HALF,),
)
