r"""
Implicit differentiation: fixed points, roots, linear systems
=============================================================

You will differentiate the solution of an equation without differentiating the solver, in memory that does not grow with
the solver's iterations.
"""

# %%
# When to use it
# --------------
#
# Use implicit differentiation when an equation defines your function. Examples are a deep equilibrium layer, an implied
# volatility, the resting state of a simulator, and a threshold that makes weights sum to one.
#
# You can also unroll the iterations, which means that autograd records and differentiates all of them. This is right,
# too, once the iterations have converged, but it needs more memory. So unroll if ten iterations are enough and you have
# the memory.
#
# For dense linear systems, :func:`torch.linalg.solve` is faster. Use ``linear_solve`` to save the memory of the
# factors, or with a solver that is not torch's.
#
# The gradient
# ------------
#
# Let the equation :math:`g(z, \theta) = 0` define the solution :math:`z^*(\theta)`. Differentiate the equation, and
# compute :math:`\bar{\theta}` from the gradient :math:`\bar{z}` of the solution:
#
# .. math::
#
#    \frac{\partial g}{\partial z} \, dz^* + \frac{\partial g}{\partial \theta} \, d\theta = 0
#    \quad \Rightarrow \quad
#    \bar{\theta} = \left(\frac{\partial g}{\partial \theta}\right)^{\!\top} u, \qquad
#    \left(\frac{\partial g}{\partial z}\right)^{\!\top} u = -\bar{z} .
#
# So the gradient costs the solution :math:`u` of one linear system, with the *transposed* Jacobian at the solution. How
# forward found the solution does not matter. For a fixed point, :math:`g = f(z, \theta) - z`, and the system becomes
# :math:`u = \bar{z} + J^\top u` with :math:`J = \partial f / \partial z`. So :math:`u` is again a fixed point, and you
# can find it by iterating this equation with products with :math:`J^\top`. For one equation in one unknown, you solve
# this system by one division.
#
# The recipe
# ----------
#
# .. recipe:: fixed_point
#
# .. recipe:: root
#
# .. recipe:: bisect
#
# .. recipe:: linear_solve

# sphinx_gallery_tags = ["memory", "second order", "checkpoint", "black box"]
# sphinx_gallery_thumbnail_number = 1

import math
import warnings

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.autograd import Function, gradcheck

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes._explicit import explicit
from autograd_cookbook.recipes.implicit import bisect, fixed_point, linear_solve, root

# %%
# See it work
# -----------
#
# This layer takes its own output as input: :math:`z = \tanh(z W + x)`. The figure compares three gradients:
#
# * Unrolled: autograd keeps every iteration, and the gradient converges more slowly than the value.
# * Last step only: autograd differentiates the last iteration. This is cheap, but here the error stays large, however
#   many iterations you make.
# * The recipe: it keeps only the result, and its gradient is as accurate as its value.

torch.manual_seed(0)
size = 40
weight = torch.randn(size, size, dtype=torch.float64)
weight = weight + weight.mT
weight = (0.97 * weight / torch.linalg.matrix_norm(weight, 2)).requires_grad_()
x = (0.1 * torch.randn(16, size, dtype=torch.float64)).requires_grad_()
start = torch.zeros(16, size, dtype=torch.float64)


def layer(z, x, weight):
    return torch.tanh(z @ weight + x)


def unrolled(iterations, z=start):
    for _ in range(iterations):
        z = layer(z, x, weight)
    return z


def last_step_only(iterations):
    with torch.no_grad():
        z = unrolled(iterations - 1)
    return layer(z, x, weight)


def implicit(iterations):
    """Make as many iterations as the others: the last step just meets the tolerance."""
    with torch.no_grad():
        z = unrolled(iterations - 1)
        change = (layer(z, x, weight) - z).abs().max() / layer(z, x, weight).abs().max()
    return fixed_point(layer, start, x, weight, tolerance=1.0001 * float(change), max_iterations=2000, history=0)


def gradient(z):
    return torch.autograd.grad(z.square().sum(), weight)[0]


exact = gradient(fixed_point(layer, start, x, weight, max_iterations=2000))
counts = [3, 10, 30, 100, 300]
contenders = {"unrolled": unrolled, "last step only": last_step_only, "fixed_point": implicit}
styles = ("--s", ":^", "-o")

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
figure.suptitle("Memory does not grow with the iterations, and the gradient is as good as the value")
kept, errors = {}, {}
for (name, function), style in zip(contenders.items(), styles, strict=True):
    kept[name] = [saved_bytes(lambda *_, n=n, f=function: f(n), x, weight, start) / 1024 for n in counts]
    errors[name] = [float((gradient(function(n)) - exact).norm() / exact.norm()) for n in counts]
    left.loglog(counts, kept[name], style, label=name)
    right.loglog(counts, errors[name], style, label=name)
