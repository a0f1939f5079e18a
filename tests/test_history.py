"""Costs over versions: one row for each pair of versions, and what moved between two."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from docs._ext import history, results

import autograd_cookbook
from autograd_cookbook.catalog import RECIPES

ROW = {"built-in": {"saved": 4.0, "peak": 12.0, "time": 1.0}}


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """An empty history, and a way to say what is installed."""
    monkeypatch.setattr(history, "STORED", tmp_path / "history.json")
    monkeypatch.setattr(results, "processor", lambda: "a processor")

    def installed(torch: str, project: str) -> None:
        monkeypatch.setattr(results, "place", lambda: {"torch": torch, "device": "a processor"})
        monkeypatch.setattr(autograd_cookbook, "__version__", project)

    return installed


def slower(factor: float) -> history.Contenders:
    return {"built-in": ROW["built-in"] | {"time": factor}}


def test_versions_are_in_the_order_of_their_release_and_a_row_is_replaced(on) -> None:
    for torch, project, factor in ("2.15.0", "1.0", 4), ("2.9.0", "1.10", 3), ("2.9.0", "1.9", 1), ("2.9.0", "1.9", 2):
        on(torch, project)
        history.append("square", slower(factor))
    assert history.devices() == ["a processor"]
    found = {pair: rows["square"]["built-in"]["time"] for pair, rows in history.series("a processor").items()}
    assert list(found.items()) == [(("2.9.0", "1.9"), 2), (("2.9.0", "1.10"), 3), (("2.15.0", "1.0"), 4)]
    assert history.latest("square") == slower(4)
    assert history.latest("power") == {}
    assert history.series("another") == {}
    assert not list(history.STORED.parent.glob("*.partial"))


def test_a_fifth_of_a_time_and_any_byte_has_moved() -> None:
    assert not list(history.moved(ROW, slower(1.19)))
    assert not list(history.moved(ROW, slower(0.81)))
    assert list(history.moved(ROW, slower(1.21))) == ["built-in, time: 1.0 → 1.21"]
    assert list(history.moved(ROW, slower(0.79))) == ["built-in, time: 1.0 → 0.79"]
    assert list(history.moved(ROW, {"built-in": {"saved": 4.001}})) == ["built-in, saved: 4.0 → 4.001"]
    assert not list(history.moved({}, ROW)), "what was not measured before has not moved"


def test_refresh_lists_what_moved_on_this_processor(on, monkeypatch) -> None:
    on("2.9.0", "1.9")
    for name in ("square", "power", "elu"):
        history.append(name, ROW)
    stored = {
        "square": {"on": {"device": "a processor"}, "contenders": slower(2)},
        "power": {"on": {"device": "another"}, "contenders": slower(2)},
        "elu": {"on": {"device": "a processor"}, "contenders": slower(1.1)},
    }
    monkeypatch.setattr(results, "rows", lambda kind: stored)
    assert list(history.moved_since()) == ["square, against its history: built-in, time: 1.0 → 2"]


def test_a_recipe_without_a_cost_is_refused() -> None:
    run = subprocess.run([sys.executable, "-m", "benchmarks.history", "squares"], capture_output=True, text=True)
    assert run.returncode == 1
    assert "'squares'" in run.stderr


def test_the_history_is_of_recipes_that_there_are() -> None:
    names = {recipe.name for recipe in RECIPES if recipe.cost}
    for device in history.devices():
        for pair, rows in history.series(device).items():
            assert set(rows) <= names, f"{pair} on {device}"
