"""Solvers of ordinary differential equations. For backward, they save only the states at the requested times."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._explicit import expect_explicit, vjp
from autograd_cookbook.recipes.elementwise import wide

Slope = Callable[..., Tensor]


State = tuple[Tensor, ...]


def rk4(slope: Callable[[Tensor, State], State], time: Tensor, size: Tensor, state: State) -> State:
    """Take a step of the classical Runge-Kutta method. The error after a fixed time is proportional to ``size**4``."""

    def after(part: float, slopes: State) -> State:
        return slope(time + part * size, tuple(z + part * size * k for z, k in zip(state, slopes, strict=True)))

    first = slope(time, state)
    second = after(0.5, first)
    third = after(0.5, second)
    last = after(1.0, third)
    return tuple(
        z + size / 6 * (a + 2 * b + 2 * c + d) for z, a, b, c, d in zip(state, first, second, third, last, strict=True)
    )


def _step(
    function: Slope, i: int, steps: int, state: Tensor, start: Tensor, end: Tensor, *parameters: Tensor
) -> Tensor:
    """Take step number ``i`` of ``steps`` equal steps from ``start`` to ``end``."""
    size = (end - start) / steps
    return rk4(lambda t, z: (function(t, *z, *parameters),), start + i * size, size, (state,))[0]


def _widened(function: Slope, times: Tensor, state: Tensor) -> Slope:
    """Return a slope in float32 or wider, because many small steps would not change a state in half precision."""
    return lambda t, z, *parameters: wide(function(t.to(times.dtype), z.to(state.dtype), *parameters))


def _solve(function: Slope, steps: int, initial: Tensor, times: Tensor, *parameters: Tensor) -> Tensor:
    function = _widened(function, times, initial)
    states = [initial]
    for start, end in itertools.pairwise(wide(times).unbind()):
        state = wide(states[-1])
        for i in range(steps):
            state = _step(function, i, steps, state, start, end, *parameters)
        states.append(state.to(initial.dtype))
    return torch.stack(states)


def _expect_problem(function: Slope, steps: int, initial: Tensor, times: Tensor, parameters: State) -> None:
    if steps < 1:
        raise ValueError(f"expected steps >= 1, got {steps}")
    if times.dim() != 1 or len(times) == 0:
        raise ValueError(f"expected a vector of at least one time, got shape {tuple(times.shape)}")
    found = expect_explicit(function, times[0], initial, *parameters)
    # Under autocast, the slope can have a narrower dtype than the state. The state keeps its dtype.
    if found.shape != initial.shape or torch.promote_types(found.dtype, initial.dtype) != initial.dtype:
        raise ValueError(
            f"expected the function to return a slope like the state, {tuple(initial.shape)} of {initial.dtype}, "
            f"got {tuple(found.shape)} of {found.dtype}"
        )


class OdeintFunction(Function):
    """Keeps the states at the requested times. Backward solves each interval again, then goes back step by step."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Slope, steps: int, initial: Tensor, times: Tensor, *parameters: Tensor) -> Tensor:
        return _solve(function, steps, initial, times, *parameters)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.function, ctx.steps, _, times, *parameters = inputs
        ctx.save_for_backward(output, times, *parameters)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        output, times, *parameters = ctx.saved_tensors
        needs_initial, needs_times, *needs_parameters = ctx.needs_input_grad[2:]
        function = _widened(ctx.function, times, output)
        adjoint = wide(grad_output[-1])
        sums = [torch.zeros_like(wide(t)) for t in (*times, *parameters)]
        for n in reversed(range(len(times) - 1)):
            start, end = wide(times[n : n + 2])
            states = [wide(output[n])]
            for i in range(ctx.steps - 1):
                states.append(_step(function, i, ctx.steps, states[-1], start, end, *parameters))
            for i in reversed(range(ctx.steps)):
                step = functools.partial(_step, function, i, ctx.steps)
                wanted = (needs_initial or n > 0 or i > 0, needs_times, needs_times, *needs_parameters)
                _, pull_back = vjp(step, states.pop(), start, end, *parameters, wanted=wanted)
                of_state, *grads = pull_back(adjoint)
                for k, grad in zip((n, n + 1, *range(len(times), len(sums))), grads, strict=True):
                    sums[k] = sums[k] if grad is None else sums[k] + grad
                # The gradient of_state is None only at the first state, if the initial state needs no gradient.
                adjoint = adjoint if of_state is None else of_state
            adjoint = adjoint + grad_output[n]
        grad_times = torch.stack(sums[: len(times)]).to(times.dtype) if needs_times else None
        grad_parameters = (s.to(p.dtype) for s, p in zip(sums[len(times) :], parameters, strict=True))
        return (
            None,
            None,
            adjoint.to(output.dtype) if needs_initial else None,
            grad_times,
            *(grad if needed else None for grad, needed in zip(grad_parameters, needs_parameters, strict=True)),
        )


