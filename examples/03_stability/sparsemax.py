r"""
Sparsemax and entmax: probabilities that are exactly zero
=========================================================

You will write sparsemax and entmax, two functions like softmax that give many entries a probability of exactly 0. Their
backward needs only the output.
"""

# %%
# When to use it
# --------------
#
# Use these functions if exact zeros help you: attention with zeros is easier to read, and you do not have to compute
# the parts of a mixture that have weight 0. PyTorch has neither function.
#
# If small probabilities are as good as zeros, use :func:`torch.softmax`. Softmax is faster, and every entry gets a
# gradient unless its probability is rounded to 0. In float32 and in a short row, softmax gives a gradient to every
# entry that is less than about 100 below the largest one. In contrast, if an entry is 1 or more below the largest
# entry, its probability and its gradient in sparsemax are 0. For entmax, this distance is 2. Entries at smaller
# distances often get probability 0, too.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{p}` is the gradient of the loss with respect to :math:`p`.
#
# Sparsemax is the projection onto the simplex, which is the set of all probability vectors. Entmax with
# :math:`\alpha = 1.5` lies between sparsemax and softmax. Sparsemax and entmax choose the threshold :math:`\tau` such
# that the probabilities sum to 1:
#
# .. math::
#
#    \text{sparsemax: } p_i = \max(x_i - \tau, 0), \qquad
#    \text{1.5-entmax: } p_i = \max(x_i/2 - \tau, 0)^2, \qquad \sum_i p_i = 1 .
#
# Backward does not have to differentiate the search for :math:`\tau`. The support :math:`S` is the set of entries with
# :math:`p_i > 0`. Almost everywhere, a small change of :math:`x` does not change :math:`S`. So
# :math:`dp_i = s_i\,(dx_i - c)`, where the constant :math:`c` comes from the change of :math:`\tau`. On the support,
# :math:`s_i` is 1 for sparsemax and :math:`\sqrt{p_i}` for entmax, and elsewhere :math:`s_i = 0`. Because the
# probabilities still sum to 1, the changes :math:`dp_i` sum to 0. This condition determines :math:`c`, and the gradient
# is
#
# .. math:: \bar{x}_i = s_i \Big(\bar{p}_i - \frac{\sum_j s_j \bar{p}_j}{\sum_j s_j}\Big) .
#
# With :math:`s_i = p_i`, this formula is the gradient of softmax.
#
# The recipe
# ----------
#
# .. recipe:: sparsemax
#
# .. recipe:: entmax15

# sphinx_gallery_tags = ["stability", "shapes", "second order"]
# sphinx_gallery_thumbnail_number = 1

import itertools

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LogNorm
from sklearn.datasets import load_digits
from torch.autograd import Function

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.sparsemax import Entmax15Function, entmax15, sparsemax

# %%
# See it work
# -----------
#
# The figure shows the probabilities of three logits while the first logit changes. Softmax does not reach 0 or 1 here.
# Sparsemax is piecewise linear. Entmax reaches 0 with slope 0:

functions = {"softmax": torch.softmax, "1.5-entmax": entmax15, "sparsemax": sparsemax}
x = torch.linspace(-4, 4, 401, dtype=torch.float64)
logits = torch.stack([x, torch.zeros_like(x), torch.full_like(x, -0.5)], 1)

figure, axes = plt.subplots(1, 3, figsize=(7, 3), layout="constrained", sharey=True)
figure.suptitle("Probabilities of three logits as the first one moves: two of the functions reach 0 and 1")
for axis, (name, function) in zip(axes, functions.items(), strict=True):
    for values, style, label in zip(function(logits, 1).T, ("-", "--", "-."), ("x", "0", "−0.5"), strict=True):
        axis.plot(x, values, style, label=f"logit {label}")
    axis.set(title=name, xlabel="x")
axes[0].set_ylabel("probability")
axes[0].legend(fontsize=8, loc="upper left")
plt.show()

