"""Kernels of our own against the compiler's, the built-in and the eager composition, into ``results/native.json``.

``python -m benchmarks.native`` takes a minute on two cores and builds the kernels first. Where there is a GPU, that
is measured, too, beside the bandwidth of a copy on it; where there is none, what is stored about one stays.
"""

import ctypes
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from docs._ext import results
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.recipes._native.cli import LIBRARIES
from autograd_cookbook.recipes.cuda_extension import swish as fused_swish
from autograd_cookbook.recipes.row_reduction import fused_rms_norm

RESULTS = results.RESULTS / "native.json"
SHAPES = {"cpu": (2500, 4000), "cuda": (25_000, 4000)}
THREADS = 2
ROUNDS = 25  # of forward and backward, the contenders taking turns; the best counts, as other programs run, too
EPS = 1e-6
# What a fused forward and backward must move at least: x and y; then the gradient, x again, and its gradient.
PASSES = 5


def rms_norm(input: Tensor, weight: Tensor) -> Tensor:
    """What everybody writes."""
    return input * torch.rsqrt(input.square().mean(-1, keepdim=True) + EPS) * weight


def swish(input: Tensor, beta: Tensor) -> Tensor:
    """What everybody writes."""
    return input * torch.sigmoid(beta * input)


CONTENDERS: dict[str, dict[str, Callable[..., Tensor]]] = {
    "rms_norm": {
        "composition": rms_norm,
        "composition, compiled": torch.compile(rms_norm, fullgraph=True, dynamic=False),
        "built-in": lambda input, weight: F.rms_norm(input, weight.shape, weight, EPS),
        "ours": fused_rms_norm,
    },
    "swish": {
        "composition": swish,
        "composition, compiled": torch.compile(swish, fullgraph=True, dynamic=False),
        "built-in, beta of 1": lambda input, beta: F.silu(input),
        "ours": fused_swish,
    },
}


def arguments(recipe: str, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Input, parameter and the gradient of the output."""
    input = torch.randn(SHAPES[device], device=device, dtype=dtype)
    shape = (input.shape[-1],) if recipe == "rms_norm" else ()
    parameter = torch.ones(shape, device=device, dtype=dtype)
    return input.requires_grad_(), parameter.requires_grad_(), torch.randn_like(input)


def run(function: Callable[..., Tensor], input: Tensor, parameter: Tensor, upstream: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward."""
    output = function(input, parameter)
    return output, *torch.autograd.grad(output, (input, parameter), upstream, allow_unused=True)


def milliseconds(function: Callable[[], Any], device: str) -> float:
    """The time of one call, the device having finished."""
    if device == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)
    start = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - start)


def measure(recipe: str, device: str, dtype: torch.dtype) -> dict[str, dict[str, float]]:
    """For each contender the best time, as a multiple of ours, too, and the difference to float64."""
    torch.manual_seed(0)
    args = arguments(recipe, device, dtype)
    contenders = CONTENDERS[recipe]
    expected = run(contenders["composition"], *(a.detach().double().requires_grad_(a.requires_grad) for a in args))
    rows: dict[str, dict[str, float]] = {}
    for name, function in contenders.items():
        pairs = [(a, e) for a, e in zip(run(function, *args), expected, strict=True) if a is not None]
        rows[name] = {"difference": max(float((a - e).detach().norm() / e.detach().norm()) for a, e in pairs)}
    del expected, pairs
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, function in contenders.items():
            times[name].append(milliseconds(partial(run, function, *args), device))
    for name in contenders:
        rows[name] |= {
            "milliseconds": round(min(times[name]), 3),
            "time": round(min(times[name]) / min(times["ours"]), 3),
        }
    print(recipe, device, dtype, *(f"{name}: {row}" for name, row in rows.items()), sep="\n  ", flush=True)
    return rows


def keep_memory() -> None:
    """Have malloc keep large blocks, which it otherwise gives back to the system after every call.

    To get them anew takes longer than the kernels, and as long for one contender as for another.
    """
    mmap_max, trim_threshold = -4, -1  # of malloc.h
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and libc.mallopt(mmap_max, 0) and libc.mallopt(trim_threshold, 2**31 - 1)):
        raise SystemExit("this malloc cannot be told to keep memory: the times would be those of the system's pages")


def on_cpu() -> dict[str, Any]:
    """Float32 on two threads, with malloc as it is and told to keep memory."""
    torch.set_num_threads(THREADS)
    fresh = {recipe: measure(recipe, "cpu", torch.float32) for recipe in CONTENDERS}
    keep_memory()
    return {
        "on": results.place(),
        "elements": SHAPES["cpu"][0] * SHAPES["cpu"][1],
        "memory kept": {recipe: measure(recipe, "cpu", torch.float32) for recipe in CONTENDERS},
        "memory fresh": fresh,
    }


def on_gpu() -> dict[str, Any]:
    """Float32 and bfloat16, and what share of the bandwidth of a copy the kernels reach."""
    found: dict[str, Any] = {
        "on": results.place()
        | {"device": torch.cuda.get_device_name(), "driver": driver(), "cuda": torch.version.cuda},
        "elements": SHAPES["cuda"][0] * SHAPES["cuda"][1],
    }
    for dtype in (torch.float32, torch.bfloat16):
        source = torch.randn(SHAPES["cuda"], device="cuda", dtype=dtype)
        target = torch.empty_like(source)
        target.copy_(source)
        copy = min(milliseconds(partial(target.copy_, source), "cuda") for _ in range(ROUNDS))
        found[str(dtype)[6:]] = {recipe: measure(recipe, "cuda", dtype) for recipe in CONTENDERS}
        # A copy moves every number twice.
        found[str(dtype)[6:]]["copy"] = {"gigabytes a second": round(2 * source.nbytes / copy / 1e6, 1)}
        for recipe in CONTENDERS:
            for row in found[str(dtype)[6:]][recipe].values():
                row["share of bandwidth"] = round(PASSES / 2 * copy / row["milliseconds"], 3)
    return found


def driver() -> str:
    """The version of the kernel's part, where the system tells."""
    version = Path("/proc/driver/nvidia/version")
    return version.read_text().splitlines()[0] if version.exists() else "unknown"


def main() -> None:
    """Measure, print, store."""
    for library in LIBRARIES:
        library.build()
    found = results.read(RESULTS) or {"cuda": None}
    found["cpu"] = on_cpu()
    if torch.cuda.is_available():
        assert {it.backend("cuda") for it in LIBRARIES} == {"CUDA"}, "the CUDA kernels are not built: no nvcc"
        found["cuda"] = on_gpu()
    else:
        print("no GPU here: nothing was measured on one")
    RESULTS.write_text(results.text_of(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
