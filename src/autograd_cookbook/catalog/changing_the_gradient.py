"""Gradients that are changed on purpose."""

from collections.abc import Iterator

import torch

from autograd_cookbook import hooks
from autograd_cookbook.catalog.recipe import Recipe, Sample
from autograd_cookbook.catalog.samples import randn


def _clip_gradient() -> Iterator[Sample]:
    # A bound that no gradient of the tests reaches: then, and only then, clipping is exact.
    yield Sample("matrix", (randn(4, 3), 1e6))
    yield Sample("scalar", (randn(), 1e6))
    yield Sample("empty", (randn(0, 3), 1e6))


def _add_gradient_noise() -> Iterator[Sample]:
    yield Sample("no noise", (randn(4, 3), 0.0))
    yield Sample("empty", (randn(0, 3), 0.5))


def _saved_as() -> Iterator[Sample]:
    # Stored in the dtype that they have, tensors are not rounded.
    yield Sample("chain", (torch.float64, lambda x: x.exp().sin() * x.tanh(), randn(4, 3)))
    yield Sample("two inputs", (torch.float64, lambda x, w: (x @ w).sigmoid().square(), randn(4, 3), randn(3, 2)))
    yield Sample("empty", (torch.float64, lambda x: x.exp().sin(), randn(0, 3)))


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="clip_gradient",
        page="02_changing_the_gradient/hooks",
        topics=("B2", "B6"),
        function=hooks.clip_gradient,
        exports=("clip_gradient",),
        samples=_clip_gradient,
        reference=lambda input, max_norm: input.view_as(input),
    ),
    Recipe(
        name="add_gradient_noise",
        page="02_changing_the_gradient/hooks",
        topics=("B6",),
        function=hooks.add_gradient_noise,
        exports=("add_gradient_noise",),
        samples=_add_gradient_noise,
        reference=lambda input, std: input.view_as(input),
    ),
    Recipe(
        name="GradientLog",
        page="02_changing_the_gradient/hooks",
        topics=("B6",),
        function=hooks.GradientLog,
        exports=("GradientLog",),
        promises=(),
    ),
    Recipe(
        name="step_in_backward",
        page="02_changing_the_gradient/hooks",
        topics=("B6",),
        function=hooks.step_in_backward,
        exports=("step_in_backward",),
        promises=(),
    ),
    Recipe(
        name="saved_as",
        page="02_changing_the_gradient/hooks",
        topics=("B6", "D5"),
        function=hooks.saved_as,
        exports=("saved_as",),
        samples=_saved_as,
        reference=lambda dtype, function, *args: function(*args),
        # torch.func and torch.compile refuse hooks on saved tensors.
        promises=("first_order", "second_order", "checkpoint"),
    ),
)