for name, function in functions.items():
    certain = (function(logits, 1) == 1).any(1).double().mean()
    print(f"{name:10} is certain, to the last bit, at {certain:4.0%} of the points")
    assert (certain == 0) == (function is torch.softmax)

# %%
# Softmax also gives gradient 0 if the probability is too small for the dtype. The next cell prints the gradient of the
# smaller of two float32 logits at growing distances:

for distance in (0.5, 1.0, 2.0, 100.0, 110.0):
    slopes = {}
    for name, function in functions.items():
        pair = torch.tensor([0.0, -distance], requires_grad=True)
        slopes[name] = torch.autograd.grad(function(pair, 0)[1], pair)[0][1].item()
    print(f"distance {distance:5}", {name: float(f"{slope:.1g}") for name, slope in slopes.items()})
    assert (slopes["softmax"] == 0) == (distance > 104)
    assert (slopes["sparsemax"] == 0) == (distance >= 1)
    assert (slopes["1.5-entmax"] == 0) == (distance >= 2)

# %%
# The next figure shows attention between 60 handwritten digits, sorted by class. A score is 8 times the cosine between
# the pixels of two digits. Empty cells are exactly 0.

digits = load_digits(n_class=6)
order = torch.tensor(digits.target[:60]).argsort(stable=True)
pixels = torch.tensor(digits.data[:60])[order]
pixels = torch.nn.functional.normalize(pixels - pixels.mean(0), dim=1)
scores = (8 * pixels @ pixels.T).fill_diagonal_(-torch.inf)  # no digit attends to itself
same = (torch.tensor(digits.target[:60])[order].unsqueeze(1) == torch.tensor(digits.target[:60])[order]).double()

figure, axes = plt.subplots(1, 3, figsize=(7, 2.9), layout="constrained", sharey=True)
figure.suptitle("Attention of 60 digits to each other: the sharper the function, the more exact zeros")
for axis, (name, function) in zip(axes, functions.items(), strict=True):
    weights = function(scores, -1)
    shown = axis.imshow(weights.where(weights > 0, torch.nan), norm=LogNorm(1e-5, 1), cmap="viridis_r")
    zeros = (weights == 0).double().mean()
    axis.set(title=f"{name}\n{zeros:.0%} zeros", xticks=[], yticks=[], xlabel="key")
    axis.grid(visible=False)
    print(f"{name:10} {zeros:4.0%} zeros, {(weights * same).sum(1).mean():4.0%} of the weight on the same digit")
    assert zeros > 0.5 or function is torch.softmax
axes[0].set_ylabel("query")
figure.colorbar(shown, ax=axes, shrink=0.8)
plt.show()

# %%
# An entry of :math:`-\infty` has probability 0. For a row that contains only :math:`-\infty`, the recipe returns only
# zeros. Large logits lose no accuracy, because the recipe first subtracts the largest entry and computes the threshold
# from numbers between -1 and 0.

inf = float("inf")
for row in ([-inf, 0.0, 0.2], [-inf, -inf, -inf], [inf, inf, 0.0], [1e30, 1e30, -1e30]):
    entries = torch.tensor(row, requires_grad=True)
    p = sparsemax(entries)
    (gradient,) = torch.autograd.grad(p[1], entries)
    print(f"{row!s:21} sparsemax {[round(v, 4) for v in p.tolist()]!s:16} gradient of entry 1 {gradient.tolist()}")
    assert gradient.isfinite().all()

# %%
# The wrong version
# -----------------
#
# The algorithm for entmax computes a square root for every possible size of the support. For some sizes, the number
# under the root is negative. There, ``clamp`` replaces the number by 0 and stops the gradient. So if autograd
# differentiates this algorithm, the gradient is right almost everywhere. But if the
# number under the root is exactly 0 for a size that is *not* selected, the slope of the root is infinite there. The
# selection gives this root a gradient of 0, and the backward of the root multiplies 0 by infinity, which gives NaN. Up
# to torch 2.13, this happens for example for the logits 2, 2, 0, 0. Rows of small whole numbers can contain such
# numbers. Since torch 2.14, ``clamp`` also stops the gradient at its bounds, so the result is
# finite:


