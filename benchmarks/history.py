"""What the recipes cost with the installed torch, into the history: ``nox -s bench -- history``, or NAME."""

import sys

from benchmarks import costs
from docs._ext import history

from autograd_cookbook.catalog import RECIPES


def main(names: list[str]) -> int:
    """Measure the recipes of these names, or all, and store each at once."""
    known = {recipe.name: recipe for recipe in RECIPES if recipe.cost}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no recipe with a cost is called {' or '.join(map(repr, unknown))}")
    for name in names or known:
        before, row = history.latest(name), costs.measure(known[name])
        history.append(name, row)
        found = list(history.moved(before, row)) or ["nothing moved" if before else "measured for the first time"]
        print(name, *found, sep="\n  ", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
