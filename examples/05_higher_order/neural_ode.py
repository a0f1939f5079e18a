r"""
Neural ODEs: gradients through a differential equation
======================================================

You will learn the right-hand side of a differential equation from its solution. The recipes keep only the solution at
the times that you ask for. Backward computes exact gradients by solving again, or approximate gradients with the
adjoint equation.
"""

# %%
# When to use it
# --------------
#
# Use these recipes when a solver with many steps is a part of your model, for example in continuous-depth networks, in
# flows, or in a simulator whose parameters you fit. For a few steps and a small network, write the loop and let
# autograd differentiate it. For adaptive steps, see the package ``torchdiffeq``. If the loop does not fit into memory,
# use ``odeint``. Use ``odeint_adjoint`` only if even the states of one interval do not fit into memory, or to learn
# what other libraries do. Its gradient has an error, and for some equations this gradient is useless.
#
# The gradient
# ------------
#
# *Discretize, then differentiate.* The solver is a chain of steps :math:`z_{k+1} = \Phi(z_k, \theta)`. Backward goes
# through the chain from the end. It computes the gradient :math:`a_k` for each state by :math:`a_k = (\partial \Phi /
# \partial z_k)^\top a_{k+1}`. This gradient is exact. Backward needs all states :math:`z_k`, which are small compared
# with the activations inside of :math:`\Phi`. ``odeint`` keeps some of the states and recomputes the others.
#
# *Differentiate, then discretize.* Let the steps in the formula above go to zero, for the equation :math:`\dot{z} =
# f(t, z, \theta)`. Then the adjoint :math:`a = \partial L / \partial z(t)` follows its own differential equation:
#
# .. math::
#
#    \dot{a} = -\left(\frac{\partial f}{\partial z}\right)^{\!\top} a, \qquad
#    \frac{dL}{d\theta} = \int_{t_0}^{t_1} \left(\frac{\partial f}{\partial \theta}\right)^{\!\top} a \, dt .
#
# ``odeint_adjoint`` solves this equation from the end to the beginning, together with :math:`z`, so it needs no state
# in between. But a second solution with finite steps makes its own error. So the result is not the gradient of the
# computed solution: it approximates the gradient of the exact solution.
#
# The recipe
# ----------
#
# .. recipe:: odeint
#
# .. recipe:: odeint_adjoint

# sphinx_gallery_tags = ["memory", "approximate", "checkpoint", "compile"]
# sphinx_gallery_thumbnail_number = 1

import math

import matplotlib.pyplot as plt
import torch

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.neural_ode import odeint, odeint_adjoint

# %%
# See it work
# -----------
#
# The data is a spiral, :math:`\dot{z} = A z^3`, observed with noise at 25 times. A network learns the right-hand side
# of this equation. It never sees a slope, only the observed states. Each solution starts at one observation and is
# compared with the next three. The right figure shows the peak memory of three solvers for different numbers of steps.

torch.manual_seed(0)
swirl = torch.tensor([[-0.1, -2.0], [2.0, -0.1]])
times = torch.linspace(0, 2.5, 25)
begin, fine = torch.tensor([1.5, 0.0]), torch.linspace(0, 2.5, 241)
truth = odeint(lambda t, z: z**3 @ swirl, begin, fine, 2)
observed = truth[::10] + 0.02 * torch.randn(25, 2)


def field(t, z, weight, bias, out):
    return torch.tanh(z**3 @ weight + bias) @ out


parameters = [0.5 * torch.randn(2, 32), torch.zeros(32), 0.2 * torch.randn(32, 2)]
parameters = [p.requires_grad_() for p in parameters]
starts = observed[:-3]
targets = torch.stack([observed[k : k + len(starts)] for k in range(4)])
optimizer = torch.optim.Adam(parameters, lr=0.03)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [150], gamma=0.2)
losses = []
for _ in range(200):
    optimizer.zero_grad()
    loss = (odeint(field, starts, times[:4], 1, *parameters) - targets).square().mean()
    loss.backward()
    optimizer.step()
    schedule.step()
    losses.append(loss.item())
