r"""
Masks: one bit an element, or none
==================================

You will keep the mask of a rectifier (ReLU) in one bit per element, and the mask of a whole dropout in eight bytes. You
will also see where packing a mask costs more than it saves.
"""

# %%
# When to use it
# --------------
#
# * **Rectifier:** pack its mask if the next function keeps nothing, such as a sum, a mean or a residual addition.
#   Before a linear layer or a convolution with a trained weight, and before ``max_pool2d`` or ``avg_pool2d``, use
#   :func:`torch.nn.functional.relu`. There, torch's function costs no memory, because the layer keeps the same tensor
#   as its input. A layer with a frozen weight does not keep its input.
# * **Dropout:** use ``seeded_dropout`` if you are short of memory, do not compile, and accept other random masks than
#   those of torch.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# Both functions multiply by a mask :math:`m`, in forward and in backward:
#
# .. math::
#
#    y = m \odot x, \qquad \bar{x} = m \odot \bar{y} .
#
# A bool takes one *byte* in torch. A byte can hold eight bits of a mask, so :math:`n` elements need
# :math:`\lceil n / 8 \rceil` bytes. A random mask needs no storage: keep the seed of its generator and draw the mask
# again.
#
# The recipe
# ----------
#
# .. recipe:: packed_relu
#
# .. recipe:: linear_relu
#
# .. recipe:: seeded_dropout

# sphinx_gallery_tags = ["memory", "ctx", "second order", "compile"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes, saved_bytes
from autograd_cookbook.recipes.masks import linear_relu, pack_bits, packed_relu, seeded_dropout, unpack_bits

# %%
# See it work
# -----------
#
# The figure shows the bytes kept for backward per element, before a sum and before a linear layer.

x = torch.randn(500, 1000, requires_grad=True)
layer = nn.Linear(1000, 10)
functions = {
    "relu, bool mask": lambda x: x * (x > 0),
    "relu, torch": torch.relu,
    "relu, packed": packed_relu,
    "dropout, bool mask": lambda x: x * (torch.rand_like(x) >= 0.5) / 0.5,
    "dropout, torch": F.dropout,
    "dropout, seed": seeded_dropout,
}


def before_linear(function):
    return lambda x, weight, bias: F.linear(function(x), weight, bias)


alone = [saved_bytes(f, x) / x.numel() for f in functions.values()]
followed = [saved_bytes(before_linear(f), x, *layer.parameters()) / x.numel() for f in functions.values()]

figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained", sharey=True)
figure.suptitle("Bytes kept per element: packing saves where the output is not kept")
for axis, values, title in zip(axes, (alone, followed), ("before a sum", "before a linear layer"), strict=True):
    bars = axis.barh(list(functions), values, color=["0.75", "0.55", "tab:blue"] * 2, hatch=["", "//", ""] * 2)
    axis.bar_label(bars, [f"{value:.4g}" if value >= 0.01 else "0" for value in values], padding=3)
    axis.set(title=title, xlim=(0, 9.5), xlabel="bytes")
axes[0].invert_yaxis()
plt.show()

print("torch", torch.__version__)
assert alone[:3] == [1, 4, 0.125]
assert followed[:3] == [5, 4, 4.125]
assert np.allclose(alone[3:], [1, 4, 0], atol=1e-4)
assert np.allclose(followed[3:], [5, 8, 4], atol=1e-4)
assert saved_bytes(seeded_dropout, x) == 8
frozen = layer.weight.detach()
ours, theirs = (saved_bytes(lambda x: F.linear(f(x), frozen), x) for f in (packed_relu, torch.relu))  # noqa: B023
assert ours < theirs / 10
images = torch.randn(2, 3, 8, 8, requires_grad=True)
for after in (lambda y: y + 1.5, lambda y: y.mean((2, 3)), lambda y: F.max_pool2d(y, 2), lambda y: F.avg_pool2d(y, 2)):
    ours, theirs = (saved_bytes(lambda x: after(f(x)), images) for f in (packed_relu, torch.relu))  # noqa: B023
    assert (ours < theirs) == (after(images).shape != (2, 3, 4, 4))

# %%
# Packing is exact for every size. ``linear_relu``, a linear layer with its rectifier, keeps its arguments and the
# packed bits. The recipes do not keep the output, so you may write to the output in place. If you do so with torch's
# rectifier, backward raises an error:

