"""The native operators, with what their tests share."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from autograd_cookbook.catalog import BY_NAME
from autograd_cookbook.recipes import cuda_extension, row_reduction
from autograd_cookbook.recipes._native import Library
from tests.support import HANG, gradients

OPS = torch.ops.autograd_cookbook


INF = float("inf")


@dataclass(frozen=True)
class Operator:
    """A native function, its parameter for an input, and what a bad call is told."""

    name: str
    library: Library
    parameter: Callable[[Tensor], Tensor]
    numbers: tuple[float, ...] = ()  # the arguments that are no tensors

    @property
    def function(self) -> Callable[..., Tensor]:
        return BY_NAME[self.name].function

    @property
    def reference(self) -> Callable[..., Tensor]:
        return BY_NAME[self.name].reference


SWISH = Operator("swish", cuda_extension.SWISH, lambda x: torch.tensor(0.7, dtype=torch.float64))


RMS_NORM = Operator(
    "fused_rms_norm",
    row_reduction.RMS_NORM,
    lambda x: torch.linspace(0.5, 1.5, x.shape[-1], dtype=torch.float64),
    (1e-6,),
)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


each_operator = pytest.mark.parametrize("operator", [SWISH, RMS_NORM], ids=lambda o: o.name)


each_device = pytest.mark.parametrize("device", DEVICES, indirect=True)


def sample(operator, shape=(7, 5), dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return tuple(t.to(device, dtype).requires_grad_() for t in (x, operator.parameter(x)))


def exactly(operator, args):
    """What the reference says in float64."""
    return gradients(operator.reference, tuple(a.detach().double().requires_grad_() for a in args))


def run(code: str, **environment: str) -> str:
    env = os.environ | {"PYTHONWARNINGS": "error"} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
