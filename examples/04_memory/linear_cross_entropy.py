r"""
Linear cross-entropy: a loss over a large vocabulary without its logits
=======================================================================

You will compute the loss of a language model's last layer, its gradient and its second derivative, without the
gigabytes that the logits take.
"""

# %%
# When to use it
# --------------
#
# A fused linear cross-entropy is one function for the linear layer and the loss. Use it if the logits do not fit into
# memory. The logits have one number per token and class. With a thousand classes, you do not need it.
#
# If you compile, check whether one tensor of all logits, in the dtype of the weight, fits into memory. If it fits,
# compile the plain composition. :func:`torch.compile` makes one tensor of all logits, and fuses the operations that
# follow. "Compiled, in bfloat16" below has the numbers.
#
# If this tensor is too large and a first derivative is enough, use torch's function: call
# :func:`!torch.nn.functional.linear_cross_entropy` with
# ``options=torch.nn.LinearCrossEntropyOptions(batch_chunk_size=256, allow_retain_graph=True)``. Torch's function needs
# three matmuls, and the recipe needs four. With these options, you can also run the backward of torch's function twice,
# and :func:`torch.compile` compiles it without a graph break. Always set ``batch_chunk_size``. Without it, a chunk can
# be a single token. This is slow, and in bfloat16 the loss is then wrong, as "What it costs" shows.
#
# Use the recipe in these cases:
#
# * You need second derivatives or :func:`torch.func.grad`. With ``options``, torch's function refuses both. Without, it
#   has both, but keeps a tensor of all logits.
# * You need a lower peak than that of torch's function, and the weight is wide. All bytes here are in addition to the
#   returned gradients. In torch 2.13, torch's function needs as many bytes as input and weight together, and twice as
#   many with ``allow_retain_graph=True``. In torch 2.14, it needs none of them by default, and as many as input and
#   weight together with ``allow_retain_graph=True``. If the logits of one chunk of tokens, for all classes, have more
#   bytes than that, then these logits decide. The recipe needs about twice the bytes of the logits of all tokens for
#   1024 classes. So for a narrow weight, as in the first figure, or for many tokens, torch's function with a small
#   ``batch_chunk_size`` has the lower peak.
# * You run several losses before you call backward. Between forward and backward, torch's function keeps gradients that
#   are as large as the weight. The recipe keeps eight bytes per token, also when you compile it.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{Z}` is the gradient of the loss with respect to :math:`Z`.
#
# The logits are :math:`z = X W^\top + b`. For token :math:`n`, :math:`t_n` is the target class, and
# :math:`\operatorname{lse}_n` is the log-sum-exp of the logits. If :math:`\operatorname{lse}_n` is known, backward can
# compute each probability from its own logit, without the other logits of the row:
#
# .. math::
#
#    \ell_n = \operatorname{lse}_n - z_{n t_n}, \qquad
#    \bar{Z}_{nv} = \bar{\ell}_n \left( e^{z_{nv} - \operatorname{lse}_n} - [v = t_n] \right), \qquad
#    \bar{X} = \bar{Z} W, \quad \bar{W} = \bar{Z}^\top X .
#
# So the recipe processes the classes in chunks. Forward keeps :math:`\operatorname{lse}` as two numbers per token: the
# largest logit, and the log-sum-exp minus this logit. With a single number, the rounding error of every probability
# would be larger.
#
# For each chunk of classes, backward computes the logits again, then :math:`\bar{Z}`, then the rows of :math:`\bar{W}`
# for these classes, and a term of :math:`\bar{X}`. In total, forward and backward take four matmuls, and torch's
# function takes three. A second derivative processes the chunks in the same way. Let :math:`\dot{Z}` be the change of
# the logits for which you want the change of the gradient, and :math:`p` the probabilities. Then the recipe uses
# the following term instead of :math:`\bar{Z}`:
#
# .. math:: p_{nv} \left( \dot{Z}_{nv} - \textstyle\sum_u p_{nu} \dot{Z}_{nu} \right) \bar{\ell}_n .
#
# The recipe
# ----------
#
# .. recipe:: linear_cross_entropy

