"""Bytes and time of a recipe beside what one would use in its place. ``nox -s refresh`` runs and stores it."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.auditing import kept_bytes, peak_bytes
from autograd_cookbook.catalog import BY_NAME, Recipe

# glibc returns large blocks to the system, or keeps them, depending on what was freed before. A block that it returned
# is filled with zeros again at its next use, which takes longer than a multiplication. So it keeps all blocks, as
# torch's allocator for GPUs does. The settings are read when a process starts.
KEEP_BLOCKS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36)}
SECONDS = 3.0  # for the timed runs of one recipe, all contenders together


def backward(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Forward, and backward of the sum of everything that is returned."""
    result = function(*args)
    outputs = result if isinstance(result, tuple | list) else (result,)
    sum(output.real.sum() for output in outputs if isinstance(output, Tensor) and output.requires_grad).backward()
    for a in args:
        if isinstance(a, Tensor):
            a.grad = None


def compiled(function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The function compiled whole, or None if torch refuses."""
    torch._dynamo.reset()
    result = torch.compile(function, fullgraph=True)
    try:
        backward(result, args)
    except Exception:
        return None
    return result


def measure(recipe: Recipe) -> dict[str, dict[str, float]]:
    """A row for each contender: bytes a unit, and the time as a multiple of the recipe's; in a process of its own."""
    os.environ |= KEEP_BLOCKS
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            return process.submit(compared, recipe.name).result()
    finally:
        for name in KEEP_BLOCKS:
            del os.environ[name]


def compared(name: str) -> dict[str, dict[str, float]]:
    """See :func:`measure`."""
    recipe = BY_NAME[name]
    torch.manual_seed(0)
    cost, args = recipe.cost, recipe.cost.inputs()
    contenders = {"composition": cost.composition, "built-in": cost.built_in, "ours": recipe.function}
    if cost.composition is not None:
        contenders["composition, compiled"] = compiled(cost.composition, args)
    contenders["ours, compiled"] = compiled(recipe.function, args)
    contenders = {name: function for name, function in contenders.items() if function is not None}
    count = cost.count(args)
    rows, times = {}, {name: [] for name in contenders}
    for name, function in contenders.items():
        backward(function, args)
        peak = peak_bytes(backward, function, args)
        rows[name] = {"saved": round(kept_bytes(function, *args) / count, 4), "peak": round(peak / count, 4)}
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
