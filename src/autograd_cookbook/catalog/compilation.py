"""Functions that the compiler takes whole."""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from autograd_cookbook import checkpoint_policy, compilation, exporting
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import million, randn, unary


def _huber() -> Iterator[Sample]:
    yield from unary()
    yield Sample("narrow", (randn(4, 3), 0.3))


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="huber",
        page="07_compile/torch_compile",
        topics=("G1",),
        function=compilation.huber,
        exports=("huber", "graph_breaks"),
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
