r"""
Gradients through an optimizer: learning to learn a sine
========================================================

You will differentiate steps of gradient descent with respect to their starting point, their learning rate and their
data. With this gradient, called a meta-gradient, you will train a network that fits a new function after one step.
"""

# %%
# When to use it
# --------------
#
# Use this recipe when your function itself trains a network, and you need the gradient through this training. Examples
# are meta-learning, gradient descent on a learning rate or on the strength of a penalty, distilling a data set, and
# measuring the influence of each sample. For about five steps of a small network, use a loop of gradients with
# ``create_graph=True`` instead: it gives the same numbers and is faster. The recipe needs less memory, works under
# :func:`torch.func.vmap`, and raises an error where a gradient would be lost silently. For optimizers with a state,
# such as Adam, see the package ``torchopt``.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{\theta}` is the gradient of the loss with respect to :math:`\theta`.
#
# A step is a function of the parameters :math:`\theta`, the learning rate :math:`\eta` and the data :math:`x`:
# :math:`\theta' = \theta - \eta \nabla L(\theta, x)`. A backward through this step needs second derivatives of
# :math:`L`. Backward needs only their products with a vector, such as a Hessian-vector product, so it never builds the
# Hessian itself:
#
# .. math::
#
#    \bar{\theta} = \bar{\theta}' - \eta \, \nabla^2 L \, \bar{\theta}', \qquad
#    \bar{\eta} = -\nabla L^\top \bar{\theta}', \qquad
#    \bar{x} = -\eta \left(\frac{\partial \nabla L}{\partial x}\right)^{\!\top} \bar{\theta}' .
#
# These three gradients are the gradients of one scalar, if you treat :math:`\bar{\theta}'` as a constant:
# :math:`\bar{\theta}'^\top (\theta - \eta \nabla L(\theta, x))`. Only backward computes this scalar, because forward
# does not know :math:`\bar{\theta}'`. Backward computes it from the parameters before the step, and then differentiates
# it. So of each step, the recipe keeps only the parameters.
#
# The recipe
# ----------
#
# .. recipe:: inner_sgd

# sphinx_gallery_tags = ["second order", "memory", "checkpoint", "compile"]
# sphinx_gallery_thumbnail_number = 1

import copy
import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from autograd_cookbook.auditing import peak_bytes
from autograd_cookbook.recipes.maml import inner_sgd

# %%
# See it work
# -----------
#
# Every task is a sine with its own amplitude and phase, and the network sees ten points of this sine. The figure
# compares three starting points. *MAML* (model-agnostic meta-learning) learns a starting point from which *one* step
# fits any task. *First order* does the same without the second derivatives. *Trained on all* is the baseline: a network
# that was trained on all tasks at once. The cell then tests all three on new tasks. The left figure shows how the
# network that starts from the MAML point fits one new sine. The right figure shows the error of all three on many new
# tasks.


def network(p, x):
    hidden = torch.tanh(x @ p["w1"] + p["b1"])
    return torch.tanh(hidden @ p["w2"] + p["b2"]) @ p["w3"] + p["b3"]


def loss(p, x, y):
    return (network(p, x) - y).square().mean()


def new_start():
    generator = torch.Generator().manual_seed(0)
    shapes = {"w1": (1, 40), "b1": (40,), "w2": (40, 40), "b2": (40,), "w3": (40, 1), "b3": (1,)}
    scale = {"w1": 1, "b1": 1, "w2": 40**-0.5, "w3": 40**-0.5}
    return {
        name: (scale.get(name, 0) * torch.randn(shape, generator=generator)).requires_grad_()
        for name, shape in shapes.items()
    }


def tasks(count, generator):
    amplitude = 0.1 + 4.9 * torch.rand(count, 1, 1, generator=generator)
    phase = math.pi * torch.rand(count, 1, 1, generator=generator)
    x = 10 * torch.rand(count, 20, 1, generator=generator) - 5
    y = amplitude * torch.sin(x + phase)
    return x[:, :10], y[:, :10], x[:, 10:], y[:, 10:]


rate = 0.03


def maml(start, x, y, x_new, y_new):
    return loss(inner_sgd(loss, start, 1, rate, x, y), x_new, y_new)


