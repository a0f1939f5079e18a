"""Exact bytes: alive after forward, and at the peak of forward and backward, beside the built-in."""

from typing import Any

from common import recipes, store
from torch import Tensor

from autograd_cookbook.audit import held_bytes, peak_bytes


def backward(function: Any, args: tuple[Any, ...]) -> None:
    """Forward and backward of the sum of everything that is returned."""
    result = function(*args)
    outputs = result if isinstance(result, tuple | list) else (result,)
    sum(output.sum() for output in outputs).backward()
    for a in args:
        if isinstance(a, Tensor):
            a.grad = None


def main() -> None:
    """Measure, print, store."""
    rows = {}
    for recipe, args in recipes():
        row = {}
        for column, function in (("ours", recipe.function), ("reference", recipe.reference)):
            row[column] = {"held": held_bytes(function, *args), "peak": peak_bytes(backward, function, args)}
        rows[recipe.name] = row
        print(f"{recipe.name:20} held {row['ours']['held']:>11,} | {row['reference']['held']:>11,}", end="   ")
        print(f"peak {row['ours']['peak']:>11,} | {row['reference']['peak']:>11,}")
    store("memory", rows)


if __name__ == "__main__":
    main()