left.set(xlabel="iterations", ylabel="KiB kept for backward")
right.set(xlabel="iterations", ylabel="relative error of the gradient")
left.legend(fontsize=8)
plt.show()

assert kept["fixed_point"] == [start.untyped_storage().nbytes() / 1024] * len(counts)
assert kept["unrolled"][-1] > 250 * kept["fixed_point"][-1]
assert errors["last step only"][-1] > 0.1
assert errors["fixed_point"][-2] < errors["unrolled"][-2]
assert errors["fixed_point"][-1] < 0.2 * errors["unrolled"][-1]
print("error of the gradient after 300 iterations:", {name: f"{e[-1]:.0e}" for name, e in errors.items()})

# %%
# The full gradient sums the effects of all steps, :math:`1 + J + J^2 + \dots`. The gradient of the last step alone is
# only the first term. So it is right if :math:`J = 0`, which means that the result of a step does not depend on where
# the step starts. This is the case for Newton's method at the root. There you need no recipe: detach the root and make
# one more step. The next cell differentiates a square root after nine Newton steps, and after 300 steps of a
# contraction:

square = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)


def newton(z):
    return z - (z * z - square) / (2 * z)


def damped(z):
    return z - (z * z - square) / 8


def last_step(step, steps):
    z = torch.ones((), dtype=torch.float64)
    with torch.no_grad():
        for _ in range(steps - 1):
            z = step(z)
    return torch.autograd.grad(step(z), square)[0].item()


slope = 0.5 / math.sqrt(2)
one_step = {"newton": last_step(newton, 9), "contraction": last_step(damped, 300)}
print({name: f"off by {abs(found / slope - 1):.0e}" for name, found in one_step.items()})
assert math.isclose(one_step["newton"], slope, rel_tol=1e-14)
assert abs(one_step["contraction"] / slope - 1) > 0.1

# %%
# A deep equilibrium layer with a hook
# ------------------------------------
#
# Implementations of deep equilibrium layers (DEQ) often use a hook instead of a ``Function``, because then the
# parameters of a module do not have to be arguments:
#
# 1. Solve without recording.
# 2. Make *one* step with recording, which attaches the result to its parameters.
# 3. Register a hook on the result that replaces the gradient :math:`\bar{z}` by the solution :math:`u` of the equation
#    above, called the adjoint equation.


def deq(step, z, tolerance, iterations=2000):
    """``step(z)`` may use any parameters. First derivatives only."""
    with torch.no_grad():
        z = iterate(step, z, tolerance, iterations)
    attached = step(z)
    if not attached.requires_grad:
        return attached
    at = z.clone().requires_grad_()  # a second evaluation, for products with J
    with torch.enable_grad():
        moved = step(at)

    def adjoint(grad):
        if grad is None:  # no gradient arrived
            return None

        def pulled(u):
            return grad + torch.autograd.grad(moved, at, u, retain_graph=True)[0]

        return iterate(pulled, grad, tolerance, iterations)

    attached.register_hook(adjoint)
    return attached


def iterate(function, z, tolerance, iterations):
    for _ in range(iterations):
        new = function(z)
        if (new - z).abs().max() <= tolerance * new.abs().max():
            return new
        z = new
    raise RuntimeError(f"no fixed point after {iterations} iterations")


def by_hook(x, weight, tolerance=1e-13):
    return deq(lambda z: layer(z, x, weight), torch.zeros_like(x), tolerance)


small = (0.3 * torch.randn(2, 3, dtype=torch.float64)).requires_grad_()
matrix = torch.randn(3, 3, dtype=torch.float64)
matrix = (0.8 * matrix / torch.linalg.matrix_norm(matrix, 2)).requires_grad_()
print("gradcheck of the hook, both solves to 1e-13:", gradcheck(by_hook, (small, matrix)))
loose = gradcheck(lambda x, w: by_hook(x, w, 1e-3), (small, matrix), raise_exception=False)
print("to 1e-3:", loose)
assert not loose
for found, expected in zip(
    torch.autograd.grad(by_hook(small, matrix).square().sum(), (small, matrix)),
    torch.autograd.grad(fixed_point(layer, torch.zeros_like(small), small, matrix).square().sum(), (small, matrix)),
    strict=True,
):
    assert torch.allclose(found, expected, rtol=1e-8)

