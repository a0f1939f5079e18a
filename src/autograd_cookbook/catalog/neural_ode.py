"""The recipes of the page ``neural_ode``."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn
from autograd_cookbook.recipes import neural_ode


def _field(t: Tensor, z: Tensor, w: Tensor) -> Tensor:
    return (z @ w).tanh() * t.cos()


def _odeint() -> Iterator[Sample]:
    def times(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64).requires_grad_()

    yield Sample("batch", (_field, randn(4, 2), times(0.0, 0.1, 0.3), 3, randn(2, 2)))
    yield Sample("scalar, backward in time", (lambda t, z, a: a * z + t, randn(), times(0.4, 0.0), 4, randn()))
    yield Sample("no parameters", (lambda t, z: z.sin() * t, randn(3), times(0.1, 0.2).detach(), 4))
    yield Sample("empty", (_field, randn(0, 2), times(0.0, 0.2), 3, randn(2, 2)))
    yield Sample("complex", (lambda t, z, a: a * z * z + t, complex_randn(2), times(0.0, 0.2), 8, complex_randn()))


def _unrolled_odeint(
    function: Callable[..., Tensor], initial: Tensor, times: Tensor, steps: int, *parameters: Tensor
) -> Tensor:
    states = [initial]
    for n in range(len(times) - 1):
        state, size = states[-1], (times[n + 1] - times[n]) / steps
        for i in range(steps):
            time = times[n] + i * size
            a = function(time, state, *parameters)
            b = function(time + size / 2, state + size / 2 * a, *parameters)
            c = function(time + size / 2, state + size / 2 * b, *parameters)
            d = function(time + size, state + size * c, *parameters)
            state = state + size / 6 * (a + 2 * b + 2 * c + d)
        states.append(state)
    return torch.stack(states)


def _flow() -> tuple[Any, ...]:
    """A problem for measurements: a batch of 10,000 states, ten steps."""
    weight = (0.1 * torch.randn(100, 100)).requires_grad_()
    return (
        lambda t, z, w: (z @ w).tanh(),
        torch.randn(10_000, 100).requires_grad_(),
        torch.tensor([0.0, 1.0]),
        10,
        weight,
    )


ODEINT = Recipe(
    name="odeint",
    function=neural_ode.odeint,
    exports=("odeint",),
    samples=_odeint,
    reference=_unrolled_odeint,
    cost=Cost(_flow, saved=8, minimum=0, composition=_unrolled_odeint, wins=("bytes", "peak")),
    limits=(COMPLEX_HALF,),
)


ODEINT_ADJOINT = Recipe(
    name="odeint_adjoint",
    function=neural_ode.odeint_adjoint,
    exports=("odeint_adjoint",),
    samples=_odeint,
    reference=_unrolled_odeint,
    gradient="approximate",
    tolerance=1e-5,
    promises=("first_order", "vmap", "compile"),
    cost=Cost(_flow, saved=8, minimum=0, composition=_unrolled_odeint, wins=("bytes", "peak")),
    limits=(COMPLEX_HALF,),
)
