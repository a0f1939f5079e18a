r"""
Per-sample gradients: vmap, and a rule of your own for it
=========================================================

You will compute the gradient of every sample of a batch in one pass, and clip each of them for private training. You
will also write the rule that lets ``vmap``, which runs a function of one sample on a whole batch, pass through code
that it can't trace.
"""

# %%
# When to use it
# --------------
#
# Use per-sample gradients for differentially private training, influence functions (how one sample changes the trained
# model), the gradient-noise scale (how much the samples' gradients differ), or to see which samples dominate a batch.
# If you only need the sum or the mean, a plain backward is cheaper. A custom function in the model needs one line,
# ``generate_vmap_rule = True``, if it consists of torch operations. Otherwise write its ``vmap`` by hand: for NumPy,
# for a kernel, or for a solver that takes whole batches. Real private training also needs random sampling, and a
# privacy accountant that adds up how much privacy each step spends. The library Opacus has both.
#
# The gradient
# ------------
#
# Backward sums over the batch, so the gradients :math:`g_i` of single samples never exist. ``vmap`` takes code that
# computes the gradient of one sample, and runs it on the whole batch. The code does not see the batch dimension. For
# private training with a batch of :math:`B` samples, each gradient is then clipped to the norm :math:`C`, and noise of
# standard deviation :math:`\sigma C` is added to their sum. This limits the effect of one sample:
#
# .. math::
#
#    \tilde{g} = \frac{1}{B} \Big( \sum_i g_i \min\!\big(1, \tfrac{C}{\lVert g_i \rVert}\big)
#    + \mathcal{N}(0, \sigma^2 C^2 I) \Big) .
#
# If ``vmap`` can't trace your code, you write a rule for it. The rule gets the inputs *with* their hidden batch
# dimension, and says where the outputs have this dimension. The example is isotonic regression, which finds the closest
# non-decreasing sequence. Isotonic regression replaces blocks of values by their means, so its gradient is an average
# over the same blocks.
#
# The recipe
# ----------
#
# .. recipe:: per_sample_gradients
#
# .. recipe:: clipped_mean_gradient
#
# .. recipe:: isotonic_regression

# sphinx_gallery_tags = ["gradient", "speed", "black box"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.autograd import gradcheck
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from autograd_cookbook import audit
from autograd_cookbook.auditing import peak_bytes
from autograd_cookbook.recipes.forward_mode import symlog
from autograd_cookbook.recipes.per_sample_gradients import (
    IsotonicFunction,
    clipped_mean_gradient,
    isotonic_regression,
    per_sample_gradients,
)
from autograd_cookbook.recipes.template import tanh

# %%
# See it work
# -----------
#
# The next cell trains a network with a custom function on handwritten digits in three ways: with plain gradients, with
# clipped gradients, and with clipped gradients and noise. The left figure shows the norms of the gradients of single
# samples, and the right figure shows the accuracy during training.

digits = load_digits()
images = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
train, test = (images[:1200], labels[:1200]), (images[1200:], labels[1200:])


class Symlog(nn.Module):
    def forward(self, x):
        return symlog(4 * x)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 32), Symlog(), nn.Linear(32, 10))
start = {name: p.detach().clone() for name, p in net.named_parameters()}


def loss(parameters, image, label):
    return F.cross_entropy(functional_call(net, parameters, image), label)


def norms(parameters):
    gradients = per_sample_gradients(loss, parameters, train)
    return torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()


def accuracy(parameters):
    return (functional_call(net, parameters, test[0]).argmax(1) == test[1]).double().mean().item()


def training(max_norm, noise_multiplier, steps=45):
    parameters, curve = start, [accuracy(start)]
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        chosen = torch.randperm(len(train[0]), generator=generator)[:128]
        batch = train[0][chosen], train[1][chosen]
        gradient = clipped_mean_gradient(loss, parameters, batch, max_norm, noise_multiplier, generator)
        parameters = {name: p - 0.5 * gradient[name] for name, p in parameters.items()}
        curve.append(accuracy(parameters))
    return parameters, curve


CLIP = 1.0
runs = {
    "plain": training(1e6, 0.0),
    f"clipped at {CLIP:g}": training(CLIP, 0.0),
    "clipped, noise σ = 4": training(CLIP, 4.0),
}

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.3), layout="constrained")
figure.suptitle("Gradients of single samples on handwritten digits, and training with them clipped")
left.hist(norms(start), bins=40, range=(0, 10), alpha=0.7, label="before training")
left.hist(norms(runs["plain"][0]), bins=40, range=(0, 10), histtype="step", linewidth=1.5, label="after, plain")
left.axvline(CLIP, color="k", linestyle="--", linewidth=1, label=f"C = {CLIP:g}")
left.set(xlabel="norm of a sample's gradient", ylabel="samples")
left.legend(fontsize=8)
for (name, (_, curve)), style in zip(runs.items(), ("-", "--", ":"), strict=True):
    right.plot(curve, style, label=name)
