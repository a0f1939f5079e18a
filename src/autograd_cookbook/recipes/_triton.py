"""Tools for all kernels in Triton: compile a kernel for a GPU, interpret it without a GPU, or do without Triton."""

import re
from collections.abc import Callable
from typing import Any

import torch

try:
    import triton
    import triton.language as tl
    from triton.language import constexpr
except ImportError:
    triton = tl = constexpr = None

__all__ = ["INTERPRETED", "backend", "constexpr", "jit", "launch", "operator", "tl", "triton"]

# Triton reads the variable TRITON_INTERPRET at import. If it is set, Triton interprets its own functions, too.
INTERPRETED = triton is not None and not isinstance(tl.max, triton.JITFunction)


def backend(device: torch.device | str) -> str:
    """Return what runs on a device: "Triton", "Triton's interpreter", or "Python" for PyTorch's operations."""
    if INTERPRETED:
        return "Triton's interpreter"
    return "Triton" if triton is not None and torch.device(device).type == "cuda" else "Python"


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function into a kernel. Without Triton, return the function itself, which is then never called."""
    return function if triton is None else triton.jit(function)


def launch(kernel: Any, programs: int, *args: Any) -> None:
    """Run a kernel in this many programs."""
    if INTERPRETED:
        import numpy as np

        with np.errstate(all="ignore"):  # NumPy would warn of every NaN; a GPU does not
            kernel[(programs,)](*args)
    else:
        torch.library.wrap_triton(kernel)[(programs,)](*args)  # so that torch.compile sees the kernel


def operator(fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn a function that launches kernels into an operator. The compiler can trace into this operator.

    The compiler cannot trace into Triton's interpreter. With the interpreter, the operator is therefore opaque, and
    ``fake`` gives the shapes of its results. The namespace of the operator is the module of the function, so that a
    copy of the file in another module does not replace it.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = re.sub(r"\W", "_", function.__module__) + f"::{function.__name__}"
        if not INTERPRETED:
            return torch.library.triton_op(name, function, mutates_args=())
        opaque = torch.library.custom_op(name, function, mutates_args=())
        opaque.register_fake(fake)
        return opaque

    return register