for n in (0, 1, 8, 9, 1001):
    mask = torch.rand(n) > 0.5
    assert pack_bits(mask).numel() == -(-n // 8)
    assert torch.equal(unpack_bits(pack_bits(mask), mask.shape), mask)
assert saved_bytes(linear_relu, x, *layer.parameters()) == -(-500 * 10 // 8)

packed_relu(x).add_(1).sum().backward()
try:
    torch.relu(x).add_(1).sum().backward()
except RuntimeError as error:
    print(str(error).partition(": [")[0])

# %%
# ``seeded_dropout`` draws its seed from torch's global generator, so ``torch.manual_seed`` makes the mask repeatable.
# Under ``vmap``, ``randomness="different"`` gives every sample its own mask:

torch.manual_seed(0)
first = seeded_dropout(x)
torch.manual_seed(0)
assert torch.equal(first, seeded_dropout(x))
assert not torch.equal(first, seeded_dropout(x))

for randomness in ("same", "different"):
    masks = torch.func.vmap(seeded_dropout, randomness=randomness)(torch.ones(2, 100_000)) != 0
    print(f"{randomness:9}: the masks of two samples agree in {float((masks[0] == masks[1]).float().mean()):.0%}")

# %%
# The wrong version
# -----------------
#
# This version keeps the mask as an attribute of ``ctx``. The gradient is still right. But tools that count or move
# saved tensors do not see the mask. Autograd does not free the mask after backward, so it lives as long as the output:


class MaskOnCtx(Function):
    """Hides the mask from tools that look at saved tensors."""

    @staticmethod
    def forward(input):
        return input.clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mask = output > 0

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.mask


def with_backward(function):
    def run():
        output = function(x)
        torch.autograd.grad(output.sum(), x)
        return output

    return run


for name, function in {"mask on ctx": MaskOnCtx.apply, "recipe": packed_relu}.items():
    size = x.untyped_storage().nbytes()
    counted, alive = saved_bytes(function, x), held_bytes(function, x) - size
    after = held_bytes(with_backward(function)) - size
    print(f"{name:12} counted: {counted:>7,}  alive after forward: {alive:>7,}  after backward: {after:>7,}")
    assert (counted == 0) == (after > 0) == (function is not packed_relu)

# %%
# The second wrong version is a seeded dropout that seeds the *global* generator. Then the program draws the same random
# number after each dropout:


def reseeding_dropout(input, p, seed):
    torch.manual_seed(seed)
    return input * (torch.rand_like(input) >= p) / (1 - p)


drawn = []
for dropout in (reseeding_dropout, lambda input, p, seed: seeded_dropout(input, p, seed=seed)):
    torch.manual_seed(1)
    drawn.append([])
    for _ in range(3):
        dropout(x, 0.5, 0)
        drawn[-1].append(round(float(torch.rand(())), 3))
print("after a global seed:", drawn[0], " after the recipe:", drawn[1])
assert len(set(drawn[0])) == 1
assert len(set(drawn[1])) == 3

# %%
# What it costs
# -------------
#
# .. costs::
#
# Packing and unpacking take several times as long as the rectifier itself, because a rectifier is a cheap operation. In
# backward, the unpacked mask takes one byte per element again. So the *peak* of one call is higher than torch's,
# although a deep network keeps less in total.
#
# ``seeded_dropout`` keeps less and has a lower peak. Its time depends on the size, because it draws its mask twice and
# makes a generator each time. For small tensors, making the generator takes most of the time. For large tensors,
# ``torch.rand`` is faster than the Bernoulli generator in torch's dropout. The next cell prints the time of forward and
# backward as a multiple of torch's time, measured on one thread of the machine that built this page:


def seconds(function, input):
    start = time.perf_counter()
    torch.autograd.grad(function(input), input, input.detach())
    return time.perf_counter() - start


ratios = {}
for size in (100, 10_000, 1_000_000):
    sample = torch.randn(size, requires_grad=True)
    rounds = [[seconds(f, sample) for f in (seeded_dropout, F.dropout)] for _ in range(20)]
    ours, built_in = map(min, zip(*rounds, strict=True))  # they take turns
    ratios[size] = ours / built_in
print({f"{size:,} elements": f"{ratio:.2f}" for size, ratio in ratios.items()})

# %%
# :func:`torch.compile` keeps one byte per element for the mask of a rectifier or a dropout that is made of torch
# operations. The compiled ``packed_relu`` still keeps one bit per element. The compiler refuses the generator of
# ``seeded_dropout``.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/selective_saving`: keep only the input, and what a compiler does by itself.
# * :doc:`/cookbook/04_memory/in_place`: a rectifier that writes its output over its input.
# * :doc:`/cookbook/04_memory/checkpointing`: draw random numbers again, for whole networks.
# * :doc:`/cookbook/05_higher_order/per_sample_gradients`: ``vmap`` over samples, where each sample needs its own mask.
# * In torch's documentation: :func:`torch.nn.functional.dropout`, :class:`torch.Generator`.
