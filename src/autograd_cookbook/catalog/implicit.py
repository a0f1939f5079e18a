"""The recipes of the page ``implicit``."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Limit, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn
from autograd_cookbook.recipes import implicit


def _layer(z: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """A map that is a contraction for every weight."""
    return torch.tanh(z @ (w / (2 + 2 * w.norm())) + x)


def _fixed_point() -> Iterator[Sample]:
    yield Sample("layer", (_layer, torch.zeros(4, 3, dtype=torch.float64), randn(4, 3), randn(3, 3)))
    yield Sample("scalar", (lambda z, a: (z * a.sin()).cos() / 2, torch.ones((), dtype=torch.float64), randn()))
    yield Sample("empty", (_layer, torch.zeros(0, 3, dtype=torch.float64), randn(0, 3), randn(3, 3)))
    yield Sample("complex", (lambda z, a: (z * a).cos() / 4, torch.zeros(2, dtype=torch.complex128), complex_randn(2)))


def _converged(state: Tensor) -> Tensor:
    """Raise instead of returning a wrong result, as the recipes do."""
    if not state.isfinite().all():
        raise RuntimeError("the iteration does not converge")
    return state


def _unrolled(function: Callable[..., Tensor], initial: Tensor, *parameters: Tensor) -> Tensor:
    for _ in range(100):
        initial = function(initial, *parameters)
    return _converged(initial)


FIXED_POINT = Recipe(
    name="fixed_point",
    function=implicit.fixed_point,
    exports=("fixed_point",),
    samples=_fixed_point,
    reference=_unrolled,
    # The computed numbers decide when the iteration ends, so the compiler cannot compile it.
    promises=("first_order", "second_order", "vmap", "checkpoint"),
    cost=Cost(
        lambda: (
            lambda z, x, w: (z @ w + x).tanh(),
            torch.zeros(10_000, 100),
            torch.randn(10_000, 100).requires_grad_(),
            (0.05 * torch.randn(100, 100)).requires_grad_(),
        ),
        saved=4,
        minimum=0,
        composition=lambda f, z, *p: functools.reduce(lambda z, _: f(z, *p), range(30), z),
        wins=("bytes", "peak"),
    ),
    limits=(COMPLEX_HALF,),
)


def _circle_and_line(z: Tensor, p: Tensor) -> Tensor:
    x, y = z.unbind(-1)
    a, b = p.unbind(-1)
    return torch.stack([x**2 + y**2 - a**2 - 2, b * x - y], -1)


def _root() -> Iterator[Sample]:
    yield Sample("batch", (_circle_and_line, torch.ones(3, 2, dtype=torch.float64), randn(3, 2)))
    yield Sample("one system", (_circle_and_line, torch.ones(2, dtype=torch.float64), randn(2)))
    yield Sample("one unknown", (lambda z, a: z.exp() + z - a**2, torch.zeros(1, dtype=torch.float64), randn(1)))
    yield Sample("empty", (_circle_and_line, torch.ones(0, 2, dtype=torch.float64), randn(0, 2)))


def _unrolled_newton(function: Callable[..., Tensor], initial: Tensor, *parameters: Tensor) -> Tensor:
    def equations(z: Tensor) -> Tensor:
        return function(z, *parameters)

    for _ in range(30):
        values, pull_back = torch.func.vjp(equations, initial)  # type: ignore[misc]  # torch's type allows for has_aux
        units = torch.eye(initial.shape[-1], dtype=initial.dtype)
        jacobian = torch.stack([pull_back(unit.expand(initial.shape))[0] for unit in units], -2)
        initial = initial - torch.linalg.solve(jacobian, values.unsqueeze(-1)).squeeze(-1)
    return _converged(initial)


ROOT = Recipe(
    name="root",
    function=implicit.root,
    exports=("root",),
    samples=_root,
    reference=_unrolled_newton,
    promises=("first_order", "second_order", "vmap", "checkpoint"),
)


def _newton_between(function: Callable[..., Tensor], low: Tensor, high: Tensor, *parameters: Tensor) -> Tensor:
    def equation(z: Tensor) -> Tensor:
        return function(z, *parameters)

    z = (low + high) / 2
    for _ in range(40):
        values, pull_back = torch.func.vjp(equation, z)  # type: ignore[misc]  # torch's type allows for has_aux
        z = z - values / pull_back(torch.ones_like(values))[0]
    return z


def _kepler(z: Tensor, mean: Tensor, eccentricity: Tensor) -> Tensor:
    return z - eccentricity * z.sin() - mean


def _newton_kepler(function: Any, low: Tensor, high: Tensor, mean: Tensor, eccentricity: Tensor) -> Tensor:
    z = mean
    for _ in range(4):
        z = z - (z - eccentricity * z.sin() - mean) / (1 - eccentricity * z.cos())
    return z


def _bisect() -> Iterator[Sample]:
    def bounds(*shape: int) -> tuple[Tensor, Tensor]:
        return -2 * torch.ones(shape, dtype=torch.float64), 3 * torch.ones(shape, dtype=torch.float64)

    def cubic(z: Tensor, a: Tensor) -> Tensor:
        return z**3 + z - 2 * a.sin() - 5

    yield Sample("matrix", (cubic, *bounds(4, 3), randn(4, 3)))
    yield Sample(
        "shared", (lambda z, a, b: z**3 + z * (1 + b.sin() ** 2) - 2 * a.sin() - 5, *bounds(3), randn(3), randn())
    )
    yield Sample("scalar", (cubic, *bounds(), randn()))
    yield Sample("empty", (cubic, *bounds(0, 3), randn(0, 3)))


BISECT = Recipe(
    name="bisect",
    function=implicit.bisect,
    exports=("bisect",),
    samples=_bisect,
    reference=_newton_between,
    cost=Cost(
        lambda: (
            _kepler,
            torch.zeros(1_000_000),
            torch.full((1_000_000,), 2 * math.pi),
            (2 * math.pi * torch.rand(1_000_000)).requires_grad_(),
            (0.5 * torch.rand(1_000_000)).requires_grad_(),
        ),
        saved=4,
        minimum=0,
        composition=_newton_kepler,
        wins=(),
    ),
)


def _linear_solve() -> Iterator[Sample]:
    def matrix(*batch: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return (torch.randn(*batch, 3, 3, dtype=dtype) + 3 * torch.eye(3)).requires_grad_()

    yield Sample("matrix", (matrix(), randn(3, 2)))
    yield Sample("vector", (matrix(), randn(3)))
    yield Sample("batch of vectors", (matrix(2), randn(2, 3)))
    yield Sample("broadcast", (matrix(2, 1), randn(4, 3, 2)))
    yield Sample("complex", (matrix(dtype=torch.complex128), complex_randn(3, 2)))
    yield Sample("empty", (matrix(0), randn(0, 3, 2)))


LINEAR_SOLVE = Recipe(
    name="linear_solve",
    function=implicit.linear_solve,
    exports=("linear_solve",),
    samples=_linear_solve,
    reference=torch.linalg.solve,
    cost=Cost(
        lambda: ((torch.randn(1000, 1000) + 50 * torch.eye(1000)).requires_grad_(), torch.randn(1000)),
        saved=0.004,
        minimum=0,
        composition=lambda a, b: a.inverse() @ b,
        built_in=torch.linalg.solve,
        wins=("bytes", "peak"),
    ),
    limits=(Limit(("vmap",), "batches that broadcast", ("broadcast",)),),
)
