"""The recipes of the page ``cross_entropy``."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn, rows
from autograd_cookbook.recipes import cross_entropy


def _cross_entropy() -> Iterator[Sample]:
    yield Sample("some ignored", (randn(4, 5), torch.tensor([0, 2, -100, 4])))
    yield Sample("smoothed image", (randn(2, 4, 3), torch.tensor([[0, 2, 1], [3, 2, 2]]), None, 2, "none", 0.1))
    yield Sample("two image dims", (randn(2, 3, 2, 2), torch.arange(8).reshape(2, 2, 2) % 3, None, -100, "sum"))
    yield Sample("one row", (randn(5), torch.tensor(3)))
    yield Sample("smoothed mean", (randn(3, 4), torch.tensor([1, -1, 3]), None, -1, "mean", 0.4))
    yield Sample("empty batch", (randn(0, 3), torch.zeros(0, dtype=torch.int64), None, -100, "sum"))


def _torch_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Call torch's function with the recipe's positional arguments, because torch has two more arguments."""
    return F.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


CROSS_ENTROPY = Recipe(
    name="cross_entropy",
    function=cross_entropy.cross_entropy,
    exports=("cross_entropy",),
    samples=_cross_entropy,
    reference=_torch_cross_entropy,
    cost=Cost(
        lambda: (*million(), torch.randint(1000, (1000,))),
        saved=0,
        minimum=0,
        composition=lambda x, target: -torch.softmax(x, 1).log().gather(1, target.unsqueeze(1)).mean(),
        built_in=F.cross_entropy,
        unit="logit",
        wins=("bytes", "range"),
    ),
)


SOFTMAX = Recipe(
    name="softmax",
    function=cross_entropy.softmax,
    exports=("softmax",),
    samples=rows,
    reference=lambda input, dim=-1: torch.softmax(input, dim),
    cost=Cost(
        million,
        saved=4,
        minimum=0,
        composition=lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
        built_in=lambda x: torch.softmax(x, -1),
        wins=("range",),
    ),
)
