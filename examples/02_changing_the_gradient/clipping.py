r"""
Clip a gradient inside of backward
==================================

You will limit gradients by value, by norm, and for each example. You will also see that clipping inside backward gives
another training result than clipping afterwards.
"""

# %%
# When to use it
# --------------
#
# To limit the norm of the gradient of all parameters together, call :func:`torch.nn.utils.clip_grad_norm_` after
# backward.
#
# Clip *inside* backward in two cases, in which clipping afterwards is too late:
#
# * A few examples dominate the gradient. The sum over the batch does not show which examples these are.
# * The gradient overflows during backward. The direction of an infinite gradient is lost.
#
# To clip the gradient of one tensor, a hook is often enough:
#
# * ``clip_gradient_value`` limits each element. It has no advantage over a hook.
# * ``clip_gradient_norm`` limits the norm. The hook ``clip_gradient`` on the page
#   :doc:`/cookbook/02_changing_the_gradient/hooks` uses the same formula. In addition, the recipe can limit each row
#   separately, and its name appears in the autograd graph, where you can find it when you debug.
# * ``clipped_linear`` limits the gradient of each example. A hook on the weight cannot do this, because it gets only
#   the sum over the batch.
#
# With DDP (data parallel training), each process, called a rank, has its own part of the batch. A mean loss divides
# each gradient by the number of samples *on one rank*. If you spread the same batch over more ranks, this number
# shrinks, so a fixed bound silently clips more. If each rank keeps its number of samples, a fixed bound clips as
# before. :doc:`/guide/ranks` shows both, and how to choose the bound.
#
# The gradient
# ------------
#
# A bar marks a gradient. Backward gets :math:`\bar{y}` and returns :math:`\bar{x}`. With the bound :math:`c`, the two
# ways to clip are
#
# .. math::
#
#    \text{value: } \bar{x}_i = \min(\max(\bar{y}_i, -c), c), \qquad
#    \text{norm: } \bar{x} = \bar{y} \min\left(1, \frac{c}{\lVert \bar{y} \rVert}\right).
#
# In a linear layer, an *example* is one row of the input. Example :math:`n` adds the matrix :math:`\bar{Y}_n X_n^\top`
# to the gradient of the weight. This matrix is the product of two vectors, so its norm is :math:`\lVert \bar{Y}_n
# \rVert \lVert X_n \rVert`. So backward can compute the clipping factor :math:`f_n` of each example without computing
# the matrix. With a bias, the norm includes the gradient of the bias, and :math:`f_n` scales this gradient, too. The
# gradient of the input is not clipped:
#
# .. math::
#
#    \bar{W} = \sum_n f_n\,\bar{Y}_n X_n^\top, \qquad
#    f_n = \min\left(1, \frac{c}{\lVert \bar{Y}_n \rVert\,\lVert X_n \rVert}\right).
#
# In the formulas of the recipes, a star marks the complex conjugate.
#
# The recipe
# ----------
#
# .. recipe:: clip_gradient_value
#
# .. recipe:: clip_gradient_norm
#
# .. recipe:: clipped_linear

# sphinx_gallery_tags = ["gradient", "stability", "second order"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes
from autograd_cookbook.recipes.clipping import clip_gradient_norm, clip_gradient_value, clipped_linear
from autograd_cookbook.recipes.hooks import clip_gradient

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The data are the body mass index of 442 patients and how their diabetes progressed in a year. The next cell makes the
# progression ten times too large in 5 % of the records, as if a decimal point were in the wrong place. Gradient descent
# fits a line to these records in three ways. A fourth line is fitted to the correct records:

torch.manual_seed(0)
bmi, progress = load_diabetes(return_X_y=True, scaled=False)
bmi, clean = torch.tensor(bmi[:, 2:3]).float(), torch.tensor(progress).float().unsqueeze(1)
bmi = (bmi - bmi.mean()) / bmi.std()
records = torch.where(torch.rand(442, 1) < 0.05, 10 * clean, clean)