def left_to_autograd(x):
    z = x / 2
    descending = z.sort(descending=True).values
    k = torch.arange(1, len(x) + 1)
    mean = descending.cumsum(0) / k
    root = mean - (mean**2 - descending.square().cumsum(0) / k + 1 / k).clamp(min=0).sqrt()
    size = (root <= descending).sum()
    return (z - root[size - 1]).clamp(min=0).square()


for name, function in {"left to autograd": left_to_autograd, "entmax15": entmax15}.items():
    for row in ([2.0, 1.9, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0], [0.5, 0.5, -1.5, -1.5]):
        entries = torch.tensor(row, requires_grad=True)
        (gradient,) = torch.autograd.grad(function(entries)[0], entries)
        print(f"{name:17} {row} gradient {[round(v, 4) for v in gradient.tolist()]}")
        blocked = torch.__version__ >= (2, 14)
        assert gradient.isfinite().all() == (function is entmax15 or row[0] != row[1] or blocked)
failing = 0
for row in itertools.product(range(5), repeat=4):
    entries = torch.tensor(row, dtype=torch.float32, requires_grad=True)
    (gradient,) = torch.autograd.grad(left_to_autograd(entries)[0], entries)
    failing += not gradient.isfinite().all()
print(f"left to autograd: NaN for {failing} of 625 rows of whole numbers from 0 to 4")
assert (failing == 0) == blocked

# %%
# The gradient contains :math:`\sqrt{p}`. In a plain implementation, the second derivative is NaN for each :math:`p =
# 0`, and one such entry makes the whole row NaN. So where :math:`p` is 0, the recipe computes the root of 1 and
# replaces the result by 0.


class Unguarded(Function):
    @staticmethod
    def forward(input):
        return Entmax15Function.forward(input, -1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (output,) = ctx.saved_tensors
        root = output.sqrt()
        return root * (grad_output - (root * grad_output).sum(-1, keepdim=True) / root.sum(-1, keepdim=True))


print("torch", torch.__version__)
entries = torch.tensor([1.0, 0.5, -2.0], requires_grad=True)
for name, function in {"unguarded": Unguarded.apply, "entmax15": entmax15}.items():
    (first,) = torch.autograd.grad(function(entries)[0], entries, create_graph=True)
    (second,) = torch.autograd.grad(first[0], entries)
    print(f"{name:10} first {[round(v, 4) for v in first.tolist()]}, second {[round(v, 4) for v in second.tolist()]}")
    assert first.isfinite().all()
    assert second.isfinite().all() == (name == "entmax15")

# %%
# A softmax whose small entries are set to 0 is wrong, too: its output jumps where an entry crosses the limit, and its
# gradient does not include this jump.
#
# What it costs
# -------------
#
# .. costs::
#
# The recipes keep only their output. This costs nothing if the next operation keeps the same tensor, as the product of
# attention weights and values does:

scores = torch.randn(100, 1000, requires_grad=True)
values = torch.randn(1000, 16, requires_grad=True)
for name, function in {"p": lambda s, v: sparsemax(s), "p @ v": lambda s, v: sparsemax(s) @ v}.items():
    print(f"{name:5} {saved_bytes(function, scores, values) / scores.numel():.2f} bytes a score")
    assert saved_bytes(function, scores, values) == 4 * scores.numel()

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/03_stability/cross_entropy`: a softmax for rows in which every entry is masked.
# * :doc:`/cookbook/05_higher_order/implicit`: gradients without differentiating a search, for iterative solvers.
# * :doc:`/cookbook/02_changing_the_gradient/straight_through`: hard choices with a surrogate gradient.
# * In torch's documentation: :func:`torch.softmax`, :func:`torch.sort`.
