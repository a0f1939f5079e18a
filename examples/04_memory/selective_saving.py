r"""
Selective saving: keep the arguments, compute the rest again
============================================================

You will write three functions that keep only their arguments for backward: an activation with the linear layer after
it, a gated feed-forward block, and a normalization. You will also see how much of this a compiler does for you.
"""

# %%
# When to use it
# --------------
#
# Use these recipes when activations fill your memory and you do not compile. Also use them when you need second
# derivatives, because a compiled function refuses second derivatives. A single element-wise function needs no recipe,
# because most of torch's own activations keep only their input or their output. Most "memory-efficient" activations
# keep fewer bytes than a composition, but not fewer than torch's own function. If you compile, set the compiler's
# memory budget, ``activation_memory_budget``, and measure: in the figure below, a budget of 0.5 reaches the same bytes.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# An activation :math:`h = \phi(x)` keeps :math:`x`, and the product :math:`y = h W^\top` after it keeps :math:`h` for
# the gradient of :math:`W`. But :math:`h` can be computed from :math:`x` again, so :math:`x` is enough:
#
# .. math::
#
#    \bar{x} = (\bar{y}\,W) \odot \phi'(x), \qquad
#    \bar{W} = \bar{y}^\top \phi(x) .
#
# With a gate, :math:`h = \phi(g) \odot u`, the recipe keeps only :math:`g` and :math:`u`. Torch's functions also keep
# :math:`\phi(g)` and :math:`h`. For a normalization :math:`n = x / r`, backward computes :math:`r` from :math:`x`
# again, with one more reduction. None of the recipes computes a matrix product again.
#
# The recipe
# ----------
#
# .. recipe:: gelu_linear
#
# .. recipe:: swiglu_linear
#
# .. recipe:: rms_norm

# sphinx_gallery_tags = ["memory", "second order", "compile", "needs_input_grad"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch._functorch.config
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes, saved_bytes
from autograd_cookbook.recipes.selective_saving import gelu_linear, rms_norm, swiglu_linear

# %%
# See it work
# -----------
#
# The figure shows the bytes kept for backward per element, beyond arguments and weights. It compares five versions: a
# formula, torch's functions, the compiled formula, the compiled formula with a memory budget, and the recipe.
# :func:`torch.compile` decides what to keep before it generates code, so the backend used here stops at that point.

rows, features = 500, 200
x, gate, up = (torch.randn(rows, features, requires_grad=True) for _ in range(3))
weight, scale = torch.randn(100, features, requires_grad=True), torch.ones(features, requires_grad=True)


def formula_gelu(x, w):
    return (0.5 * x * (1 + torch.erf(x / 2**0.5))) @ w.mT


def formula_swiglu(g, u, w):
    return (g * torch.sigmoid(g) * u) @ w.mT


def formula_norm(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


cases = {
    "GELU, linear": (formula_gelu, lambda x, w: F.linear(F.gelu(x), w), gelu_linear, (x, weight)),
    "SwiGLU, linear": (formula_swiglu, lambda g, u, w: F.linear(F.silu(g) * u, w), swiglu_linear, (gate, up, weight)),
    "RMSNorm": (formula_norm, lambda x, w: F.rms_norm(x, w.shape, w, 1e-6), rms_norm, (x, scale)),
}


def kept(function, args):
    """Return the bytes per element alive after forward. Hooks on saved tensors do not see into compiled functions."""
    result = function(*args)
    size = result.untyped_storage().nbytes()
    del result
    return (held_bytes(function, *args) - size) / args[0].numel()


def kept_compiled(function, args, budget):
    torch._dynamo.reset()
    with torch._functorch.config.patch(activation_memory_budget=budget):
        return kept(torch.compile(function, backend="aot_eager_decomp_partition", fullgraph=True), args)


table = {}
for name, (formula, built_in, recipe, args) in cases.items():
    table[name] = [kept(formula, args), kept(built_in, args)]
    table[name] += [kept_compiled(formula, args, budget) for budget in (1.0, 0.5)]
    table[name] += [kept(recipe, args)]
    torch.testing.assert_close(recipe(*args), built_in(*args))
    print(f"{name:15}", [round(value, 3) for value in table[name]])

labels = ["formula", "torch's functions", "formula, compiled", "compiled, budget 0.5", "recipe"]
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
places = np.arange(len(table))
for k, (label, hatch) in enumerate(zip(labels, ("", "//", "..", "xx", ""), strict=True)):
    bars = axis.bar(places + 0.17 * (k - 2), [row[k] for row in table.values()], 0.16, label=label, hatch=hatch)
    axis.bar_label(bars, fmt="{:.3g}", fontsize=8)
axis.set(xticks=places, xticklabels=table, ylabel="bytes per element", ylim=(0, 18))
axis.set_title("Kept for backward beyond the arguments, in float32; the least possible is 0")
axis.legend(fontsize=8)
plt.show()

per_row = 4 / features
for row, theirs in zip(table.values(), ([16, 4, 4], [12, 8, 4], [4 + per_row] * 2 + [per_row]), strict=True):
    assert np.allclose(row[:3], theirs)
    assert row[4] == 0

# %%
# Without a budget, the compiler keeps no results within a chain of element-wise operations, and one number per row for
# RMSNorm. The compiler computes the input of a matrix product again only if a budget tells it to.
#
# In a network, multiply these bytes by the number of elements. The next cell computes the total in bfloat16, for the 32
# blocks of a model of the size of LLaMA-7B on 4096 tokens. There, torch's RMSNorm computes in float32:

half = [t.detach().bfloat16().requires_grad_() for t in (gate, up, weight)]
per_element = saved_bytes(lambda g, u, w: F.linear(F.silu(g) * u, w), *half) / gate.numel()
print(f"SwiGLU, linear: {per_element:g} bytes an element, {per_element * 32 * 4096 * 11008 / 1e9:.1f} GB")
assert saved_bytes(swiglu_linear, *half) == 0

half = [t.detach().bfloat16().requires_grad_() for t in (x, scale)]
per_element = saved_bytes(cases["RMSNorm"][1], *half) / x.numel()
print(f"RMSNorm:        {per_element:g} bytes an element, {per_element * 65 * 4096 * 4096 / 1e9:.1f} GB (65 of them)")
assert saved_bytes(rms_norm, *half) == 0

# %%
# The wrong version
# -----------------
#
# This normalization saves the root that forward has computed, because one number per row is cheap. The first derivative
# is right. But autograd treats a tensor that ``forward`` has made as a constant, so the second derivative is silently
# wrong:


class SavesRoot(Function):
    """Saves an intermediate."""

    @staticmethod
    def forward(input):
        root = torch.rsqrt(input.square().mean(-1, keepdim=True) + 1e-6)
        return input * root, root

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        input, root = ctx.saved_tensors
        n = input * root
        return root * (grad_output - n * (grad_output * n).mean(-1, keepdim=True))


def norm_squared(function, point):
    """The derivative of the squared norm of a gradient, as a gradient penalty needs it."""
    point = point.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(point)[..., 0].sum(), point, create_graph=True)
    return torch.autograd.grad(gradient.square().sum(), point)[0]


point = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64, requires_grad=True)
ones = torch.ones(3, dtype=torch.float64)
print("gradcheck      ", gradcheck(lambda p: SavesRoot.apply(p)[0], (point,)))
try:
    gradgradcheck(lambda p: SavesRoot.apply(p)[0], (point,))
except RuntimeError as error:
    print("gradgradcheck  ", str(error).splitlines()[0])
wrong = norm_squared(lambda p: SavesRoot.apply(p)[0], point.detach())
right = norm_squared(lambda p: rms_norm(p, ones), point.detach())
print("saves the root ", [round(v, 4) for v in wrong[0].tolist()])
print("recipe         ", [round(v, 4) for v in right[0].tolist()])
torch.testing.assert_close(right, norm_squared(lambda p: F.rms_norm(p, (3,), ones, 1e-6), point.detach()))
assert not torch.allclose(wrong, right, rtol=0.1)

# %%
# The second mistake is a ``Function`` that gains nothing. A swish that keeps only its input is better than ``x *
# torch.sigmoid(x)``, but the built-in keeps as little:


class Swish(Function):
    """Saves its input, and is as good as the built-in."""

    @staticmethod
    def forward(input):
        return input * torch.sigmoid(input)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        sigmoid = torch.sigmoid(input)
        return grad_output * sigmoid * (1 + input * (1 - sigmoid))


swishes = {"x * sigmoid(x)": lambda x: x * torch.sigmoid(x), "Function": Swish.apply, "F.silu": F.silu}
sizes = {name: saved_bytes(function, x) / x.numel() for name, function in swishes.items()}
print(f"torch {torch.__version__}:", sizes, "bytes per element")
assert list(sizes.values()) == [4, 0, 0]

# %%
# What it costs
# -------------
#
# .. costs::
#
# A deep network multiplies the bytes kept by its depth. The peak in the table is the peak of one call. For the two
# products, the recipe's peak is higher than torch's, because backward holds the recomputed activation and its parts for
# a moment. A function compiled by :func:`torch.compile` keeps few bytes and has a low peak, but has no second
# derivative:

double = torch.compile(formula_norm, backend="aot_eager_decomp_partition")
(gradient,) = torch.autograd.grad(double(x, scale).square().sum(), x, create_graph=True)
try:
    gradient.sum().backward()
except RuntimeError as error:
    print(error)
else:
    raise AssertionError("a compiled function can be differentiated twice")

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/masks`: keep one bit per element instead of a number.
# * :doc:`/cookbook/04_memory/checkpointing`: the same trade for any part of a network, including matrix products.
# * :doc:`/cookbook/01_first_steps/reductions`: save a softmax, and lose the second derivative.
# * :doc:`/cookbook/07_compile/torch_compile`: what the compiler sees of a custom function.
# * In torch's documentation: :func:`torch.nn.functional.rms_norm`, :func:`torch.nn.functional.gelu`.
