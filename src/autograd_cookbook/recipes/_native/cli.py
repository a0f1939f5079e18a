"""``python -m autograd_cookbook build``: compile the kernels in C++ and CUDA."""

import argparse
import sys

import torch

from autograd_cookbook.recipes.cuda_extension import SWISH
from autograd_cookbook.recipes.row_reduction import RMS_NORM

LIBRARIES = (SWISH, RMS_NORM)
DESCRIPTION = """\
Compile the kernels for which this machine has compilers. From then on, the
recipes use these kernels."""
EPILOG = ""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--check-cuda", action="store_true", help="also compile the CUDA sources on a machine without a GPU, as a check"
    )


def run(options: argparse.Namespace) -> int:
    """Build the kernels that this machine can build, and print their files."""
    try:
        print("built", *(library.build() for library in LIBRARIES))
        if options.check_cuda and not torch.cuda.is_available():
            print("no GPU here: the CUDA kernels are compiled only, not run")
            print("compiled", *(library.compile_cuda() for library in LIBRARIES))
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
