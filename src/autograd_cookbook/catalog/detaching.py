"""The recipes of the page ``detaching``."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn
from autograd_cookbook.recipes import detaching


def _distillation_loss() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(4, 3).detach(), 2.0))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(2, 3, 4).detach(), 0.5, "sum"))
    yield Sample("loss per row", (randn(4, 3), randn(4, 3).detach(), 3.0, "none"))
    yield Sample("vector", (randn(5), randn(5).detach()))
    yield Sample("empty batch", (randn(0, 3), randn(0, 3).detach(), 2.0, "none"))


def _kl_div(student: Tensor, teacher: Tensor, temperature: float = 1.0, reduction: str = "mean") -> Tensor:
    log_q = F.log_softmax(student / temperature, -1)
    losses = F.kl_div(log_q, F.softmax(teacher / temperature, -1), reduction="none").sum(-1) * temperature**2
    return losses if reduction == "none" else getattr(losses, reduction)()


def _composed_distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    p, q = (torch.softmax(logits / temperature, -1) for logits in (teacher, student))
    return (p * (p.log() - q.log())).sum(-1).mean() * temperature**2


DISTILLATION_LOSS = Recipe(
    name="distillation_loss",
    function=detaching.distillation_loss,
    exports=("distillation_loss",),
    samples=_distillation_loss,
    reference=_kl_div,
    cost=Cost(
        lambda: (*million(), torch.randn(1000, 1000), 2.0),
        saved=0,
        minimum=0,
        composition=_composed_distillation,
        built_in=_kl_div,
        wins=("bytes", "range"),
    ),
)
