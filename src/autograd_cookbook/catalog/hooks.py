"""The recipes of the page ``hooks``."""

from collections.abc import Iterator

import torch

from autograd_cookbook.catalog._recipe import COMPLEX_BFLOAT16, FIXED_NORM, Limit, Recipe, Sample
from autograd_cookbook.catalog._samples import clip_gradient_and_complex, randn
from autograd_cookbook.recipes import hooks

CLIP_GRADIENT = Recipe(
    name="clip_gradient",
    function=hooks.clip_gradient,
    exports=("clip_gradient",),
    samples=clip_gradient_and_complex,
    reference=lambda input, max_norm: input.view_as(input),
    limits=(COMPLEX_BFLOAT16,),
    unlike_one_process=FIXED_NORM,
)


def _add_gradient_noise() -> Iterator[Sample]:
    yield Sample("no noise", (randn(4, 3), 0.0))
    yield Sample("empty", (randn(0, 3), 0.5))


ADD_GRADIENT_NOISE = Recipe(
    name="add_gradient_noise",
    function=hooks.add_gradient_noise,
    exports=("add_gradient_noise",),
    samples=_add_gradient_noise,
    reference=lambda input, std: input.view_as(input),
    limits=(Limit(("vmap", "batched_grad"), "empty tensors", ("empty",)),),
    unlike_one_process="noise that each rank draws for itself: DDP averages it",
)


GRADIENT_LOG = Recipe(
    name="GradientLog",
    function=hooks.GradientLog,
    exports=("GradientLog",),
    promises=(),
)


STEP_IN_BACKWARD = Recipe(
    name="step_in_backward",
    function=hooks.step_in_backward,
    exports=("step_in_backward",),
    promises=(),
)


def _saved_as() -> Iterator[Sample]:
    # Store the tensors in their own dtype, so that they are not rounded.
    yield Sample("chain", (torch.float64, lambda x: x.exp().sin() * x.tanh(), randn(4, 3)))
    yield Sample("two inputs", (torch.float64, lambda x, w: (x @ w).sigmoid().square(), randn(4, 3), randn(3, 2)))
    yield Sample("empty", (torch.float64, lambda x: x.exp().sin(), randn(0, 3)))


SAVED_AS = Recipe(
    name="saved_as",
    function=hooks.saved_as,
    exports=("saved_as",),
    samples=_saved_as,
    reference=lambda dtype, function, *args: function(*args),
    # torch.func and torch.compile refuse saved-tensor hooks.
    promises=("first_order", "second_order", "checkpoint"),
)