def first_order(start, x, y, x_new, y_new):
    return loss(inner_sgd(loss, start, 1, rate, x, y, first_order=True), x_new, y_new)


def jointly(start, x, y, x_new, y_new):
    return loss(start, torch.cat([x, x_new]), torch.cat([y, y_new]))


def learned(objective):
    start, generator = new_start(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(start.values(), lr=0.005)
    for _ in range(220):
        optimizer.zero_grad()
        each = torch.func.vmap(lambda *task: objective(start, *task))(*tasks(25, generator))
        each.mean().backward()
        optimizer.step()
    return {name: p.detach() for name, p in start.items()}


starts = {"MAML": learned(maml), "first order": learned(first_order), "trained on all": learned(jointly)}
steps = [0, 1, 2, 3, 5, 10]
new = tasks(200, torch.Generator().manual_seed(1))

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.3), layout="constrained")
figure.suptitle("From the learned start, one step fits a new sine")
x, y = torch.linspace(-5, 5, 100)[:, None], new[1][0]
left.plot(new[0][0], y, "o", color="0.4", markersize=4, fillstyle="none", label="ten points")
for count, style in ((0, ":"), (1, "--"), (10, "-")):
    with torch.no_grad():
        fitted = network(inner_sgd(loss, starts["MAML"], count, rate, new[0][0], y), x)
    left.plot(x, fitted, style, label=f"after {count} steps" if count != 1 else "after one step")
left.set(xlabel="x", ylabel="network", ylim=(-4.5, 7))
left.legend(fontsize=8, ncols=2, loc="upper center")
errors = {}
for (name, start), style in zip(starts.items(), ("-o", "--s", ":^"), strict=True):

    def after(count, x, y, x_new, y_new, start=start):
        return loss(inner_sgd(loss, start, count, rate, x, y), x_new, y_new)

    with torch.no_grad():
        errors[name] = [float(torch.func.vmap(lambda *task, n=n: after(n, *task))(*new).mean()) for n in steps]
    right.semilogy(steps, errors[name], style, label=name)
ticks = [0.2, 0.5, 1, 2, 3]
right.set(xlabel="steps on the ten points", ylabel="squared error on ten others", yticks=ticks, yticklabels=ticks)
right.minorticks_off()
right.legend(fontsize=8)
plt.show()

print("squared error on 200 new tasks, before and after one step:")
for name, values in errors.items():
    print(f"  {name:15} {values[0]:.2f}  {values[1]:.2f}")
assert errors["MAML"][1] < errors["first order"][1] < errors["trained on all"][1]

# %%
# The next cell compares the gradient through three steps with finite differences in float64. It does so for the
# starting point, the learning rate and the data at once.

task = [t[0].double().requires_grad_() for t in new]
start = {name: p.detach().double().requires_grad_() for name, p in new_start().items()}
eta = torch.tensor(0.03, dtype=torch.float64, requires_grad=True)
leaves = [*start.values(), eta, *task]


def meta_loss(leaves, first_order=False):
    start, (eta, x, y, x_new, y_new) = dict(zip(new_start(), leaves[:6], strict=True)), leaves[6:]
    return loss(inner_sgd(loss, start, 3, eta, x, y, first_order=first_order), x_new, y_new)


grads = torch.autograd.grad(meta_loss(leaves), leaves)
generator = torch.Generator().manual_seed(0)
direction = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in leaves]


def moved(h):
    with torch.no_grad():
        return meta_loss([t + h * d for t, d in zip(leaves, direction, strict=True)]).item()


step = 1e-4
numeric = (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step)
claimed = sum(float((g * d).sum()) for g, d in zip(grads, direction, strict=True))
print(f"slope along a random direction: {claimed:.10f}, by differences {numeric:.10f}")
assert abs(claimed - numeric) < 1e-7 * abs(numeric)

# %%
# The wrong version
# -----------------
#
# By default, an optimizer changes the parameters in place, outside of the graph. If you use ``torch.optim.SGD`` for the
# steps that you want to differentiate (the inner loop), the trained network has no connection to the starting point, so
# the starting point gets no gradient. (For the option ``differentiable=True``, see :doc:`/guide/questions_parameters`.)

