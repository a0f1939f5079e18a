"""The recipes of the page ``sparsemax``."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, rows
from autograd_cookbook.recipes import sparsemax


def _simplex() -> Iterator[Sample]:
    """The rows for a softmax, and some rows with a small support."""
    yield from (sample for sample in rows() if sample.name != "scalar")
    yield Sample(
        "sparse", (torch.tensor([[5.0, 4.7, -9.0], [0.0, 0.6, -0.3]], dtype=torch.float64).requires_grad_(), 1)
    )


def _composed_sparsemax(input: Tensor, dim: int = -1) -> Tensor:
    """The algorithm of the paper, in differentiable operations."""
    x = input.movedim(dim, -1)
    descending = x.sort(-1, descending=True).values
    total, k = descending.cumsum(-1), torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    size = (1 + k * descending > total).sum(-1, keepdim=True).clamp(min=1)
    if x.shape[-1] == 0:
        return input.clone()
    p = torch.relu(x - (total.gather(-1, size - 1) - 1) / size)
    return p.movedim(-1, dim)


def _normalized(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the same distribution. Where it is NaN, its gradient is now NaN, too, and an audit does not compare it."""

    def normalized(input: Tensor, dim: int = -1) -> Tensor:
        p = function(input, dim)
        return p / p.sum(dim, keepdim=True)

    return normalized


SPARSEMAX = Recipe(
    name="sparsemax",
    function=sparsemax.sparsemax,
    exports=("sparsemax",),
    samples=_simplex,
    reference=_normalized(_composed_sparsemax),
    cost=Cost(million, saved=4, minimum=0, composition=_composed_sparsemax, wins=("bytes", "peak", "time")),
)


def _composed_entmax15(input: Tensor, dim: int = -1) -> Tensor:
    """The algorithm of the paper, but with a root only for the chosen size, so that no gradient is NaN."""
    x = input.movedim(dim, -1) / 2
    if x.shape[-1] == 0:
        return input.clone()
    x = x - x.amax(-1, keepdim=True).detach()
    descending = x.sort(-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    mean = descending.cumsum(-1) / k
    radicand = mean.square() - descending.square().cumsum(-1) / k + 1 / k
    size = (mean - radicand.clamp(min=0).sqrt() <= descending).sum(-1, keepdim=True).clamp(min=1)
    threshold = mean.gather(-1, size - 1) - radicand.gather(-1, size - 1).sqrt()
    p = torch.relu(x - threshold).square()
    return p.movedim(-1, dim)


ENTMAX15 = Recipe(
    name="entmax15",
    function=sparsemax.entmax15,
    exports=("entmax15",),
    samples=_simplex,
    reference=_normalized(_composed_entmax15),
    cost=Cost(million, saved=4, minimum=0, composition=_composed_entmax15, wins=("bytes", "peak", "time")),
)
