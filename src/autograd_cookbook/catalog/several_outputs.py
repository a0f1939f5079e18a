"""The recipes of the page ``several_outputs``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn, unary
from autograd_cookbook.recipes import several_outputs


def _two_rectifiers(input: Tensor) -> tuple[Tensor, Tensor]:
    return input.relu(), (-input).relu()


SPLIT_SIGN = Recipe(
    name="split_sign",
    function=several_outputs.split_sign,
    exports=("split_sign",),
    samples=unary,
    reference=_two_rectifiers,
    cost=Cost(million, saved=0, minimum=0, composition=_two_rectifiers, wins=("bytes",)),
)


def _max_with_index() -> Iterator[Sample]:
    yield Sample("last", (randn(4, 3),))
    yield Sample("first", (randn(4, 3), 0))
    yield Sample("keepdim", (randn(2, 3, 4), -2, True))
    yield Sample("scalar", (randn(),))
    yield Sample("scalar with dim", (randn(), 0, True))
    yield Sample("empty batch", (randn(0, 3), 1))


def _gathered(input: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
    index = input.argmax(dim, keepdim=True)
    return input.gather(dim, index).squeeze(dim), index.squeeze(dim)


MAX_WITH_INDEX = Recipe(
    name="max_with_index",
    function=several_outputs.max_with_index,
    exports=("max_with_index",),
    samples=_max_with_index,
    reference=lambda input, dim=-1, keepdim=False: tuple(torch.max(input, dim, keepdim)),
    cost=Cost(million, saved=0.008, minimum=0.00125, composition=_gathered, built_in=lambda x: torch.max(x, -1)),
)
