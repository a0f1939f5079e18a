"""Forward and backward time of every recipe, of its built-in, and of either one compiled: ratios from one run."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from common import recipes, store
from memory import backward

REPETITIONS = 15


def compiled(function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The function compiled whole, or None if torch refuses."""
    torch._dynamo.reset()
    try:
        result = torch.compile(function, fullgraph=True)
        backward(result, args)
    except Exception as error:
        print(f"  not compiled: {type(error).__name__}")
        return None
    return result


def main() -> None:
    """Measure, print, store: the columns take turns, so that all meet the same disturbances."""
    rows = {}
    for recipe, args in recipes():
        columns = {
            "reference": recipe.reference,
            "ours": recipe.function,
            "reference, compiled": compiled(recipe.reference, args),
            "ours, compiled": compiled(recipe.function, args),
        }
        times: dict[str, list[float]] = {name: [] for name, function in columns.items() if function is not None}
        for _ in range(REPETITIONS):
            for name, seconds in times.items():
                start = time.perf_counter()
                backward(columns[name], args)
                seconds.append(time.perf_counter() - start)
        base = median(times["reference"])
        rows[recipe.name] = {name: round(median(seconds) / base, 3) for name, seconds in times.items()}
        print(f"{recipe.name:20} {rows[recipe.name]}")
    store("speed", rows)


if __name__ == "__main__":
    main()
