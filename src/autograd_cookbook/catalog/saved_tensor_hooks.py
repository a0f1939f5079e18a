"""The recipes of the page ``saved_tensor_hooks``."""

from collections.abc import Iterator

import torch

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import layers, randn
from autograd_cookbook.recipes import saved_tensor_hooks


def _saved_elsewhere() -> Iterator[Sample]:
    yield Sample("chain", (lambda x: x.exp().sin() * x.tanh(), randn(2, 16)))
    yield Sample("two inputs", (lambda x, w: (x @ w).sigmoid().square(), randn(4, 3), randn(3, 8)))
    yield Sample("several outputs", (lambda x: (x.exp(), x.sin().square()), randn(8)))
    yield Sample("scalar", (lambda x: x.exp().sin(), randn()))
    yield Sample("empty", (lambda x: x.exp().sin(), randn(0, 8)))


OFFLOADED = Recipe(
    name="offloaded",
    function=saved_tensor_hooks.offloaded,
    exports=("offloaded",),
    samples=_saved_elsewhere,
    reference=lambda function, *args: function(*args),
    # torch.func and torch.compile refuse saved-tensor hooks.
    promises=("first_order", "second_order", "checkpoint"),
    cost=Cost(
        lambda: (layers, torch.randn(10_000, 100).requires_grad_()),
        saved=0.04,
        minimum=0,
        composition=lambda function, x: function(x),
        unit="element of an activation",
        wins=("bytes", "peak"),
    ),
)


COMPRESSED = Recipe(
    name="compressed",
    function=saved_tensor_hooks.compressed,
    exports=("compressed",),
    samples=_saved_elsewhere,
    reference=lambda function, *args: function(*args),
    gradient="approximate",
    tolerance=0.02,
    promises=("first_order", "checkpoint"),
    cost=Cost(
        lambda: (layers, torch.randn(10_000, 100).requires_grad_()),
        saved=10.44,
        minimum=0,
        composition=lambda function, x: function(x),
        unit="element of an activation",
        wins=("bytes", "peak"),
    ),
)
