"""The recipes of the page ``arguments``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, million, randn, weights
from autograd_cookbook.recipes import arguments


def _scaled_tanh() -> Iterator[Sample]:
    yield Sample("as given", (randn(4, 3),))
    yield Sample("two numbers", (randn(4, 3), -0.5, 3))
    yield Sample("scalar", (randn(), 2.0))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("large", ((randn(5).detach() * 100).requires_grad_(),))
    yield Sample("complex", (complex_randn(3), 0.5))


SCALED_TANH = Recipe(
    name="scaled_tanh",
    function=arguments.scaled_tanh,
    exports=("scaled_tanh",),
    samples=_scaled_tanh,
    reference=lambda input, scale=1.7159, slope=2 / 3: scale * torch.tanh(slope * input),
    cost=Cost(million, saved=4, minimum=4, composition=lambda x: 1.7159 * torch.tanh(2 / 3 * x)),
    limits=(COMPLEX_HALF,),
)


def _affine() -> Iterator[Sample]:
    yield Sample("weight and bias", (randn(4, 3), randn(3), randn(3)))
    yield Sample("weight alone", (randn(2, 4, 3), randn(4, 3)))
    yield Sample("bias alone", (randn(4, 3), None, randn(3)))
    yield Sample("neither", (randn(4, 3), None, None))
    yield Sample("bias of another shape", (randn(2, 4, 3), randn(3), randn(4, 3)))
    yield Sample("scalars", (randn(), randn(), randn()))
    yield Sample("empty batch", (randn(0, 3), randn(3), randn(3)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(3), complex_randn(3)))


def _affine_in_torch(input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    output = input.clone() if weight is None else input * weight
    return output if bias is None else output + bias


AFFINE = Recipe(
    name="affine",
    function=arguments.affine,
    exports=("affine",),
    samples=_affine,
    reference=_affine_in_torch,
    cost=Cost(lambda: (*million(), weights(1000), weights(1000)), saved=0, minimum=0, composition=_affine_in_torch),
    limits=(COMPLEX_HALF,),
)


def _pinball_loss() -> Iterator[Sample]:
    yield Sample("mean", (randn(4, 3), randn(4, 3), 0.9))
    yield Sample("sum", (randn(4, 3), randn(4, 3).detach(), 0.1, "sum"))
    yield Sample("none", (randn(4), randn(4).detach(), 0.3, "none"))
    yield Sample("weight", (randn(4, 3), randn(4, 3), 0.3, "mean", randn(4, 3)))
    yield Sample("weight, no reduction", (randn(4, 3), randn(4, 3), 0.7, "none", torch.rand(4, 3, dtype=torch.float64)))
    yield Sample("scalar", (randn(), randn(), 0.25))
    yield Sample("empty", (randn(0, 3), randn(0, 3), 0.5, "sum"))


def _reduced(loss: Tensor, reduction: str, weight: Tensor | None) -> Tensor:
    loss = loss if weight is None else loss * weight
    return loss if reduction == "none" else getattr(loss, reduction)()


def _larger_of_two(
    input: Tensor, target: Tensor, quantile: float = 0.5, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    error = target - input
    return _reduced(torch.maximum(quantile * error, (quantile - 1) * error), reduction, weight)


def _tilted_absolute(
    input: Tensor, target: Tensor, quantile: float = 0.5, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    error = target - input
    return _reduced((error.abs() + (2 * quantile - 1) * error) / 2, reduction, weight)


PINBALL_LOSS = Recipe(
    name="pinball_loss",
    function=arguments.pinball_loss,
    exports=("pinball_loss",),
    samples=_pinball_loss,
    reference=_tilted_absolute,
    cost=Cost(
        lambda: (*million(), torch.randn(1000, 1000), 0.9),
        saved=0,
        minimum=0,
        composition=_larger_of_two,
        wins=("bytes", "time"),
    ),
)