# sphinx_gallery_tags = ["memory", "second order", "compile"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch
from torch.nn import LinearCrossEntropyOptions
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from autograd_cookbook.auditing import held_bytes, peak_bytes
from autograd_cookbook.recipes.linear_cross_entropy import linear_cross_entropy

# %%
# See it work
# -----------
#
# The figure shows the peak memory of forward and backward for 512 tokens and a growing number of classes. The bytes are
# exact, and they do not include the gradients, because every function must return them:


def composed(input, weight, target):
    return F.cross_entropy(F.linear(input, weight), target)


def torchs_own(input, weight, target):
    return F.linear_cross_entropy(input, weight, target, options=LinearCrossEntropyOptions())


def in_chunks_of_256(input, weight, target):
    options = LinearCrossEntropyOptions(batch_chunk_size=256, allow_retain_graph=True)
    return F.linear_cross_entropy(input, weight, target, options=options)


def problem(classes, tokens=512, width=16):
    torch.manual_seed(0)
    input = torch.randn(tokens, width, requires_grad=True)
    weight = torch.randn(classes, width, requires_grad=True)
    return input, weight, torch.randint(classes, (tokens,))


def extra(loss, *args):
    """Bytes at the peak of forward and backward, beyond the gradients."""
    gradients = sum(a.untyped_storage().nbytes() for a in args[:2])
    return peak_bytes(lambda: torch.autograd.grad(loss(*args), args[:2])) - gradients


vocabularies = [2_048, 4_096, 8_192, 16_384, 32_768]
losses = {
    "composed": composed,
    "torch, in chunks": torchs_own,
    "torch, 256 tokens": in_chunks_of_256,
    "recipe": linear_cross_entropy,
}
curves = {name: [extra(loss, *problem(v)) / 1e6 for v in vocabularies] for name, loss in losses.items()}

figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, values), style in zip(curves.items(), ("-o", "--s", ":v", "-.^"), strict=True):
    (line,) = axis.loglog(vocabularies, values, style)
    axis.text(vocabularies[-1] * 1.08, values[-1], name, color=line.get_color(), va="center")
logits = [512 * v * 4 / 1e6 for v in vocabularies]
axis.loglog(vocabularies, logits, ":", color="0.5")
axis.text(vocabularies[-1] * 1.08, logits[-1], "the logits alone", color="0.4", va="center")
axis.set(xlim=(None, vocabularies[-1] * 2.6), xlabel="classes", ylabel="MB at the peak, beyond gradients")
axis.set_xticks(vocabularies, [f"{v:,}" for v in vocabularies])
axis.minorticks_off()
axis.set_title("The recipe's peak memory for 512 tokens does not grow with the vocabulary")
plt.show()

print("MB at 32,768 classes:", {name: round(values[-1], 1) for name, values in curves.items()})
assert curves["recipe"][-1] < curves["composed"][-1] / 20
assert curves["recipe"][-1] < 1.1 * curves["recipe"][-3]

# %%
# The width in the figure is only 16. Which function has the lower peak depends on the width and on the number of
# tokens. The next cell compares the recipe with torch's function in chunks of 64 tokens, at 8,192 classes:


def in_chunks_of_64(input, weight, target, allow_retain_graph=False):
    options = LinearCrossEntropyOptions(batch_chunk_size=64, allow_retain_graph=allow_retain_graph)
    return F.linear_cross_entropy(input, weight, target, options=options)


def twice(input, weight, target):
    return in_chunks_of_64(input, weight, target, allow_retain_graph=True)


