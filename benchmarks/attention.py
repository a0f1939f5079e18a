"""The page's table: forward and backward of attention by length, into ``results/attention.json``.

``python -m benchmarks.attention`` takes a few minutes on one core, and 6 GB of memory. Where there is a GPU it also
measures the Triton kernels on it, under the key "gpu".
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from docs._ext import results
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes
from autograd_cookbook.recipes.flash_attention import attention, triton_attention

RESULTS = results.RESULTS / "attention.json"
HEADS, WIDTH = 1, 64
LENGTHS = (1024, 2048, 4096, 8192, 16384)
RUNS = 3


def composed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """With all scores at once."""
    return torch.softmax(query @ key.mT * WIDTH**-0.5, -1) @ value


CONTENDERS = {"composed": composed, "torch": F.scaled_dot_product_attention, "ours": attention}


def problem(length: int, device: str = "cpu") -> tuple[list[Tensor], Tensor]:
    """Query, key and value, and a gradient of the output."""
    torch.manual_seed(0)
    shape = (1, HEADS, length, WIDTH)
    return [torch.randn(shape, device=device).requires_grad_() for _ in range(3)], torch.randn(shape, device=device)


def measure(length: int) -> dict[str, dict[str, float]]:
    """Seconds of processor time, the least of some runs; bytes at the peak beyond the gradients."""
    tensors, weights = problem(length)
    returned = sum(t.untyped_storage().nbytes() for t in tensors)
    rows: dict[str, dict[str, float]] = {}
    expected: tuple[Tensor, ...] = ()

    def gradients(function: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(function(*tensors), tensors, weights)

    for name, function in CONTENDERS.items():
        times = []
        for _ in range(RUNS):
            start = time.process_time()
            found = gradients(function)
            times.append(time.process_time() - start)
        expected = expected or found
        rows[name] = {
            "seconds": round(min(times), 4),
            "peak": peak_bytes(gradients, function) - returned,
            "difference": max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)),
        }
        print(length, name, rows[name], flush=True)
    return rows


def measure_gpu(length: int) -> dict[str, dict[str, float]]:
    """The same on a GPU, in milliseconds, by its own clock and allocator."""
    tensors, weights = problem(length, "cuda")
    rows: dict[str, dict[str, float]] = {}
    for name, function in (CONTENDERS | {"ours, Triton": triton_attention}).items():
        torch.autograd.grad(function(*tensors), tensors, weights)  # the first call compiles
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        times = []
        for _ in range(10 * RUNS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            torch.autograd.grad(function(*tensors), tensors, weights)
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        returned = sum(t.untyped_storage().nbytes() for t in tensors)
        peak = torch.cuda.max_memory_allocated() - before - returned
        rows[name] = {"milliseconds": round(min(times), 4), "peak": peak}
        print(length, "gpu", name, rows[name], flush=True)
    return rows


def main() -> None:
    """Measure, print, store."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {
        "on": results.place(),
        "heads": HEADS,
        "width": WIDTH,
        "lengths": {str(length): measure(length) for length in LENGTHS},
    }
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        found["gpu"] = {"device": name, "lengths": {str(length): measure_gpu(length) for length in LENGTHS}}
    RESULTS.write_text(results.text_of(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
