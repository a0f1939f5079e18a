r"""
Checkpointing: compute again what you cannot keep
=================================================

You will write a function that calls any part of a network and saves only its arguments. With this function, you will
train a deep sequence of layers whose memory grows only with the square root of its depth.
"""

# %%
# When to use it
# --------------
#
# Use checkpointing if the activations do not fit into memory and you can accept a longer training time. In production,
# use ``torch.utils.checkpoint.checkpoint(..., use_reentrant=False)``. It works on the same principle. In addition, it
# supports :func:`torch.compile` and distributed training, and it can keep some of the results. Copy the recipe to
# understand checkpointing, to change which tensors are kept, or to use the schedule in ``checkpoint_sequence``.
#
# You need not checkpoint every block of a model. The gradients are the same for any choice of blocks, so choose those
# that save much memory.
#
# Dropout must draw the same mask when backward runs the function again. So the recipe restores the state of the random
# generators. PyTorch's function does the same with ``preserve_rng_state=True``, which is the default. Without this
# step, the gradient is silently wrong, as "The wrong version" shows. A batch norm in training mode updates its running
# statistics in both runs (with PyTorch's function, too), so these follow the last batches too closely. Leave such a
# layer out of the checkpoint, or, if one backward follows each forward, set its momentum :math:`m` to :math:`1 -
# \sqrt{1 - m}`.
#
# ``checkpoint_sequence`` cuts the layers into segments. Backward runs each segment except the last one again, one
# segment at a time. The number of segments trades memory for time. Move the slider to see both for 64 layers:
#
# .. slider:: checkpoints
#
# The gradient
# ------------
#
# Checkpointing does not change the gradient. For each tensor that the function would save, the recipe saves only an
# empty object, called a *place*. When backward asks for the first of these tensors, the recipe runs the function again
# and fills all places. If you cut :math:`n` equal layers into :math:`k` segments, the memory holds the inputs of all
# segments and the activations inside one segment:
#
# .. math:: M(k) = k + \frac{n}{k}, \qquad \min_k M(k) = 2\sqrt{n} \text{ at } k = \sqrt{n} .
#
# The recipe
# ----------
#
# .. recipe:: checkpoint
#
# .. recipe:: checkpoint_sequence

# sphinx_gallery_tags = ["memory", "second order", "checkpoint"]
# sphinx_gallery_thumbnail_number = 1

import math
import time
from functools import partial

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint as torch_checkpoint
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from autograd_cookbook.auditing import held_bytes, peak_bytes
from autograd_cookbook.recipes.checkpointing import checkpoint, checkpoint_sequence

# %%
# See it work
# -----------
#
# The figure compares three ways to run forward and backward of :math:`n` layers. Memory is the exact peak in bytes,
# divided by the bytes of one activation.

activation = torch.randn(20_000, requires_grad=True)
depths = [4, 9, 16, 36, 64, 144, 256]


def peak(segments, depth):
    def run():
        checkpoint_sequence([torch.sin] * depth, activation, segments).sum().backward()

    return peak_bytes(run) / activation.untyped_storage().nbytes()


curves = {
    "keep all": [peak(1, n) for n in depths],
    "two segments": [peak(2, n) for n in depths],
    "√n segments": [peak(None, n) for n in depths],
}

figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, values), style in zip(curves.items(), ("-o", "--s", "-.^"), strict=True):
    axis.loglog(depths, values, style, label=name)
axis.loglog(depths, [2 * math.sqrt(n) for n in depths], color="0.6", linewidth=1, label="2√n")
axis.set(xlabel="depth n", ylabel="activations alive at the peak", xticks=depths, xticklabels=depths)
axis.minorticks_off()
axis.set_title("Peak memory of training against depth: linear if all is kept, 2√n with √n segments")
axis.legend()
plt.show()

for n, value in zip(depths, curves["√n segments"], strict=True):
    assert value <= 2.2 * math.sqrt(n)
print("256 layers:", {name: round(values[-1], 1) for name, values in curves.items()}, "activations")

# %%
# With checkpointing, forward runs twice. For linear layers, backward takes twice as long as forward, so a training step
# takes about a third longer. For small layers, the overhead of each call adds to this. For layers with a cheap
# backward, a step can take up to twice as long. The page :doc:`/guide/training` shows such a layer.

layers = [nn.Sequential(nn.Linear(128, 128), nn.GELU()) for _ in range(16)]
batch = torch.randn(256, 128, requires_grad=True)


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# The two ways take turns, so that other programs disturb them equally.
rounds = [
    [seconds(lambda k=k: checkpoint_sequence(layers, batch, k).sum().backward()) for k in (1, None)] for _ in range(12)
]
plain, checked = map(min, zip(*rounds, strict=True))
print(f"16 layers in 4 segments take {checked / plain:.2f} times the time of keeping all (torch {torch.__version__})")

# %%
# You can also keep some results and compute the others again. In the next example, matrix products do most of the
# arithmetic and make a third of the bytes. Normalization and activation do little arithmetic and make two thirds of the
# bytes. So keep only the products: bind a list of operations to ``create_selective_checkpoint_contexts`` with
# ``partial``, and pass the result as ``context_fn`` to torch's function.
# The next cell counts the products that run, and the bytes after forward:

PRODUCTS = [torch.ops.aten.addmm.default, torch.ops.aten.mm.default]
selective = partial(create_selective_checkpoint_contexts, PRODUCTS)