for tokens, width in ((512, 16), (512, 256), (2048, 16)):
    args = problem(8_192, tokens, width)
    small, again, ours = (extra(loss, *args) / 1e6 for loss in (in_chunks_of_64, twice, linear_cross_entropy))
    print(
        f"{tokens:5,} tokens, width {width:3}: recipe {ours:4.1f} MB, torch, 64 tokens a chunk {small:4.1f} MB, "
        f"with allow_retain_graph {again:4.1f} MB"
    )
    leaner = torch.__version__ >= (2, 14)  # torch's function makes one copy of its gradients less
    assert (again > (0.9 if leaner else 1.5) * ours) == (width == 256)
    assert (small < ours / 2) == (leaner or width != 256)

# %%
# The second derivative of the recipe is also computed in chunks, and agrees with the composition. PyTorch's function in
# chunks computes the gradient in forward and keeps it, so there is no second derivative. Without ``options``, PyTorch's
# function has one, but keeps a tensor of all logits:

input, weight, target = problem(5_000, tokens=32)
curvature = {}
print("torch", torch.__version__)
for name, loss in losses.items():
    try:
        (gradient,) = torch.autograd.grad(loss(input, weight, target), input, create_graph=True)
        curvature[name] = torch.autograd.grad(gradient.square().sum(), (input, weight))
        print(f"{name:17} second derivative of norm {float(curvature[name][0].norm()):.5f}")
    except RuntimeError as error:
        print(f"{name:17} {error}")
for ours, theirs in zip(curvature["recipe"], curvature["composed"], strict=True):
    torch.testing.assert_close(ours, theirs)
assert curvature.keys() == {"composed", "recipe"}


def without_options(input, weight, target):
    return F.linear_cross_entropy(input, weight, target)


(gradient,) = torch.autograd.grad(without_options(input, weight, target), input, create_graph=True)
torch.testing.assert_close(torch.autograd.grad(gradient.square().sum(), input)[0], curvature["composed"][0])
print(f"without options: {held_bytes(without_options, input, weight, target):,} bytes held, logits {32 * 5_000 * 4:,}")
assert held_bytes(without_options, input, weight, target) >= 32 * 5_000 * 4

# %%
# If you only want to run backward twice, you do not need the recipe. PyTorch's function raises an error by default, but
# it works with ``allow_retain_graph=True``:

for name, loss in losses.items():
    value = loss(input, weight, target)
    torch.autograd.grad(value, input, retain_graph=True)
    try:
        torch.autograd.grad(value, input)
        print(f"{name:17} backward twice: ok")
        assert name != "torch, in chunks"
    except RuntimeError as error:
        print(f"{name:17} {error}")
        assert name == "torch, in chunks"

# %%
# Use ``vmap`` to get one gradient per token, as with any other function. With ``options``, torch's function refuses
# :mod:`torch.func`:

each = torch.func.vmap(torch.func.grad(lambda x, t: linear_cross_entropy(x[None], weight, t[None])))(input, target)
loss = linear_cross_entropy(input, weight, target, reduction="sum")
torch.testing.assert_close(each, torch.autograd.grad(loss, input)[0])
print("gradients of single tokens:", tuple(each.shape))
torch.func.grad(lambda x: without_options(x, weight, target))(input)
try:
    torch.func.grad(lambda x: in_chunks_of_256(x, weight, target))(input)
    raise AssertionError("torch.func takes options: say so above")
except RuntimeError as error:
    print("torch, 256 tokens, torch.func.grad:", str(error).partition(" (vmap")[0])

# %%
# The wrong version
# -----------------
#
# This version cuts the tokens into chunks, adds the losses, and calls ``backward`` at the end. This code never makes
# one tensor with all logits. But the graph keeps the log-softmax of each chunk until backward, and all chunks together
# need as many bytes as the logits.


def chunk_loss(rows, weight, targets):
    return F.cross_entropy(F.linear(rows, weight), targets, reduction="sum")


def loop(input, weight, target):
    chunks = zip(input.split(64), target.split(64), strict=True)
    return sum(chunk_loss(rows, weight, targets) for rows, targets in chunks) / len(target)


