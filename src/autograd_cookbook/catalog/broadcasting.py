"""The recipes of the page ``broadcasting``."""

from collections.abc import Iterator

import torch

from autograd_cookbook.catalog._recipe import Cost, Limit, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, million, randn, scaled, weights
from autograd_cookbook.recipes import broadcasting


def _sum_to_shape() -> Iterator[Sample]:
    yield Sample("leading and size 1", (randn(4, 2, 3), (2, 1)))
    yield Sample("to a scalar", (randn(2, 3), ()))
    yield Sample("nothing to do", (randn(2, 3), (2, 3)))
    yield Sample("empty", (randn(0, 3), (3,)))
    yield Sample("to ones", (randn(2, 3), (1, 1)))


SUM_TO_SHAPE = Recipe(
    name="sum_to_shape",
    function=broadcasting.sum_to_shape,
    exports=("sum_to_shape",),
    samples=_sum_to_shape,
    reference=torch.Tensor.sum_to_size,
)


def _bias_add() -> Iterator[Sample]:
    yield Sample("image", (randn(2, 3, 4, 4), randn(3)))
    yield Sample("last dim", (randn(2, 3), randn(3), -1))
    yield Sample("first dim", (randn(2, 3), randn(2), 0))
    yield Sample("vector", (randn(3), randn(3), 0))
    yield Sample("empty batch", (randn(0, 3, 2), randn(3)))
    yield Sample("no channels", (randn(2, 0), randn(0)))


BIAS_ADD = Recipe(
    name="bias_add",
    function=broadcasting.bias_add,
    exports=("bias_add",),
    samples=_bias_add,
    reference=lambda input, bias, dim=1: (input.movedim(dim, -1) + bias).movedim(-1, dim),
    cost=Cost(lambda: (*million(), weights(1000)), 0, 0, built_in=torch.add),
)


def _multiply() -> Iterator[Sample]:
    yield Sample("same shape", (randn(2, 3), randn(2, 3)))
    yield Sample("row", (randn(2, 3), randn(3)))
    yield Sample("column and row", (randn(4, 1), randn(3)))
    yield Sample("both sides", (randn(2, 1, 3), randn(4, 1)))
    yield Sample("scalar", (randn(2, 3), randn()))
    yield Sample("two scalars", (randn(), randn()))
    yield Sample("empty", (randn(0, 3), randn(3)))
    yield Sample("one frozen", (randn(2, 3), randn(3).detach()))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(3)))
    yield Sample("real and complex", (randn(2, 3), complex_randn(3)))


MULTIPLY = Recipe(
    name="multiply",
    function=broadcasting.multiply,
    exports=("multiply",),
    samples=_multiply,
    reference=torch.mul,
    cost=Cost(lambda: (*million(), weights(1000)), 0, 0, built_in=torch.mul),
    limits=(Limit(("float16", "bfloat16"), "complex numbers", ("complex", "real and complex")),),
)


def _scaled_sigmoid() -> Iterator[Sample]:
    yield from scaled()
    yield Sample("both sides", (randn(2, 1, 3), randn(4, 1)))


SCALED_SIGMOID = Recipe(
    name="scaled_sigmoid",
    function=broadcasting.scaled_sigmoid,
    exports=("scaled_sigmoid",),
    samples=_scaled_sigmoid,
    reference=lambda input, scale: torch.sigmoid(scale * input),
    cost=Cost(
        lambda: (*million(), weights(1000)), 0, 0, composition=lambda x, s: torch.sigmoid(s * x), wins=("bytes",)
    ),
)
