"""The recipes of the page ``hessian``."""

import math
from collections.abc import Iterator

import torch

from autograd_cookbook.catalog._recipe import Cost, Limit, Recipe, Sample
from autograd_cookbook.catalog._samples import bowl, million, randn, unary
from autograd_cookbook.recipes import hessian

LOG_COSH = Recipe(
    name="log_cosh",
    function=hessian.log_cosh,
    exports=("log_cosh",),
    samples=unary,
    reference=lambda input: torch.logaddexp(input, -input) - math.log(2),
    cost=Cost(million, saved=0, minimum=0, composition=lambda x: x.cosh().log(), wins=("range",)),
)


def _hvp() -> Iterator[Sample]:
    for mode in ("reverse", "forward_over_reverse"):
        yield Sample(f"vector, {mode}", (bowl, randn(3), randn(3), mode))
        yield Sample(f"matrix, {mode}", (bowl, randn(2, 3), randn(2, 3), mode))
        yield Sample(f"scalar, {mode}", (bowl, randn(), randn(), mode))
    yield Sample("custom function inside", (lambda x: hessian.log_cosh(x).sum(), randn(3), randn(3)))


HVP = Recipe(
    name="hvp",
    function=hessian.hvp,
    exports=("hvp",),
    samples=_hvp,
    reference=lambda f, x, v, mode="": torch.autograd.functional.hvp(f, x, v, create_graph=True)[1],
    limits=(
        Limit(
            ("forward_mode",),
            "forward over reverse and functions without a jvp",
            (
                "vector, forward_over_reverse",
                "matrix, forward_over_reverse",
                "scalar, forward_over_reverse",
                "custom function inside",
            ),
        ),
    ),
)


def _hessian() -> Iterator[Sample]:
    for mode in ("reverse", "forward_over_reverse"):
        yield Sample(f"vector, {mode}", (bowl, randn(3), mode))
        yield Sample(f"matrix, {mode}", (bowl, randn(2, 2), mode))
        yield Sample(f"scalar, {mode}", (bowl, randn(), mode))


HESSIAN = Recipe(
    name="hessian",
    function=hessian.hessian,
    exports=("hessian",),
    samples=_hessian,
    reference=lambda f, x, mode: torch.func.hessian(f)(x),
    limits=(
        Limit(
            ("forward_mode",),
            "forward over reverse",
            ("vector, forward_over_reverse", "matrix, forward_over_reverse", "scalar, forward_over_reverse"),
        ),
    ),
)


def _jacobian() -> Iterator[Sample]:
    for mode in ("reverse", "forward_over_reverse"):
        yield Sample(f"vector, {mode}", (lambda x: torch.outer(x.sin(), x), randn(3), mode))
        yield Sample(f"matrix, {mode}", (lambda x: (x.tanh() @ x.tanh().mT).sum(0), randn(2, 3), mode))
        yield Sample(f"scalar output, {mode}", (bowl, randn(2), mode))


JACOBIAN = Recipe(
    name="jacobian",
    function=hessian.jacobian,
    exports=("jacobian",),
    samples=_jacobian,
    reference=lambda f, x, mode: torch.func.jacrev(f)(x),
    limits=(
        Limit(
            ("forward_mode",),
            "forward over reverse",
            ("vector, forward_over_reverse", "matrix, forward_over_reverse", "scalar output, forward_over_reverse"),
        ),
    ),
)
