"""The recipes of the page ``transport``."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import above, randn
from autograd_cookbook.recipes import transport


def _potentials(
    cost: Tensor, source: Tensor, target: Tensor, regularization: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """Run a fixed number of iterations. Autograd goes through all of them."""
    f, g = torch.zeros_like(source), torch.zeros_like(target)
    for _ in range(iterations):
        f = -regularization * (target.log().unsqueeze(-2) + (g.unsqueeze(-2) - cost) / regularization).logsumexp(-1)
        g = -regularization * (source.log().unsqueeze(-1) + (f.unsqueeze(-1) - cost) / regularization).logsumexp(-2)
    return f, g


def _plan(cost: Tensor, source: Tensor, target: Tensor, f: Tensor, g: Tensor, regularization: float) -> Tensor:
    ratio = ((f.unsqueeze(-1) + g.unsqueeze(-2) - cost) / regularization).exp()
    return source.unsqueeze(-1) * target.unsqueeze(-2) * ratio


def _unrolled_cost(
    cost: Tensor, source: Tensor, target: Tensor, regularization: float = 0.1, iterations: int = 30
) -> Tensor:
    source, target = (w / w.sum(-1, keepdim=True).abs() for w in (source, target))
    f, g = _potentials(cost, source, target, regularization, iterations)
    return (f * source).sum(-1) + (g * target).sum(-1)


def _unrolled_plan(
    cost: Tensor, source: Tensor, target: Tensor, regularization: float = 0.1, iterations: int = 30
) -> Tensor:
    source, target = (w / w.sum(-1, keepdim=True).abs() for w in (source, target))
    return _plan(cost, source, target, *_potentials(cost, source, target, regularization, iterations), regularization)


def _converged(
    cost: Tensor, source: Tensor, target: Tensor, regularization: float = 0.1, tolerance: float = 1e-9
) -> Tensor:
    """Raise instead of returning a wrong result, as the recipes do."""
    plan = _unrolled_plan(cost, source, target, regularization, 50)
    missed = (plan.sum(-1) - source / source.sum(-1, keepdim=True)).abs()
    if not (missed < torch.finfo(cost.dtype).eps ** 0.5).all():
        raise RuntimeError("no plan for these numbers, or not within 50 iterations")
    return plan


def _converged_cost(
    cost: Tensor, source: Tensor, target: Tensor, regularization: float = 0.1, tolerance: float = 1e-9
) -> Tensor:
    _converged(cost.detach(), source.detach(), target.detach(), regularization)
    return _unrolled_cost(cost, source, target, regularization, 50)


def _transport() -> Iterator[Sample]:
    """Calls with a regularization so large that 50 iterations of the reference are enough."""
    yield Sample("one problem", (randn(4, 3), above(0.5, 4), above(0.5, 3), 3.0, 1e-13))
    yield Sample("batch", (randn(2, 3, 4), above(0.5, 2, 3), above(0.5, 2, 4), 3.0, 1e-13))
    yield Sample("shared weights", (randn(2, 3, 3), above(0.5, 3), above(0.5, 3), 3.0, 1e-13))
    yield Sample("frozen weights", (randn(3, 3), torch.ones(3).double(), torch.ones(3).double(), 3.0, 1e-13))
    yield Sample("no problem", (randn(0, 2, 3), above(0.5, 2), above(0.5, 3), 3.0, 1e-13))


def _clouds() -> tuple[Tensor, Tensor, Tensor]:
    """A hundred problems of a hundred points in a square on each side."""
    x, y = torch.rand(100, 100, 2), torch.rand(100, 100, 2)
    return torch.cdist(x, y).square().requires_grad_(), torch.ones(100, 100), torch.ones(100, 100)


# The computed numbers decide when the iterations end, so the compiler does not compile them.
PROMISES = ("first_order", "second_order", "vmap")

SINKHORN_COST = Recipe(
    name="sinkhorn_cost",
    function=transport.sinkhorn_cost,
    exports=("sinkhorn_cost",),
    samples=_transport,
    reference=_converged_cost,
    promises=PROMISES,
    cost=Cost(
        _clouds,
        saved=0.32,
        minimum=0,
        composition=_unrolled_cost,
        wins=("bytes", "peak"),
    ),
)

SINKHORN_PLAN = Recipe(
    name="sinkhorn_plan",
    function=transport.sinkhorn_plan,
    exports=("sinkhorn_plan",),
    samples=_transport,
    reference=_converged,
    promises=PROMISES,
    cost=Cost(
        _clouds,
        saved=0.32,
        minimum=0,
        composition=_unrolled_plan,
        wins=("bytes", "peak"),
    ),
)


def _all_pairings(cost: Tensor) -> Tensor:
    """Try every pairing of the shorter side with the longer side, and return the first of the best, if allowed."""
    if cost.shape[-2] > cost.shape[-1]:
        cost = cost.mT
    rows, columns = cost.shape[-2:]
    pairings = list(itertools.permutations(range(columns), rows))
    total = torch.stack([cost[..., range(rows), list(p)].sum(-1) for p in pairings], -1).min(-1).values
    if not total.isfinite().all():
        raise ValueError("no pairing is allowed")
    return total


def _assignment() -> Iterator[Sample]:
    yield Sample("square", (randn(3, 3),))
    yield Sample("batch", (randn(2, 4, 4),))
    yield Sample("wide", (randn(2, 4),))
    yield Sample("tall", (randn(2, 4, 3),))
    yield Sample("one pair", (randn(1, 1),))
    yield Sample("no problem", (randn(0, 3, 3),))


ASSIGNMENT_COST = Recipe(
    name="assignment_cost",
    function=transport.assignment_cost,
    exports=("assignment_cost",),
    samples=_assignment,
    reference=_all_pairings,
    promises=("first_order", "second_order", "vmap"),
)
