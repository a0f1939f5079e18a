"""What the recipes cost on each version, into ``results/history.json``: ``nox -s bench -- history``, or NAME.

The file has one row for each version of torch, version of the project, processor and recipe: bytes, and times as
multiples of the recipe's. Ratios of contenders that take turns bear other programs on the machine; seconds would not.
A row that is measured again replaces the former, so the file grows with versions and not with runs.
"""

import sys
from collections.abc import Iterator

from benchmarks import costs
from docs._ext import results
from packaging.version import Version

import autograd_cookbook
from autograd_cookbook.catalog import RECIPES

STORED = results.RESULTS / "history.json"
MOVED = 0.2  # a ratio of times that changes by more is listed; bytes are exact, so any change of theirs is
Contenders = dict[str, dict[str, float]]
History = dict[str, dict[str, dict[str, dict[str, Contenders]]]]  # by torch, project, processor and recipe


def main(names: list[str]) -> int:
    """Measure the recipes of these names, or all, and store each at once."""
    known = {recipe.name: recipe for recipe in RECIPES if recipe.cost}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no recipe with a cost is called {' or '.join(map(repr, unknown))}")
    for name in names or known:
        before, row = latest(name), costs.measure(known[name])
        append(name, row)
        print(
            name,
            *list(moved(before, row)) or ["nothing moved" if before else "measured for the first time"],
            sep="\n  ",
            flush=True,
        )
    return 0


def append(name: str, row: Contenders) -> None:
    """Store what a recipe costs on the installed torch, in this version of the project."""
    on = results.place()
    history: History = results.read(STORED)
    versions = history.setdefault(on["torch"], {})
    recipes = versions.setdefault(autograd_cookbook.__version__, {}).setdefault(on["device"], {})
    recipes[name] = row
    ordered = {torch: history[torch] for torch in sorted(history, key=Version)}
    partial = STORED.with_suffix(".partial")
    partial.write_text(results.text_of(ordered) + "\n", encoding="utf-8")
    partial.replace(STORED)  # whole, or as it was


def series(device: str) -> dict[tuple[str, str], dict[str, Contenders]]:
    """The rows of one processor, by version of torch and of the project, the oldest first."""
    pairs = {
        (torch, project): devices[device]
        for torch, projects in results.read(STORED).items()
        for project, devices in projects.items()
        if device in devices
    }
    return {pair: pairs[pair] for pair in sorted(pairs, key=lambda pair: tuple(map(Version, pair)))}


def devices() -> list[str]:
    """The processors on which something was measured."""
    history: History = results.read(STORED)
    return sorted({device for projects in history.values() for found in projects.values() for device in found})


def latest(name: str) -> Contenders:
    """The newest row of a recipe on this processor; empty if there is none."""
    rows = [recipes[name] for recipes in series(results.processor()).values() if name in recipes]
    return rows[-1] if rows else {}


def moved(before: Contenders, now: Contenders) -> Iterator[str]:
    """Which ratios of times changed by more than a fifth, and which bytes changed at all: old and new."""
    for name, row in now.items():
        for column, new in row.items():
            old = before.get(name, {}).get(column)
            if old is not None and abs(new - old) > (MOVED * old if column == "time" else 0):
                yield f"{name}, {column}: {old} → {new}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
