r"""
Reversible layers: memory that does not grow with depth
=======================================================

You will stack as many residual layers as you like without keeping their activations: backward computes the input of
each layer from its output.
"""

# %%
# When to use it
# --------------
#
# Use a reversible stack when you can choose the architecture, and your memory is full because the network is deep.
# Checkpointing needs no special layers, but its memory grows with the square root of the depth. The memory of a
# reversible stack does not grow. Both methods cost one more forward. In this recipe, a function must return the shape
# of a half. Do not use a function that keeps statistics, such as a batch norm, because the second run updates them
# again.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{l}` is the gradient of the loss with respect to :math:`l`.
#
# Split the features into two halves, :math:`l` and :math:`r`. Each half is changed in turn by a function of the other.
# The two sums can be undone for all functions :math:`f` and :math:`g`:
#
# .. math::
#
#    l' = l + f(r), \quad r' = r + g(l') \qquad \Longleftrightarrow \qquad r = r' - g(l'), \quad l = l' - f(r) .
#
# So backward holds the *output* of a block and computes its input by running :math:`g` and :math:`f` once more.
# Autograd needs these two runs for the gradients anyway:
#
# .. math::
#
#    \bar{l} = \bar{l}' + \bar{r}'^\top \partial g(l'), \qquad
#    \bar{r} = \bar{r}' + \bar{l}^\top \partial f(r) .
#
# The recipe
# ----------
#
# .. recipe:: reversible_sequence

# sphinx_gallery_tags = ["memory", "checkpoint", "second order"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from autograd_cookbook.auditing import peak_bytes
from autograd_cookbook.recipes.checkpointing import checkpoint_sequence
from autograd_cookbook.recipes.reversible import reversible_sequence

# %%
# See it work
# -----------
#
# The figure compares three versions of the same stack. All blocks share their parameters here, so the growing part of
# the memory is that of activations. The unit is the size of one half.

torch.manual_seed(0)
f, g = (nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(2))
left, right = (torch.randn(1000, 64, requires_grad=True) for _ in range(2))


def one_block(halves):
    left, right = halves
    left = left + f(right)
    return left, right + g(left)


def keep_all(depth):
    return checkpoint_sequence([one_block] * depth, (left, right), 1)


def every_root(depth):
    return checkpoint_sequence([one_block] * depth, (left, right))


def reversible(depth):
    return reversible_sequence([(f, g)] * depth, left, right)


def peak(stack, depth):
    def run():
        loss = sum(half.sum() for half in stack(depth))
        loss.backward()

    return peak_bytes(run) / left.untyped_storage().nbytes()


depths = [1, 2, 4, 8, 16, 32, 64]
ways = {"keep all": keep_all, "√n checkpoints": every_root, "reversible": reversible}
curves = {name: [peak(stack, depth) for depth in depths] for name, stack in ways.items()}

figure, axis = plt.subplots(figsize=(7, 3.3), layout="constrained")
for (name, values), style in zip(curves.items(), ("-o", "--s", "-.^"), strict=True):
    axis.loglog(depths, values, style, label=name)
axis.set(xlabel="blocks", ylabel="halves alive at the peak", xticks=depths, xticklabels=depths)
axis.minorticks_off()
axis.set_title("Peak memory of training against depth: a reversible stack is flat")
axis.legend()
plt.show()

for name, values in curves.items():
    print(f"{name:15} 1 block {values[0]:5.1f}, 64 blocks {values[-1]:6.1f} halves")
flat = curves["reversible"]
assert flat[-1] <= 1.15 * flat[0]
assert flat[-1] == flat[2]
assert curves["keep all"][-1] > 20 * flat[-1]

# %%
# The price is rounding. The computed input is not exactly the original input. If a block shrinks differences between
# its inputs, undoing the block enlarges the error by the same factor. The next cell prints the relative error of the
# gradient, compared with the plain stack in the same precision. It does this for 64 blocks with different weights, and
# for one block used 64 times, whose errors all grow in the same direction:


def branch():
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))


def in_turn(blocks, left, right):
    for f, g in blocks:
        left = left + f(right)
        right = right + g(left)
    return left, right


def off(blocks, dtype):
    gradients = []
    for f, g in blocks:
        f.to(dtype), g.to(dtype)
    for sequence in (reversible_sequence, in_turn):
        torch.manual_seed(1)
        left, right = (torch.randn(200, 64).to(dtype).requires_grad_() for _ in range(2))
        gradients += torch.autograd.grad(sequence(blocks, left, right)[1].square().mean(), left)
    return float((gradients[0] - gradients[1]).norm() / gradients[1].norm())


torch.manual_seed(0)
own = [(branch(), branch()) for _ in range(64)]
errors = {}
for name, blocks in {"64 blocks": own, "one block 64 times": own[:1] * 64}.items():
    for dtype in (torch.float64, torch.float32):
        errors[name, dtype] = [off(blocks[:depth], dtype) for depth in (1, 4, 16, 64)]
        shown = "  ".join(f"{error:.0e}" for error in errors[name, dtype])
        print(f"{name:18} {str(dtype)[6:]}, error at depth 1, 4, 16, 64: {shown}")
assert errors["64 blocks", torch.float32][-1] < 1e-4
assert errors["one block 64 times", torch.float32][-1] > 1e-2

# %%
# Measure this error on your own stack before you train with it, because a gradient that consists of rounding errors
# looks like any other gradient.
#
# The wrong version
# -----------------
#
# A ``Function`` for a reversible block is often written like this. The parameters of the block are not arguments of the
# ``Function``, so its backward cannot return their gradients, and the parameters get no gradient. Also, backward draws
# a new mask for dropout.