def fit(layer, targets, after=float("inf"), size=442):
    """Return slope, intercept, and how many of 400 steps were shortened by clipping after backward.

    Each step uses ``size`` records, which are all of them by default.
    """
    shortened = 0
    weight, bias = nn.Parameter(torch.zeros(1, 1)), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight, bias], lr=1e-3)
    for step in range(400):
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - step / 400)
        batch = torch.randperm(442)[:size]
        optimizer.zero_grad()
        (0.5 * (layer(bmi[batch], weight, bias) - targets[batch]).square()).sum().backward()
        shortened += bool(nn.utils.clip_grad_norm_([weight, bias], after) > after)
        optimizer.step()
    return weight.item(), bias.item(), shortened


lines = {
    "records before the mistake": fit(F.linear, clean),
    "no clipping": fit(F.linear, records),
    "clip_grad_norm_ after backward": fit(F.linear, records, after=2000.0),
    "clipped_linear, each example": fit(lambda x, w, b: clipped_linear(x, w, b, 50.0), records),
}

figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.scatter(bmi, records, s=8, color="0.7")
ends = torch.tensor([-2.2, 3.5])
for (name, (slope, intercept, _)), style in zip(lines.items(), (":", "-", "--", "-."), strict=True):
    axis.plot(ends, slope * ends + intercept, style, label=name, linewidth=3 if style == ":" else 1.8)
axis.set(xlabel="body mass index, standardized", ylabel="progression", ylim=(0, 700))
axis.set_title("Wrong records bend the line, and clipping the gradient of all records does not help")
axis.legend(loc="upper left")
plt.show()

slope, intercept, _ = lines["records before the mistake"]
for name, line in lines.items():
    error = abs(line[0] + line[1] - slope - intercept)
    print(f"{name:31} {line[0]:5.1f} x + {line[1]:5.1f}, off by {error:5.1f} at x = 1; {line[2]:3} steps shortened")
    assert (error > 100) == (name in ("no clipping", "clip_grad_norm_ after backward"))
assert lines["clip_grad_norm_ after backward"][2] > 10

# %%
# Most of the wrong records lie above the visible part of the plot. Because each step uses all records, clipping after
# backward only shortens some steps. So it changes how fast the fit reaches the minimum, but not where the minimum is.
# Clipping the gradient of each example moves the minimum toward the correct line.
#
# With minibatches, clipping after backward also changes where the fit ends, because it shortens the steps of batches
# with wrong records more than the other steps. How far the line moves depends on the batch size and on the bound, as
# the next cell shows:

for size, after in ((442, 2000.0), (32, float("inf")), (32, 2000.0), (32, 1000.0)):
    line = fit(F.linear, records, after, size)
    error = abs(line[0] + line[1] - slope - intercept)
    print(
        f"{size:3} records in a step, bound {after:6}: {line[0]:5.1f} x + {line[1]:5.1f}, off by {error:5.1f} at x = 1"
    )
    assert (error > 100) == (size == 442 or after > 2000)

# %%
# Huber's loss also limits the influence of large residuals. If you pass the *prediction* of a summed loss
# :math:`\frac{1}{2} r^2` with residuals :math:`r` through ``clip_gradient_value``, you get the gradient of Huber's
# loss:

residuals = torch.linspace(-3, 3, 101)
predictions = residuals.clone().requires_grad_()
(clipped,) = torch.autograd.grad(0.5 * clip_gradient_value(predictions, 1.0).square().sum(), predictions)
huber = torch.autograd.grad(F.huber_loss(predictions, torch.zeros(101), reduction="sum"), predictions)[0]
assert torch.equal(clipped, huber)
print("squared loss with its gradient clipped to ±1: the gradient of Huber's loss, to the bit")

