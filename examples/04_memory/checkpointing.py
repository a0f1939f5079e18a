r"""
Checkpointing: compute again what you cannot keep
=================================================

You will call any part of a network so that it saves only its arguments, and train a deep sequence in memory that
grows with the square root of its depth.
"""

# %%
# When to use it
# --------------
#
# When activations do not fit and time is cheaper than memory. For production use
# ``torch.utils.checkpoint.checkpoint(..., use_reentrant=False)``, which works on the same principle and knows more
# about :func:`torch.compile` and distributed training, and can keep some results and forget others. Copy this version
# to understand it, to change what is kept, or for the schedule in ``checkpoint_sequence``.
#
# Dropout draws the same mask when the function runs again, so the gradient is right: this recipe restores the state of
# the random generators, and torch's own does so with ``preserve_rng_state=True``, its default. Without that, the
# gradient is silently wrong, as "The wrong version" shows.
#
# The gradient
# ------------
#
# The formula does not change. The recipe saves an empty *place* for each tensor that the function would save. When
# backward asks for the first of them, the function runs again and fills all places. With :math:`n` equal layers cut
# into :math:`k` segments, memory holds the inputs of the segments and the inside of one segment:
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
# A chain of :math:`n` layers, forward and backward, three ways. Memory is counted in activations: the exact number
# of bytes at the worst moment over the bytes of one activation.

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
# It adds one more forward. In linear layers, whose backward takes twice as long as their forward, a step takes about a
# third longer. Where backward is cheap, it takes up to twice as long (:doc:`/guide/training` has such a layer):

layers = [nn.Sequential(nn.Linear(128, 128), nn.GELU()) for _ in range(16)]
batch = torch.randn(256, 128, requires_grad=True)


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# They take turns, so that both meet the same disturbances.
rounds = [
    [seconds(lambda k=k: checkpoint_sequence(layers, batch, k).sum().backward()) for k in (1, None)] for _ in range(12)
]
plain, checked = map(min, zip(*rounds, strict=True))
print(f"16 layers in 4 segments take {checked / plain:.2f} times the time of keeping all (torch {torch.__version__})")

# %%
# Some results are worth keeping. Here the matrix products take most of the time and a third of the bytes;
# normalization and activation take hardly any time and the other two thirds. torch's own function takes a list of
# operations whose results it keeps. Products are counted as they run, and bytes as they stay alive after forward:

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
# Parameters, random numbers, second derivatives: the same as without.

net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1)).double()
x = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
results = []
for call in (lambda net, x: net(x), checkpoint):
    torch.manual_seed(0)
    (gradient,) = torch.autograd.grad(call(net, x).square().sum(), x, create_graph=True)
    results.append([gradient, *torch.autograd.grad(gradient.square().sum(), list(net.parameters()))])
assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
print("gradients and second derivatives agree in every bit, dropout included")

# %%
# The wrong version
# -----------------
#
# The textbook version is a ``Function`` that runs its argument again in backward. It returns a gradient for each
# *tensor argument*. The parameters of a layer are no arguments, and PyTorch does not complain:


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
Naive.apply(layer, x).sum().backward()
print("weight.grad of the plain version:", layer.weight.grad)
checkpoint(layer, x).sum().backward()
print("weight.grad of the recipe:       ", layer.weight.grad[0].tolist(), "...")

# %%
# With dropout it is worse: the mask of the second run is another one, and the gradient belongs to a function that
# was never evaluated.

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
# Time: one more forward of everything but the last segment. Memory: the state of the CPU's random generator, 5,056
# bytes per call, which matters only for small functions. ``torch.func`` and ``torch.compile`` refuse hooks on saved
# tensors, so the recipe does not work there, as the badges above say; torch's own function compiles.

assert torch.random.get_rng_state().untyped_storage().nbytes() == 5056

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/hooks`: store saved tensors in bfloat16, instead of not at all.
# * :doc:`/cookbook/01_first_steps/reductions`: a formula that needs less in the first place.
# * :doc:`/cookbook/05_higher_order/hessian`: second derivatives, which checkpointing leaves intact.
# * In torch's documentation: :func:`torch.utils.checkpoint.checkpoint`,
#   :class:`torch.autograd.graph.saved_tensors_hooks`.