def checkpointed_loop(input, weight, target):
    chunks = zip(input.split(64), target.split(64), strict=True)
    return sum(checkpoint(chunk_loss, x, weight, t, use_reentrant=False) for x, t in chunks) / len(target)


args = problem(16_384)
for name, loss in {**losses, "loop": loop, "checkpointed loop": checkpointed_loop}.items():
    print(f"{name:17} {extra(loss, *args) / 1e6:6.1f} MB at the peak, {held_bytes(loss, *args):>11,} bytes held")
assert held_bytes(loop, *args) >= held_bytes(composed, *args)
assert extra(checkpointed_loop, *args) < extra(composed, *args) / 6

# %%
# A checkpoint around each chunk fixes the memory, in four lines of code and without the recipe. But then each chunk of
# tokens computes a gradient of the whole weight and adds it to the sum. The recipe cuts the *classes* into chunks
# instead, so it writes each row of the weight's gradient once.
#
# What it costs
# -------------
#
# .. costs::
#
# The bars above compare the recipe with torch's function with 256 tokens per chunk, on a small problem. The next table
# has the size of a language model: 4096 tokens of width 1024 in float32. In both, torch's function has the default
# ``allow_retain_graph=False``. We measured one run on one core of an AMD EPYC, with other programs running. At this
# size, torch's function with 256 tokens per chunk is faster than the recipe, and the recipe needs a third to an
# eleventh of the memory at the peak. Bytes are exact. Time is processor time, as a multiple of the composition's time:
#
# .. csv-table::
#    :header: "classes", "", "MB at the peak, beyond gradients", "MB held until backward", "time"
#
#    "32,768", "composed", "1,460", "536.87", "1.00"
#    "32,768", "torch, its own chunks", "151", "150.99", "1.13"
#    "32,768", "torch, 256 tokens a chunk", "151", "150.99", "0.97"
#    "32,768", "ours", "50", "0.03", "1.24"
#    "131,072", "composed", "5,889", "2,147.48", "1.00"
#    "131,072", "torch, its own chunks", "554", "553.65", "1.46"
#    "131,072", "torch, 256 tokens a chunk", "554", "553.65", "0.84"
#    "131,072", "ours", "50", "0.03", "1.03"
#
# The default size of torch's chunks, and so the time, depends on the shape of the weight. The next cell measures the
# time for 512 tokens of width 64 and 16,384 classes, as a multiple of the composition's time:


def seconds(loss, *args):
    start = time.process_time()
    torch.autograd.grad(loss(*args), args[:2])
    return time.process_time() - start


args = problem(16_384, width=64)
rounds = [[seconds(loss, *args) for loss in losses.values()] for _ in range(4)]
best = dict(zip(losses, map(min, zip(*rounds, strict=True)), strict=True))  # they take turns
print({name: f"{took / best['composed']:.2f}" for name, took in best.items()})

# %%
# Until backward, torch's function keeps the gradients of input and weight, which are as large as input and weight. The
# recipe keeps eight bytes per token. :func:`torch.compile` decides which tensors to keep, and would keep the logits. So
# the recipe puts its loops over the classes into operators, because the compiler does not look inside operators. See
# :doc:`/guide/compiled_bytes`:

args = problem(16_384)
held = {}
for name in ("composed", "torch, 256 tokens", "recipe"):
    torch.compiler.reset()
    compiled = torch.compile(losses[name], fullgraph=True, backend="aot_eager")
    held[name] = [held_bytes(function, *args) / 1e6 for function in (losses[name], compiled)]
    print(f"{name:17} MB held until backward: {held[name][0]:6.2f}, compiled {held[name][1]:6.2f}")
logits = 512 * 16_384 * 4 / 1e6
assert max(held["recipe"]) < 0.005 < logits <= min(held["composed"])
assert max(held["torch, 256 tokens"]) < logits / 10

