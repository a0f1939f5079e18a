"""CUDA kernels, CUDA graphs and Triton: what of it a CPU can raise."""

import torch
from docs.errors.programs import mends, raises
from torch.nn import functional as F


@raises(
    "An operation has no deterministic implementation",
    cause="``torch.use_deterministic_algorithms(True)`` refuses operations whose result depends on the order of "
    "parallel additions. On CUDA these are many backwards: of interpolation, pooling, padding, ``grid_sample`` and "
    "cumulative sums. They are named ``..._backward_cuda``.",
    fix="Pass ``warn_only=True`` if it may differ from run to run, or replace the operation: interpolation by "
    "``nearest`` or a matrix product, pooling by reshaping and ``mean``, or run that layer on the CPU.",
    see=("guide/training",),
)
def not_deterministic():
    torch.use_deterministic_algorithms(True)
    pooled, where = F.max_pool2d(torch.randn(1, 1, 4, 4, requires_grad=True), 2, return_indices=True)
    F.max_unpool2d(pooled, where, 2).sum().backward()


@mends(not_deterministic)
def not_deterministic_allowed():
    torch.use_deterministic_algorithms(True, warn_only=True)
    pooled, where = F.max_pool2d(torch.randn(1, 1, 4, 4, requires_grad=True), 2, return_indices=True)
    F.max_unpool2d(pooled, where, 2).sum().backward()