# %%
# Four things can go wrong with the hook:
#
# * Without the step that attaches the result, nothing requires a gradient.
# * The hook must differentiate a second evaluation, ``moved``. If it differentiates ``attached``, on which it is
#   registered, it calls itself again.
# * ``gradcheck`` fails unless *both* solves are far more accurate than its own tolerance.
# * A second derivative is silently wrong, because the hook computes its products without a graph, so autograd takes
#   them for constants. ``fixed_point`` has derivatives of all orders:

by_recipe = fixed_point(layer, torch.zeros_like(small), small, matrix)
seconds = {}
for name, z in {"hook": by_hook(small, matrix), "fixed_point": by_recipe}.items():
    (once,) = torch.autograd.grad(z.square().sum(), small, create_graph=True)
    (seconds[name],) = torch.autograd.grad(once.square().sum(), small)
error = float((seconds["hook"] - seconds["fixed_point"]).norm() / seconds["fixed_point"].norm())
print(f"second derivative by the hook: relative error {error:.2f}, and no message")
assert error > 0.05

# %%
# Back to the recipe
# ------------------
#
# The gradient of the recipe can be differentiated again and works under ``vmap``, although the number of solver steps
# depends on the data. ``explicit`` turns the parameters of a module into arguments:

net = nn.Linear(size, size, dtype=torch.float64)
nn.init.orthogonal_(net.weight, gain=0.5)
function, parameters = explicit(net)
z = fixed_point(lambda z, x, *p: torch.tanh(function(z, *p) + x), start, x, *parameters)
z.sum().backward()
print("gradients of the module:", [tuple(p.grad.shape) for p in net.parameters()])

by_sample = torch.func.vmap(torch.func.grad(lambda x: fixed_point(layer, start[0], x, weight.detach()).sum()))(
    x.detach()
)
together = torch.autograd.grad(fixed_point(layer, start, x, weight).sum(), x)[0]
assert torch.allclose(by_sample, together, rtol=1e-9)

# %%
# ``bisect`` solves one equation for each element. The example is Kepler's equation, :math:`E - e \sin E = M`, which
# gives the position of a planet on its ellipse. Bisection finds the solution between two bounds at which the signs
# differ. Autograd can get no gradient from its steps, because the parameters only decide, by a comparison, which half
# of the interval is next. The equation gives the gradient, :math:`dE/dM = 1 / (1 - e \cos E)`:


def kepler(anomaly, mean, eccentricity):
    return anomaly - eccentricity * anomaly.sin() - mean


mean = torch.linspace(0, 2 * math.pi, 400, dtype=torch.float64, requires_grad=True)
bounds = torch.zeros_like(mean), torch.full_like(mean, 2 * math.pi)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0), layout="constrained")
figure.suptitle("Kepler's equation: the position on the ellipse, and its derivative by the equation")
for e, style in ((0.2, ":"), (0.6, "--"), (0.9, "-")):
    anomaly = bisect(kepler, *bounds, mean, torch.tensor(e, dtype=torch.float64))
    (speed,) = torch.autograd.grad(anomaly.sum(), mean)
    assert torch.allclose(speed, 1 / (1 - e * anomaly.detach().cos()), rtol=1e-12)
    left.plot(mean.detach(), anomaly.detach(), style, label=f"e = {e}")
    right.plot(mean.detach(), speed, style)
left.set(xlabel="time, as mean anomaly M", ylabel="eccentric anomaly E")
right.set(xlabel="time, as mean anomaly M", ylabel="dE/dM", yscale="log")
left.legend(fontsize=8)
plt.show()

# %%
# The wrong version
# -----------------
#
# This backward forgets the transpose. For symmetric matrices the gradient is still right, and tests often use symmetric
# matrices:


class NoTranspose(Function):
    @staticmethod
    def forward(matrix, rhs):
        return torch.linalg.solve(matrix, rhs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, grad_output):
        matrix, solution = ctx.saved_tensors
        adjoint = torch.linalg.solve(matrix, grad_output)
        return -torch.outer(adjoint, solution), adjoint


print("torch", torch.__version__)
symmetric = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64, requires_grad=True)
general = torch.tensor([[2.0, 1.0], [0.0, 3.0]], dtype=torch.float64, requires_grad=True)
rhs = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
print("gradcheck on a symmetric matrix:", gradcheck(NoTranspose.apply, (symmetric, rhs)))
try:
    gradcheck(NoTranspose.apply, (general, rhs))
except RuntimeError as error:
    print("and on another:", str(error).splitlines()[0])
assert gradcheck(linear_solve, (general, rhs))