# %%
# A norm can overflow although each element of the gradient is finite. In float32, the squares overflow above
# :math:`10^{19}`. In float16, torch adds the squares in float32, but the norm itself can be larger than 65,504, for
# example for 100 elements that are all 10,000. If the norm is infinite, clipping divides by infinity, so the gradient
# is silently 0 and the step is lost. With ``error_if_nonfinite=True``, ``clip_grad_norm_`` raises an error instead:


def after_backward(grad):
    parameter = nn.Parameter(torch.zeros_like(grad))
    parameter.grad = grad.clone()
    nn.utils.clip_grad_norm_([parameter], 1.0)
    return parameter.grad


try:
    parameter = nn.Parameter(torch.zeros(100))
    parameter.grad = torch.full((100,), 1e20)
    nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)
    raise AssertionError("error_if_nonfinite raises nothing")
except RuntimeError as error:
    print(str(error).partition(". ")[0])


def sent_back(function, grad):
    x = torch.zeros_like(grad, requires_grad=True)
    return torch.autograd.grad(function(x, 1.0), x, grad)[0]


for grad in (torch.full((100,), 1e4, dtype=torch.float16), torch.full((100,), 1e20)):
    found = {
        "clip_grad_norm_": after_backward(grad),
        "clip_gradient, a hook": sent_back(clip_gradient, grad),
        "clip_gradient_norm": sent_back(clip_gradient_norm, grad),
    }
    print(f"100 times {grad[0].item():g} in {grad.dtype}:", {name: f"{g[0].item():.3f}" for name, g in found.items()})
    assert not found.pop("clip_grad_norm_").any()
    assert all(abs(g[0].item() - 0.1) < 1e-4 for g in found.values())

# %%
# The gradients above are finite, and only their norm overflows. If an *element* is infinite or NaN, clipping by norm
# makes it NaN, so the ``GradScaler`` of mixed-precision training still detects the overflow. The gradients that reach
# the recipe contain the factor of the ``GradScaler``, so multiply the bound by ``scaler.get_scale()``. Clipping by
# value makes an infinite gradient finite, as torch's ``clip_grad_value_`` does, so the ``GradScaler`` does not detect
# it:

for bad in (torch.inf, torch.nan):
    grad = torch.tensor([bad, 1.0])
    by_norm, by_value = sent_back(clip_gradient_norm, grad), sent_back(clip_gradient_value, grad)
    print(f"{grad.tolist()}: by norm {by_norm.tolist()}, by value {by_value.tolist()}")
    torch.testing.assert_close(by_norm, after_backward(grad), equal_nan=True)

# %%
# The wrong version
# -----------------
#
# By default, a loss is a mean over the batch, so the gradient of each example is divided by the batch size. With DDP,
# it is divided by the batch size of one rank. If you chose the bound without this division, it then clips too little,
# here nothing. Divide the bound by the same number. If the loss is also a mean over several outputs of an example,
# divide by their number, too. In the next cell, each example has one output:


def share_clipped(reduction, bound):
    """Return the fraction of the predictions whose gradient is clipped."""
    predictions = torch.zeros_like(records).requires_grad_()
    loss = 0.5 * F.mse_loss(clip_gradient_norm(predictions, bound, dim=1), records, reduction=reduction)
    (grad,) = torch.autograd.grad(loss, predictions)
    return (grad.abs() >= bound * 0.9999).float().mean().item()


for reduction, bound in (("sum", 300.0), ("mean", 300.0), ("mean", 300.0 / 442)):
    print(f"{reduction:4} over the batch, bound {bound:6.2f}: {share_clipped(reduction, bound):5.1%} clipped")
assert share_clipped("mean", 300.0) == 0
assert share_clipped("mean", 300.0 / 442) == share_clipped("sum", 300.0) > 0

# %%
# With an input of shape ``(batch, tokens, features)``, ``clipped_linear`` clips each *token*, not each sequence. The
# gradient of a sequence is a sum over its tokens. This sum is not a product of two vectors, so the recipe's formula for
# the norm does not hold. To clip whole sequences, see
# :doc:`/cookbook/05_higher_order/per_sample_gradients`. The next cell has 2 sequences of 5 tokens:

