"""The recipes of the page ``forward_mode``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn, unary
from autograd_cookbook.recipes import forward_mode

SYMLOG = Recipe(
    name="symlog",
    function=forward_mode.symlog,
    exports=("symlog",),
    samples=unary,
    reference=lambda input: input.sign() * input.abs().log1p(),
    promises=("first_order", "second_order", "forward_mode", "vmap"),
    cost=Cost(
        million,
        saved=0,
        minimum=0,
        composition=lambda x: x.sign() * x.abs().log1p(),
        wins=("range",),
    ),
)


def _smooth_maximum() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), randn(4, 3), 0.5))
    yield Sample("row", (randn(4, 3), randn(3)))
    yield Sample("both sides", (randn(4, 1), randn(3), 2.0))
    yield Sample("scalars", (randn(), randn()))
    yield Sample("a constant", (randn(4, 3), randn().detach(), 0.1))
    yield Sample("empty", (randn(0, 3), randn(3)))


def _logaddexp(input: Tensor, other: Tensor, temperature: float = 1.0) -> Tensor:
    return temperature * torch.logaddexp(input / temperature, other / temperature)


SMOOTH_MAXIMUM = Recipe(
    name="smooth_maximum",
    function=forward_mode.smooth_maximum,
    exports=("smooth_maximum",),
    samples=_smooth_maximum,
    reference=_logaddexp,
    promises=("first_order", "second_order", "forward_mode", "vmap"),
    cost=Cost(lambda: (*million(), *million(), 0.5), saved=0, minimum=0, composition=_logaddexp),
)