net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 1))
adapted = copy.deepcopy(net)
optimizer = torch.optim.SGD(adapted.parameters(), lr=rate)
nn.functional.mse_loss(adapted(new[0][0]), new[1][0]).backward()
optimizer.step()
nn.functional.mse_loss(adapted(new[2][0]), new[3][0]).backward()
print("torch", torch.__version__)
print("gradient of the start:", net[0].weight.grad)

# %%
# If you forget ``create_graph=True``, or detach the gradients, the meta-gradient lacks the terms with second
# derivatives. If you only add ``retain_graph=True``, they are still missing. The result is the "first order" gradient
# from the figure, which is only an approximation of the meta-gradient. The next cell prints its errors for three steps.
# The gradient with respect to the data is zero, because the data influence the result only through the gradient of the
# loss, which first order treats as a constant. So do not use first order to distill a data set. The gradient with
# respect to the learning rate is right for one step. For more steps, it is wrong, because it ignores that each later
# gradient depends on the earlier steps. (If your meta-training is not better than guessing, see
# :doc:`/guide/questions_parameters`.)

wrong = torch.autograd.grad(meta_loss(leaves, first_order=True), leaves, allow_unused=True, materialize_grads=True)
for name, places in (("start", slice(0, 6)), ("learning rate", slice(6, 7)), ("data", slice(7, 9))):
    right_one, wrong_one = (torch.cat([g.flatten() for g in all_of[places]]) for all_of in (grads, wrong))
    print(f"  {name:14} relative error {float((wrong_one - right_one).norm() / right_one.norm()):.2f}")
assert not any(bool(g.any()) for g in wrong[7:9])

# %%
# Another mistake is a loss that uses a tensor that is not one of its arguments, such as ``penalty`` in the next cell. A
# ``Function`` gives no gradient to such a tensor, so the recipe raises an error:

penalty = torch.tensor(0.1, requires_grad=True)
try:
    inner_sgd(lambda w: w.square() * penalty, torch.ones(()), 3, rate)
except RuntimeError as error:
    print(error)

# %%
# What it costs
# -------------
#
# .. costs::
#
# The figure shows the peak memory of one meta-gradient, for a task with 2000 points. For each step, the plain loop
# keeps the activations of the loss and of its gradient. The recipe keeps only the parameters:


def plain(start, steps, x, y):
    for _ in range(steps):
        slopes = torch.autograd.grad(loss(start, x, y), list(start.values()), create_graph=True)
        start = {name: p - rate * g for (name, p), g in zip(start.items(), slopes, strict=True)}
    return start


def meta_gradient(adapt):
    torch.autograd.grad(loss(adapt(), x_many, y_many), list(start.values()))


start = new_start()
x_many = torch.linspace(-5, 5, 2000)[:, None]
y_many = x_many.sin()
counts = [1, 4, 16, 32]
contenders = {
    "plain loop": lambda n: plain(start, n, x_many, y_many),
    "inner_sgd": lambda n: inner_sgd(loss, start, n, rate, x_many, y_many),
}
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
axis.set_title("Memory of a gradient through an optimizer, against its steps")
peaks = {}
for (name, adapt), style in zip(contenders.items(), ("--s", "-o"), strict=True):
    peaks[name] = [peak_bytes(meta_gradient, lambda n=n, f=adapt: f(n)) / 2**20 for n in counts]
    axis.loglog(counts, peaks[name], style, label=name)
axis.set(xlabel="steps", ylabel="MiB at the peak", xticks=counts, xticklabels=counts)
axis.minorticks_off()
axis.legend()
plt.show()

print("MiB at the peak:", {name: [round(p, 1) for p in values] for name, values in peaks.items()})
assert peaks["inner_sgd"][-1] < 0.1 * peaks["plain loop"][-1]

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/05_higher_order/hessian`: products of a Hessian with a vector, as backward needs them for each step.
# * :doc:`/cookbook/05_higher_order/implicit`: when the inner loop runs until it converges.
# * :doc:`/cookbook/05_higher_order/per_sample_gradients`: a gradient for each sample, with ``vmap``.
# * In torch's documentation: :func:`torch.func.grad`, :class:`torch.optim.Optimizer`.
