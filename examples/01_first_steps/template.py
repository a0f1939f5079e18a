r"""
A function with its own backward: the template
==============================================

You will write a ``torch.autograd.Function`` in the form that also works under ``torch.func``, ``vmap`` and
``torch.compile``, and see what each part of the ``Function`` is for.
"""

# %%
# When to use it
# --------------
#
# Write a ``Function`` in one of these cases:
#
# * Autograd cannot see the computation, for example a solver, a kernel or NumPy code.
# * You want a gradient that is not the derivative.
# * The tensors that autograd saves for backward need too much memory.
#
# Do *not* write a ``Function`` only to be faster. First compile the torch operations with :func:`torch.compile`, and
# measure the time.
#
# In your own code, use torch's ``linear``, ``relu``, ``sigmoid`` and ``tanh``. This page writes them again because you
# know their results. Copy ``linear`` as the template for your own function, change the formulas, and check the result
# with the three checks in "See it work". Next, read :doc:`/guide/one_by_one`. That page writes six activation
# functions, from the formula to the finished ``Function``. For each of them, it also shows a mistake that a check
# finds.
#
# The gradient
# ------------
#
# Backward receives :math:`\bar{Y} = \partial L / \partial Y`, the gradient of the loss :math:`L` for each output
# element. It returns the gradient for each input element, which is called a vector-Jacobian product (:math:`\bar{Y}`
# times the derivatives of :math:`Y`). For :math:`Y = X W^\top + b`, these gradients are
#
# .. math::
#
#    \bar{X} = \bar{Y} W, \qquad \bar{W} = \bar{Y}^\top X, \qquad \bar{b} = \sum_n \bar{Y}_n .
#
# On the other pages, a bar marks a gradient, too. In the formulas of the recipes, a star marks the complex conjugate.
#
# You can find most of these formulas from the shapes, if all sizes differ: each gradient has the shape of its input,
# and only one product of :math:`\bar{Y}` and the other factor has that shape. The shapes do not show a missing factor,
# so check the values with :func:`torch.autograd.gradcheck`.
#
# The recipe
# ----------
#
# A ``Function`` has three static methods. ``forward`` only computes the output. ``setup_context`` saves what backward
# needs. ``backward`` returns one value per input, in order, and None for an input without a gradient.
# ``generate_vmap_rule = True`` lets PyTorch derive the rule for ``vmap`` from these methods.
#
# .. recipe:: linear
#
# The next three recipes are element-wise: each output element depends on one input element. They save their *output*,
# because backward can compute the gradient from it. The next layer usually keeps this tensor anyway, so saving it needs
# no additional memory.
#
# .. recipe:: relu
#
# .. recipe:: sigmoid
#
# .. recipe:: tanh

# sphinx_gallery_tags = ["first steps", "ctx", "needs_input_grad"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.autograd import Function, gradcheck, gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.template import Linear, linear, relu, sigmoid, tanh

# %%
# See it work
# -----------
#
# ``gradcheck`` compares the gradient with finite differences, and ``gradgradcheck`` does the same for the second
# derivative. The third check compares the output with that of torch. All three use float64:

torch.manual_seed(0)
x, w, b = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (5, 3), (5,)))

print("gradcheck     ", gradcheck(linear, (x, w, b)))
print("gradgradcheck ", gradgradcheck(linear, (x, w, b)))
print("same as torch ", torch.allclose(linear(x, w, b), nn.functional.linear(x, w, b), rtol=1e-12))

# %%
# A network built only from these functions learns to separate two spirals. All gradients inside the network come from
# the formulas above. The left figure shows the prediction of the network behind the points, and the right figure shows
# the loss.

turns = torch.linspace(0.3, 2.2, 150)
angle = 2 * torch.pi * turns
arm = torch.stack([turns * angle.cos(), turns * angle.sin()], dim=1)
points, labels = torch.cat([arm, -arm]), torch.cat([torch.zeros(150), torch.ones(150)])

layers = nn.ModuleList([Linear(2, 48), Linear(48, 48), Linear(48, 1)])


def network(points):
    hidden = tanh(layers[0](points))
    hidden = relu(layers[1](hidden))
    return sigmoid(layers[2](hidden)).squeeze(-1)


optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
losses = []
for _ in range(900):
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy(network(points), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

side = torch.linspace(-2.6, 2.6, 160)
grid = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1)
with torch.no_grad():
    surface = network(grid)
    accuracy = ((network(points) > 0.5) == labels.bool()).float().mean().item()

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.3), layout="constrained")
figure.suptitle(f"Two spirals told apart by a network of custom functions ({accuracy:.0%} right)")
left.contourf(side, side, surface, levels=20, cmap="PuOr", vmin=0, vmax=1)
left.scatter(*arm.T, s=6, color="black", marker="o")
left.scatter(*-arm.T, s=9, color="white", edgecolor="black", linewidth=0.5, marker="s")
left.set(xlabel="first input", ylabel="second input", aspect="equal")
right.semilogy(losses)
right.set(xlabel="step", ylabel="cross-entropy")
plt.show()
assert accuracy == 1.0

# %%
# What ``ctx`` is for
# -------------------
#
# Save tensors with ``ctx.save_for_backward``. PyTorch then detects an in-place change of a saved tensor between forward
# and backward, and frees the tensors after backward. Put anything else on ``ctx`` as a plain attribute.
#
# ``ctx.needs_input_grad`` says which inputs require grad, so backward can skip the other gradients. The first layer of
# a network needs no gradient of its input, so ``if ctx.needs_input_grad[0]`` in ``LinearFunction`` avoids one of the
# two matrix products there. The next cell writes the same function without this condition, and compares the times:


class Unguarded(Function):
    forward = staticmethod(lambda input, weight: input @ weight.mT)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        return grad_output @ weight, grad_output.mT @ input


def seconds(function, *args):
    """Return the shortest time of nine runs of forward and backward, because other programs disturb it least."""
    times = []
    for _ in range(9):
        start = time.perf_counter()
        function(*args).sum().backward()
        times.append(time.perf_counter() - start)
    return min(times)


data, weight = torch.randn(1024, 512), torch.randn(512, 512, requires_grad=True)
ratio = seconds(Unguarded.apply, data, weight) / seconds(linear, data, weight)
print(f"frozen input: without the guard {ratio:.2f} times the time, forward and backward")

# %%
# The wrong version
# -----------------
#
# If ``backward`` forgets the gradient of the bias, PyTorch raises no error, because ``None`` is a legal return value.
# ``bias.grad`` then stays None:


class ForgetsBias(Function):
    forward = staticmethod(lambda input, weight, bias: input @ weight.mT + bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        return grad_output @ weight, grad_output.mT @ input, None


ForgetsBias.apply(x, w, b).sum().backward()
print("bias.grad:", b.grad)
assert b.grad is None

try:
    gradcheck(ForgetsBias.apply, (x, w, b))
except RuntimeError as error:
    print(str(error).splitlines()[0])

# %%
# The older form is ``forward(ctx, ...)`` without ``setup_context``. It computes the same gradients, but transforms
# such as ``torch.func.grad`` refuse it. Without ``generate_vmap_rule = True`` or a ``vmap`` method of its own, ``vmap``
# refuses the form with ``setup_context``, too:


class OldStyle(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input**2

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return 2 * input * grad_output


input, weight = x.detach(), w.detach()
for refused in (
    lambda: torch.func.grad(lambda input: OldStyle.apply(input).sum())(input),
    lambda: torch.func.vmap(lambda row: Unguarded.apply(row, weight))(input),
):
    try:
        refused()
    except RuntimeError as error:
        print(f"torch {torch.__version__}: {str(error)[:160]} ...")
    else:
        raise AssertionError("torch does not refuse it")

# %%
# What it costs
# -------------
#
# .. costs::
#
# This cell prints the bytes that autograd keeps in addition to the arguments, in float32:

vector = torch.randn(10_000, requires_grad=True)
for ours, builtin in ((relu, torch.relu), (sigmoid, torch.sigmoid), (tanh, torch.tanh)):
    kept = [saved_bytes(f, vector) / vector.numel() for f in (ours, builtin)]
    print(f"{ours.__name__:8} ours {kept[0]:.0f} bytes an element, torch {kept[1]:.0f}")
    assert kept[0] == kept[1]

composed = saved_bytes(lambda x: 1 / (1 + torch.exp(-x)), vector) / vector.numel()
print(f"sigmoid composed of exp, + and /: {composed:.0f} bytes an element")

# %%
# You gain nothing if you write a built-in function again. But a function of your own can save less than a composition
# of torch operations, because you choose what it saves.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/broadcasting`: when inputs have different shapes, backward must sum.
# * :doc:`/cookbook/01_first_steps/reductions`: when forward sums, backward must expand, and what to save for a second
#   derivative.
# * :doc:`/cookbook/05_higher_order/hessian`: how to differentiate the gradient.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.autograd.gradcheck`.
