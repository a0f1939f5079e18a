"""The recipes of the page ``selective_saving``."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn, weights
from autograd_cookbook.recipes import selective_saving


def _gelu_linear() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(5, 3), randn(5)))
    yield Sample("tanh, no bias", (randn(4, 3), randn(5, 3), None, "tanh"))
    yield Sample("vector", (randn(3), randn(5, 3), randn(5)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(5, 4), randn(5)))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), randn(5)))
    yield Sample("no features", (randn(2, 0), randn(5, 0), randn(5)))


def _composed_gelu_linear(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (0.5 * input * (1 + torch.erf(input / 2**0.5))) @ weight.mT + bias


GELU_LINEAR = Recipe(
    name="gelu_linear",
    function=selective_saving.gelu_linear,
    exports=("gelu_linear",),
    samples=_gelu_linear,
    reference=lambda x, weight, bias=None, approximate="none": F.linear(
        F.gelu(x, approximate=approximate), weight, bias
    ),
    cost=Cost(
        lambda: (*million(), weights(1000, 1000), weights(1000)),
        saved=0,
        minimum=0,
        composition=_composed_gelu_linear,
        built_in=lambda x, weight, bias: F.linear(F.gelu(x), weight, bias),
        wins=("bytes",),
    ),
)


def _swiglu_linear() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(4, 3), randn(5, 3)))
    yield Sample("vector", (randn(3), randn(3), randn(5, 3)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(2, 3, 4), randn(5, 4)))
    yield Sample("empty batch", (randn(0, 3), randn(0, 3), randn(5, 3)))
    yield Sample("frozen weight", (randn(4, 3), randn(4, 3), randn(5, 3).detach()))


SWIGLU_LINEAR = Recipe(
    name="swiglu_linear",
    function=selective_saving.swiglu_linear,
    exports=("swiglu_linear",),
    samples=_swiglu_linear,
    reference=lambda gate, up, weight: F.linear(F.silu(gate) * up, weight),
    cost=Cost(
        lambda: (*million(), *million(), weights(1000, 1000)),
        saved=0,
        minimum=0,
        composition=lambda gate, up, weight: (gate * torch.sigmoid(gate) * up) @ weight.mT,
        built_in=lambda gate, up, weight: F.linear(F.silu(gate) * up, weight),
        wins=("bytes",),
    ),
)


def _rms_norm() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(3)))
    yield Sample("vector", (randn(3), randn(3)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(4), 0.1))
    yield Sample("row of zeros", (torch.zeros(1, 3, dtype=torch.float64).requires_grad_(), randn(3), 0.5))
    yield Sample("empty batch", (randn(0, 3), randn(3)))
    yield Sample("one feature", (randn(2, 1), randn(1), 0.5))


def _composed_rms_norm(input: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return input * torch.rsqrt(input.square().mean(-1, keepdim=True) + eps) * weight


RMS_NORM = Recipe(
    name="rms_norm",
    function=selective_saving.rms_norm,
    exports=("rms_norm",),
    samples=_rms_norm,
    reference=lambda x, weight, eps=1e-6: F.rms_norm(x, weight.shape, weight, eps),
    cost=Cost(
        lambda: (*million(), weights(1000)),
        saved=0,
        minimum=0,
        composition=_composed_rms_norm,
        built_in=lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6),
        wins=("bytes", "range"),
    ),
)
