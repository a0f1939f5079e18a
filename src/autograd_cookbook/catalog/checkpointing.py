"""The recipes of the page ``checkpointing``."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Recipe, Sample
from autograd_cookbook.catalog._samples import randn
from autograd_cookbook.recipes import checkpointing


def _checkpoint() -> Iterator[Sample]:
    yield Sample("chain", (lambda x: x.exp().sin() * x.tanh(), randn(4, 3)))
    yield Sample("two inputs", (lambda x, w: (x @ w).sigmoid().square(), randn(4, 3), randn(3, 2)))
    yield Sample("input used twice", (lambda x, y: x.exp() * y.sin() * x, *[randn(3)] * 2))
    yield Sample("several outputs", (lambda x: (x.exp(), x.sin().square()), randn(3)))
    yield Sample("empty", (lambda x: x.exp().sin(), randn(0, 3)))


CHECKPOINT = Recipe(
    name="checkpoint",
    function=checkpointing.checkpoint,
    exports=("checkpoint",),
    samples=_checkpoint,
    reference=lambda function, *args: function(*args),
    promises=("first_order", "second_order", "checkpoint"),
)


def _checkpoint_sequence() -> Iterator[Sample]:
    yield Sample("five", ([torch.sin, torch.exp, torch.tanh, torch.square, torch.cos], randn(4, 3)))
    yield Sample("one segment", ([torch.sin, torch.exp], randn(3), 1))
    yield Sample("all segments", ([torch.sin, torch.exp, torch.tanh], randn(3), 3))
    yield Sample("one function", ([torch.sin], randn()))


def _in_sequence(functions: Any, input: Tensor, segments: int | None = None) -> Tensor:
    for function in functions:
        input = function(input)
    return input


CHECKPOINT_SEQUENCE = Recipe(
    name="checkpoint_sequence",
    function=checkpointing.checkpoint_sequence,
    exports=("checkpoint_sequence",),
    samples=_checkpoint_sequence,
    reference=_in_sequence,
    promises=("first_order", "second_order", "checkpoint"),
)