with torch.no_grad():
    learned = odeint(field, begin, fine, 2, *parameters)

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.4), layout="constrained")
figure.suptitle("A spiral learned from 25 points, and the memory of going back through its solver")
left.plot(*observed.T, "o", color="0.4", markersize=4, fillstyle="none", label="observed")
left.plot(*truth.T, "-", color="0.8", linewidth=4, label="truth")
left.plot(*learned.T, "--", label="learned")
left.set(xlabel="z₁", ylabel="z₂", aspect="equal")
left.legend(fontsize=8, loc="center")


def unrolled(function, initial, times, steps, *parameters):
    state, size = initial, (times[1] - times[0]) / steps
    for i in range(steps):
        t = times[0] + i * size
        a = function(t, state, *parameters)
        b = function(t + size / 2, state + size / 2 * a, *parameters)
        c = function(t + size / 2, state + size / 2 * b, *parameters)
        d = function(t + size, state + size * c, *parameters)
        state = state + size / 6 * (a + 2 * b + 2 * c + d)
    return torch.stack([initial, state])


batch = torch.randn(500, 2, requires_grad=True)
span = torch.tensor([0.0, 1.0])
counts = [4, 16, 64]
contenders = {"unrolled": unrolled, "odeint": odeint, "odeint_adjoint": odeint_adjoint}
peaks = {}


def train(solver, steps, times=span):
    torch.autograd.grad(solver(field, batch, times, steps, *parameters)[-1].sum(), [batch, *parameters])


for (name, solver), style in zip(contenders.items(), ("--s", "-o", ":^"), strict=True):
    peaks[name] = [peak_bytes(train, solver, steps) / 2**20 for steps in counts]
    right.loglog(counts, peaks[name], style, label=name)
right.set(xlabel="steps", ylabel="MiB at the peak", xticks=counts, xticklabels=counts)
right.minorticks_off()
right.legend(fontsize=8)
plt.show()

error = (learned - truth).norm(dim=1).mean() / truth.norm(dim=1).mean()
print(f"loss {losses[0]:.3f} → {losses[-1]:.5f}; the learned curve is off by {error:.1%} on average")
print("MiB at the peak:", {name: [round(p, 2) for p in values] for name, values in peaks.items()})
assert error < 0.1
assert len(set(peaks["odeint_adjoint"])) == 1
assert peaks["odeint"][-1] < 0.1 * peaks["unrolled"][-1]

# %%
# If you pass ``times`` in between, ``odeint`` keeps the states at these times, and backward solves one interval at a
# time again. The next cell prints the peak in units of one state, 4,000 bytes. Both numbers include the activations
# inside of one step:

in_one = peak_bytes(train, odeint, 64)
in_eight = peak_bytes(train, odeint, 8, torch.linspace(0, 1, 9))
print(f"64 steps: {in_one / 4000:.0f} states at the peak in one interval, {in_eight / 4000:.0f} in eight")
assert in_one - in_eight > 40 * 4000

# %%
# The error of the adjoint
# ------------------------
#
# The next cell compares both gradients with that of the unrolled loop. The gradient of ``odeint`` agrees up to
# rounding, for any number of steps. The gradient of ``odeint_adjoint`` converges with the order of the method: half the
# step makes the error sixteen times smaller.

rate = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
start = torch.tensor([1.0, 0.5], dtype=torch.float64)
interval = torch.tensor([0.0, 2.0], dtype=torch.float64)


def pendulum(t, z, rate):
    return torch.stack([z[1], -z[0].sin() - rate * z[1]])


def errors_of(function, initial, times, steps, parameter):
    """Relative errors of both gradients; at least 1e-17, so that an error of 0 can be plotted."""
    (expected,) = torch.autograd.grad(unrolled(function, initial, times, steps, parameter)[-1].sum(), parameter)
    found = {}
    for name in ("odeint", "odeint_adjoint"):
        z = contenders[name](function, initial, times, steps, parameter)
        (grad,) = torch.autograd.grad(z[-1].sum(), parameter)
        found[name] = max(float((grad - expected).abs() / expected.abs()), 1e-17)
    return found


