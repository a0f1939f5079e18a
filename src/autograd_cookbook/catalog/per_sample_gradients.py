"""The recipes of the page ``per_sample_gradients``."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Limit, Recipe, Sample
from autograd_cookbook.catalog._samples import randn
from autograd_cookbook.recipes import double_backward, per_sample_gradients


def _isotonic_regression() -> Iterator[Sample]:
    yield Sample("rows", (randn(3, 6),))
    yield Sample("vector", (randn(8),))
    yield Sample("two batch dims", (randn(2, 2, 4),))
    yield Sample("one value", (randn(3, 1),))
    yield Sample("no rows", (randn(0, 3),))
    yield Sample("no values", (randn(2, 0),))


def minimax(input: Tensor) -> Tensor:
    """Isotonic regression by a formula: the maximum over j of the minimum over k of the mean of elements j to k."""
    n = input.shape[-1]
    if n == 0:
        return input * 1
    until = torch.nn.functional.pad(input.cumsum(-1), (1, 0))
    place = torch.arange(n, device=input.device)
    count = (place - place[:, None] + 1).clamp(min=1)
    means = (until[..., None, 1:] - until[..., :-1, None]) / count
    i, j, k = place[:, None, None], place[:, None], place
    lowest = means[..., None, :, :].masked_fill(k < i, torch.inf).amin(-1)
    return lowest.masked_fill(j.mT > i[..., 0], -torch.inf).amax(-1)


ISOTONIC_REGRESSION = Recipe(
    name="isotonic_regression",
    function=per_sample_gradients.isotonic_regression,
    exports=("isotonic_regression",),
    samples=_isotonic_regression,
    reference=minimax,
    promises=("first_order", "second_order", "vmap"),
)


def _loss(weight: Tensor, x: Tensor) -> Tensor:
    return (weight.sin() * x).sum().square() + (weight * x).cos().sum()


def _custom_loss(weight: Tensor, x: Tensor) -> Tensor:
    return double_backward.lambert_w((weight.sin() * x).sum().square())


def _batch(*shape: int) -> tuple[Tensor]:
    return (torch.randn(shape, dtype=torch.float64),)


def _per_sample_gradients() -> Iterator[Sample]:
    yield Sample("vector", (_loss, randn(3), _batch(4, 3)))
    yield Sample("matrix", (_loss, randn(2, 3), _batch(4, 2, 3)))
    yield Sample("scalar", (_loss, randn(), _batch(4)))
    yield Sample("one sample", (_loss, randn(3), _batch(1, 3)))
    yield Sample("in chunks", (_loss, randn(3), _batch(5, 3), 2))
    yield Sample("custom function inside", (_custom_loss, randn(3), _batch(4, 3)))


def _loop(function: Any, parameters: Tensor, batch: tuple[Tensor], _: int | None = None) -> Tensor:
    rows = [torch.autograd.grad(function(parameters, x), parameters, create_graph=True)[0] for x in batch[0].unbind()]
    return torch.stack(rows)


PER_SAMPLE_GRADIENTS = Recipe(
    name="per_sample_gradients",
    function=per_sample_gradients.per_sample_gradients,
    exports=("per_sample_gradients",),
    samples=_per_sample_gradients,
    reference=_loop,
    limits=(Limit(("forward_mode",), "functions without a jvp", ("custom function inside",)),),
)


def _clipped_mean_gradient() -> Iterator[Sample]:
    yield Sample("some clipped", (_loss, randn(3), _batch(6, 3), 1.0))
    yield Sample("all clipped", (_loss, randn(3), _batch(4, 3), 0.01))
    yield Sample("none clipped", (_loss, randn(3), _batch(4, 3), 100.0))
    yield Sample("matrix", (_loss, randn(2, 3), _batch(4, 2, 3), 1.0))
    yield Sample("scalar", (_loss, randn(), _batch(4), 0.5))


def _clipped_loop(function: Any, parameters: Tensor, batch: tuple[Tensor], max_norm: float) -> Tensor:
    rows = _loop(function, parameters, batch)
    return torch.stack([row * (max_norm / row.norm()).clamp(max=1) for row in rows]).mean(0)


CLIPPED_MEAN_GRADIENT = Recipe(
    name="clipped_mean_gradient",
    function=per_sample_gradients.clipped_mean_gradient,
    exports=("clipped_mean_gradient",),
    samples=_clipped_mean_gradient,
    reference=_clipped_loop,
)