class CountProducts(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function in PRODUCTS
        return function(*args, **(kwargs or {}))


block = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU())])
counts, grads = {}, []
for name, way in {
    "keep all": block,
    "checkpoint": lambda x: checkpoint(block, x),
    "torch, all forgotten": lambda x: torch_checkpoint(block, x, use_reentrant=False),
    "torch, products kept": lambda x: torch_checkpoint(block, x, use_reentrant=False, context_fn=selective),
}.items():
    with CountProducts() as products:
        grads += torch.autograd.grad(way(batch).sum(), batch)
    counts[name] = products.count
    held = held_bytes(way, batch) / batch.untyped_storage().nbytes()
    print(f"{name:20} {held:5.1f} activations held, {products.count:2} matrix products")
assert all(torch.equal(grad, grads[0]) for grad in grads)
assert counts["torch, products kept"] == counts["keep all"] < counts["checkpoint"]

# %%
# A checkpoint does not change the gradients of the parameters, the dropout mask and the second derivatives:

net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1)).double()
x = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
results = []
for call in (lambda net, x: net(x), checkpoint):
    torch.manual_seed(0)
    (gradient,) = torch.autograd.grad(call(net, x).square().sum(), x, create_graph=True)
    results.append([gradient, *torch.autograd.grad(gradient.square().sum(), list(net.parameters()))])
assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
print("gradients and second derivatives agree in every bit, dropout included")

for call in (checkpoint, partial(torch_checkpoint, use_reentrant=False)):
    normal = nn.BatchNorm1d(128)
    call(normal, batch).sum().backward()
    assert normal.num_batches_tracked == 2  # two updates in one step
    once, smaller = nn.BatchNorm1d(128), nn.BatchNorm1d(128, momentum=1 - math.sqrt(1 - 0.1))
    once(batch)
    call(smaller, batch).sum().backward()
    torch.testing.assert_close(smaller.running_var, once.running_var)
    torch.testing.assert_close(smaller.running_mean, once.running_mean)

# %%
# The wrong version
# -----------------
#
# The textbook version is a ``Function`` whose first argument is the function to run, and which runs this function again
# in backward. Its backward returns a gradient for each *tensor argument*. But the parameters of a layer are not
# arguments, so they get no gradient. If the input requires grad, PyTorch raises no error:


class Naive(Function):
    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.function(x)
        return None, torch.autograd.grad(y, x, grad_output)[0]


layer = nn.Linear(3, 3)
x = torch.ones(2, 3, requires_grad=True)
assert not Naive.apply(layer, x.detach()).requires_grad  # so its backward() raises
Naive.apply(layer, x).sum().backward()
print("weight.grad of the plain version:", layer.weight.grad)
checkpoint(layer, x).sum().backward()
print("weight.grad of the recipe:       ", layer.weight.grad[0].tolist(), "...")

# %%
# This version is also wrong with dropout. The second run draws another mask, so the gradient does not belong to the
# output of forward:

torch.manual_seed(0)
for name, call in (("naive", Naive.apply), ("recipe", checkpoint)):
    x = torch.ones(10_000, requires_grad=True)
    y = call(lambda x: F.dropout(x, 0.5), x)
    y.sum().backward()
    wrong = float(((y.detach() != 0) != (x.grad != 0)).float().mean())
    print(f"{name}: {wrong:.0%} of the elements have a gradient that contradicts their value")
    assert (wrong == 0) == (name == "recipe")

# %%
# What it costs
# -------------
#
# ``checkpoint`` runs its function once more in backward. ``checkpoint_sequence`` runs all segments except the last one
# once more. For each call, the recipes keep the state of the CPU's random generator, 5,056 bytes. These bytes matter
# only for small functions.
#
# The recipes do not work inside of ``torch.func`` and ``torch.compile(fullgraph=True)``, which raise an error (torch
# 2.13). You can compile torch's function. The next cell counts the layers that run, and tries the recipe in
# ``torch.func`` and in ``torch.compile``:

assert torch.random.get_rng_state().untyped_storage().nbytes() == 5056
runs = []


def counted_sine(x):
    runs.append(x)
    return x.sin()


x = torch.ones(3, requires_grad=True)
for segments in (1, 4):
    runs.clear()
    checkpoint_sequence([counted_sine] * 16, x, segments).sum().backward()
    print(f"16 layers in {segments} segment(s): {len(runs)} layers run")
    assert len(runs) == {1: 16, 4: 16 + 12}[segments]
for attempt in (
    lambda: torch.func.grad(lambda x: checkpoint(torch.sin, x).sum())(x.detach()),
    lambda: torch.compile(lambda x: checkpoint(torch.sin, x), fullgraph=True, backend="eager")(x),
):
    try:
        attempt()
        assert torch.__version__ >= (2, 14), "the recipe works here: say so above"
    except (RuntimeError, NotImplementedError) as error:
        print(f"{type(error).__name__}: {str(error).splitlines()[0]}")

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/hooks`: how to store saved tensors in bfloat16.
# * :doc:`/cookbook/01_first_steps/reductions`: formulas that need fewer saved tensors.
# * :doc:`/cookbook/05_higher_order/hessian`: second derivatives, which also work with checkpointing.
# * In torch's documentation: :func:`torch.utils.checkpoint.checkpoint`,
#   :class:`torch.autograd.graph.saved_tensors_hooks`.
