"""Operators in C++ and CUDA, differentiable twice, that work without a compiler, too."""

from pathlib import Path

import torch

from autograd_cookbook.native.activation import SWISH, swish
from autograd_cookbook.native.normalization import RMS_NORM, fused_rms_norm

__all__ = ["LIBRARIES", "backend", "build", "compile_cuda", "fused_rms_norm", "swish"]

LIBRARIES = (SWISH, RMS_NORM)


def build() -> list[Path]:
    """Compile and load all operators; see :meth:`autograd_cookbook.native.library.Library.build`."""
    return [library.build() for library in LIBRARIES]


def compile_cuda() -> list[str]:
    """Compile all CUDA sources and throw the result away: the headers of any torch suffice, no GPU is needed.

    Raises:
        FileNotFoundError: if there is no nvcc.
    """
    return [library.compile_cuda() for library in LIBRARIES]


def backend(device: torch.device | str = "cpu") -> str:
    """Which code runs for a tensor on a device: "C++", "CUDA", or "Python" unless all operators are built."""
    found = {library.backend(device) for library in LIBRARIES}
    return found.pop() if len(found) == 1 else "Python"
