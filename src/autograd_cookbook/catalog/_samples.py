"""Sample calls for several pages."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Sample


def randn(*shape: int) -> Tensor:
    """A random leaf that requires grad."""
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def complex_randn(*shape: int) -> Tensor:
    """A random complex leaf that requires grad."""
    return torch.randn(shape, dtype=torch.complex128).requires_grad_()


def above(low: float, *shape: int) -> Tensor:
    """A random leaf between ``low`` and ``low + 4``, for functions that need numbers above a limit."""
    return (torch.rand(shape, dtype=torch.float64) * 4 + low).requires_grad_()


def unary() -> Iterator[Sample]:
    """Calls of element-wise functions of one tensor."""
    yield Sample("matrix", (randn(4, 3),))
    yield Sample("scalar", (randn(),))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("large", ((randn(5).detach() * 100).requires_grad_(),))


def unary_and_complex() -> Iterator[Sample]:
    """The calls of :func:`unary`, and one with complex numbers."""
    yield from unary()
    yield Sample("complex", (complex_randn(3),))


def million() -> tuple[Tensor]:
    """A float32 tensor that is large enough for measurements."""
    return (torch.randn(1000, 1000).requires_grad_(),)


def bowl(x: Tensor) -> Tensor:
    """A scalar function whose Hessian is neither constant nor diagonal."""
    return (x.sin() * x.sum()).square().sum()


def weights(*shape: int) -> Tensor:
    """Parameters for measurements."""
    return torch.randn(shape).requires_grad_()


def scaled() -> Iterator[Sample]:
    """Calls with scales of several shapes."""
    yield Sample("vector", (randn(4, 3), randn(3)))
    yield Sample("one number", (randn(2, 3), randn()))
    yield Sample("two scalars", (randn(), randn()))
    yield Sample("frozen scale", (randn(4, 3), randn(3).detach()))
    yield Sample("frozen input", (randn(4, 3).detach(), randn(3)))
    yield Sample("empty", (randn(0, 3), randn(3)))


def hooked(input: Tensor, hook: Callable[[Tensor], Tensor]) -> Tensor:
    """The input, with a hook on its gradient."""
    output = input.view_as(input)
    output.register_hook(hook)
    return output


def clip_gradient() -> Iterator[Sample]:
    """Calls of functions that clip a gradient to a bound."""
    # No gradient of the tests reaches this bound. Only then does clipping not change the gradient.
    yield Sample("matrix", (randn(4, 3), 1e6))
    yield Sample("scalar", (randn(), 1e6))
    yield Sample("empty", (randn(0, 3), 1e6))


def clip_gradient_and_complex() -> Iterator[Sample]:
    """The calls of :func:`clip_gradient`, and one with complex numbers."""
    yield from clip_gradient()
    yield Sample("complex", (complex_randn(3), 1e6))


def rows() -> Iterator[Sample]:
    """Calls of functions that map a row to a distribution."""
    yield Sample("last dim", (randn(4, 5),))
    yield Sample("middle", (randn(2, 4, 3), -2))
    yield Sample("first", (randn(3, 2), 0))
    yield Sample("scalar", (randn(), 0))
    yield Sample("empty batch", (randn(0, 3), 1))
    yield Sample("empty rows", (randn(2, 0), 1))


def layers(input: Tensor) -> Tensor:
    """Ten layers. Each layer saves its output."""
    weight = torch.eye(input.shape[1])
    for _ in range(10):
        input = (input @ weight).tanh()
    return input
