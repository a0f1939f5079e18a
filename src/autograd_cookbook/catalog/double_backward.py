"""The recipes of the page ``double_backward``."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import above
from autograd_cookbook.recipes import double_backward


def _lambert_w() -> Iterator[Sample]:
    yield Sample("matrix", (above(-0.3, 4, 3),))
    yield Sample("scalar", (above(-0.3),))
    yield Sample("empty", (above(-0.3, 0, 3),))
    yield Sample("below zero", ((torch.rand(5, dtype=torch.float64) * 0.3 - 0.35).requires_grad_(),))
    yield Sample("large", ((torch.rand(5, dtype=torch.float64) * 1e4).requires_grad_(),))


def _newton(input: Tensor) -> Tensor:
    """Lambert W by Newton's method for ``w exp(w) = x``. Autograd records every step."""
    w = torch.log1p(input.clamp(min=-0.3))
    for _ in range(20):
        w = w - (w * w.exp() - input) / (w.exp() * (1 + w))
    return torch.where(input < -1 / math.e, torch.nan, w)


LAMBERT_W = Recipe(
    name="lambert_w",
    function=double_backward.lambert_w,
    exports=("lambert_w",),
    samples=_lambert_w,
    reference=_newton,
    cost=Cost(
        lambda: ((torch.rand(1000, 1000) * 10).requires_grad_(),),
        saved=4,
        minimum=0,
        composition=double_backward.LambertWFunction.forward,
    ),
)


def _log_diagonal(input: Tensor) -> Tensor:
    return 2 * torch.linalg.cholesky((input + input.mH) / 2).diagonal(dim1=-2, dim2=-1).real.log().sum(-1)


def _positive_definite(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    factor = torch.randn((*shape, shape[-1]), dtype=dtype) / math.sqrt(max(shape[-1], 1))
    return (factor @ factor.mH + torch.eye(shape[-1], dtype=dtype)).requires_grad_()


def _logdet() -> Iterator[Sample]:
    yield Sample("matrix", (_positive_definite(4),))
    yield Sample("batch", (_positive_definite(2, 3),))
    yield Sample("one by one", (_positive_definite(1),))
    yield Sample("no rows", (_positive_definite(0),))
    yield Sample("empty batch", (_positive_definite(0, 3),))
    yield Sample("complex", (_positive_definite(3, dtype=torch.complex128),))


LOGDET = Recipe(
    name="logdet",
    function=double_backward.logdet,
    exports=("logdet",),
    samples=_logdet,
    reference=_log_diagonal,
    cost=Cost(
        lambda: (_positive_definite(1000, dtype=torch.float32),),
        saved=4,
        minimum=0,
        composition=_log_diagonal,
        built_in=torch.logdet,
        wins=("peak", "time"),
    ),
)
