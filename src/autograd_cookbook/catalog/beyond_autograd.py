"""Code that autograd cannot see."""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from autograd_cookbook import approximate, native
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import bowl, million, randn


def _finite_difference() -> Iterator[Sample]:
    yield Sample("matrix to vector", (lambda x: (x.sin() * x.exp()).sum(1), randn(3, 2)))
    yield Sample("scalar", (torch.sin, randn()))
    yield Sample("to a scalar", (bowl, randn(4)))
    yield Sample("empty", (torch.exp, randn(0, 3)))


def _simultaneous_perturbation() -> Iterator[Sample]:
    # With one element there is one direction and its opposite: the estimate has no variance and can be checked.
    yield Sample("one element", (torch.sin, randn(1), 3, None, torch.Generator().manual_seed(0)))
    yield Sample("scalar", (torch.exp, randn(), 1, None, torch.Generator().manual_seed(0)))
    yield Sample("vector output", (lambda x: torch.cat([x, x.exp()]), randn(1), 2, None, torch.Generator()))
    yield Sample("empty", (torch.exp, randn(0, 3), 1, None, torch.Generator()))


def _swish() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), randn()))
    yield Sample("scalar", (randn(), randn()))
    yield Sample("odd size", (randn(3, 5, 7), randn()))
    yield Sample("empty", (randn(0, 3), randn()))
    yield Sample("frozen beta", (randn(5), randn().detach()))


def _fused_rms_norm() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), randn(3)))
    yield Sample("one row, and an eps", (randn(5), randn(5), 0.1))
    yield Sample("odd size", (randn(3, 2, 7), randn(7)))
    yield Sample("no rows", (randn(0, 3), randn(3)))
    yield Sample("rows of nothing", (randn(3, 0), randn(0)))
    yield Sample("frozen weight", (randn(2, 5), randn(5).detach()))
    yield Sample("frozen input", (randn(2, 5).detach(), randn(5)))


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="finite_difference",
        page="06_beyond_autograd/approximate_gradients",
        topics=("F2",),
        function=approximate.finite_difference,
        exports=("finite_difference",),
        samples=_finite_difference,
        reference=lambda black_box, input: black_box(input),
        gradient="approximate",
        tolerance=1e-8,
        # once_differentiable, and a loop over the elements that no transform can look into.
        promises=("first_order",),
    ),
    Recipe(
        name="simultaneous_perturbation",
        page="06_beyond_autograd/approximate_gradients",
        topics=("F2",),
        function=approximate.simultaneous_perturbation,
        exports=("simultaneous_perturbation",),
        samples=_simultaneous_perturbation,
        reference=lambda black_box, input, *options: black_box(input),
        gradient="approximate",
        tolerance=1e-8,
        promises=("first_order",),
    ),
    Recipe(
        name="swish",
        page="06_beyond_autograd/cuda_extension",
        topics=("A11", "F3", "F4"),
        function=native.swish,
        exports=("swish",),
        samples=_swish,
        reference=lambda input, beta: input * torch.sigmoid(beta * input),
        cost=Cost(
            lambda: (*million(), torch.ones(()).requires_grad_()),
            saved=0,
            minimum=0,
            composition=lambda x, beta: x * torch.sigmoid(beta * x),
        ),
    ),
    Recipe(
        name="fused_rms_norm",
        page="06_beyond_autograd/row_reduction",
        topics=("A7", "F3", "F4"),
        function=native.fused_rms_norm,
        exports=("fused_rms_norm",),
        samples=_fused_rms_norm,
        reference=lambda input, weight, eps=1e-6: F.rms_norm(input, weight.shape, weight, eps),
        cost=Cost(
            lambda: (*million(), torch.ones(1000).requires_grad_()),
            saved=0,
            minimum=0,
            composition=lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
            built_in=lambda x, w: F.rms_norm(x, w.shape, w, 1e-6),
            wins=("bytes", "time", "range"),
        ),
    ),
)
