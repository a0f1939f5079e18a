r"""
Clip a gradient inside of backward
==================================

You will limit gradients by value, by norm and example by example, and see that *where* you clip decides what is
learned.
"""

# %%
# When to use it
# --------------
#
# If a step is sometimes too long, you do not need this page: :func:`torch.nn.utils.clip_grad_norm_` after backward
# shortens it. Clip *inside* of backward when that is too late: when a few examples outvote all others, because the sum
# over the batch no longer shows which; or when the gradient overflows on its way, because an infinite gradient has no
# direction left to keep.
#
# To clip the gradient of one tensor, a hook is enough: ``clip_gradient`` on the page of hooks has the same formula as
# ``clip_gradient_norm``, which adds one norm for each row, and its name in the graph. ``clip_gradient_value`` has no
# advantage over a hook either. ``clipped_linear`` has one: it clips the gradient of each example, and a hook on the
# weight sees only the sum over the batch.
#
# The gradient
# ------------
#
# .. math::
#
#    \text{value: } \bar{x}_i = \min(\max(\bar{y}_i, -c), c), \qquad
#    \text{norm: } \bar{x} = \bar{y} \min\left(1, \frac{c}{\lVert \bar{y} \rVert}\right).
#
# In a linear layer, example :math:`n` contributes :math:`\bar{Y}_n X_n^\top` to the gradient of the weight: a matrix
# of rank one. Its norm is :math:`\lVert \bar{Y}_n \rVert \lVert X_n \rVert`, so each contribution can be clipped
# without ever being formed:
#
# .. math::
#
#    \bar{W} = \sum_n f_n\,\bar{Y}_n X_n^\top, \qquad
#    f_n = \min\left(1, \frac{c}{\lVert \bar{Y}_n \rVert\,\lVert X_n \rVert}\right).
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
# 442 patients, the body mass index and how far their diabetes went in a year. In 5 % of the records the decimal
# point is in the wrong place. A line is fitted to them by gradient descent in three ways, and a fourth one to the
# records before that happened:

torch.manual_seed(0)
bmi, progress = load_diabetes(return_X_y=True, scaled=False)
bmi, clean = torch.tensor(bmi[:, 2:3]).float(), torch.tensor(progress).float().unsqueeze(1)
bmi = (bmi - bmi.mean()) / bmi.std()
records = torch.where(torch.rand(442, 1) < 0.05, 10 * clean, clean)


def fit(layer, targets, after=float("inf")):
    """The line, and how many of 400 steps the clipping after backward has shortened."""
    shortened = 0
    weight, bias = nn.Parameter(torch.zeros(1, 1)), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight, bias], lr=1e-3)
    for step in range(400):
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - step / 400)
        optimizer.zero_grad()
        (0.5 * (layer(bmi, weight, bias) - targets).square()).sum().backward()
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
axis.set_title("Wrong records bend the line, and clipping the sum of all gradients does not help")
axis.legend(loc="upper left")
plt.show()

slope, intercept, _ = lines["records before the mistake"]
for name, line in lines.items():
    error = abs(line[0] + line[1] - slope - intercept)
    print(f"{name:31} {line[0]:5.1f} x + {line[1]:5.1f}, off by {error:5.1f} at x = 1; {line[2]:3} steps shortened")
    assert (error > 100) == (name in ("no clipping", "clip_grad_norm_ after backward"))
assert lines["clip_grad_norm_ after backward"][2] > 10

# %%
# Most of the wrong records are above the frame. To shorten a step changes how fast one gets to the minimum, not where
# it is; to limit each example's share moves it.
#
# Why that works has a name. Pass the *prediction* of a squared loss through ``clip_gradient_value``, and the gradient
# is that of Huber's loss, which does not trust large residuals:

residuals = torch.linspace(-3, 3, 101)
predictions = residuals.clone().requires_grad_()
(clipped,) = torch.autograd.grad(0.5 * clip_gradient_value(predictions, 1.0).square().sum(), predictions)
huber = torch.autograd.grad(F.huber_loss(predictions, torch.zeros(101), reduction="sum"), predictions)[0]
assert torch.equal(clipped, huber)
print("squared loss with its gradient clipped to ±1: the gradient of Huber's loss, to the bit")

# %%
# A norm is a sum of squares, and squares overflow long before the gradient does. An infinite norm divides the
# gradient to zero, and nothing says that the step was lost. Float16 gets there with a hundred entries of 10,000:


def after_backward(grad):
    parameter = nn.Parameter(torch.zeros_like(grad))
    parameter.grad = grad.clone()
    nn.utils.clip_grad_norm_([parameter], 1.0)
    return parameter.grad


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
# An infinite or a missing number is not hidden, by neither of them, so that a ``GradScaler`` will find it. To clip by
# value hides infinity, as in torch:

for bad in (torch.inf, torch.nan):
    grad = torch.tensor([bad, 1.0])
    by_norm, by_value = sent_back(clip_gradient_norm, grad), sent_back(clip_gradient_value, grad)
    print(f"{grad.tolist()}: by norm {by_norm.tolist()}, by value {by_value.tolist()}")
    torch.testing.assert_close(by_norm, after_backward(grad), equal_nan=True)

# %%
# The wrong version
# -----------------
#
# The loss is a mean over the batch, as losses are by default. Then the gradient of each example arrives divided by
# the size of the batch, and a bound that was chosen for one example never bites:


def share_clipped(reduction, bound):
    """How many of the predictions have their gradient clipped."""
    predictions = torch.zeros_like(records).requires_grad_()
    loss = 0.5 * F.mse_loss(clip_gradient_norm(predictions, bound, dim=1), records, reduction=reduction)
    (grad,) = torch.autograd.grad(loss, predictions)
    return (grad.abs() >= bound * 0.9999).float().mean().item()


for reduction, bound in (("sum", 300.0), ("mean", 300.0), ("mean", 300.0 / 442)):
    print(f"{reduction:4} over the batch, bound {bound:6.2f}: {share_clipped(reduction, bound):5.1%} clipped")
assert share_clipped("mean", 300.0) == 0
assert share_clipped("mean", 300.0 / 442) == share_clipped("sum", 300.0) > 0

# %%
# And a clamp in *forward* is something else. It changes the value, and has no gradient at all where it is at its
# bound, so that what is out of range never comes back:

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
# No bytes between forward and backward. The norm that does not overflow takes two passes more over the gradient than
# a plain one. For the linear layer, the composition makes a copy of the weight for each example. The usual way to get
# the gradients of examples, :func:`torch.func.vmap` over :func:`torch.func.grad`, forms them all, too:

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
# * :doc:`/cookbook/02_changing_the_gradient/hooks`: to clip one tensor without a ``Function``, and the explosion that
#   it stops.
# * :doc:`/cookbook/02_changing_the_gradient/reversal`: a factor instead of a bound.
# * :doc:`/cookbook/05_higher_order/per_sample_gradients`: the gradients of examples for any network.
# * :doc:`/guide/compiled_rules`: compiled inside of :mod:`torch.func`, this backward is dropped without a warning; one
#   line keeps it.
# * In torch's documentation: :func:`torch.nn.utils.clip_grad_norm_`, :func:`torch.func.vmap`,
#   :func:`torch.nn.functional.huber_loss`.
