r"""
Neural ODEs: gradients through a differential equation
======================================================

You will learn the right-hand side of a differential equation from its solution, with gradients in the memory of the
solution: exact ones by solving again, and those of the adjoint equation, with their error.
"""

# %%
# When to use it
# --------------
#
# When a solver with many steps is a part of your model: continuous-depth networks, flows, a simulator whose
# parameters you fit. For a few steps and a small network write the loop and let autograd go through it; the package
# ``torchdiffeq`` has adaptive steps. Take ``odeint`` where the loop does not fit into memory. Take ``odeint_adjoint``
# only where the states of one interval do not fit either, or to know what other libraries do: its gradient has an
# error, and for some equations it is no gradient at all.
#
# The gradient
# ------------
#
# *Discretize, then differentiate.* The solver is a chain of steps :math:`z_{k+1} = \Phi(z_k, \theta)`. Go back
# through it with :math:`a_k = (\partial \Phi / \partial z_k)^\top a_{k+1}`. This is exact. It needs all states
# :math:`z_k`, which are small next to the activations inside of :math:`\Phi`; ``odeint`` keeps some and recomputes the
# others.
#
# *Differentiate, then discretize.* Let the steps go to zero in the formula before: the adjoint
# :math:`a = \partial L / \partial z(t)` has a differential equation of its own,
#
# .. math::
#
#    \dot{a} = -\left(\frac{\partial f}{\partial z}\right)^{\!\top} a, \qquad
#    \frac{dL}{d\theta} = \int_{t_0}^{t_1} \left(\frac{\partial f}{\partial \theta}\right)^{\!\top} a \, dt .
#
# Solve it from the end to the beginning, with :math:`z` next to it, and nothing needs to be kept at all. But its
# steps are not those of the solution: the gradient is that of the exact solution, with the error of the steps.
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
# A spiral, :math:`\dot{z} = A z^3`, seen at 25 times with noise. A network learns its right-hand side: it never sees
# a slope, only where the solution is to be. Each piece starts at one observation and is to meet the next three.

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
# With ``times`` in between, ``odeint`` keeps the states at these times, and solves one interval at a time again. The
# peak is counted here in states of 4,000 bytes; both runs include the inside of one step:

in_one = peak_bytes(train, odeint, 64)
in_eight = peak_bytes(train, odeint, 8, torch.linspace(0, 1, 9))
print(f"64 steps: {in_one / 4000:.0f} states at the peak in one interval, {in_eight / 4000:.0f} in eight")
assert in_one - in_eight > 40 * 4000

# %%
# The error of the adjoint
# ------------------------
#
# Both gradients of one problem, against autograd's through the unrolled loop. That of ``odeint`` agrees to rounding,
# whatever the steps. That of the adjoint converges to it with the order of the method: half the step, and it is
# sixteen times better.

rate = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
start = torch.tensor([1.0, 0.5], dtype=torch.float64)
interval = torch.tensor([0.0, 2.0], dtype=torch.float64)


def pendulum(t, z, rate):
    return torch.stack([z[1], -z[0].sin() - rate * z[1]])


def errors_of(function, initial, times, steps, parameter):
    """Relative errors of both gradients; rounding is shown where there is none at all."""
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

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
figure.suptitle("The adjoint's gradient converges with the steps, unless the way back is unstable")
left.loglog(steps, exact, "-o", label="odeint")
left.loglog(steps, adjoint, ":^", label="odeint_adjoint")
left.loglog(steps, [adjoint[-1] * (steps[-1] / n) ** 4 for n in steps], color="0.6", linewidth=1, label="fourth order")
left.set(xlabel="steps", ylabel="relative error of the gradient", xticks=steps, xticklabels=steps)
left.minorticks_off()
left.legend(fontsize=8, loc="center right")

# %%
# The wrong version
# -----------------
#
# It is the adjoint, used where the equation forgets. The first number of this state is drawn to :math:`\cos t` at a
# rate :math:`k`, wherever it began; the second one adds up what it sees of the first. Forward this is as tame as can
# be. Backward, the first number runs away from :math:`\cos t` by a factor of :math:`e^k`, its error included, and the
# gradient is taken at states that never were:


def forgetful(t, z, rate):
    return torch.stack([-rate * (z[0] - t.cos()), torch.sin(z[0])])


rates = [1, 6, 12, 18, 24]
unit, far = torch.tensor([[0.0, 1.0], [3.0, 0.0]], dtype=torch.float64)
errors = [
    errors_of(forgetful, far, unit, 40, torch.tensor(float(k), dtype=torch.float64, requires_grad=True)) for k in rates
]
exact, adjoint = ([e[name] for e in errors] for name in ("odeint", "odeint_adjoint"))
right.semilogy(rates, exact, "-o", rates, adjoint, ":^")
right.axhline(1, color="0.6", linewidth=1)
right.set(xlabel="rate k at which the state is forgotten", ylabel="relative error, 40 steps")
plt.show()

print("error of the adjoint's gradient by rate:", {k: f"{e:.0e}" for k, e in zip(rates, adjoint, strict=True)})
assert max(exact) < 1e-10
assert adjoint[-1] > 1

# %%
# No exception, no NaN. What is right: ``odeint``; or more of the ``times``, as the way back begins anew at each.
#
# What it costs
# -------------
#
# .. costs::
#
# Eight bytes are the first and the last state, which the caller holds as the result. What else is kept? Nothing that
# depends on the steps:

kept = [saved_bytes(lambda z, *p, n=n: odeint(field, z, span, n, *p), batch, *parameters) for n in counts]
print(kept, "bytes for", counts, "steps")
assert len(set(kept)) == 1

# %%
# In time, ``odeint`` pays one more solution, without gradients, and one more forward of each step; the adjoint one
# more solution, backward. Compiled they are long: each step is unrolled into the program.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/05_higher_order/implicit`: equations without time.
# * :doc:`/cookbook/04_memory/checkpointing`: the same trade for a sequence of layers.
# * :doc:`/cookbook/04_memory/reversible`: layers that can be run backward exactly.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.utils.checkpoint.checkpoint`.
