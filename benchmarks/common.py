"""What both benchmarks share: larger inputs for each recipe, and a file that says where they were measured."""

import datetime
import json
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.catalog import RECIPES, Recipe

RESULTS = Path(__file__).parent / "results"
ELEMENTS = 1_000_000


def enlarged(recipe: Recipe) -> tuple[Any, ...] | None:
    """The typical sample in float32, its tensors repeated along the first dimension up to a million elements.

    None where that has no meaning: the samples of some recipes are functions of few variables.
    """
    args = recipe.calls[0].to(torch.float32).args
    tensors = [a for a in args if isinstance(a, Tensor) and a.dim() > 0]
    if not tensors or recipe.gradient == "approximate" or recipe.name in ("hvp", "hessian", "jacobian"):
        return None
    batch = tensors[0].shape[0]
    times = ELEMENTS // tensors[0].numel()
    # What shares the batch dimension of the first tensor grows with it; weights stay as they are.
    large = []
    for a in args:
        grows = a is tensors[0] or (isinstance(a, Tensor) and a.dim() == tensors[0].dim() and a.shape[0] == batch > 1)
        if grows and a is not tensors[0] and recipe.name in ("linear", "conv1d", "conv2d"):
            grows = False
        large.append(a.detach().repeat(times, *[1] * (a.dim() - 1)).requires_grad_(a.requires_grad) if grows else a)
    return tuple(large)


def processor() -> str:
    """The name of the processor, where the system tells."""
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def store(name: str, rows: dict[str, Any]) -> None:
    """Write results beside what they were measured on; the file is whole or not there."""
    record = {
        "date": datetime.date.today().isoformat(),
        "device": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
        "elements": ELEMENTS,
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    partial = RESULTS / f"{name}.partial"
    partial.write_text(json.dumps(record, indent=1) + "\n")
    partial.replace(RESULTS / f"{name}.json")


def recipes() -> list[tuple[Recipe, tuple[Any, ...]]]:
    """Every recipe that can be made large, with its inputs."""
    return [(r, args) for r in RECIPES if r.calls and (args := enlarged(r)) is not None]