def odeint(function: Slope, initial: Tensor, times: Tensor, steps: int, *parameters: Tensor) -> Tensor:
    r"""Solve an initial value problem by Runge-Kutta steps. The gradient is the exact gradient of these steps.

    .. math::
        \dot{z} = f(t, z, \theta), \qquad z_{k+1} = \Phi(z_k, \theta), \qquad
        \bar{z}_k \mathrel{+}= \left(\frac{\partial \Phi}{\partial z_k}\right)^{\!\top} \bar{z}_{k+1}, \quad
        \bar{\theta} \mathrel{+}= \left(\frac{\partial \Phi}{\partial \theta}\right)^{\!\top} \bar{z}_{k+1}

    Forward keeps the states at ``times``. Backward goes through the intervals between these times, from the last to the
    first, and solves each interval again. In memory, backward holds the states of one interval and the activations of
    one step. So with :math:`n` steps in :math:`\sqrt{n}` intervals, about :math:`2\sqrt{n}` states are in memory.
    Between ``times``, the solver computes float16 and bfloat16 states in float32, because many small steps would not
    change them in half precision.

    Args:
        function: called as ``function(time, state, *parameters)``; returns the slope, like the state. It must not
            depend on other tensors that require grad, and must do the same in every call.
        initial: the state at ``times[0]``; any shape, floating or complex.
        times: ``(n,)``, the times of the returned states, in rising or falling order.
        steps: the number of steps from each of the times to the next.
        parameters: everything that gets a gradient in addition to ``initial`` and ``times``.

    Returns:
        The states at ``times``, with shape ``(n, *initial.shape)``. The first state is ``initial``.

    Raises:
        ValueError: if ``function`` returns another shape or dtype than the state, ``steps`` is not positive, or
            ``times`` is not a vector of at least one time.
        RuntimeError: if ``function`` uses a tensor that requires grad and is not one of its arguments.

    >>> rate = torch.tensor(-1.0, requires_grad=True)
    >>> z = odeint(lambda t, z, rate: rate * z, torch.tensor(1.0), torch.tensor([0.0, 1.0]), 10, rate)
    >>> z[-1].backward()
    >>> z[-1], rate.grad  # both are exp(-1)
    (tensor(0.3679, grad_fn=<SelectBackward0>), tensor(0.3679))
    """
    _expect_problem(function, steps, initial, times, parameters)
    return OdeintFunction.apply(function, steps, initial, times, *parameters)


