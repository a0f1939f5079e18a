"""The recipes of the page ``surrogate_gradients``."""

from collections.abc import Iterator

from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn
from autograd_cookbook.recipes import surrogate_gradients


def _spike() -> Iterator[Sample]:
    yield Sample("fast sigmoid", (randn(4, 3),))
    yield Sample("arctan", (randn(4, 3), 3.0, "arctan"))
    yield Sample("triangle", (randn(4, 3), 0.5, "triangle"))
    yield Sample("steep", (randn(4, 3), 100.0))
    yield Sample("scalar", (randn(), 1.0))
    yield Sample("empty", (randn(0, 3),))


def _composed_spike(input: Tensor, slope: float = 2.0, shape: str = "fast_sigmoid") -> Tensor:
    if shape == "fast_sigmoid":
        smooth = input / (1 + slope * input.abs())
    elif shape == "arctan":
        smooth = (slope * input).atan() / slope
    else:
        near = input.clamp(-1 / slope, 1 / slope)
        smooth = near - slope * near * near.abs() / 2
    return (input > 0).to(input.dtype) + (smooth - smooth.detach())


SPIKE = Recipe(
    name="spike",
    function=surrogate_gradients.spike,
    exports=("spike",),
    samples=_spike,
    reference=_composed_spike,
    gradient="surrogate",
    cost=Cost(million, saved=0, minimum=0, composition=_composed_spike),
)
