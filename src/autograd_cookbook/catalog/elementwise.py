"""The recipes of the page ``elementwise``."""

import math
from collections.abc import Iterator

import torch
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import COMPLEX_BFLOAT16, COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, million, randn, unary, unary_and_complex
from autograd_cookbook.recipes import elementwise

SQUARE = Recipe(
    name="square",
    function=elementwise.square,
    exports=("square",),
    samples=unary_and_complex,
    reference=torch.square,
    cost=Cost(million, saved=0, minimum=0, composition=lambda x: x * x, built_in=torch.square, wins=("peak",)),
    limits=(COMPLEX_BFLOAT16,),
)


def _power() -> Iterator[Sample]:
    yield Sample("cube", (randn(4, 3), 3))
    yield Sample("zeroth power, also of 0", (torch.tensor([0.0, -1.5, 2.0], dtype=torch.float64).requires_grad_(), 0))
    yield Sample("first power of 0", (torch.zeros(2, dtype=torch.float64).requires_grad_(), 1))
    yield Sample("reciprocal", (randn(3), -1))
    yield Sample("complex", (complex_randn(3), 2))
    yield Sample("scalar", (randn(), 2))
    yield Sample("empty", (randn(0, 3), 3))


POWER = Recipe(
    name="power",
    function=elementwise.power,
    exports=("power",),
    samples=_power,
    reference=torch.pow,
    cost=Cost(lambda: (*million(), 3), 0, 0, lambda x, n: x * x * x, torch.pow),
    limits=(COMPLEX_HALF,),
)


def _quadratic() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), 2.0, -3.0, 0.5))
    yield Sample("line", (randn(3), 0.0, 2.0, 1.0))
    yield Sample("complex", (complex_randn(3), 1.5, 1.0, 0.0))
    yield Sample("scalar", (randn(), 1.0, 0.0, 0.0))
    yield Sample("empty", (randn(0, 3), 1.0, 1.0, 1.0))


QUADRATIC = Recipe(
    name="quadratic",
    function=elementwise.quadratic,
    exports=("quadratic",),
    samples=_quadratic,
    reference=lambda input, a, b, c: a * input**2 + b * input + c,
    cost=Cost(lambda: (*million(), 2.0, 3.0, 4.0), 0, 0, lambda x, a, b, c: a * x**2 + b * x + c),
    limits=(COMPLEX_BFLOAT16,),
)


def _clamp() -> Iterator[Sample]:
    yield Sample("both ends", (randn(4, 3), -0.5, 0.5))
    yield Sample("lower end", (randn(4, 3), 0.1))
    yield Sample("upper end", (randn(4, 3), None, 0.1))
    yield Sample("ends exchanged", (randn(4), 0.5, -0.5))
    yield Sample("scalar", (randn(), -9.0, 9.0))
    yield Sample("empty", (randn(0, 3), -0.5, 0.5))


CLAMP = Recipe(
    name="clamp",
    function=elementwise.clamp,
    exports=("clamp",),
    samples=_clamp,
    reference=torch.clamp,
    cost=Cost(
        lambda: (*million(), -1.0, 1.0),
        saved=1,
        minimum=0.125,
        composition=lambda x, a, b: torch.where(x < a, a, torch.where(x > b, b, x)),
        built_in=torch.clamp,
    ),
)


GELU = Recipe(
    name="gelu",
    function=elementwise.gelu,
    exports=("gelu",),
    samples=unary,
    reference=F.gelu,
    cost=Cost(million, 0, 0, lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2, F.gelu, wins=("range",)),
)


MISH = Recipe(
    name="mish",
    function=elementwise.mish,
    exports=("mish",),
    samples=unary,
    reference=F.mish,
    cost=Cost(million, 0, 0, lambda x: x * F.softplus(x).tanh(), F.mish, wins=("range",)),
)


def _elu() -> Iterator[Sample]:
    yield from unary()
    yield Sample("alpha", (randn(4, 3), 0.3))
    yield Sample("no tail", (randn(4, 3), 0.0))


ELU = Recipe(
    name="elu",
    function=elementwise.elu,
    exports=("elu",),
    samples=_elu,
    reference=F.elu,
    cost=Cost(million, saved=0, minimum=0, composition=lambda x: torch.where(x > 0, x, x.exp() - 1), built_in=F.elu),
)


SELU = Recipe(
    name="selu",
    function=elementwise.selu,
    exports=("selu",),
    samples=unary,
    reference=F.selu,
    cost=Cost(million, saved=0, minimum=0, built_in=F.selu),
)
