"""The recipes of the page ``torch_compile``."""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn, unary
from autograd_cookbook.recipes import torch_compile


def _huber() -> Iterator[Sample]:
    yield from unary()
    yield Sample("narrow", (randn(4, 3), 0.3))


HUBER = Recipe(
    name="huber",
    function=torch_compile.huber,
    exports=("huber",),
    samples=_huber,
    reference=lambda input, delta=1.0: F.huber_loss(input, torch.zeros_like(input), reduction="none", delta=delta),
    cost=Cost(
        million,
        saved=0,
        minimum=0,
        composition=lambda x: torch.where(x.abs() <= 1, x * x / 2, x.abs() - 0.5),
        built_in=lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
    ),
)
