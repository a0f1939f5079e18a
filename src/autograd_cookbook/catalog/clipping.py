"""The recipes of the page ``clipping``."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import (
    COMPLEX_BFLOAT16,
    COMPLEX_HALF,
    FIXED_BOUND,
    FIXED_NORM,
    Cost,
    Recipe,
    Sample,
)
from autograd_cookbook.catalog._samples import (
    clip_gradient,
    clip_gradient_and_complex,
    complex_randn,
    hooked,
    million,
    randn,
)
from autograd_cookbook.recipes import clipping

CLIP_GRADIENT_VALUE = Recipe(
    name="clip_gradient_value",
    function=clipping.clip_gradient_value,
    exports=("clip_gradient_value",),
    samples=clip_gradient,
    reference=lambda input, clip_value: input.view_as(input),
    cost=Cost(
        lambda: (*million(), 0.5),
        saved=0,
        minimum=0,
        built_in=lambda x, clip_value: hooked(x, lambda grad: grad.clamp(-clip_value, clip_value)),
    ),
    unlike_one_process=FIXED_BOUND,
)


def _clip_gradient_norm() -> Iterator[Sample]:
    yield from clip_gradient_and_complex()
    yield Sample("rows", (randn(4, 3), 1e6, -1))
    yield Sample("two dims", (randn(2, 3, 4), 1e6, (0, 2)))


def _limited(grad: Tensor, max_norm: float, dim: Any = None) -> Tensor:
    return grad * (max_norm / torch.linalg.vector_norm(grad, dim=dim, keepdim=True)).clamp(max=1)


CLIP_GRADIENT_NORM = Recipe(
    name="clip_gradient_norm",
    function=clipping.clip_gradient_norm,
    exports=("clip_gradient_norm",),
    samples=_clip_gradient_norm,
    reference=lambda input, max_norm, dim=None: input.view_as(input),
    cost=Cost(
        lambda: (*million(), 0.5, 1),
        saved=0,
        minimum=0,
        built_in=lambda x, max_norm, dim: hooked(x, lambda grad: _limited(grad, max_norm, dim)),
        wins=("range",),
    ),
    limits=(COMPLEX_BFLOAT16,),
    unlike_one_process=FIXED_NORM,
)


def _clipped_linear() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(5, 3), randn(5), 1e6))
    yield Sample("no bias", (randn(4, 3), randn(5, 3), None, 1e6))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(5, 4), randn(5), 1e6))
    yield Sample("vector", (randn(3), randn(5, 3), randn(5), 1e6))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), randn(5), 1e6))
    yield Sample("no features", (randn(2, 0), randn(5, 0), randn(5), 1e6))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(2, 3), complex_randn(2), 1e6))


def _one_weight_each(input: Tensor, weight: Tensor, bias: Tensor | None, max_norm: float) -> Tensor:
    """Make a copy of the parameters for each example, and limit the gradient of the copy by a hook."""
    examples = input.reshape(input.shape[:-1].numel(), input.shape[-1])
    if bias is not None:
        examples = torch.cat([examples, examples.new_ones(len(examples), 1)], 1)
        weight = torch.cat([weight, bias.unsqueeze(1)], 1)
    copies = weight.expand(len(examples), *weight.shape)
    if copies.requires_grad:
        copies.register_hook(lambda grad: _limited(grad, max_norm, (1, 2)))
    return (copies @ examples.unsqueeze(-1)).reshape(*input.shape[:-1], len(weight))


CLIPPED_LINEAR = Recipe(
    name="clipped_linear",
    function=clipping.clipped_linear,
    exports=("clipped_linear",),
    samples=_clipped_linear,
    reference=_one_weight_each,
    cost=Cost(
        lambda: (torch.randn(4096, 256).requires_grad_(), torch.randn(32, 256).requires_grad_(), None, 0.5),
        saved=0,
        minimum=0,
        composition=_one_weight_each,
        wins=("time",),
    ),
    limits=(COMPLEX_HALF,),
    unlike_one_process=FIXED_BOUND,
)