class OdeintAdjointFunction(OdeintFunction):
    """Keeps the same tensors as its base class. Backward solves another differential equation, backward in time."""

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        output, times, *parameters = ctx.saved_tensors
        _, needs_times, *needs_parameters = ctx.needs_input_grad[2:]
        function = _widened(ctx.function, times, output)

        def slopes(time: Tensor, augmented: State) -> State:
            state, adjoint, *_ = augmented
            at_time = functools.partial(function, time)
            slope, pull_back = vjp(at_time, state, *parameters, wanted=(True, *needs_parameters))
            return slope, *(-wide(grad) for grad in pull_back(adjoint) if grad is not None)

        def along_slope(n: int, grad: Tensor) -> Tensor:
            return (grad.conj() * ctx.function(times[n], output[n], *parameters)).real.sum().to(times.dtype)

        adjoint = wide(grad_output[-1])
        grads = [torch.zeros_like(wide(p)) for p, needed in zip(parameters, needs_parameters, strict=True) if needed]
        for n in reversed(range(len(times) - 1)):
            # Start from the saved state, so that the error of the solution backward in time grows over one interval
            # only.
            augmented = (wide(output[n + 1]), adjoint, *grads)
            start, end = wide(times[n : n + 2])
            size = (start - end) / ctx.steps
            for i in range(ctx.steps):
                augmented = rk4(slopes, end + i * size, size, augmented)
            _, adjoint, *grads = augmented
            adjoint = adjoint + grad_output[n]
        grad_times = None
        if needs_times:
            # A later time moves the state at that time along the slope. But the first state is fixed, so a later first
            # time shortens the first interval, and its gradient has the opposite sign.
            first = -along_slope(0, adjoint - grad_output[0])
            grad_times = torch.stack([first, *(along_slope(n, grad_output[n]) for n in range(1, len(times)))])
        rest = iter(grads)
        pairs = zip(parameters, needs_parameters, strict=True)
        of_parameters = (next(rest).to(p.dtype) if needed else None for p, needed in pairs)
        return None, None, adjoint.to(output.dtype), grad_times, *of_parameters


def odeint_adjoint(function: Slope, initial: Tensor, times: Tensor, steps: int, *parameters: Tensor) -> Tensor:
    r"""Solve an initial value problem. The gradient is the solution of a second problem, backward in time.

    .. math::
        \dot{z} = f(t, z, \theta), \qquad
        \dot{a} = -\left(\frac{\partial f}{\partial z}\right)^{\!\top} a, \quad
        \bar{\theta} = \int_{t_0}^{t_1} \left(\frac{\partial f}{\partial \theta}\right)^{\!\top} a \, dt, \qquad
        a(t_1) = \bar{z}(t_1), \quad \bar{z}(t_0) = a(t_0)

    Backward computes :math:`z`, :math:`a` and the integral from the last time to the first. It holds one state of each
    in memory, for any number of steps. But the steps of backward have an error of their own. The gradient therefore
    differs from the exact gradient of :func:`odeint`, by an error proportional to the fourth power of the step size.
    Backward also computes the states :math:`z` again from the last one. This fails if different initial states quickly
    lead to the same state. So use :func:`odeint`, unless the states of one interval do not fit into memory.

    Args:
        function: called as ``function(time, state, *parameters)``, as for :func:`odeint`.
        initial: the state at ``times[0]``; any shape, floating or complex.
        times: ``(n,)``, the times of the returned states, in rising or falling order. At each of these times,
            backward starts again from the state that forward returned.
        steps: the number of steps from each of the times to the next, in forward and in backward.
        parameters: everything that gets a gradient in addition to ``initial`` and ``times``.

    Returns:
        The states at ``times``, with shape ``(n, *initial.shape)``. The first state is ``initial``.

    Raises:
        ValueError: as for :func:`odeint`.
        RuntimeError: as for :func:`odeint`.

    Source: R. T. Q. Chen, Y. Rubanova, J. Bettencourt, D. Duvenaud, Neural ordinary differential equations,
    arXiv:1806.07366; L. S. Pontryagin et al., The mathematical theory of optimal processes (1962).

    >>> rate = torch.tensor(-1.0, requires_grad=True)
    >>> z = odeint_adjoint(lambda t, z, rate: rate * z, torch.tensor(1.0), torch.tensor([0.0, 1.0]), 10, rate)
    >>> z[-1].backward()
    >>> z[-1], rate.grad
    (tensor(0.3679, grad_fn=<SelectBackward0>), tensor(0.3679))
    """
    _expect_problem(function, steps, initial, times, parameters)
    return OdeintAdjointFunction.apply(function, steps, initial, times, *parameters)
