"""Functions that the compiler takes whole, and functions in low precision."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook import checkpoint_policy, compilation, exporting, linear, mixed_precision
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import above, million, randn, unary


def _huber() -> Iterator[Sample]:
    yield from unary()
    yield Sample("narrow", (randn(4, 3), 0.3))


def _cosine_similarity() -> Iterator[Sample]:
    yield Sample("rows", (randn(4, 3), randn(4, 3)))
    yield Sample("columns", (randn(4, 3), randn(4, 3), 0))
    yield Sample("one against many", (randn(3), randn(4, 3)))
    yield Sample("two vectors", (randn(5), randn(5)))
    yield Sample("nearly parallel", (above(1, 3, 4), torch.ones(3, 4, dtype=torch.float64).requires_grad_()))
    yield Sample("frozen", (randn(4, 3), randn(4, 3).detach()))
    yield Sample("no vectors", (randn(0, 3), randn(0, 3)))
    yield Sample("no features", (randn(3, 0), randn(3, 0)))


def _cosine_by_parts(input: Tensor, other: Tensor, dim: int = -1, eps: float = 1e-8) -> Tensor:
    exact = torch.promote_types(input.dtype, torch.float32)
    units = (F.normalize(t.to(exact), dim=dim, eps=eps) for t in (input, other))
    return (next(units) * next(units)).sum(dim).to(input.dtype)


def _cast_inputs() -> Iterator[Sample]:
    yield Sample("linear", (linear.linear, randn(4, 3), randn(2, 3)))
    yield Sample("chain", (lambda x: x.exp().sin() * x.tanh(), randn(4, 3)))
    yield Sample("two outputs", (lambda x, w: ((x @ w).sigmoid(), x.sin()), randn(4, 3), randn(3, 2)))
    yield Sample("scalar", (torch.sin, randn()))
    yield Sample("empty", (torch.exp, randn(0, 3)))


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="huber",
        page="07_compile/torch_compile",
        topics=("G1",),
        function=compilation.huber,
        exports=("huber",),
        samples=_huber,
        reference=lambda input, delta=1.0: F.huber_loss(input, torch.zeros_like(input), reduction="none", delta=delta),
        cost=Cost(
            million,
            saved=0,
            minimum=0,
            composition=lambda x: torch.where(x.abs() <= 1, x * x / 2, x.abs() - 0.5),
            built_in=lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
        ),
    ),
    Recipe(
        name="graph_breaks",
        page="07_compile/graph_breaks",
        topics=("G1",),
        function=compilation.graph_breaks,
        exports=("graph_breaks",),
    ),
    Recipe(
        name="compilations",
        page="07_compile/recompiling",
        topics=("G1",),
        function=compilation.compilations,
        exports=("compilations",),
    ),
    Recipe(
        name="cosine_similarity",
        page="07_compile/mixed_precision",
        topics=("G2",),
        function=mixed_precision.cosine_similarity,
        exports=("cosine_similarity",),
        samples=_cosine_similarity,
        reference=lambda input, other, dim=-1, eps=1e-8: F.cosine_similarity(input, other, dim, eps),
        cost=Cost(
            lambda: tuple(torch.randn(4000, 250).requires_grad_() for _ in range(2)),
            saved=0,
            minimum=0,
            composition=_cosine_by_parts,
            built_in=lambda x, y: F.cosine_similarity(x, y, -1),
            wins=("bytes", "range"),
        ),
    ),
    Recipe(
        name="cast_inputs",
        page="07_compile/mixed_precision",
        topics=("G2",),
        function=mixed_precision.cast_inputs,
        exports=("cast_inputs",),
        samples=_cast_inputs,
        reference=lambda function, *args: function(*args),
    ),
    Recipe(
        name="export_with_gradients",
        page="07_compile/export",
        topics=("G4",),
        function=exporting.export_with_gradients,
        exports=("export_with_gradients",),
    ),
    Recipe(
        name="save_only",
        page="07_compile/selective_checkpointing",
        topics=("D4", "G4"),
        function=checkpoint_policy.save_only,
        exports=("save_only",),
    ),
)
