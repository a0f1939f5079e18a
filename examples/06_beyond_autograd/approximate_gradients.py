r"""
Approximate gradients of a black box
====================================

You will train through code that autograd cannot see, and measure how accurate the gradient is.
"""

# %%
# When to use it
# --------------
#
# Use these recipes when a simulator or a library computes the value and you cannot derive its gradient. With few
# inputs, use finite differences, which take two evaluations per input. If the black box computes in float64, they give
# about ten correct digits. If it computes in float32, pass ``step=5e-3``, and expect about four. With many inputs
# and little time, use simultaneous perturbation. It takes only two evaluations per sample, however many inputs there
# are, but its direction is noisy. If you *can* write down the gradient, or rewrite the code in torch, do that instead.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{x}` is the gradient of the loss with respect to :math:`x`.
#
# .. math::
#
#    \bar{x}_i = \frac{f(x + h e_i) - f(x - h e_i)}{2h}, \qquad
#    \bar{x} \approx \frac{1}{K} \sum_{k=1}^K \frac{f(x + h\delta_k) - f(x - h\delta_k)}{2h}\,\delta_k,
#    \quad \delta_k \in \{-1, 1\}^n .
#
# The first formula is a finite difference with the step :math:`h`. Its error consists of the third derivative, of order
# :math:`h^2`, and rounding, of order :math:`\varepsilon / h` for the precision :math:`\varepsilon`. The error is
# smallest at :math:`h \approx \varepsilon^{1/3}`. The second formula averages over :math:`K` random directions
# :math:`\delta_k`. It has the same two errors, and a variance: its expected squared error is :math:`(n - 1)/K` times
# the squared norm of the gradient.
#
# The recipe
# ----------
#
# .. recipe:: finite_difference
#
# .. recipe:: simultaneous_perturbation

# sphinx_gallery_tags = ["black box", "approximate"]
# sphinx_gallery_thumbnail_number = 1

import math
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.autograd import gradcheck

from autograd_cookbook.recipes.approximate_gradients import finite_difference, simultaneous_perturbation

# %%
# See it work
# -----------
#
# The first figure shows the accuracy, for a black box in NumPy whose gradient we know. The left part shows the error of
# finite differences for different steps, for a black box in float64 and one in float32. The right part shows the cosine
# between the estimate and the gradient, for different numbers of random directions.

n = 30
rng = np.random.default_rng(0)
mix = rng.normal(size=(n, n)) / math.sqrt(n)


def box(x, dtype=np.float64):
    return torch.as_tensor(np.tanh(mix.astype(dtype) @ x.numpy().astype(dtype)).sum())


def box32(x):
    return box(x, np.float32)


x = torch.linspace(-1, 1, n, dtype=torch.float64).requires_grad_()
mixed = torch.as_tensor(mix)
truth = torch.autograd.grad(torch.tanh(mixed @ x).sum(), x)[0]


def error(estimate):
    return float((estimate - truth).norm() / truth.norm())


def gradient(method, *options):
    return torch.autograd.grad(method(*options), x)[0]


steps = np.logspace(-11, -0.5, 22)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.3), layout="constrained")
figure.suptitle("Quality of an approximate gradient, against step and number of samples")
for function, label, style in ((box, "black box in float64", "-o"), (box32, "in float32", "--s")):
    errors = [error(gradient(finite_difference, function, x, step)) for step in steps]
    left.loglog(steps, errors, style, markersize=4, label=label)
left.set(xlabel="step h", ylabel="relative error of finite differences")
left.legend(fontsize=8)

samples = [1, 3, 10, 30, 100, 300, 1000]
generator = torch.Generator().manual_seed(0)
cosines = torch.tensor(
    [
        [
            torch.cosine_similarity(gradient(simultaneous_perturbation, box, x, k, None, generator), truth, dim=0)
            for _ in range(8)
        ]
        for k in samples
    ]
)
right.semilogx(samples, cosines, ".", color="C0", alpha=0.5)
right.semilogx(samples, [1 / math.sqrt(1 + (n - 1) / k) for k in samples], color="C1", label="1/√(1 + (n−1)/K)")
right.set(xlabel="samples K", ylabel="cosine with the gradient", ylim=(0, 1.05))
right.legend(fontsize=8)
plt.show()

best, best32 = error(gradient(finite_difference, box, x)), error(gradient(finite_difference, box32, x, 5e-3))
print(f"finite differences, default step: relative error {best:.1e}")
print(f"black box in float32, step 5e-3:  relative error {best32:.1e}")
assert best < 2e-10
assert 1e-5 < best32 < 1e-3 < error(gradient(finite_difference, box32, x))
assert float(cosines[-1].min()) > 0.95

