"""The recipes of the page ``linear_scan``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_BFLOAT16, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn
from autograd_cookbook.recipes import linear_scan


def _scan() -> Iterator[Sample]:
    yield Sample("odd length", (randn(7, 2), randn(7, 2)))
    yield Sample("even length", (randn(4), randn(4)))
    yield Sample("last dim", (randn(2, 5), randn(2, 5), -1))
    yield Sample("one step", (randn(1, 3), randn(1, 3)))
    yield Sample("frozen decay", (randn(6, 2).detach(), randn(6, 2)))
    yield Sample("frozen input", (randn(6, 2), randn(6, 2).detach()))
    yield Sample("complex", (complex_randn(5, 2), complex_randn(5, 2)))
    yield Sample("no steps", (randn(0, 2), randn(0, 2)))


def _loop(decay: Tensor, input: Tensor, dim: int = 0) -> Tensor:
    """Compute one step after the other."""
    states: list[Tensor] = []
    for a, b in zip(decay.unbind(dim), input.unbind(dim), strict=True):
        states.append(a * states[-1] + b if states else b + 0 * a)
    return torch.stack(states, dim) if states else input + decay


LINEAR_SCAN = Recipe(
    name="linear_scan",
    function=linear_scan.linear_scan,
    exports=("linear_scan",),
    samples=_scan,
    reference=_loop,
    cost=Cost(
        lambda: (torch.rand(1024, 1024).requires_grad_(), torch.randn(1024, 1024).requires_grad_()),
        saved=4,
        minimum=4,
        composition=linear_scan.scan,
        wins=("peak",),
    ),
    limits=(COMPLEX_BFLOAT16,),
)
