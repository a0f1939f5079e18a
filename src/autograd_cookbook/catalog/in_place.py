"""The recipes of the page ``in_place``."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Recipe, Sample
from autograd_cookbook.catalog._samples import randn
from autograd_cookbook.recipes import in_place


def _on_a_copy(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a function that you can call repeatedly on leaves from a function that works in place."""

    @functools.wraps(function)
    def call(input: Tensor, *args: Any) -> Tensor:
        return function(input.clone(), *args)

    return call


def _leaky_relu_() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), 0.2))
    yield Sample("default slope", (randn(2, 3, 2),))
    yield Sample("steeper below", (randn(5), 3.0))
    yield Sample("scalar", (randn(), 0.5))
    yield Sample("empty", (randn(0, 3), 0.5))


LEAKY_RELU_ = Recipe(
    name="leaky_relu_",
    function=_on_a_copy(in_place.leaky_relu_),
    exports=("leaky_relu_",),
    samples=_leaky_relu_,
    reference=F.leaky_relu,
    promises=("first_order", "second_order", "vmap"),
)