# %%
# The second example fits a simulator in plain Python. The simulator returns the position of a thrown ball after each
# tenth of a second. Training finds speed, angle and drag from observed positions.


def flight(parameters):
    speed, angle, drag = parameters.tolist()
    x = y = 0.0
    across, up = speed * math.cos(angle), speed * math.sin(angle)
    path = []
    for step in range(200):
        kept = 1 - 0.01 * drag * math.hypot(across, up)
        across, up = kept * across, kept * up - 0.01 * 9.81
        x, y = x + 0.01 * across, y + 0.01 * up
        if step % 10 == 9:
            path.append((x, y))
    return torch.tensor(path, dtype=torch.float64)


true = torch.tensor([14.0, 0.9, 0.04], dtype=torch.float64)
seen = flight(true)
torch.manual_seed(0)
curves = {}
for name, method, options in (
    ("finite differences", finite_difference, ()),
    ("perturbation, 2 samples", simultaneous_perturbation, (2,)),
):
    scaled = torch.tensor([0.9, 0.6, 0.2], dtype=torch.float64, requires_grad=True)  # in units of size about 1
    unit = torch.tensor([10.0, 1.0, 0.1], dtype=torch.float64)
    optimizer = torch.optim.Adam([scaled], lr=0.03)
    curves[name] = []
    for _ in range(500):
        optimizer.zero_grad()
        loss = (method(flight, scaled * unit, *options) - seen).square().mean()
        loss.backward()
        optimizer.step()
        curves[name].append(loss.item())
    print(f"{name:24} finds {[round(v, 3) for v in (scaled * unit).tolist()]}, true {true.tolist()}")

figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
for (name, values), style in zip(curves.items(), ("-", "--"), strict=True):
    axis.semilogy(values, style, label=name)
axis.set(xlabel="step of the optimizer", ylabel="squared error of the path")
axis.set_title("Fitting a simulator in plain Python: the noisy gradient descends, too, and more slowly")
axis.legend()
plt.show()
assert curves["finite differences"][-1] < 1e-3

# %%
# What gradcheck says
# -------------------
#
# ``gradcheck`` compares with finite differences, so ``finite_difference`` passes. It rejects a random gradient, as it
# should. But with one input element the random estimate has no variance, so with this input you can check the *code*
# around the estimate:

print("torch", torch.__version__)
few = torch.linspace(-1, 1, 4, dtype=torch.float64).requires_grad_()
cubes = lambda x: (x**3).sum()  # noqa: E731
print("finite differences:", gradcheck(lambda x: finite_difference(cubes, x), (few,)))
try:
    gradcheck(lambda x: simultaneous_perturbation(cubes, x), (few,))
except RuntimeError as raised:
    print("perturbation:", str(raised).splitlines()[0])
one = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
print("perturbation, one element:", gradcheck(lambda x: simultaneous_perturbation(cubes, x), (one,)))

# %%
# The wrong version
# -----------------
#
# This version uses forward differences with a small step, in float32. A small step seems accurate, but rounding
# dominates:


def naive(function, x, step=1e-6):
    base, grad = function(x), torch.zeros_like(x)
    for i in range(x.numel()):
        moved = x.clone()
        moved[i] += step
        grad[i] = (function(moved) - base) / step
    return grad


x32 = x.detach().float()
noise = error(naive(box32, x32).double())
print(f"relative error {noise:.1e}: not one digit; the default of the recipe: {best:.1e}")
assert noise > 0.05

# %%
# What it costs
# -------------
#
# The next cell prints how often one backward evaluates the black box, and how long it takes, for n inputs:

for n_inputs in (10, 100, 1000):
    point = torch.ones(n_inputs, requires_grad=True)
    row = []
    for method in (finite_difference, simultaneous_perturbation):
        calls = []
        start = time.perf_counter()
        method(lambda x, calls=calls: (calls.append(1), x.square().sum())[1], point).backward()
        row.append((len(calls), 1000 * (time.perf_counter() - start)))
    (fd, fd_ms), (sp, sp_ms) = row
    print(
        f"n = {n_inputs:4}: finite differences {fd:4} calls, {fd_ms:6.1f} ms; perturbation {sp} calls, {sp_ms:.1f} ms"
    )
    assert (fd, sp) == (1 + 2 * n_inputs, 3)

# %%
# Both recipes keep only the input. Neither gradient can be differentiated again: a second derivative raises an error.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/cuda_extension`: when you know the gradient of your foreign code.
# * :doc:`/cookbook/05_higher_order/hessian`: which mistakes ``once_differentiable`` catches, and which it does not.
# * :doc:`/guide/compiled_rules`: how to keep this backward when you compile code that calls :mod:`torch.func`.
# * In torch's documentation: :func:`torch.autograd.gradcheck`, :class:`torch.autograd.Function`.
