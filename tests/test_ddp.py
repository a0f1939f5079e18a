"""Every recipe under DistributedDataParallel: two ranks with a mean loss get the gradients of one process.

The badge "DDP" says this, and which recipes are the exceptions. One process calls a recipe once
for each rank, so that a norm over the samples of a call is over the same samples: docs/guide/ranks.md has the other
case.
"""

import copy
from functools import cache

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_flatten, tree_unflatten

from autograd_cookbook.catalog import BY_NAME, RECIPES, Recipe
from autograd_cookbook.recipes.data_parallel import run_ranks
from tests.recipes.in_ranks import EXACT, in_a_rank
from tests.support import HANG

pytestmark = pytest.mark.xdist_group("ranks")

RANKS = 2
AUDITED = [recipe for recipe in RECIPES if recipe.calls]
# The samples of the recipes that clip have a bound of 1e6, which random gradients are then beyond.
LARGE = 1e7
# The typical sample of the recipe that adds noise adds none.
NOISE = {"add_gradient_noise": LARGE}


class Loss(nn.Module):
    """A weighted sum of what a recipe returns for its typical sample, whose leaves and modules are the parameters."""

    def __init__(self, recipe: Recipe, bounds: float) -> None:
        super().__init__()
        self.function = recipe.function
        self.values, self.spec = tree_flatten(copy.deepcopy(recipe.calls[0].args))
        for place, value in enumerate(self.values):
            if isinstance(value, float):
                self.values[place] = NOISE.get(recipe.name, value * bounds)
        self.places = [i for i, v in enumerate(self.values) if isinstance(v, Tensor) and v.requires_grad]
        self.leaves = nn.ParameterList(nn.Parameter(self.values[i].detach()) for i in self.places)
        self.inner = nn.ModuleList(value for value in self.values if isinstance(value, nn.Module))

    def forward(self, rank: int) -> Tensor:
        torch.manual_seed(rank)
        given = dict(enumerate(self.values)) | dict(zip(self.places, self.leaves, strict=True))
        results = tree_flatten(self.function(*tree_unflatten(given.values(), self.spec)))[0]
        results = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
        return sum((LARGE * torch.randn_like(result) * result).sum().real for result in results)


def bound(recipe: Recipe) -> bool:
    return "bound" in recipe.unlike_one_process


def difference(recipe: Recipe, bounds: float = 1) -> float:
    """The largest difference to the gradients of one process, relative to the largest gradient of the same parameter.

    Args:
        recipe: the recipe.
        bounds: by how much the numbers among its arguments are multiplied in each of several ranks.
    """
    one = Loss(recipe, 1)
    (sum(one(rank) for rank in range(RANKS)) / RANKS).backward()
    many = DistributedDataParallel(Loss(recipe, bounds))
    many(dist.get_rank()).backward()
    pairs = list(zip(one.parameters(), many.module.parameters(), strict=True))
    assert pairs, f"{recipe.name} has no parameter to compare"
    return max(float((ours.grad - other.grad).abs().max() / other.grad.abs().max()) for other, ours in pairs)


def differences() -> dict[str, float]:
    """Of all recipes, and with bounds for one rank each of those that have a bound. Runs in every rank."""
    found = {recipe.name: difference(recipe) for recipe in AUDITED}
    return found | {f"{recipe.name}, bounds": difference(recipe, RANKS) for recipe in filter(bound, AUDITED)}


@cache
def measured() -> list[dict[str, float]]:
    return run_ranks(in_a_rank, RANKS, __name__, "differences", timeout=HANG, limit=HANG)


@pytest.mark.parametrize("recipe", AUDITED, ids=lambda recipe: recipe.name)
def test_ranks_get_the_gradients_of_one_process_if_the_badge_says_so(recipe: Recipe) -> None:
    for rank, found in enumerate(measured()):
        if recipe.unlike_one_process:
            assert found[recipe.name] > 0.1, f"rank {rank} has no other gradient, so the badge is not true"
        else:
            assert found[recipe.name] < EXACT, f"rank {rank} has another gradient, and the badge says yes"


@pytest.mark.parametrize("recipe", [*filter(bound, AUDITED)], ids=lambda recipe: recipe.name)
def test_a_bound_times_the_number_of_ranks_makes_them_equal(recipe: Recipe) -> None:
    for found in measured():
        assert found[f"{recipe.name}, bounds"] < EXACT


def test_the_exceptions_are_those_of_clipping_and_of_noise() -> None:
    assert {name for name in BY_NAME if BY_NAME[name].unlike_one_process} == {
        "clip_gradient",
        "clip_gradient_norm",
        "clip_gradient_value",
        "clipped_linear",
        "add_gradient_noise",
    }
