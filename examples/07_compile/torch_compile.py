r"""
A function that torch.compile takes whole
=========================================

You will write a piecewise function that compiles into one graph, forward and backward, and learn to find out where and
why the graph of another function breaks.
"""

# %%
# When to use it
# --------------
#
# Before you write a backward for *speed*, write the function with PyTorch's own operations (a composition), and compile
# it. The figure in "See it work" shows the gain. Write a ``Function`` for what the compiler cannot know: a gradient
# that is not the derivative, a better formula, fewer bytes. Then make sure that the ``Function`` compiles, too.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# Huber's function is quadratic for small residuals and linear for large ones. Its derivative needs no case distinction:
#
# .. math::
#
#    y = \begin{cases} x^2 / 2 & |x| \le \delta \\ \delta\,(|x| - \delta/2) & \text{else} \end{cases},
#    \qquad \bar{x} = \bar{y}\,\min(\max(x, -\delta), \delta) .
#
# The recipe
# ----------
#
# .. recipe:: huber

# sphinx_gallery_tags = ["compile", "speed"]
# sphinx_gallery_thumbnail_number = 1

import logging
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy import special
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.graph_breaks import graph_breaks
from autograd_cookbook.recipes.torch_compile import huber

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The figure compares five versions, forward and backward of a million residuals, in one run. ``fullgraph=True`` makes
# the compiler raise an error where it would otherwise silently run a part in Python:


def composed(x, delta=1.0):
    size = x.abs()
    return torch.where(size <= delta, x * x / 2, delta * (size - delta / 2))


def built_in(x, delta=1.0):
    return F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta)


def milliseconds(function, x):
    times = []
    for _ in range(9):
        x.grad = None
        start = time.perf_counter()
        function(x).sum().backward()
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


ways = {
    "composed": composed,
    "ours": huber,
    "built-in": built_in,
    "composed, compiled": torch.compile(composed, fullgraph=True),
    "ours, compiled": torch.compile(huber, fullgraph=True),
}
residuals = torch.randn(1_000_000, requires_grad=True)
for function in ways.values():
    function(residuals).sum().backward()  # the first call compiles
measured = {name: milliseconds(function, residuals) for name, function in ways.items()}
ratios = {name: t / measured["built-in"] for name, t in measured.items()}

figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
bars = axis.barh(list(ratios), list(ratios.values()), color=["C4", "C0", "C6", "C4", "C0"])
for bar, name in zip(bars, ratios, strict=True):
    bar.set_hatch("//" if "compiled" in name else "")
axis.bar_label(bars, fmt="%.1f", padding=3)
axis.invert_yaxis()
axis.set(xlabel="time of forward and backward, as a multiple of the built-in's")
axis.set_title("Huber's function of a million residuals, five ways, eager and compiled")
plt.show()

reference = torch.autograd.grad(built_in(residuals).sum(), residuals)[0]
for function in ways.values():
    assert torch.allclose(torch.autograd.grad(function(residuals).sum(), residuals)[0], reference, rtol=1e-5)

# %%
# What breaks a graph
# -------------------
#
# The compiler traces tensors, not their values. Where Python needs a value (an ``if``, a ``print``, ``.item()``, SciPy
# code), the compiler ends the graph, lets Python run this code, and starts another graph. It translates most functions
# of NumPy, so they do not end the graph. ``graph_breaks`` lists the reasons, with the line of code.
# ``torch._dynamo.explain``, PyTorch's own tool, reports no break if the compiler runs the whole function in Python, as
# for the two custom functions below. ``graph_breaks`` finds these, too, because it also tries ``fullgraph=True``:


def branches(x):
    if x.abs().max() > 1:
        return x - 0.5
    return x * x / 2


def prints(x):
    y = x.abs()
    print("largest residual", y.max())
    return y * 2


def takes_item(x):
    return x / x.abs().max().item()


def calls_scipy(x):
    return x * torch.from_numpy(special.erf(x.detach().numpy()))


def calls_numpy(x):
    return x * torch.from_numpy(np.sin(x.detach().numpy()))


class BranchesInBackward(Function):
    @staticmethod
    def forward(input):
        return input * input

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        if grad_output.abs().sum() == 0:
            return torch.zeros_like(input)
        return 2 * input * grad_output


class HasJvp(Function):
    @staticmethod
    def forward(input):
        return input * input

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * ctx.saved_tensors[0] * tangent


def if_in_backward(x):
    return BranchesInBackward.apply(x)


def jvp_on_the_class(x):
    return HasJvp.apply(x)


torch._logging.set_logs(dynamo=logging.ERROR)  # graph_breaks reports what would be logged
few = torch.randn(8, requires_grad=True)
for name, function in {
    "if on data": branches,
    "print": prints,
    ".item()": takes_item,
    "SciPy": calls_scipy,
    "if in backward": if_in_backward,
    "jvp on the class": jvp_on_the_class,
    "NumPy": calls_numpy,
    "huber": huber,
}.items():
    found = graph_breaks(function, few)
    print(f"{name:17} {'; '.join(found) or 'whole'}")
    assert bool(found) == (function not in (huber, calls_numpy))

# %%
# There are two other ways to find breaks. ``fullgraph=True`` turns the first break into an exception. The environment
# variable ``TORCH_LOGS=graph_breaks`` prints all breaks of a program that you cannot change. For the other causes and
# the fixes, see :doc:`/cookbook/07_compile/graph_breaks`.
#
# For the badges of this site, the audit compiled each recipe with ``fullgraph=True`` and compared it with eager mode.
# Some recipes do not compile, for example a solver that stops when its error is small. The compiler then runs the
# recipe in Python, and still compiles the code around it.
#
# .. lacks:: compile
#
# The wrong version
# -----------------
#
# A branch on data is not only slow, but can be silently wrong. Here, one large residual makes ``branches`` use the
# formula for large residuals for all elements.

mixed = torch.tensor([0.1, 0.2, 5.0])
print("if         ", branches(mixed).tolist())
print("the recipe ", huber(mixed).tolist())
try:
    torch.compile(branches, fullgraph=True, backend="eager")(mixed)
except torch._dynamo.exc.Unsupported as error:
    print("fullgraph raises:", str(error).splitlines()[0])

# %%
# What it costs
# -------------
#
# .. costs::
#
# The next cell prints the bytes per element that are kept for backward beyond the input. For the compiled composition,
# the compiler decides to keep only the input, as the recipe does by hand:

for name, function in ways.items():
    print(f"{name:19} {saved_bytes(function, residuals) / residuals.numel():.0f}")
assert saved_bytes(huber, residuals) == 0
assert saved_bytes(composed, residuals) > 0

# %%
# So compile first. For Huber's function, a hand-written backward keeps fewer bytes only in code that you do not
# compile. :doc:`/costs` has the same comparison for all recipes.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/07_compile/graph_breaks`: what breaks a graph, and what compiles and is wrong.
# * :doc:`/cookbook/07_compile/recompiling`: sizes that change.
# * :doc:`/cookbook/06_beyond_autograd/cuda_extension`: a kernel that the compiler treats as one opaque operator.
# * :doc:`/cookbook/01_first_steps/template`: the form of ``Function`` that compiles.
# * :doc:`/guide/compiled_rules`: how to keep your backward when you compile code that calls :mod:`torch.func`.
# * In torch's documentation: :func:`torch.compile`, :func:`torch.clamp`.
