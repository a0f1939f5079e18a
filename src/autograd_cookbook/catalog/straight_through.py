"""The recipes of the page ``straight_through``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, unary
from autograd_cookbook.recipes import straight_through


def _steps() -> Iterator[Sample]:
    yield from unary()
    halves = torch.tensor([-1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.5], dtype=torch.float64)
    yield Sample("at the steps", (halves.requires_grad_(),))


def _as_if(stand_in: Tensor, value: Tensor) -> Tensor:
    """Return a value with the gradient of a substitute."""
    return stand_in + (value - stand_in).detach()


ROUND_STE = Recipe(
    name="round_ste",
    function=straight_through.round_ste,
    exports=("round_ste",),
    samples=_steps,
    reference=lambda input: _as_if(input, input.round()),
    gradient="surrogate",
    cost=Cost(million, saved=0, minimum=0, composition=lambda x: _as_if(x, x.round()), wins=("time", "range")),
)


SIGN_STE = Recipe(
    name="sign_ste",
    function=straight_through.sign_ste,
    exports=("sign_ste",),
    samples=_steps,
    reference=lambda input: _as_if(input, input.sign()),
    gradient="surrogate",
    cost=Cost(million, saved=0, minimum=0, composition=lambda x: _as_if(x, x.sign()), wins=("time", "range")),
)


def _binarize() -> Iterator[Sample]:
    # Far from 0, no gradient passes. So each sample has elements near 0.
    yield from (sample for sample in _steps() if sample.name != "large")


BINARIZE = Recipe(
    name="binarize",
    function=straight_through.binarize,
    exports=("binarize",),
    samples=_binarize,
    # Do not use clamp, because its gradient at the ends is 0 since torch 2.14.
    reference=lambda input: _as_if(
        torch.where(input.abs() <= 1, input, 0), torch.where(input >= 0, 1, -torch.ones_like(input))
    ),
    gradient="surrogate",
    cost=Cost(
        million,
        saved=0,
        minimum=0,
        composition=lambda x: _as_if(x.clamp(-1, 1), torch.where(x >= 0, 1, -torch.ones_like(x))),
        wins=("peak",),
    ),
)