right.set(xlabel="step", ylabel="accuracy on new digits")
right.legend(fontsize=8)
plt.show()

for name, (_, curve) in runs.items():
    print(f"{name:22} accuracy {curve[-1]:.1%}")
assert runs[f"clipped at {CLIP:g}"][1][-1] > 0.75

# %%
# The next cell checks that the gradients are those of a loop over the samples. It also checks that one sample moves the
# mean by at most :math:`2C / B`, which holds if all gradients are finite:

wide = tree_map(torch.Tensor.double, start)
batch = train[0][:20].double(), train[1][:20]
together = per_sample_gradients(loss, wide, batch)
leaves = {name: p.clone().requires_grad_() for name, p in wide.items()}
for i in range(20):
    alone = torch.autograd.grad(loss(leaves, batch[0][i], batch[1][i]), list(leaves.values()))
    for mapped, single in zip(together.values(), alone, strict=True):
        assert torch.allclose(mapped[i], single, rtol=1e-12, atol=1e-12)
outlier = batch[0].clone()
outlier[0] *= 1000
means = [clipped_mean_gradient(loss, wide, (x, batch[1]), CLIP) for x in (batch[0], outlier)]
moved = sum((a - b).square().sum() for a, b in zip(*(m.values() for m in means), strict=True)).sqrt().item()
print(f"one sample times 1000 moves the mean of 20 by {moved:.4f}, at most 2 C / 20 = {2 * CLIP / 20}")
assert moved <= 2 * CLIP / 20

# %%
# If the gradient of a sample is *not* finite, clipping can't bound it: one NaN among the samples makes the mean NaN.
# Look for such samples before you train, or remove them from the batch:

broken = batch[0].clone()
broken[0] = float("nan")
mean = clipped_mean_gradient(loss, wide, (broken, batch[1]), CLIP)
print("one sample is NaN, and so is the mean:", {name: bool(g.isnan().any()) for name, g in mean.items()})
assert all(g.isnan().any() for g in mean.values())

# %%
# A rule by hand
# --------------
#
# ``isotonic_regression`` runs in NumPy. Its rule moves the hidden dimension to the front and calls the function once.
# So per-sample gradients work for a model that contains this function. In the example, the model calibrates eight
# scores:

torch.manual_seed(0)
scores, targets = torch.randn(5, 8, dtype=torch.float64), torch.randn(5, 8, dtype=torch.float64)


def calibrated(weight, score, target):
    return (isotonic_regression(weight * score) - target).square().sum()


weight = torch.ones(8, dtype=torch.float64)
mapped = per_sample_gradients(calibrated, weight, (scores, targets))
looped = torch.stack([torch.func.grad(calibrated)(weight, s, t) for s, t in zip(scores, targets, strict=True)])
print("largest difference from a loop:", (mapped - looped).abs().max().item())
assert torch.allclose(mapped, looped, rtol=1e-12)

# %%
# The wrong version
# -----------------
#
# The next cell shows three wrong versions. The first has a generated rule, which sends a batched tensor into NumPy. The
# second has no rule. The rule of the third assumes that the batch comes first:


class Generated(IsotonicFunction):
    generate_vmap_rule = True
    vmap = torch.autograd.Function.vmap  # as if there were no rule by hand


class NoRule(IsotonicFunction):
    vmap = torch.autograd.Function.vmap


class BatchFirst(IsotonicFunction):
    @staticmethod
    def vmap(info, in_dims, input):
        return BatchFirst.apply(input), (0, 0)


def first_output(function):
    return lambda x: function.apply(x)[0]


print("torch", torch.__version__)
for function in (Generated, NoRule):
    try:
        vmap(first_output(function))(scores)
    except RuntimeError as error:
        print(f"{function.__name__}: {str(error).splitlines()[0].partition('.')[0]}")
    else:
        raise AssertionError(f"vmap goes through {function.__name__}")

x = torch.tensor([[3.0, 1.0], [2.0, 4.0]])
for name, function in {"recipe": isotonic_regression, "batch first": first_output(BatchFirst)}.items():
    rows, columns = (vmap(function, in_dims=dim)(x).tolist() for dim in (0, 1))
    print(f"{name:12} rows {rows}, columns {columns}")
print("looped       rows", [isotonic_regression(r).tolist() for r in x], end=", ")
print("columns", [isotonic_regression(c).tolist() for c in x.mT])

