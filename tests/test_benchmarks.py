"""What recipes cost: bytes are exact and tested here; times are stored, and only read."""

import json

import pytest
import torch
from benchmarks import costs

from autograd_cookbook.catalog import RECIPES, Recipe

COSTLY = [recipe for recipe in RECIPES if recipe.cost]
each_cost = pytest.mark.parametrize("recipe", [pytest.param(r, id=r.name) for r in COSTLY])
# A column wins if it is better than all others by more than rounding or the noise of a machine.
CLEARLY = {"bytes": ("saved", 0.99), "peak": ("peak", 0.99), "time": ("time", 0.9)}


def stored() -> dict[str, dict]:
    return json.loads(costs.RESULTS.read_text())


@each_cost
def test_it_keeps_the_bytes_that_it_says(recipe: Recipe) -> None:
    torch.manual_seed(0)
    args = recipe.cost.inputs()
    count = costs.units(recipe.cost, args)
    assert count >= 1_000_000, f"{recipe.name} is measured on {count} {recipe.cost.unit}s: too few to mean much"
    kept = costs.kept(recipe.function, args) / count
    assert kept == pytest.approx(recipe.cost.saved, abs=5e-4), (
        f"{recipe.name} keeps {kept:.4f} bytes per {recipe.cost.unit}, the catalog says {recipe.cost.saved}"
    )
    assert recipe.cost.saved >= recipe.cost.minimum, f"{recipe.name} keeps less than is possible"


@each_cost
def test_the_stored_results_are_its_own(recipe: Recipe) -> None:
    row = stored().get(recipe.name)
    assert row, f"{recipe.name} was never measured: run nox -s bench -- {recipe.name}"
    contenders = row["contenders"]
    expected = {"composition": recipe.cost.composition, "built-in": recipe.cost.built_in, "ours": recipe.function}
    compiled = {"composition, compiled", "ours, compiled"}  # where torch compiles them
    assert set(contenders) - compiled == {name for name, function in expected.items() if function}
    assert contenders["ours"]["saved"] == pytest.approx(recipe.cost.saved, abs=5e-4)
    for key in ("date", "device", "threads", "torch", "python"):
        assert row["on"][key], f"the results of {recipe.name} do not say their {key}"


@each_cost
def test_what_it_says_to_win_it_wins(recipe: Recipe) -> None:
    contenders = stored()[recipe.name]["contenders"]
    others = [row for name, row in contenders.items() if not name.startswith("ours")]
    for column, (key, factor) in CLEARLY.items():
        ahead = bool(others) and all(contenders["ours"][key] < factor * row[key] for row in others)
        claimed = column in recipe.cost.wins
        # Bytes are exact. A time that is ahead by chance must not make anybody claim it.
        assert ahead == claimed or (column == "time" and not claimed), (
            f"{recipe.name}: ours {contenders['ours'][key]}, others {[row[key] for row in others]} in {column}, "
            f"and the catalog says that it {'wins' if claimed else 'does not win'}"
        )


def test_nothing_is_stored_about_recipes_that_are_gone() -> None:
    assert set(stored()) == {recipe.name for recipe in COSTLY}


def test_every_recipe_was_checked_and_timed() -> None:
    rows = json.loads((costs.RESULTS.parent / "checking.json").read_text())
    assert set(rows) == {recipe.name for recipe in RECIPES if recipe.calls}, (
        "run python benchmarks/checking.py with the names of those that are missing"
    )
    for name, row in rows.items():
        for key in ("date", "device", "threads", "torch", "python"):
            assert row["on"][key], f"the results of {name} do not say their {key}"
        assert set(row["seconds"]) == set(row["verdict"]) == {"gradcheck", "fast mode", "gradgradcheck", "audit"}
        assert all(seconds > 0 for seconds in row["seconds"].values()), name
        assert row["verdict"]["audit"] == "passes", f"the audit had something to say against {name}"
