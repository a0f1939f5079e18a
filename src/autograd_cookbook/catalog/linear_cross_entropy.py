"""The recipes of the page ``linear_cross_entropy``."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import randn
from autograd_cookbook.recipes import linear_cross_entropy


def _linear_cross_entropy() -> Iterator[Sample]:
    target = torch.tensor([0, 6, -100, 3, 6])
    yield Sample("bias, chunks", (randn(5, 3), randn(7, 3), target, randn(7), -100, "mean", 3))
    yield Sample("one chunk", (randn(5, 3), randn(7, 3), target))
    yield Sample("frozen weight", (randn(5, 3), randn(7, 3).detach(), target.abs() % 7, randn(7), 6, "sum", 2))
    yield Sample("each token", (randn(2, 2, 3), randn(4, 3), torch.tensor([[0, 3], [3, 1]]), None, 3, "none", 1))
    yield Sample("sure of it", ((randn(3, 2).detach() * 100).requires_grad_(), randn(4, 2), torch.tensor([3, 0, 1])))
    yield Sample("no tokens", (randn(0, 3), randn(7, 3), target[:0], randn(7), -100, "sum"))


def _cross_entropy_of_linear(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    chunk_size: int | None = None,
) -> Tensor:
    logits = F.linear(input, weight, bias).movedim(-1, min(1, input.dim() - 1))
    return F.cross_entropy(logits, target, ignore_index=ignore_index, reduction=reduction)


def _vocabulary() -> tuple[Tensor, ...]:
    return torch.randn(1024, 256).requires_grad_(), torch.randn(16384, 256).requires_grad_(), torch.arange(1024)


LINEAR_CROSS_ENTROPY = Recipe(
    name="linear_cross_entropy",
    function=linear_cross_entropy.linear_cross_entropy,
    exports=("linear_cross_entropy",),
    samples=_linear_cross_entropy,
    reference=_cross_entropy_of_linear,
    promises=("first_order", "second_order", "vmap", "func_grad", "compile", "checkpoint"),
    cost=Cost(
        inputs=_vocabulary,
        saved=0.0005,
        minimum=0,
        composition=_cross_entropy_of_linear,
        # New in torch 2.13. The page says why not with the default number of tokens in a chunk.
        built_in=lambda input, weight, target: F.linear_cross_entropy(
            input, weight, target, options=torch.nn.LinearCrossEntropyOptions(batch_chunk_size=256)
        ),
        unit="logit",
        units=1024 * 16384,
        wins=("bytes", "peak"),
    ),
)