tokens, matrix = torch.randn(2, 5, 4), torch.randn(3, 4, requires_grad=True)
of_rows, of_tokens, unclipped = (
    torch.autograd.grad(layer(inputs).square().sum(), matrix)[0]
    for layer, inputs in (
        (lambda x: clipped_linear(x, matrix, None, 1.0), tokens.flatten(0, 1)),
        (lambda x: clipped_linear(x, matrix, None, 1.0), tokens),
        (lambda x: F.linear(x, matrix), tokens),
    )
)
of_sequences = torch.zeros(3, 4)
for sequence in tokens:
    (of_one,) = torch.autograd.grad(F.linear(sequence, matrix).square().sum(), matrix)
    assert torch.linalg.matrix_rank(of_one) > 1
    of_sequences += of_one * (1.0 / of_one.norm()).clamp(max=1)
torch.testing.assert_close(of_tokens, of_rows)
print(f"norm {unclipped.norm():.1f}, clipped by tokens {of_tokens.norm():.2f}, by sequences {of_sequences.norm():.2f}")
assert of_sequences.norm() <= 2 < of_tokens.norm()

# %%
# It is also a mistake to clamp in *forward* instead of clipping in backward. The clamp changes the value, and its
# gradient is 0 for elements outside the bounds, so no gradient moves these elements back:

x = torch.tensor([-5.0, 0.5, 5.0], requires_grad=True)
(clamped,) = torch.autograd.grad((100 * x.clamp(-1, 1)).sum(), x)
(clipped,) = torch.autograd.grad((100 * clip_gradient_value(x, 1.0)).sum(), x)
print("clamp in forward:", clamped.tolist(), " clip in backward:", clipped.tolist())
assert clamped.tolist() == [0, 100, 0]

# %%
# What it costs
# -------------
#
# .. costs::
#
# The recipes keep no bytes for backward in addition to their arguments. ``clip_gradient_norm`` takes longer than a
# plain norm, because it divides by the largest element first, so that no square overflows.
#
# To clip each example of a linear layer, a composition of torch operations makes a copy of the weight for each example.
# The usual way, :func:`torch.func.vmap` over :func:`torch.func.grad`, also stores the gradient of each example:

inputs, weight = torch.randn(512, 128), torch.randn(64, 128)


def by_vmap(inputs, weight):
    def loss(weight, row):
        return F.linear(row, weight).square().sum()

    grads = torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, inputs)
    norms = grads.flatten(1).norm(dim=1)
    return torch.einsum("n,noi->oi", (1.0 / norms).clamp(max=1), grads)


def by_recipe(inputs, weight):
    weight = weight.clone().requires_grad_()
    return torch.autograd.grad(clipped_linear(inputs, weight, None, 1.0).square().sum(), weight)[0]


torch.testing.assert_close(by_vmap(inputs, weight), by_recipe(inputs, weight))
peaks = [peak_bytes(function, inputs, weight) for function in (by_vmap, by_recipe)]
print(f"512 examples: the peak is {peaks[0]:,} bytes with vmap, {peaks[1]:,} with the recipe")
assert peaks[0] > 10 * peaks[1]

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/hooks`: how to clip one tensor without a ``Function``, and how this stops
#   an exploding gradient.
# * :doc:`/cookbook/02_changing_the_gradient/reversal`: how to multiply a gradient by a factor.
# * :doc:`/cookbook/05_higher_order/per_sample_gradients`: the gradient of each example, for any network.
# * :doc:`/guide/ranks`: how to clip with DDP, where the bound has to follow the local batch, and why a norm over the
#   whole batch depends on the number of ranks.
# * :doc:`/guide/compiled_rules`: how to keep this backward when you compile code that calls :mod:`torch.func`.
# * In torch's documentation: :func:`torch.nn.utils.clip_grad_norm_`, :func:`torch.func.vmap`,
#   :func:`torch.nn.functional.huber_loss`.
