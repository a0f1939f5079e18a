"""The recipes of the page ``template``."""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, million, randn, unary, unary_and_complex, weights
from autograd_cookbook.recipes import template


def _linear() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(5, 3), randn(5)))
    yield Sample("no bias", (randn(4, 3), randn(5, 3), None))
    yield Sample("vector", (randn(3), randn(5, 3), randn(5)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(5, 4), randn(5)))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), randn(5)))
    yield Sample("no features", (randn(2, 0), randn(5, 0), randn(5)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(2, 3), complex_randn(2)))


LINEAR = Recipe(
    name="linear",
    function=template.linear,
    exports=("linear", "Linear"),
    samples=_linear,
    reference=F.linear,
    cost=Cost(lambda: (*million(), weights(100, 1000), weights(100)), 0, 0, lambda x, w, b: x @ w.mT + b, F.linear),
    limits=(COMPLEX_HALF,),
)


RELU = Recipe(
    name="relu",
    function=template.relu,
    exports=("relu",),
    samples=unary,
    reference=torch.relu,
    cost=Cost(million, saved=4, minimum=0.125, composition=lambda x: x * (x > 0), built_in=torch.relu),
)


SIGMOID = Recipe(
    name="sigmoid",
    function=template.sigmoid,
    exports=("sigmoid",),
    samples=unary_and_complex,
    reference=torch.sigmoid,
    cost=Cost(million, saved=4, minimum=4, composition=lambda x: 1 / (1 + (-x).exp()), built_in=torch.sigmoid),
    limits=(COMPLEX_HALF,),
)


TANH = Recipe(
    name="tanh",
    function=template.tanh,
    exports=("tanh",),
    samples=unary_and_complex,
    reference=torch.tanh,
    cost=Cost(million, saved=4, minimum=4, composition=lambda x: 2 / (1 + (-2 * x).exp()) - 1, built_in=torch.tanh),
    limits=(COMPLEX_HALF,),
)
