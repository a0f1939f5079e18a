"""The recipes of the page ``maml``."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_BFLOAT16, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn
from autograd_cookbook.recipes import maml


def _regression(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return ((x @ w).tanh() - y).square().mean()


def _inner_sgd() -> Iterator[Sample]:
    yield Sample("learned rate", (_regression, randn(3, 2), 3, randn(), randn(5, 3), randn(5, 2)))
    yield Sample("fixed rate", (_regression, randn(3, 2), 2, 0.5, randn(5, 3).detach(), randn(5, 2).detach()))
    yield Sample("scalar", (lambda w, a: (w * a).sin(), randn(), 2, 0.1, randn()))
    yield Sample("no step", (lambda w: w.sum(), randn(3), 0, 0.1))

    def distance(w: Tensor, a: Tensor) -> Tensor:
        return torch.view_as_real(w * w - a).square().sum()  # of abs().square(), autograd's Hessian at 0 is 0

    yield Sample("complex", (distance, complex_randn(2), 2, 0.1, complex_randn(2)))


def _plain_sgd(
    loss: Callable[..., Tensor], parameters: Tensor, steps: int, lr: float | Tensor, *given: Tensor
) -> Tensor:
    for _ in range(steps):
        value = loss(parameters, *given)
        parameters = parameters - lr * torch.autograd.grad(value, parameters, create_graph=True)[0]
    return parameters


INNER_SGD = Recipe(
    name="inner_sgd",
    function=maml.inner_sgd,
    exports=("inner_sgd",),
    samples=_inner_sgd,
    reference=_plain_sgd,
    cost=Cost(
        lambda: (
            _regression,
            (0.1 * torch.randn(100, 100)).requires_grad_(),
            5,
            0.1,
            torch.randn(10_000, 100),
            torch.randn(10_000, 100),
        ),
        saved=0.16,
        minimum=0,
        composition=_plain_sgd,
        unit="number in the data",
        units=1_000_000,
        wins=("bytes", "peak"),
    ),
    limits=(COMPLEX_BFLOAT16,),
)
