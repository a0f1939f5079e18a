r"""
Compiled once, or again and again
=================================

You will count how often a function is compiled, learn what causes another compilation, and see what happens to second
derivatives.
"""

# %%
# When to use it
# --------------
#
# Read this page when not only the first step of a training run is slow, but also later steps. The usual reasons are
# batches of different sizes, a schedule that changes a number, and evaluation between training steps.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# The example is a mean over the first dimension. Its backward divides by the size :math:`n`:
#
# .. math:: y_j = \frac{1}{n} \sum_i x_{ij}, \qquad \bar{x}_{ij} = \frac{\bar{y}_j}{n} .
#
# A compiled backward with the :math:`n` of the first call as a constant would be wrong for other sizes.
#
# The recipe
# ----------
#
# .. recipe:: compilations

# sphinx_gallery_tags = ["speed", "shapes"]
# sphinx_gallery_thumbnail_number = 1

import logging

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function

from autograd_cookbook.recipes.recompiling import compilations

print("torch", torch.__version__)
torch._logging.set_logs(dynamo=logging.ERROR)


class Mean(Function):
    @staticmethod
    def forward(x):
        return x.sum(0) / x.shape[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output / ctx.shape[0]).expand(ctx.shape)


def mean(x):
    return Mean.apply(x)


# %%
# See it work
# -----------
#
# The figure shows ten batches of different sizes. By default, torch compiles a second version at the second size, and
# uses this version for all later sizes. With ``dynamic=True``, or ``mark_dynamic`` for one dimension, torch compiles
# for any size from the start. In all of these cases, sizes 0 and 1 get their own versions. With ``dynamic=False``,
# torch compiles each size. After eight versions, torch compiles no more: at a new size, it raises an error with
# ``fullgraph=True``, and otherwise runs in eager mode.


def batches(*sizes, mark=False):
    for n in sizes:
        x = torch.randn(n, 4, requires_grad=True)
        if mark:
            torch._dynamo.mark_dynamic(x, 0)
        yield (x,)


sizes = (8, 6, 7, 5, 3, 9, 4, 2, 12, 11)
counts = {
    "dynamic=False": compilations(mean, batches(*sizes[:8]), dynamic=False),
    "default": compilations(mean, batches(*sizes)),
    "default, sizes 1 and 0 among them": compilations(mean, batches(8, 6, 1, 5, 3, 0, 4, 2, 12, 1)),
    "mark_dynamic": compilations(mean, batches(*sizes, mark=True)),
}
assert counts["mark_dynamic"] == [1] * 10
assert compilations(mean, batches(*sizes), dynamic=True) == [1] * 10
assert compilations(mean, batches(8, 1, 5, 0, 3, mark=True)) == [1, 2, 2, 3, 3]

figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
for (name, line), style in zip(counts.items(), ("-o", "-s", "--^", "-D"), strict=True):
    axis.step(range(1, len(line) + 1), line, style, where="post", label=name, markersize=5)
limit = torch._dynamo.config.recompile_limit
assert counts["dynamic=False"][-1] == limit
axis.plot(limit + 1, limit, "X", color="C0", markersize=11)
axis.text(limit + 1.15, limit - 0.2, "refused")
axis.set(xlabel="call, each with another size", ylabel="compiled so far", xticks=range(1, 11), ylim=(0, 9))
axis.set_title("dynamic=False compiles each new size up to the limit, mark_dynamic compiles once")
axis.legend()
plt.show()

# %%
# The code for any size has the right gradient for each size:

dynamic = torch.compile(mean, fullgraph=True, backend="aot_eager", dynamic=True)
for (x,) in batches(5, 1, 3):
    assert torch.equal(*(torch.autograd.grad(f(x).sum(), x)[0] for f in (dynamic, mean)))
print("gradients of 5, 1 and 3 rows: as in eager mode")

# %%
# The next cell shows other causes of a new version. A Python number that you pass as an argument is compiled as a
# constant, and becomes a variable at its second value. A tensor is a variable from the start. An integer attribute of a
# module causes a new version at each value (torch 2.13). Another memory layout, another dtype, a tensor that does not
# require grad, ``no_grad`` and autocast each cause a new version:


def scaled(x, factor):
    return Mean.apply(x) * factor


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


class Scheduled(torch.nn.Module):
    def forward(self, x):
        return Mean.apply(x) * self.step


def schedule(*steps):
    for module.step in steps:
        yield (fixed,)


