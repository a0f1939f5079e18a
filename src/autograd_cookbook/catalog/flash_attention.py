"""The recipes of the page ``flash_attention``."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import randn
from autograd_cookbook.recipes import flash_attention


def _attention() -> Iterator[Sample]:
    yield Sample("matrices", (randn(4, 3), randn(5, 3), randn(5, 2)))
    yield Sample("causal", (randn(2, 4, 3), randn(2, 4, 3), randn(2, 4, 3), True))
    yield Sample("broadcast, scaled", (randn(2, 1, 3, 2), randn(2, 4, 2), randn(4, 1), False, 0.3))
    yield Sample("frozen key", (randn(3, 2), randn(3, 2).detach(), randn(3, 2)))
    yield Sample("no queries", (randn(0, 2), randn(3, 2), randn(3, 2)))


def _attention_in_tiles() -> Iterator[Sample]:
    yield from _attention()
    yield Sample("tiles of two", (randn(5, 3), randn(5, 3), randn(5, 3), True, None, 2))


def _composed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    scale: float | None = None,
    block: int | None = None,
) -> Tensor:
    # PyTorch's own kernel for the CPU has no second derivative, so an audit could not compare second derivatives.
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~allowed, -torch.inf)
    return torch.softmax(scores, -1) @ value


def _sequences() -> tuple[Tensor, ...]:
    shape = (1, 1, 1024, 64)
    return tuple(torch.randn(shape).requires_grad_() for _ in range(3))


ATTENTION = Recipe(
    name="attention",
    function=flash_attention.attention,
    exports=("attention",),
    samples=_attention_in_tiles,
    reference=_composed_attention,
    cost=Cost(
        _sequences,
        # The output, which the caller has anyway, and two numbers per query: 64 + 2 numbers for 1024 keys.
        saved=4 * 66 / 1024,
        minimum=0,
        composition=_composed_attention,
        built_in=F.scaled_dot_product_attention,
        unit="score",
        units=1024 * 1024,
        wins=("second order",),
    ),
)


TRITON_ATTENTION = Recipe(
    name="triton_attention",
    function=flash_attention.triton_attention,
    exports=("triton_attention", "backend"),
    samples=_attention,
    reference=_composed_attention,
)
