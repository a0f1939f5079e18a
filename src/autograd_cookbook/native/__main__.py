"""Compile the operators: ``python -m autograd_cookbook.native``."""

import argparse
import sys

import torch

from autograd_cookbook.native import build, compile_cuda


def main() -> int:
    """Build what this machine can build, and say what that was."""
    parser = argparse.ArgumentParser(prog="python -m autograd_cookbook.native", description=__doc__)
    parser.add_argument(
        "--check-cuda", action="store_true", help="compile the CUDA sources even where they cannot be linked"
    )
    options = parser.parse_args()
    try:
        print("built", *build())
        if options.check_cuda and not torch.cuda.is_available():
            print("no GPU here: the CUDA kernels are compiled only, not run")
            print("compiled", *compile_cuda())
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
