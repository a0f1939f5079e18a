"""The recipes of the page ``approximate_gradients``."""

from collections.abc import Iterator

import torch

from autograd_cookbook.catalog._recipe import Recipe, Sample
from autograd_cookbook.catalog._samples import bowl, randn
from autograd_cookbook.recipes import approximate_gradients


def _finite_difference() -> Iterator[Sample]:
    yield Sample("matrix to vector", (lambda x: (x.sin() * x.exp()).sum(1), randn(3, 2)))
    yield Sample("scalar", (torch.sin, randn()))
    yield Sample("to a scalar", (bowl, randn(4)))
    yield Sample("empty", (torch.exp, randn(0, 3)))


FINITE_DIFFERENCE = Recipe(
    name="finite_difference",
    function=approximate_gradients.finite_difference,
    exports=("finite_difference",),
    samples=_finite_difference,
    reference=lambda black_box, input: black_box(input),
    gradient="approximate",
    tolerance=1e-8,
    # The backward is once_differentiable, and no transform can trace its loop over the elements.
    promises=("first_order",),
)


def _simultaneous_perturbation() -> Iterator[Sample]:
    # With one element, there are only a direction and its opposite. So the estimate has no variance and can be checked.
    yield Sample("one element", (torch.sin, randn(1), 3, None, torch.Generator().manual_seed(0)))
    yield Sample("scalar", (torch.exp, randn(), 1, None, torch.Generator().manual_seed(0)))
    yield Sample("vector output", (lambda x: torch.cat([x, x.exp()]), randn(1), 2, None, torch.Generator()))
    yield Sample("empty", (torch.exp, randn(0, 3), 1, None, torch.Generator()))


SIMULTANEOUS_PERTURBATION = Recipe(
    name="simultaneous_perturbation",
    function=approximate_gradients.simultaneous_perturbation,
    exports=("simultaneous_perturbation",),
    samples=_simultaneous_perturbation,
    reference=lambda black_box, input, *options: black_box(input),
    gradient="approximate",
    tolerance=1e-8,
    promises=("first_order",),
)
