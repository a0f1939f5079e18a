"""Less memory between forward and backward."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook import checkpointing
from autograd_cookbook.catalog.recipe import Recipe, Sample
from autograd_cookbook.catalog.samples import randn


def _checkpoint() -> Iterator[Sample]:
    yield Sample("chain", (lambda x: x.exp().sin() * x.tanh(), randn(4, 3)))
    yield Sample("two inputs", (lambda x, w: (x @ w).sigmoid().square(), randn(4, 3), randn(3, 2)))
    yield Sample("input used twice", (lambda x, y: x.exp() * y.sin() * x, *[randn(3)] * 2))
    yield Sample("several outputs", (lambda x: (x.exp(), x.sin().square()), randn(3)))
    yield Sample("empty", (lambda x: x.exp().sin(), randn(0, 3)))


def _checkpoint_sequence() -> Iterator[Sample]:
    yield Sample("five", ([torch.sin, torch.exp, torch.tanh, torch.square, torch.cos], randn(4, 3)))
    yield Sample("one segment", ([torch.sin, torch.exp], randn(3), 1))
    yield Sample("all segments", ([torch.sin, torch.exp, torch.tanh], randn(3), 3))
    yield Sample("one function", ([torch.sin], randn()))


def _in_sequence(functions: Any, input: Tensor, segments: int | None = None) -> Tensor:
    for function in functions:
        input = function(input)
    return input


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="checkpoint",
        page="04_memory/checkpointing",
        topics=("D3",),
        function=checkpointing.checkpoint,
        exports=("checkpoint",),
        samples=_checkpoint,
        reference=lambda function, *args: function(*args),
        promises=("first_order", "second_order", "checkpoint"),
    ),
    Recipe(
        name="checkpoint_sequence",
        page="04_memory/checkpointing",
        topics=("D4",),
        function=checkpointing.checkpoint_sequence,
        exports=("checkpoint_sequence",),
        samples=_checkpoint_sequence,
        reference=_in_sequence,
        promises=("first_order", "second_order", "checkpoint"),
    ),
)