steps = [4, 8, 16, 32]
errors = [errors_of(pendulum, start, interval, n, rate) for n in steps]
exact, adjoint = ([e[name] for e in errors] for name in ("odeint", "odeint_adjoint"))
order = math.log2(adjoint[-2] / adjoint[-1])
print(f"measured order of the adjoint's gradient: {order:.2f}")
assert max(exact) < 1e-13
assert abs(order - 4) < 0.2

figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
axis.loglog(steps, exact, "-o", label="odeint")
axis.loglog(steps, adjoint, ":^", label="odeint_adjoint")
axis.loglog(steps, [adjoint[-1] * (steps[-1] / n) ** 4 for n in steps], color="0.6", linewidth=1, label="fourth order")
axis.set(xlabel="steps", ylabel="relative error of the gradient", xticks=steps, xticklabels=steps)
axis.set_title("Twice as many steps make the error of the adjoint's gradient sixteen times smaller")
axis.minorticks_off()
axis.legend(fontsize=8, loc="center right")
plt.show()

# %%
# The wrong version
# -----------------
#
# This example uses ``odeint_adjoint`` for an equation that forgets its initial state. The first number of the state
# approaches :math:`\cos t` at a rate :math:`k`, wherever it starts. The second number adds up the sine of the first.
# Forward in time, this is easy to solve. Backward in time, every distance from :math:`\cos t` grows by a factor of
# :math:`e^k`, and so does every error. The adjoint method then computes the gradient at states that the solution never
# had:


def forgetful(t, z, rate):
    return torch.stack([-rate * (z[0] - t.cos()), torch.sin(z[0])])


rates = [1, 6, 12, 18, 24]
unit, far = torch.tensor([[0.0, 1.0], [3.0, 0.0]], dtype=torch.float64)
errors = [
    errors_of(forgetful, far, unit, 40, torch.tensor(float(k), dtype=torch.float64, requires_grad=True)) for k in rates
]
exact, adjoint = ([e[name] for e in errors] for name in ("odeint", "odeint_adjoint"))
figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
axis.semilogy(rates, exact, "-o", rates, adjoint, ":^")
axis.axhline(1, color="0.6", linewidth=1)
axis.text(rates[-1], exact[-1] * 10, "odeint", ha="right", color="C0")
axis.text(rates[-2], adjoint[-2] * 10, "odeint_adjoint", ha="right", color="C1")
axis.set(xlabel="rate k at which the state is forgotten", ylabel="relative error, 40 steps")
axis.set_title("The faster the state is forgotten, the larger the error of the adjoint's gradient")
plt.show()

print("error of the adjoint's gradient by rate:", {k: f"{e:.0e}" for k, e in zip(rates, adjoint, strict=True)})
assert max(exact) < 1e-10
assert adjoint[-1] > 1

# %%
# There is no exception and no NaN. Use ``odeint`` instead. If you can't, pass more ``times``: the adjoint method starts
# again from the kept state at each of them.
#
# What it costs
# -------------
#
# .. costs::
#
# The 8 bytes per element in the table are the first and the last state, which are the result and in memory anyway. The
# number of steps does not change the bytes that the recipe keeps:

kept = [saved_bytes(lambda z, *p, n=n: odeint(field, z, span, n, *p), batch, *parameters) for n in counts]
print(kept, "bytes for", counts, "steps")
assert len(set(kept)) == 1

# %%
# Backward of ``odeint`` solves the equation once more, without gradients, and runs the forward of each step once more.
# Backward of ``odeint_adjoint`` solves one more equation. If you compile them, both become long programs, because the
# compiler unrolls every step.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/05_higher_order/implicit`: equations without time.
# * :doc:`/cookbook/04_memory/checkpointing`: the same trade for a sequence of layers.
# * :doc:`/cookbook/04_memory/reversible`: layers whose inputs can be computed from their outputs.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.utils.checkpoint.checkpoint`.
