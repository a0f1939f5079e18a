"""Bytes and time of every recipe beside what one would use in its place, into ``results/costs.json``.

``python benchmarks/costs.py`` measures all of them, ``python benchmarks/costs.py relu tanh`` these two again.
"""

import datetime
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.audit import held_bytes, peak_bytes, saved_bytes
from autograd_cookbook.catalog import BY_NAME, RECIPES, Cost, Recipe

RESULTS = Path(__file__).parent / "results" / "costs.json"
SECONDS = 3.0  # for the timed runs of one recipe, all contenders together


def backward(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Forward, and backward of the sum of everything that is returned."""
    result = function(*args)
    outputs = result if isinstance(result, tuple | list) else (result,)
    sum(output.real.sum() for output in outputs if isinstance(output, Tensor) and output.requires_grad).backward()
    for a in args:
        if isinstance(a, Tensor):
            a.grad = None


def kept(function: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """Bytes kept for backward beyond the arguments.

    Of two counts the larger: the tensors that autograd saves, the result perhaps among them, and what is alive
    beside the result. The second sees what a function keeps elsewhere than with autograd.
    """
    inputs = {a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor)}
    result = function(*args)
    outputs = [r for r in (result if isinstance(result, tuple | list) else (result,)) if isinstance(r, Tensor)]
    storages = {o.untyped_storage().data_ptr(): o.untyped_storage().nbytes() for o in outputs}
    returned = sum(size for place, size in storages.items() if place not in inputs)
    del result, outputs
    return max(saved_bytes(function, *args), held_bytes(function, *args) - returned)


def units(cost: Cost, args: tuple[Any, ...]) -> int:
    """What the bytes are divided by."""
    return cost.units or next(a.numel() for a in args if isinstance(a, Tensor))


def compiled(function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The function compiled whole, or None if torch refuses."""
    torch._dynamo.reset()
    result = torch.compile(function, fullgraph=True)
    try:
        backward(result, args)
    except Exception as error:
        print(f"  not compiled: {type(error).__name__}")
        return None
    return result


def measure(recipe: Recipe) -> dict[str, dict[str, float]]:
    """A row for each contender: bytes a unit, and the time as a multiple of the recipe's."""
    cost, args = recipe.cost, recipe.cost.inputs()
    contenders = {"composition": cost.composition, "built-in": cost.built_in, "ours": recipe.function}
    if cost.composition is not None:
        contenders["composition, compiled"] = compiled(cost.composition, args)
    contenders["ours, compiled"] = compiled(recipe.function, args)
    contenders = {name: function for name, function in contenders.items() if function is not None}
    count = units(cost, args)
    rows, times = {}, {name: [] for name in contenders}
    for name, function in contenders.items():
        backward(function, args)
        peak = peak_bytes(backward, function, args)
        rows[name] = {"saved": round(kept(function, args) / count, 4), "peak": round(peak / count, 4)}
    started = time.perf_counter()
    # They take turns, so that all meet the same disturbances.
    while len(times["ours"]) < 5 or time.perf_counter() - started < SECONDS:
        for name, function in contenders.items():
            start = time.perf_counter()
            backward(function, args)
            times[name].append(time.perf_counter() - start)
    for name, seconds in times.items():
        rows[name]["time"] = round(median(seconds) / median(times["ours"]), 3)
    return rows


def processor() -> str:
    """The name of the processor, where the system tells."""
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def store(rows: dict[str, dict[str, Any]], path: Path, order: list[str]) -> None:
    """Put rows beside those of other recipes, with what they were measured on; the file is whole or not there."""
    place = {
        "date": datetime.date.today().isoformat(),
        "device": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
    }
    known = json.loads(path.read_text()) if path.exists() else {}
    known |= {name: {"on": place} | row for name, row in rows.items()}
    known = {name: known[name] for name in order if name in known}
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(known, indent=1) + "\n")
    partial.replace(path)


def main(names: list[str]) -> None:
    """Measure, print, store."""
    order = [recipe.name for recipe in RECIPES if recipe.cost]
    if unknown := set(names) - set(order):
        raise SystemExit(f"no recipe with a cost: {', '.join(sorted(unknown))}")
    for recipe in [BY_NAME[name] for name in names or order]:
        torch.manual_seed(0)
        rows = measure(recipe)
        print(recipe.name, *(f"{name}: {row}" for name, row in rows.items()), sep="\n  ", flush=True)
        store({recipe.name: {"contenders": rows}}, RESULTS, order)


if __name__ == "__main__":
    main(sys.argv[1:])