# %%
# The columns are wrong, and PyTorch raises no error. ``gradcheck`` does not map the function (``check_batched_grad``
# maps only its backward), and most tests map dim 0. The function ``audit`` of ``autograd_cookbook`` maps each input
# over its first dimension, over its last, and not at all, and compares with a loop:

square = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
report = audit(first_output(BatchFirst), (square,), only=["vmap"])
for finding in report.findings:
    print(f"{finding.severity}: {finding.summary}\n{finding.cause}")
assert report.capabilities["vmap"] == "wrong"
assert gradcheck(first_output(BatchFirst), (square,), check_batched_grad=False)
assert audit(isotonic_regression, (square,), only=["vmap"]).capabilities["vmap"] == "yes"

# %%
# What it costs
# -------------
#
# Per-sample gradients need memory for :math:`B` gradients instead of one, and clipping makes scaled copies of them.
# ``clipped_mean_gradient`` clips one chunk of samples at a time, so ``chunk_size`` limits the memory. The next cell
# prints the peak for the network above and 256 samples, in units of one gradient:

batch = train[0][:256], train[1][:256]
one = sum(p.untyped_storage().nbytes() for p in start.values())
peaks = {
    size: peak_bytes(lambda size=size: clipped_mean_gradient(loss, start, batch, CLIP, chunk_size=size)) / one
    for size in (256, 64, 16)
}
for size, peak in peaks.items():
    print(f"chunk_size {size:3}: peak {peak:.0f}")
assert peaks[256] > 256
assert peaks[16] < 64


# %%
# The next cell prints the time, in units of one plain backward over the batch. A loop runs 256 backward passes:


def seconds(run):
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def backward(image, label):
    leaves = {name: p.clone().requires_grad_() for name, p in start.items()}
    total = F.cross_entropy(functional_call(net, leaves, image), label)
    return torch.autograd.grad(total, list(leaves.values()))


single = seconds(lambda: backward(*batch))
mapped = seconds(lambda: per_sample_gradients(loss, start, batch))
looped = seconds(lambda: [backward(*sample) for sample in zip(*batch, strict=True)])
print(f"in times of one plain backward: mapped {mapped / single:.0f}, looped {looped / single:.0f}")

# %%
# The compiler accepts per-sample gradients if the model has no custom function. With a custom function whose
# argument is computed from the weights, as below, it raises an error, because it loses the rule for ``vmap``. If the
# compiled part calls ``vmap`` but not ``grad``, a custom function compiles, which is worse: a ``loss.backward()``
# *outside* of the compiled part silently uses the derivative of your forward instead of your backward.
# ``torch.compiler.allow_in_graph`` prevents both problems, see :doc:`/guide/compiled_rules`.

compiled = torch.compile(
    lambda weight, x: per_sample_gradients(lambda w, x: tanh(w * x).sum(), weight, (x,)), backend="eager"
)
try:
    compiled(torch.ones(2), torch.ones(3, 2))
except RuntimeError as error:
    print(f"torch {torch.__version__}: {str(error).strip().splitlines()[0].partition('.')[0]}")
else:
    raise AssertionError("per-sample gradients of custom functions compile: say so above")

# %%
# The square of a large gradient overflows, and the square of a small one becomes 0. So in float32, the obvious norm
# is infinite for a gradient above :math:`10^{19}`, and 0 below :math:`10^{-23}`. ``clipped_mean_gradient`` first
# divides each sample's gradient by a power of two, which causes no rounding unless an element becomes subnormal:

for size in (1e25, 1e-30):
    x = size * torch.tensor([[3.0, 4.0]])
    clipped = clipped_mean_gradient(lambda w, x: w @ x, torch.zeros(2), (x,), max_norm=1.0)
    print(f"gradient of size {5 * size:.0e}, clipped: {clipped.tolist()}")
    assert torch.allclose(clipped.norm(p=torch.inf) / min(size, 0.2), torch.tensor(4.0))

# %%
# Neighbors
# ---------
#
# * :ref:`per-sample-ranks`: the same on several processes, with unequal batches, and noise that is added once.
# * :doc:`/cookbook/02_changing_the_gradient/clipping`: clip the gradient at a tensor, or for each example of a linear
#   layer.
# * :doc:`/cookbook/05_higher_order/forward_mode`: the other transformation that needs its own method.
# * :doc:`/cookbook/06_beyond_autograd/approximate_gradients`: code without a known formula.
# * :doc:`/guide/compiled_rules`: how to keep your backward when you compile code that calls :mod:`torch.func`.
# * In torch's documentation: :func:`torch.func.vmap`, :func:`torch.func.grad`.
