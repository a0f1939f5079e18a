"""Calls that several sections need."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog.recipe import Sample


def randn(*shape: int) -> Tensor:
    """A random leaf that requires grad."""
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def complex_randn(*shape: int) -> Tensor:
    """A random complex leaf that requires grad."""
    return torch.randn(shape, dtype=torch.complex128).requires_grad_()


def above(low: float, *shape: int) -> Tensor:
    """A random leaf between ``low`` and ``low + 4``, for functions with a domain."""
    return (torch.rand(shape, dtype=torch.float64) * 4 + low).requires_grad_()


def unary() -> Iterator[Sample]:
    """For functions of one tensor that treat every element alike."""
    yield Sample("matrix", (randn(4, 3),))
    yield Sample("scalar", (randn(),))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("large", ((randn(5).detach() * 100).requires_grad_(),))


def million() -> tuple[Tensor]:
    """A float32 tensor that is large enough to be measured with."""
    return (torch.randn(1000, 1000).requires_grad_(),)


def bowl(x: Tensor) -> Tensor:
    """A scalar function whose Hessian is neither constant nor diagonal."""
    return (x.sin() * x.sum()).square().sum()
