"""The recipes of the page ``reversal``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_BFLOAT16, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, hooked, million, randn
from autograd_cookbook.recipes import reversal


def _factor() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), 0.5))
    yield Sample("scalar", (randn(), 2.0))
    yield Sample("nothing left", (randn(3), 0.0))
    yield Sample("an int", (randn(2, 3), 1))
    yield Sample("empty", (randn(0, 3), 0.5))
    yield Sample("complex", (complex_randn(3), 0.5))


def _scaled(input: Tensor, scale: float) -> Tensor:
    """Return the input exactly, because the difference is zero, but with the gradient of ``scale * input``."""
    return input.detach() + scale * (input - input.detach())


REVERSE_GRADIENT = Recipe(
    name="reverse_gradient",
    function=reversal.reverse_gradient,
    exports=("reverse_gradient",),
    samples=_factor,
    reference=lambda input, strength: _scaled(input, -strength),
    gradient="surrogate",
    cost=Cost(
        lambda: (*million(), 0.5),
        saved=0,
        minimum=0,
        composition=lambda x, strength: (1 + strength) * x.detach() - strength * x,
        built_in=lambda x, strength: hooked(x, lambda grad: grad * -strength),
    ),
    limits=(COMPLEX_BFLOAT16,),
)


SCALE_GRADIENT = Recipe(
    name="scale_gradient",
    function=reversal.scale_gradient,
    exports=("scale_gradient",),
    samples=_factor,
    reference=_scaled,
    gradient="surrogate",
    cost=Cost(
        lambda: (*million(), 0.5),
        saved=0,
        minimum=0,
        composition=lambda x, scale: (1 - scale) * x.detach() + scale * x,
        built_in=lambda x, scale: hooked(x, lambda grad: grad * scale),
    ),
    limits=(COMPLEX_BFLOAT16,),
)


def _stop_gradient() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), torch.rand(4, 3) < 0.5))
    yield Sample("rows", (randn(4, 3), torch.tensor([[True], [False], [True], [False]])))
    yield Sample("scalar", (randn(), torch.tensor(False)))
    yield Sample("all", (randn(3), torch.tensor(True)))
    yield Sample("empty", (randn(0, 3), torch.ones(3, dtype=torch.bool)))
    yield Sample("complex", (complex_randn(2), torch.tensor([True, False])))


STOP_GRADIENT = Recipe(
    name="stop_gradient",
    function=reversal.stop_gradient,
    exports=("stop_gradient",),
    samples=_stop_gradient,
    reference=lambda input, mask: torch.where(mask, input.detach(), input),
    gradient="surrogate",
    cost=Cost(
        lambda: (*million(), torch.rand(1000, 1000) < 0.5),
        saved=0,
        minimum=0,
        composition=lambda x, mask: torch.where(mask, x.detach(), x),
        built_in=lambda x, mask: hooked(x, lambda grad: grad.masked_fill(mask, 0)),
    ),
    limits=(COMPLEX_BFLOAT16,),
)
