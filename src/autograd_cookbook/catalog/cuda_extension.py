"""The recipes of the page ``cuda_extension``."""

from collections.abc import Iterator

import torch

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn
from autograd_cookbook.recipes import cuda_extension


def _swish() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), randn()))
    yield Sample("scalar", (randn(), randn()))
    yield Sample("odd size", (randn(3, 5, 7), randn()))
    yield Sample("empty", (randn(0, 3), randn()))
    yield Sample("frozen beta", (randn(5), randn().detach()))


SWISH = Recipe(
    name="swish",
    function=cuda_extension.swish,
    exports=("swish",),
    samples=_swish,
    reference=lambda input, beta: input * torch.sigmoid(beta * input),
    cost=Cost(
        lambda: (*million(), torch.ones(()).requires_grad_()),
        saved=0,
        minimum=0,
        composition=lambda x, beta: x * torch.sigmoid(beta * x),
    ),
)
