"""The recipes of the page ``discrete_choices``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn
from autograd_cookbook.catalog.per_sample_gradients import minimax
from autograd_cookbook.recipes import discrete_choices


def _as_if(soft: Tensor, hard: Tensor) -> Tensor:
    """The hard choice, with the gradient of the soft choice."""
    return soft + (hard - soft).detach()


def _finite(values: Tensor, input: Tensor, dim: int = -1) -> Tensor:
    """Replace infinite inputs by NaN, because the formulas do not hold there. An audit does not compare NaN."""
    return values * (0 * input.detach().sum(dim, keepdim=True) + 1)


def _one_hot() -> Iterator[Sample]:
    yield Sample("last dim", (randn(4, 5),))
    yield Sample("middle", (randn(2, 4, 3), -2, 0.5))
    yield Sample("first", (randn(3, 2), 0, 2.0))
    yield Sample("scalar", (randn(), 0))
    yield Sample("empty batch", (randn(0, 3), 1))
    yield Sample("far apart", ((30 * randn(3, 4).detach()).requires_grad_(), -1, 10.0))


def _composed_one_hot(input: Tensor, dim: int = -1, temperature: float = 1.0) -> Tensor:
    hard = torch.zeros_like(input).scatter(dim, input.argmax(dim, keepdim=True), 1)
    return _as_if((input / temperature).softmax(dim), hard)


ONE_HOT_STE = Recipe(
    name="one_hot_ste",
    function=discrete_choices.one_hot_ste,
    exports=("one_hot_ste", "gumbel_like"),
    samples=_one_hot,
    reference=_composed_one_hot,
    gradient="surrogate",
    cost=Cost(million, saved=0, minimum=0, composition=_composed_one_hot, wins=("bytes",)),
)


def _top_k() -> Iterator[Sample]:
    yield Sample("last dim", (randn(4, 5), 2))
    yield Sample("middle", (randn(2, 4, 3), 3, -2, 0.5))
    yield Sample("first", (randn(5, 2), 1, 0, 2.0))
    yield Sample("scalar", (randn(), 1, 0))
    yield Sample("all", (randn(2, 3), 3))
    yield Sample("empty batch", (randn(0, 3), 2, 1))
    yield Sample("empty rows", (randn(2, 0), 0, 1))
    yield Sample("long", (randn(3, 40), 7, -1, 3.0))


def _composed_soft_top_k(input: Tensor, k: int, dim: int = -1, strength: float = 1.0) -> Tensor:
    """Find the threshold by bisection, which shows the free entries. Then apply the formula to these entries."""
    if k == 0 or input.numel() == 0:
        return input * 0
    z = (input - input.detach().topk(k, dim).values.amin(dim, keepdim=True)) / strength
    near = z.detach().double().clamp(-3, 3)
    low, high = torch.full_like(near.amax(dim, keepdim=True), -3), torch.full_like(near.amax(dim, keepdim=True), 3)
    for _ in range(50):
        middle = (low + high) / 2
        above = (near - middle).clamp(0, 1).sum(dim, keepdim=True) > k
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    p = near - high
    free, whole = (p > 1e-9) & (p < 1 - 1e-9), p >= 1 - 1e-9
    rest = torch.where(free, z, 0).sum(dim, keepdim=True) + whole.sum(dim, keepdim=True) - k
    y = torch.where(free, z - rest / free.sum(dim, keepdim=True).clamp(min=1), whole + 0 * z)
    return _finite(y, input, dim)


SOFT_TOP_K = Recipe(
    name="soft_top_k",
    function=discrete_choices.soft_top_k,
    exports=("soft_top_k",),
    samples=_top_k,
    reference=_composed_soft_top_k,
    cost=Cost(
        lambda: (*million(), 100),
        saved=1,
        minimum=0,
        composition=lambda x, k: discrete_choices.capped(x, k, -1, 1.0)[0],
        wins=("bytes", "peak"),
    ),
)


def _composed_top_k_mask(input: Tensor, k: int, dim: int = -1, strength: float | None = None) -> Tensor:
    hard = torch.zeros_like(input).scatter(dim, input.topk(k, dim).indices, 1) if input.dim() else input * 0 + k
    return _as_if(input if strength is None else _composed_soft_top_k(input, k, dim, strength), hard)


TOP_K_MASK = Recipe(
    name="top_k_mask",
    function=discrete_choices.top_k_mask,
    exports=("top_k_mask",),
    samples=_top_k,
    reference=_composed_top_k_mask,
    gradient="surrogate",
    cost=Cost(lambda: (*million(), 100), saved=0, minimum=0, composition=_composed_top_k_mask, wins=("range",)),
)


def _soft_rank() -> Iterator[Sample]:
    yield Sample("rows", (randn(3, 6), 0.3))
    yield Sample("vector", (randn(8),))
    yield Sample("two batch dims", (randn(2, 2, 4), 0.5))
    yield Sample("one value", (randn(3, 1),))
    yield Sample("no rows", (randn(0, 3),))
    yield Sample("no values", (randn(2, 0),))


def _composed_soft_rank(input: Tensor, strength: float = 1.0) -> Tensor:
    ascending, order = input.sort(-1)
    z = ascending / strength
    y = z - minimax(z - torch.arange(1, input.shape[-1] + 1).to(z))
    return _finite(torch.zeros_like(y).scatter(-1, order, y), input)


SOFT_RANK = Recipe(
    name="soft_rank",
    function=discrete_choices.soft_rank,
    exports=("soft_rank",),
    samples=_soft_rank,
    reference=_composed_soft_rank,
    promises=("first_order", "second_order", "vmap"),
)
