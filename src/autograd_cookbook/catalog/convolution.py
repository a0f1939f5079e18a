"""The recipes of the page ``convolution``."""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn, weights
from autograd_cookbook.recipes import convolution


def _conv2d() -> Iterator[Sample]:
    yield Sample("all options", (randn(2, 2, 6, 5), randn(4, 1, 3, 2), randn(4), (2, 1), (1, 2), (1, 2), 2))
    yield Sample("plain", (randn(2, 2, 4, 4), randn(3, 2, 3, 3), randn(3)))
    yield Sample("rows left over", (randn(1, 1, 6, 7), randn(1, 1, 2, 3), None, (4, 3)))
    yield Sample("dilation", (randn(1, 1, 6, 6), randn(2, 1, 2, 2), None, 1, 0, (3, 2)))
    yield Sample("depthwise", (randn(1, 3, 4, 4), randn(3, 1, 3, 3), None, 1, 1, 1, 3))
    yield Sample("same", (randn(1, 1, 4, 5), randn(1, 1, 3, 5), None, 1, "same"))
    yield Sample("one by one", (randn(2, 3, 3, 3), randn(4, 3, 1, 1)))
    yield Sample("no batch", (randn(2, 4, 4), randn(3, 2, 2, 2), randn(3)))
    yield Sample("empty batch", (randn(0, 2, 4, 4), randn(3, 2, 2, 2)))
    yield Sample("complex", (complex_randn(2, 2, 3, 3), complex_randn(2, 1, 2, 2), complex_randn(2), 1, 0, 1, 2))


CONV2D = Recipe(
    name="conv2d",
    function=convolution.conv2d,
    exports=("conv2d",),
    samples=_conv2d,
    reference=F.conv2d,
    cost=Cost(lambda: (torch.randn(16, 16, 64, 64).requires_grad_(), weights(16, 16, 3, 3)), 0, 0, built_in=F.conv2d),
    limits=(COMPLEX_HALF,),
)


def _conv1d() -> Iterator[Sample]:
    yield Sample("all options", (randn(2, 4, 9), randn(6, 2, 3), randn(6), 2, 1, 2, 2))
    yield Sample("plain", (randn(2, 3, 5), randn(2, 3, 3)))
    yield Sample("rows left over", (randn(1, 1, 8), randn(1, 1, 2), None, 3))
    yield Sample("same", (randn(1, 2, 5), randn(2, 2, 3), None, 1, "same", 2))
    yield Sample("no batch", (randn(3, 5), randn(2, 3, 3), randn(2)))
    yield Sample("empty batch", (randn(0, 3, 5), randn(2, 3, 3), randn(2)))
    yield Sample("complex", (complex_randn(2, 2, 5), complex_randn(2, 1, 2), complex_randn(2), 2, 1, 1, 2))


CONV1D = Recipe(
    name="conv1d",
    function=convolution.conv1d,
    exports=("conv1d",),
    samples=_conv1d,
    reference=F.conv1d,
    cost=Cost(lambda: (weights(16, 16, 4096), weights(16, 16, 3)), 0, 0, built_in=F.conv1d),
    limits=(COMPLEX_HALF,),
)