class ByHand(Function):
    @staticmethod
    def forward(ctx, f, g, left, right):
        ctx.f, ctx.g = f, g
        left = left + f(right)
        right = right + g(left)
        ctx.save_for_backward(left, right)
        return left, right

    @staticmethod
    def backward(ctx, grad_left, grad_right):
        left, right = (half.detach().requires_grad_() for half in ctx.saved_tensors)
        with torch.enable_grad():
            change = ctx.g(left)
            grad_left = grad_left + torch.autograd.grad(change, left, grad_right)[0]
            right = (right - change).detach().requires_grad_()
            change = ctx.f(right)
            grad_right = grad_right + torch.autograd.grad(change, right, grad_left)[0]
        return None, None, grad_left, grad_right


def plain(f, g, left, right):
    return one_block((left, right))


def recipe(f, g, left, right):
    return reversible_sequence([(f, g)], left, right)


for name, dropout in (("no dropout", 0.0), ("dropout", 0.5)):
    f, g = (nn.Sequential(nn.Linear(64, 64), nn.Dropout(dropout)) for _ in range(2))
    left, right = (torch.randn(200, 64, requires_grad=True) for _ in range(2))
    found = {}
    for label, block in {"plain": plain, "by hand": ByHand.apply, "recipe": recipe}.items():
        torch.manual_seed(0)
        loss = block(f, g, left, right)[1].square().sum()
        found[label] = torch.autograd.grad(loss, [right, f[0].weight], allow_unused=True)
    for label in ("by hand", "recipe"):
        error = float((found[label][0] - found["plain"][0]).norm() / found["plain"][0].norm())
        weight = "none" if found[label][1] is None else "there"
        print(f"{name}, {label:7}: input gradient off by {error:.0e}, weight gradient: {weight}")
        assert (found[label][1] is None) == (label == "by hand")
        assert (error > 0.1) == (name == "dropout" and label == "by hand")

# %%
# Another mistake keeps the memory as large as before. With one ``Function`` for each block, every block saves its own
# output, so the memory still grows with depth. Write one ``Function`` for the whole chain: it saves the last output
# only, and its backward goes through the blocks from the end. The parameters are arguments of this ``Function``, so
# they get gradients:


class Chain(Function):
    @staticmethod
    def forward(ctx, blocks, left, right, *parameters):
        ctx.blocks, ctx.parameters = blocks, parameters
        for f, g in blocks:  # not recorded, so nothing is kept
            left = left + f(right)
            right = right + g(left)
        ctx.save_for_backward(left, right)
        return left, right

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_left, grad_right):
        left, right = ctx.saved_tensors
        total = [torch.zeros_like(parameter) for parameter in ctx.parameters]

        def through(branch, half, gradient):
            """Return the value of the branch and the gradient of its input, and add those of the parameters."""
            half = half.detach().requires_grad_()
            with torch.enable_grad():
                change = branch(half)
            first, *others = torch.autograd.grad(change, [half, *ctx.parameters], gradient, allow_unused=True)
            for sum_of_uses, other in zip(total, others, strict=True):
                if other is not None:
                    sum_of_uses += other
            return change.detach(), first

        for f, g in reversed(ctx.blocks):
            change, extra = through(g, left, grad_right)
            right, grad_left = right - change, grad_left + extra
            change, extra = through(f, right, grad_left)
            left, grad_right = left - change, grad_right + extra
        return None, grad_left, grad_right, *total


def by_one_function(depth):
    return Chain.apply([(f, g)] * depth, left, right, *f.parameters(), *g.parameters())


def by_many_functions(depth):
    halves = left, right
    for _ in range(depth):
        halves = ByHand.apply(f, g, *halves)
    return halves


f, g = (nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(2))
left, right = (torch.randn(1000, 64, requires_grad=True) for _ in range(2))
kept = {}
for stack in (by_many_functions, by_one_function):
    kept[stack] = [round(peak(stack, depth), 1) for depth in (4, 16)]
    print(f"{stack.__name__:18} peak at 4 and at 16 blocks: {kept[stack]} halves")
assert kept[by_one_function][1] <= 1.05 * kept[by_one_function][0]
assert kept[by_many_functions][1] > kept[by_many_functions][0] + 20

expected, found = (
    torch.autograd.grad(stack(5)[1].square().sum(), [left, right, f[0].weight, g[0].weight])
    for stack in (keep_all, by_one_function)
)
for one, other in zip(expected, found, strict=True):
    assert torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(one.abs().max()))

# %%
# If the memory of your own reversible stack grows with depth, look for other references to the halves. Examples are a
# list of activations, a forward hook, a library's option to keep the input (``keep_input``), and blocks outside of the
# wrapper.
#
# The recipe has no ``Function``. It uses hooks on saved tensors, as on the page about
# :doc:`checkpointing </cookbook/04_memory/checkpointing>`. The hooks give autograd a placeholder for each saved tensor,
# and compute the tensor when backward asks for it. So parameters get their gradients as usual, and second derivatives
# work.
#
# What it costs
# -------------
#
# .. costs::
#
# The recipe takes the time of one more forward. A block whose functions draw random numbers keeps the states of the
# generator, 5,056 bytes each. The states give the same random numbers again, and are smaller than most masks. Inside of
# ``torch.func`` or ``torch.compile``, the recipe raises an error (torch 2.13).
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/checkpointing`: for layers that can't be undone.
# * :doc:`/cookbook/05_higher_order/neural_ode`: continuous depth, and its adjoint.
# * :doc:`/cookbook/04_memory/masks`: save memory within a single layer.
# * In torch's documentation: :class:`torch.autograd.graph.saved_tensors_hooks`.
