"""The recipes of the page ``row_reduction``."""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn
from autograd_cookbook.recipes import row_reduction


def _fused_rms_norm() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), randn(3)))
    yield Sample("one row, and an eps", (randn(5), randn(5), 0.1))
    yield Sample("odd size", (randn(3, 2, 7), randn(7)))
    yield Sample("no rows", (randn(0, 3), randn(3)))
    yield Sample("rows of nothing", (randn(3, 0), randn(0)))
    yield Sample("frozen weight", (randn(2, 5), randn(5).detach()))
    yield Sample("frozen input", (randn(2, 5).detach(), randn(5)))


FUSED_RMS_NORM = Recipe(
    name="fused_rms_norm",
    function=row_reduction.fused_rms_norm,
    exports=("fused_rms_norm",),
    samples=_fused_rms_norm,
    reference=lambda input, weight, eps=1e-6: F.rms_norm(input, weight.shape, weight, eps),
    cost=Cost(
        lambda: (*million(), torch.ones(1000).requires_grad_()),
        saved=0,
        minimum=0,
        composition=lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
        built_in=lambda x, w: F.rms_norm(x, w.shape, w, 1e-6),
        wins=("bytes", "range"),
    ),
)
