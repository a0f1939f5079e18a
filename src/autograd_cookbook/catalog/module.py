"""The recipes of the page ``module``."""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn, scaled, weights
from autograd_cookbook.recipes import module


def _parametric_swish() -> Iterator[Sample]:
    yield from scaled()
    yield Sample("image", (randn(2, 3, 2, 2), randn(3, 1, 1)))


PARAMETRIC_SWISH = Recipe(
    name="parametric_swish",
    function=module.parametric_swish,
    exports=("parametric_swish", "Swish"),
    samples=_parametric_swish,
    reference=lambda input, beta: input * torch.sigmoid(beta * input),
    cost=Cost(lambda: (*million(), weights(1000)), 0, 0, composition=lambda x, b: x * torch.sigmoid(b * x)),
)


def _smooth_l1() -> Iterator[Sample]:
    yield Sample("mean", (randn(4, 3), randn(4, 3)))
    yield Sample("sum", (randn(4, 3), randn(4, 3), 0.3, "sum"))
    yield Sample("none, constant target", (randn(4, 3), randn(4, 3).detach(), 2.0, "none"))
    yield Sample("absolute value", (randn(4), randn(4), 0.0, "sum"))
    yield Sample("scalar", (randn(), randn(), 1.0, "none"))
    yield Sample("empty", (randn(0, 3), randn(0, 3), 1.0, "sum"))


SMOOTH_L1 = Recipe(
    name="smooth_l1",
    function=module.smooth_l1,
    exports=("smooth_l1", "SmoothL1Loss"),
    samples=_smooth_l1,
    reference=lambda input, target, beta=1.0, reduction="mean": F.smooth_l1_loss(
        input, target, reduction=reduction, beta=beta
    ),
    cost=Cost(
        lambda: (*million(), *million()),
        saved=0,
        minimum=0,
        composition=lambda x, t: torch.where((x - t).abs() < 1, (x - t) ** 2 / 2, (x - t).abs() - 0.5).mean(),
        built_in=F.smooth_l1_loss,
    ),
)