# %%
# The second mistake is a parameter that the function uses without having it as an argument. A simple ``Function``
# silently loses the gradient of such a parameter. The recipe detects this and raises an error:

try:
    fixed_point(lambda z: layer(z, x, weight), start)
except RuntimeError as error:
    print(error)

# %%
# If the iteration finds no fixed point, the recipe raises an error. The argument ``history`` is the number of earlier
# steps that the solver combines (Anderson acceleration). A longer ``history``, or ``root``, may still solve such a
# problem:

a = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
try:
    fixed_point(lambda z, a: a - z**3, torch.zeros(1, dtype=torch.float64), a, history=0)
except RuntimeError as error:
    print(error)
found = root(lambda z, a: a - z**3 - z, torch.zeros(1, dtype=torch.float64), a)
print("root:", found.item(), " gradient:", torch.autograd.grad(found, a)[0].item())

# %%
# Keep the digits at every scale
# ------------------------------
#
# A solver must decide when to stop. Three obvious choices fail, and the recipes avoid them:
#
# * With a tolerance relative to the largest element of a batch, small problems stop too early. Under
#   ``torch.vmap``, or with ``batch_dims=``, ``fixed_point`` judges each problem by its own size.
# * If each step is small, a small step does not show that the solution is near. ``fixed_point`` warns if the ratio of
#   successive steps is close to 1.
# * Halving the distance between two bounds takes many steps if the solution is tiny compared with the bounds.
#   ``bisect`` halves the *number of floating point numbers* between them:

sizes = torch.tensor([[1e-3], [1e6]])
halves = torch.func.vmap(lambda x: fixed_point(lambda z, x: z / 2 + x, torch.zeros(1), x, history=0))(sizes)
print("z = z / 2 + x:", (halves / sizes).flatten().tolist(), "times x")
assert torch.allclose(halves, 2 * sizes, rtol=1e-5)

bounds = torch.tensor(0.0), torch.tensor(1e9)
found = bisect(lambda z, a: z**3 - a, *bounds, torch.tensor(2.0))
low, high = bounds
for _ in range(24):  # as many as float32 has digits
    middle = (low + high) / 2
    low, high = (middle, high) if middle**3 < 2 else (low, middle)
print(f"cube root of 2 between 0 and 1e9: {found:.7f}, by the mean of the bounds {middle:.7f}")
assert abs(found - 2 ** (1 / 3)) < 2e-7
assert middle > 10

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    z = fixed_point(
        lambda z, x: 0.9999 * z + x, torch.zeros(1), torch.ones(1), tolerance=1e-3, max_iterations=9999, history=0
    )
print(f"found {z.item():.0f}, right is 10000:", caught[0].message)
assert len(caught) == 1

# %%
# What it costs
# -------------
#
# .. costs::
#
# The next cell measures the peak memory of forward and backward, in units of the state. Each iteration brings the state
# only one percent closer to the fixed point. The peak is the same for 10 iterations as for 1000. The cell sets
# ``history=0``. With a larger ``history``, the solver holds two more states for each step that it combines, but only
# while it runs:


def train(iterations):
    tolerance = 1.01 * 0.99 ** (iterations - 1) * (1 - 0.99) / (1 - 0.99**iterations)
    z = fixed_point(lambda z, x: 0.99 * z + x, zeros, ones, tolerance=tolerance, max_iterations=2000, history=0)
    z.sum().backward()


ones = torch.ones(2000, dtype=torch.float64, requires_grad=True)
zeros = torch.zeros_like(ones, requires_grad=False)
peaks = {n: round(peak_bytes(train, n) / zeros.untyped_storage().nbytes(), 1) for n in (10, 100, 1000)}
print(peaks, "states at the peak, by iterations")
assert len(set(peaks.values())) == 1

# %%
# The time depends on the solver. Backward is another solve, of a linear problem, with one vector-Jacobian product per
# iteration. ``linear_solve`` factors the matrix again in backward. If time matters more than memory, use
# :func:`torch.linalg.solve`. The compiler can compile ``bisect`` and ``linear_solve`` as a whole, but not the loops of
# ``fixed_point`` and ``root``, whose number of iterations depends on the data.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/05_higher_order/neural_ode`: the same idea for differential equations.
# * :doc:`/cookbook/05_higher_order/maml`: when you need the gradient of a few iterations, and not of their limit.
# * :doc:`/cookbook/04_memory/checkpointing`: less memory for loops that do not converge.
# * In torch's documentation: :func:`torch.autograd.gradcheck`, :func:`torch.func.vmap`.
