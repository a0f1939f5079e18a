"""The recipes of the page ``masks``."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, million, randn, unary, weights
from autograd_cookbook.recipes import masks

PACKED_RELU = Recipe(
    name="packed_relu",
    function=masks.packed_relu,
    exports=("packed_relu",),
    samples=unary,
    reference=torch.relu,
    cost=Cost(million, 0.125, minimum=0.125, composition=lambda x: x * (x > 0), built_in=torch.relu, wins=("bytes",)),
)


def _linear_relu() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(5, 3), randn(5)))
    yield Sample("no bias", (randn(4, 3), randn(5, 3), None))
    yield Sample("vector", (randn(3), randn(5, 3), randn(5)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(5, 4), randn(5)))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), randn(5)))


LINEAR_RELU = Recipe(
    name="linear_relu",
    function=masks.linear_relu,
    exports=("linear_relu",),
    samples=_linear_relu,
    reference=lambda x, weight, bias=None: torch.relu(F.linear(x, weight, bias)),
    cost=Cost(
        lambda: (*million(), weights(1000, 1000), weights(1000)),
        saved=0.125,
        minimum=0.125,
        composition=lambda x, weight, bias: (x @ weight.mT + bias).clamp(min=0),
        built_in=lambda x, weight, bias: torch.relu(F.linear(x, weight, bias)),
        wins=("bytes",),
    ),
)


def _seeded_dropout() -> Iterator[Sample]:
    yield Sample("seed given", (randn(4, 3), 0.5, True, 7))
    yield Sample("nothing drops", (randn(4, 3), 0.0, True, 7))
    yield Sample("everything drops", (randn(4, 3), 1.0, True, 7))
    yield Sample("few drop", (randn(2, 3, 2), 0.2, True, 1))
    yield Sample("scalar", (randn(), 0.5, True, 0))
    yield Sample("empty", (randn(0, 3), 0.5, True, 7))
    yield Sample("complex", (complex_randn(4), 0.5, True, 7))


def _dropout(input: Tensor, p: float, training: bool, seed: int) -> Tensor:
    keeps = torch.rand(input.shape, generator=torch.Generator().manual_seed(seed)) >= p
    return input * keeps / (1 - p) if p < 1 else 0 * input


SEEDED_DROPOUT = Recipe(
    name="seeded_dropout",
    function=masks.seeded_dropout,
    exports=("seeded_dropout",),
    samples=_seeded_dropout,
    reference=_dropout,
    promises=("first_order", "second_order", "vmap", "checkpoint"),
    cost=Cost(
        lambda: (weights(4000, 1000), 0.5),
        saved=0,
        minimum=0,
        composition=lambda x, p: x * (torch.rand_like(x) >= p) / (1 - p),
        built_in=F.dropout,
        wins=("bytes", "peak"),
    ),
    limits=(COMPLEX_HALF,),
)
