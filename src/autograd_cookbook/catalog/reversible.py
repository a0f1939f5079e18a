"""The recipes of the page ``reversible``."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import layers, randn
from autograd_cookbook.recipes import reversible


def _reversible_sequence() -> Iterator[Sample]:
    pairs = [(torch.sin, torch.tanh), (lambda x: x.square() / 2, torch.cos), (torch.exp, torch.sin)]
    yield Sample("three blocks", (pairs, randn(4, 3), randn(4, 3)))
    yield Sample("one block", (pairs[:1], randn(3), randn(3)))
    yield Sample("no block", ([], randn(3), randn(3)))
    yield Sample("frozen half", (pairs, randn(3), randn(3).detach()))
    yield Sample("scalars", (pairs, randn(), randn()))
    yield Sample("empty", (pairs, randn(0, 3), randn(0, 3)))


def _one_after_the_other(blocks: Any, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    for f, g in blocks:
        left = left + f(right)
        right = right + g(left)
    return left, right


REVERSIBLE_SEQUENCE = Recipe(
    name="reversible_sequence",
    function=reversible.reversible_sequence,
    exports=("reversible_sequence", "ReversibleSequence"),
    samples=_reversible_sequence,
    reference=_one_after_the_other,
    # torch.func and torch.compile refuse saved-tensor hooks.
    promises=("first_order", "second_order", "checkpoint"),
    cost=Cost(
        lambda: ([(layers, layers)] * 4, *(torch.randn(10_000, 100).requires_grad_() for _ in range(2))),
        saved=0.005,
        minimum=0,
        composition=_one_after_the_other,
        unit="element of a half",
        wins=("bytes", "peak"),
    ),
)