fixed, module = leaf(3, 4), Scheduled()
others = {
    "factor 0.1, 0.2, 0.3, 0.4": compilations(scaled, [(fixed, k) for k in (0.1, 0.2, 0.3, 0.4)]),
    "factor a tensor": compilations(scaled, [(fixed, torch.tensor(k)) for k in (0.1, 0.2, 0.3, 0.4)]),
    "module.step 1, 2, 3, 4": compilations(module, schedule(1, 2, 3, 4)),
    "rows, columns, every other": compilations(mean, [(leaf(4, 4),), (leaf(4, 4).mT,), (leaf(4, 8)[:, ::2],)]),
    "requires grad, does not": compilations(mean, [(fixed,), (fixed.detach(),), (fixed,)]),
}
for name, line in others.items():
    print(f"{name:28} {line}")
assert others["factor 0.1, 0.2, 0.3, 0.4"] == [1, 2, 2, 2]
assert others["factor a tensor"] == [1, 1, 1, 1]
assert others["module.step 1, 2, 3, 4"] == [1, 2, 3, 4] or torch.__version__ >= (2, 14)

# %%
# Set the environment variable ``TORCH_LOGS=recompiles`` to print which guard (condition of the compiled code) failed.
#
# The wrong version
# -----------------
#
# This code computes a second derivative through a compiled function. torch compiles the function and its first
# derivative, and raises an error only when you ask for the second derivative:


class Cube(Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * ctx.saved_tensors[0] ** 2 * grad_output


def cube(x):
    return Cube.apply(x)


def penalty(function, x):
    """Return the slope and its derivative, as a gradient penalty or one step of MAML needs them."""
    (slope,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    return slope, torch.autograd.grad(slope.sum(), x)[0]


x = leaf(3)
for backend in ("aot_eager", "eager"):
    torch._dynamo.reset()
    try:
        penalty(torch.compile(cube, fullgraph=True, backend=backend), x)
    except RuntimeError as error:
        print(f"{backend:9}  {error}")

# %%
# With the debugging backend ``eager``, the first derivative has no graph. If you add this first derivative to other
# terms of a loss, the derivative of the loss silently lacks the part of this term.
# To compile a second derivative, take both
# derivatives inside of the compiled function, with :mod:`torch.func`, and mark the function that calls ``apply`` with
# ``torch.compiler.allow_in_graph``. Without the mark, a custom ``Function`` whose argument is computed from the input
# silently contributes 0 to the second derivative, with every backend. For all cases and the
# reason, see :doc:`/guide/compiled_rules`:


@torch.compiler.allow_in_graph
def marked_cube(x):
    return Cube.apply(x)


def second(function):
    return torch.func.grad(lambda x: torch.func.grad(lambda x: function(2 * x).sum())(x).sum())


for function, result in {cube: 0 * x, marked_cube: 48 * x}.items():
    torch._dynamo.reset()
    compiled = torch.compile(second(function), fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x.detach()), result.detach())
    print(f"{function.__name__:12} {compiled(x.detach()).tolist()}")

# %%
# *Compiled autograd* captures the backward pass while it runs, including functions, hooks and the accumulation of
# gradients, and compiles what it has captured.
# Try it if your code has hooks. Also try it if forward has graph breaks (places where the compiler
# splits the code), because these otherwise also cut the compiled backward.
# Because it captures more, it also compiles again more often:


def step(x):
    cube(x).sum().backward()


counters = torch._dynamo.utils.counters
x.register_hook(lambda grad: 10 * grad)
torch._dynamo.reset()
with torch._dynamo.config.patch(compiled_autograd=True):
    torch.compile(step, backend="aot_eager")(x)
assert torch.allclose(x.grad, 30 * x**2)
print("backward captured, hook included:", counters["compiled_autograd"]["captures"], "time")
assert counters["compiled_autograd"]["captures"] == 1
torch._dynamo.reset()

# %%
# What it costs
# -------------
#
# torch compiles each version at its first use, and keeps it. Compiling takes seconds, while the code of this page takes
# microseconds. If you know that a size varies, use ``mark_dynamic``, so that torch compiles only once for all sizes
# from 2 on. This code is a little slower, because it reads the size.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/07_compile/graph_breaks`: code that is not compiled at all.
# * :doc:`/cookbook/07_compile/torch_compile`: how much faster compiled code is.
# * :doc:`/cookbook/05_higher_order/double_backward`: second derivatives in eager mode.
# * :doc:`/cookbook/05_higher_order/maml`: an algorithm that needs second derivatives.
# * In torch's documentation: :func:`torch.compile`, :func:`torch.func.grad`.