# %%
# In float16 and bfloat16, the recipe computes only the matmuls in the input's dtype. It computes the exponentials, the
# sums over chunks and the loss in float32. Then it rounds the result to the input's dtype, as torch does. For a float32
# loss, use ``torch.autocast``. PyTorch's function adds the losses of its chunks in bfloat16, so **its loss is wrong if
# it uses many chunks**. The next cell compares with float64, for the same rounded inputs:

input, weight, target = problem(16_384)
low = [t.detach().bfloat16().requires_grad_() for t in (input, weight)]
exact = [t.detach().double().requires_grad_() for t in low]
reference = composed(*exact, target)
gradients = torch.autograd.grad(reference, exact)
print(f"exact             loss {float(reference.detach()):.3f}")
found = {}
for name, loss in losses.items():
    value = loss(*low, target)
    errors = [
        float((a.double() - b).norm() / b.norm())
        for a, b in zip(torch.autograd.grad(value, low), gradients, strict=True)
    ]
    found[name] = float(value.detach())
    print(f"{name:17} loss {found[name]:.3f}, relative error of the gradients {errors[0]:.1e} and {errors[1]:.1e}")
off = {name: abs(value / float(reference.detach()) - 1) for name, value in found.items()}
assert off["recipe"] <= 2**-8
assert off["torch, 256 tokens"] < 0.01 < 0.1 < off["torch, in chunks"]

# %%
# Compiled, in bfloat16
# ---------------------
#
# The next cell compiles each function with :func:`torch.compile`'s default backend, Inductor, and measures the peak for
# 32,768 classes in bfloat16. In eager mode, the composition makes several tensors as large as the logits, some of them
# in float32. Compiled, it needs the logits once, in bfloat16. For 512 tokens, this is less than torch's function needs.
# With 2,048 tokens instead of 512, the peak of the composition is four times as high and the peak of the recipe is
# twice as high. The peak of torch's function stays the same:

functions = {name: losses[name] for name in ("composed", "torch, 256 tokens", "recipe")}
peaks = {}
for tokens in (512, 2_048):
    input, weight, target = problem(32_768, tokens=tokens)
    args = [t.detach().bfloat16().requires_grad_() for t in (input, weight)] + [target]
    logits = tokens * 32_768 * 2 / 1e6
    print(f"{tokens:5,} tokens, their logits in bfloat16: {logits:.1f} MB")
    for name, loss in functions.items():
        torch.compiler.reset()
        compiled = torch.compile(loss, fullgraph=True)
        extra(compiled, *args)  # the first call compiles
        eager, peaks[name, tokens] = (extra(function, *args) / 1e6 for function in (loss, compiled))
        print(f"      {name:17} MB at the peak: {eager:5.1f} in eager mode, {peaks[name, tokens]:5.1f} compiled")
    assert logits <= peaks["composed", tokens] < 1.1 * logits
assert peaks["recipe", 512] < peaks["composed", 512] < peaks["torch, 256 tokens", 512]
assert peaks["recipe", 2_048] < peaks["torch, 256 tokens", 2_048] < peaks["composed", 2_048]
assert peaks["torch, 256 tokens", 2_048] < 1.01 * peaks["torch, 256 tokens", 512]
assert 1.9 < peaks["recipe", 2_048] / peaks["recipe", 512] < 2.1

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/03_stability/cross_entropy`: the same loss if you already have the logits.
# * :doc:`/cookbook/01_first_steps/reductions`: log-sum-exp, and what goes wrong if you save an intermediate tensor.
# * :doc:`/cookbook/04_memory/checkpointing`: how to compute tensors again in backward, for any function.
# * :doc:`/cookbook/05_higher_order/double_backward`: how to write a second derivative as a ``Function``.
# * In torch's documentation: :func:`torch.nn.functional.linear`, :func:`torch.utils.checkpoint.checkpoint`.
