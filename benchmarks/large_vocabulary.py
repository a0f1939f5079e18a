"""The page's figure: loss and gradients of a large vocabulary, into ``results/large_vocabulary.json``.

``python -m benchmarks.large_vocabulary`` takes a quarter of an hour on one core, and 8 GB of memory.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from docs._ext import results
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes, peak_bytes
from autograd_cookbook.recipes.linear_cross_entropy import linear_cross_entropy

RESULTS = results.RESULTS / "large_vocabulary.json"
TOKENS, WIDTH = 4096, 1024
CLASSES = (32_768, 131_072)
RUNS = 1


def composed(input: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """What everybody writes."""
    return F.cross_entropy(F.linear(input, weight), target)


def chunked(rows: int | None) -> Callable[..., Tensor]:
    """Torch's own, with its choice of rows a chunk or another."""
    options = LinearCrossEntropyOptions(batch_chunk_size=rows)

    def call(input: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return F.linear_cross_entropy(input, weight, target, options=options)

    return call


CONTENDERS = {
    "composed": composed,
    "torch, its own chunks": chunked(None),
    "torch, 256 tokens a chunk": chunked(256),
    "ours": linear_cross_entropy,
}


def measure(classes: int) -> dict[str, dict[str, float]]:
    """Seconds of processor time; bytes at the peak beyond gradients; bytes held between forward and backward."""
    torch.manual_seed(0)
    input = torch.randn(TOKENS, WIDTH, requires_grad=True)
    weight = (torch.randn(classes, WIDTH) / WIDTH**0.5).requires_grad_()
    target = torch.randint(classes, (TOKENS,))
    returned = input.untyped_storage().nbytes() + weight.untyped_storage().nbytes()
    rows: dict[str, dict[str, float]] = {name: {} for name in CONTENDERS}
    expected: list[Tensor] = []
    for _ in range(RUNS):
        for name, function in CONTENDERS.items():
            found: list[Tensor] = []

            def run(function: Callable[..., Tensor] = function, found: list[Tensor] = found) -> None:
                found += torch.autograd.grad(function(input, weight, target), (input, weight))

            start = time.process_time()
            peak = peak_bytes(run)
            seconds = time.process_time() - start
            expected = expected or found
            rows[name] = {
                "seconds": round(min(seconds, rows[name].get("seconds", seconds)), 2),
                "peak": peak - returned,
                "difference": max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)),
            }
            print(classes, name, rows[name], flush=True)
    for name, function in CONTENDERS.items():
        rows[name]["held"] = held_bytes(function, input, weight, target)
    return rows


def main() -> None:
    """Measure, print, store."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {
        "on": results.place(),
        "tokens": TOKENS,
        "width": WIDTH,
        "classes": {str(classes): measure(classes) for classes in CLASSES},
    }
    RESULTS.write_text(results.text_of(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
