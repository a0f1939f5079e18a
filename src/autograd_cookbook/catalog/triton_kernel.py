"""The recipes of the page ``triton_kernel``."""

from collections.abc import Iterator

import torch

from autograd_cookbook.catalog._recipe import Recipe, Sample
from autograd_cookbook.catalog._samples import randn
from autograd_cookbook.recipes import triton_kernel


def _rows() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3),))
    yield Sample("scalar", (randn(),))
    yield Sample("other dimension", (randn(3, 5, 2), 1))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("odd width", (randn(2, 7),))


TRITON_SOFTMAX = Recipe(
    name="triton_softmax",
    function=triton_kernel.triton_softmax,
    exports=("triton_softmax", "backend"),
    samples=_rows,
    reference=lambda input, dim=-1: torch.softmax(input, dim),
)
