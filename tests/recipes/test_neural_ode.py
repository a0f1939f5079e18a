"""Solvers of differential equations: their values, their exact gradients, and the order of the others."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.neural_ode import odeint, odeint_adjoint, rk4

SURVIVORS = {
    "OdeintFunction.backward: i > 0 -> i >= 0": "a gradient that nobody asked for is computed, and dropped",
    "OdeintFunction.backward: n > 0 -> n >= 0": "a gradient that nobody asked for is computed, and dropped",
}

SOLVERS = [odeint, odeint_adjoint]
each_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.__name__)


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def field(t, z, a, b):
    """Depends on everything, and each in its own way."""
    return torch.stack([a * z[1] - t.sin(), b * z[0].sin() - a * z[1] * t])


def unrolled(function, initial, times, steps, *parameters):
    states = [initial]
    for n in range(len(times) - 1):
        state, size = states[-1], (times[n + 1] - times[n]) / steps
        for i in range(steps):
            t = times[n] + i * size
            k1 = function(t, state, *parameters)
            k2 = function(t + size / 2, state + size / 2 * k1, *parameters)
            k3 = function(t + size / 2, state + size / 2 * k2, *parameters)
            k4 = function(t + size, state + size * k3, *parameters)
            state = state + size * (k1 / 6 + k2 / 3 + k3 / 3 + k4 / 6)
        states.append(state)
    return torch.stack(states)


def problem() -> tuple[torch.Tensor, ...]:
    return vector(1.0, -0.5), vector(0.2, 0.5, 1.1, 1.0), vector(0.7), vector(-1.3)


def grads(z, leaves, **options):
    weights = torch.linspace(1, 2, z.numel(), dtype=z.dtype).reshape(z.shape)
    return torch.autograd.grad((z * weights).sum(), leaves, **options)


def call(solver, steps, leaves):
    initial, times, a, b = leaves
    return solver(field, initial, times, steps, a.squeeze(), b.squeeze())


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_odeint_is_the_loop_in_every_gradient(steps) -> None:
    leaves = problem()
    ours, theirs = call(odeint, steps, leaves), call(unrolled, steps, leaves)
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)
    for a, b in zip(grads(ours, leaves), grads(theirs, leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_odeint_has_second_derivatives() -> None:
    leaves = problem()
    pairs = [grads(call(solver, 2, leaves), leaves, create_graph=True) for solver in (odeint, unrolled)]
    ours, theirs = (
        torch.autograd.grad(sum((g * (1 + g)).sum() for g in first), leaves, allow_unused=True) for first in pairs
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


@each_solver
def test_solution_is_of_fourth_order(solver) -> None:
    errors = []
    for steps in (8, 16):
        z = solver(lambda t, z: -z * t, torch.ones((), dtype=torch.float64), vector(0.0, 2.0).detach(), steps)
        errors.append(abs(z[-1].item() - math.exp(-2)))
    assert 3.7 < math.log2(errors[0] / errors[1]) < 4.5


@pytest.mark.parametrize("which", range(4), ids=["initial", "times", "a", "b"])
def test_adjoint_converges_to_the_gradient_with_fourth_order(which) -> None:
    """The gradient of the exact solution, which is that of many exact steps."""
    leaves = problem()
    exact = grads(call(odeint, 60, leaves), leaves)[which]
    errors = [float((grads(call(odeint_adjoint, n, leaves), leaves)[which] - exact).norm()) for n in (4, 8, 16)]
    assert errors[-1] < 1e-5 * float(exact.norm())
    assert 3.5 < math.log2(errors[0] / errors[2]) / 2 < 4.9


@each_solver
def test_times_are_differentiated(solver) -> None:
    """Of an equation that is known: z = exp(a (t - t0))."""
    times = vector(0.3, 0.5, 0.9)
    z = solver(lambda t, z, a: a * z, torch.ones((), dtype=torch.float64), times, 50, vector(2.0).squeeze())
    (found,) = torch.autograd.grad(z[1] + 3 * z[2], times)
    one, two = 2 * math.exp(0.4), 6 * math.exp(1.2)
    torch.testing.assert_close(found, torch.tensor([-one - two, one, two], dtype=torch.float64), rtol=1e-6, atol=0)


def test_times_of_a_complex_state_get_a_real_gradient() -> None:
    initial = torch.tensor([1.0 + 0.5j, 0.2j], dtype=torch.complex128, requires_grad=True)
    times, a = vector(0.0, 0.3), torch.tensor(0.5 + 1j, dtype=torch.complex128, requires_grad=True)
    assert gradcheck(lambda z, t, a: odeint(lambda t, z, a: a * z * z.conj() + t, z, t, 2, a), (initial, times, a))
    exact, found = (
        torch.autograd.grad(
            torch.view_as_real(solver(lambda t, z, a: a * z * z.conj() + t, initial, times, 20, a)).sum(),
            (initial, times, a),
        )
        for solver in SOLVERS
    )
    for e, f in zip(exact, found, strict=True):
        assert e.dtype == f.dtype
        torch.testing.assert_close(f, e, rtol=1e-6, atol=1e-7)


@each_solver
def test_backward_in_time_is_the_way_back(solver) -> None:
    there = solver(field, vector(1.0, 0.5), vector(0.0, 1.0), 50, torch.tensor(0.5), torch.tensor(1.0))[-1]
    back = solver(field, there, vector(1.0, 0.0), 50, torch.tensor(0.5), torch.tensor(1.0))[-1]
    torch.testing.assert_close(back, vector(1.0, 0.5), rtol=1e-7, atol=1e-7)


@each_solver
def test_only_what_needs_a_gradient_is_computed(solver) -> None:
    leaves = problem()
    every = grads(call(solver, 3, leaves), leaves)
    for i, leaf in enumerate(leaves):
        alone = [t if t is leaf else t.detach() for t in leaves]
        torch.testing.assert_close(grads(call(solver, 3, alone), leaf)[0], every[i])


@each_solver
def test_one_time_is_the_initial_state(solver) -> None:
    initial, times = vector(1.0, 2.0), vector(0.5)
    z = solver(lambda t, z: z, initial, times, 3)
    assert torch.equal(z, initial.unsqueeze(0))
    (grad,) = torch.autograd.grad(z.sum(), initial, retain_graph=True)
    assert torch.equal(grad, torch.ones_like(grad))


def test_memory_of_the_steps() -> None:
    z = torch.ones(500, dtype=torch.float64, requires_grad=True)
    state = z.untyped_storage().nbytes()
    weight = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)

    def run(solver, steps, intervals=1):
        times = torch.linspace(0, 1, intervals + 1, dtype=torch.float64)
        result = solver(lambda t, z, w: (w * z).sin(), z, times, steps, weight)
        torch.autograd.grad(result.sum(), (z, weight))

    for solver in SOLVERS:
        times = torch.tensor([0.0, 1.0], dtype=torch.float64)
        kept = {
            saved_bytes(lambda z, t, w, n=n, f=solver: f(lambda t, z, w: w * z, z, t, n, w), z, times, weight)
            for n in (2, 50)
        }
        assert kept == {2 * state}, "the two states of the result"
    assert peak_bytes(run, odeint_adjoint, 4) == peak_bytes(run, odeint_adjoint, 64)
    few, many = (peak_bytes(run, odeint, n) for n in (4, 64))
    assert 58 * state < many - few < 62 * state, "one state a step"
    assert peak_bytes(run, odeint, 8, 8) < many - 30 * state


def test_adjoint_runs_away_where_the_equation_forgets() -> None:
    """What the page shows: the exact gradient does not."""
    rate, times, initial = vector(24.0).squeeze(), vector(0.0, 1.0).detach(), vector(3.0, 0.0).detach()
    results = [
        torch.autograd.grad(
            solver(lambda t, z, k: torch.stack([-k * (z[0] - t.cos()), z[0].sin()]), initial, times, 40, rate)[
                -1
            ].sum(),
            rate,
        )[0].item()
        for solver in (unrolled, odeint, odeint_adjoint)
    ]
    assert results[1] == pytest.approx(results[0], rel=1e-12)
    assert abs(results[2]) > 10 * abs(results[0])


def test_adjoint_can_be_differentiated_again() -> None:
    leaves = problem()
    first = grads(call(odeint_adjoint, 8, leaves), leaves[2], create_graph=True)[0]
    exact = grads(call(odeint, 8, leaves), leaves[2], create_graph=True)[0]
    second, wanted = (torch.autograd.grad(f.sum(), leaves[3])[0] for f in (first, exact))
    torch.testing.assert_close(second, wanted, rtol=1e-3, atol=1e-5)
    assert gradgradcheck(lambda z, a: odeint_adjoint(lambda t, z, a: a * z.sin(), z, vector(0.0, 0.3).detach(), 2, a),
                         (leaves[0], leaves[2]))  # fmt: skip


def test_rk4_weights() -> None:
    """A polynomial of third degree is integrated exactly, one of fourth is not."""
    for degree, exact in ((3, True), (4, False)):
        time = torch.tensor(1.0, dtype=torch.float64)
        (z,) = rk4(lambda t, _, d=degree: (t**d,), time, 2 * time, (0 * time,))
        assert (abs(z.item() - (3 ** (degree + 1) - 1) / (degree + 1)) < 1e-12) == exact


@each_solver
def test_bad_input_is_named(solver) -> None:
    z, times = torch.ones(2), torch.tensor([0.0, 1.0])
    with pytest.raises(ValueError, match="steps >= 1, got 0"):
        solver(lambda t, z: z, z, times, 0)
    with pytest.raises(ValueError, match=r"got shape \(\)"):
        solver(lambda t, z: z, z, torch.tensor(1.0), 1)
    with pytest.raises(ValueError, match=r"at least one time, got shape \(0,\)"):
        solver(lambda t, z: z, z, torch.zeros(0), 1)
    with pytest.raises(ValueError, match=r"\(2,\) of torch.float32, got \(\)"):
        solver(lambda t, z: z.sum(), z, times, 1)
    with pytest.raises(ValueError, match=r"got \(2,\) of torch\.float64"):
        solver(lambda t, z: z.double(), z, times, 1)
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        solver(lambda t, z: z * weight, z, times, 1)
