"""What the recipes cost on each version of torch and of the project, as ``nox -s bench`` stored it.

``benchmarks/results/history.json`` has one row for each version of torch, version of the project, processor and recipe:
bytes, and times as multiples of the recipe's. Ratios of contenders that take turns bear other programs on the machine;
seconds would not. A row that is measured again replaces the former, so the file grows with versions and not with runs.
"""

from collections.abc import Iterator

from docs._ext import results
from packaging.version import Version

import autograd_cookbook

STORED = results.RESULTS / "history.json"
MOVED = 0.2  # a ratio of times that changes by more is listed; bytes are exact, so any change of theirs is
Contenders = dict[str, dict[str, float]]
History = dict[str, dict[str, dict[str, dict[str, Contenders]]]]  # by torch, project, processor and recipe


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


def moved(before: Contenders, now: Contenders) -> Iterator[str]:
    """Which ratios of times changed by more than a fifth, and which bytes changed at all: old and new."""
    for name, row in now.items():
        for column, new in row.items():
            old = before.get(name, {}).get(column)
            if old is not None and abs(new - old) > (MOVED * old if column == "time" else 0):
                yield f"{name}, {column}: {old} → {new}"


def append(name: str, row: Contenders) -> None:
    """Store what a recipe costs on the installed torch, in this version of the project."""
    on = results.place()
    rows: History = results.read(STORED)
    versions = rows.setdefault(on["torch"], {})
    recipes = versions.setdefault(autograd_cookbook.__version__, {}).setdefault(on["device"], {})
    recipes[name] = row
    ordered = {torch: rows[torch] for torch in sorted(rows, key=Version)}
    partial = STORED.with_suffix(".partial")
    partial.write_text(results.text_of(ordered) + "\n", encoding="utf-8")
    partial.replace(STORED)  # whole, or as it was


def latest(name: str) -> Contenders:
    """The newest row of a recipe on this processor; empty if there is none."""
    rows = [recipes[name] for recipes in series(results.processor()).values() if name in recipes]
    return rows[-1] if rows else {}


def moved_since() -> Iterator[str]:
    """Which of the costs that are stored now are others than in the history, where both are of this processor."""
    for name, row in results.rows("cost").items():
        if row["on"]["device"] == results.processor():
            yield from (f"{name}, against its history: {line}" for line in moved(latest(name), row["contenders"]))
