r"""
Cross-entropy: masked classes, padded rows, nothing to keep
===========================================================

You will write a cross-entropy that takes logits and class indices. The function has torch's options and keeps only its
arguments for backward. You will also write a softmax that returns 0 instead of NaN for a fully masked row.
"""

# %%
# When to use it
# --------------
#
# :func:`torch.nn.functional.cross_entropy` is right for finite logits, and with :func:`torch.compile` it needs little
# memory. Copy the recipe ``cross_entropy`` in two cases:
#
# * You do not compile, and the logits are your largest tensor. In eager mode, torch's function keeps another tensor of
#   this size for backward, and the recipe keeps only its arguments.
# * Rows with an ignored target, for example padding, may contain only :math:`-\infty`. PyTorch's gradient is then NaN.
#
# The recipe takes class indices as target. For class probabilities, use torch's function.
#
# Copy the recipe ``softmax`` if you write attention yourself and a mask may exclude all keys of a query. Otherwise use
# :func:`torch.softmax`, which is faster.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{x}` is the gradient of the loss with respect to :math:`x`.
#
# A row has the logits :math:`x`, the probabilities :math:`p = \operatorname{softmax}(x)` and a target distribution
# :math:`q`, which is one-hot, smoothed or weighted. Its loss :math:`\ell`, gradient and Hessian are
#
# .. math::
#
#    \ell = \sum_c q_c \Big(\log \sum_j e^{x_j} - x_c\Big), \qquad
#    \bar{x} = \bar{\ell}\, \Big(p \sum_j q_j - q\Big), \qquad
#    \nabla^2 \ell = \Big(\operatorname{diag}(p) - p p^\top\Big) \sum_j q_j .
#
# The gradient needs :math:`p`. Backward can compute :math:`p` again in one pass over the logits, which are in memory
# anyway. Autograd records this computation, so the second derivative is right, too.
#
# The recipe
# ----------
#
# .. recipe:: cross_entropy
#
# .. recipe:: softmax

# sphinx_gallery_tags = ["stability", "memory", "second order"]
# sphinx_gallery_thumbnail_number = 1

import itertools

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_wine
from torch.autograd import Function, gradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.cross_entropy import cross_entropy, softmax

# %%
# See it work
# -----------
#
# This section compares the recipe with two wrong versions. The first computes the softmax and then its logarithm. The
# second saves the log-sum-exp of each row for backward:


def log_of_softmax(logits, target):
    return -torch.softmax(logits, -1).log().gather(-1, target.unsqueeze(-1)).mean()


class SavesLogSumExp(Function):
    """The mean over rows. It looks cheap, because it saves only one additional number per row."""

    @staticmethod
    def forward(ctx, logits, target):
        logsumexp = torch.logsumexp(logits, 1)
        ctx.save_for_backward(logits, target, logsumexp)
        return (logsumexp - logits.gather(1, target.unsqueeze(1)).squeeze(1)).mean()

    @staticmethod
    def backward(ctx, grad_output):
        logits, target, logsumexp = ctx.saved_tensors
        p = torch.exp(logits - logsumexp.unsqueeze(1))
        return (p - F.one_hot(target, logits.shape[1])) * grad_output / len(logits), None


# %%
# The left figure shows the gradient of the target's logit, while the other logit grows. In the right figure, Newton's
# method fits a logistic regression to the wine data, with the Hessian of the recipe and of ``SavesLogSumExp``.

margins = torch.linspace(0, 150, 151)
gradients = {}
for name, function in {"cross_entropy": cross_entropy, "log of softmax": log_of_softmax}.items():
    logits = torch.stack([torch.zeros(151), margins], 1).requires_grad_()
    loss = torch.stack([function(row.unsqueeze(0), torch.tensor([0])) for row in logits])
    gradients[name] = torch.autograd.grad(loss.sum(), logits)[0][:, 0]

wine = load_wine()
features = torch.tensor(wine.data)
features = (features - features.mean(0)) / features.std(0)
target = torch.tensor(wine.target)


def newton(loss_of, steps):
    """Return the norm of the gradient at each step of Newton's method, starting at 0."""
    parameters, norms = torch.zeros(13 * 3, dtype=torch.float64), []

    def loss(parameters):
        return loss_of(features @ parameters.view(13, 3), target) + 0.01 * parameters.square().sum()

    for _ in range(steps):
        at = parameters.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(at), at)
        norms.append(gradient.norm().item())
        parameters = parameters - torch.linalg.solve(torch.autograd.functional.hessian(loss, parameters), gradient)
    return norms


norms = {"cross_entropy": newton(cross_entropy, 12), "saves the log-sum-exp": newton(SavesLogSumExp.apply, 12)}

figure, axes = plt.subplots(1, 2, figsize=(7, 3.3), layout="constrained")
figure.suptitle("Two mistakes in cross-entropy: NaN beyond a margin, and a Hessian that is silently wrong")
for (name, values), style in zip(gradients.items(), ("-", "--"), strict=True):
    axes[0].plot(margins, values, style, label=name)
first_nan = int(gradients["log of softmax"].isnan().nonzero()[0])
axes[0].axvspan(first_nan, 150, color="0.9")
axes[0].text(first_nan + 3, -0.75, "NaN", fontsize=9)
axes[0].set(xlabel="logits [0, m], margin m", ylabel="gradient of the target's logit")
for values, style in zip(norms.values(), ("-o", "--s"), strict=True):
    axes[1].semilogy(values, style, markersize=4)
axes[1].text(4.4, 1e-6, "cross_entropy", ha="right", color="C0", fontsize=9)
axes[1].text(11, 1.5, "saves the log-sum-exp", ha="right", color="C1", fontsize=9)
axes[1].set(xlabel="Newton step", ylabel="norm of the gradient", xticks=range(0, 12, 2))
axes[0].legend(fontsize=8)
plt.show()

assert gradients["cross_entropy"].isfinite().all()
assert norms["cross_entropy"][8] < 1e-12 < 1e-3 < norms["saves the log-sum-exp"][8]
print(f"the gradient of log(softmax) is NaN from margin {first_nan} on, in float32")
print("after 8 steps of Newton:", {name: f"{values[8]:.0e}" for name, values in norms.items()})

# %%
# All options give the same values and derivatives as torch's function:

torch.manual_seed(0)
logits = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
labels = torch.randint(5, (2, 3))
cases = 0
for weight, ignored, reduction, smoothing in itertools.product(
    (None, torch.rand(5, dtype=torch.float64)), (-100, 2), ("none", "mean", "sum"), (0.0, 0.1, 1.0)
):
    options = {"weight": weight, "ignore_index": ignored, "reduction": reduction, "label_smoothing": smoothing}
    results = []
    for function in (cross_entropy, F.cross_entropy):
        loss = function(logits, labels, **options).square().sum()
        (first,) = torch.autograd.grad(loss, logits, create_graph=True)
        results.append((loss, first, *torch.autograd.grad(first.sin().sum(), logits)))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-13)
    cases += 1
print(f"torch {torch.__version__}: {cases} combinations of options agree")

# %%
# Masks
# -----
#
# If single classes of a row are masked with :math:`-\infty`, torch's function and the recipe both work. Don't combine
# such a mask with label smoothing, because every class then has a part of the target and the loss is infinite. If a
# whole row is :math:`-\infty` and its target is ignored, torch's gradient is NaN, because torch multiplies 0 by the NaN
# of this row. The recipe returns gradient 0. The softmax of such a row is not defined: if all logits go to
# :math:`-\infty`, its limit depends on their differences. The recipe ``softmax`` returns 0, so that the row does not
# influence other results:

inf = float("inf")
for row in ([0.0, -inf, 1.0], [-inf, -inf, -inf]):
    for function in (cross_entropy, F.cross_entropy):
        batch = torch.tensor([row, [0.0, 0.0, 0.0]], requires_grad=True)
        function(batch, torch.tensor([-100 if row[0] == -inf else 0, 1])).backward()
        print(f"{row!s:19} {function.__module__.split('.')[0]:17} gradient {batch.grad[0].tolist()}")
        assert batch.grad.isfinite().all() == (function is cross_entropy or row[0] == 0)

for function in (cross_entropy, F.cross_entropy):
    assert function(torch.tensor([[0.0, -inf, 1.0]]), torch.tensor([0]), label_smoothing=0.1) == inf

scores = torch.tensor([[0.0, 1.0, -inf], [-inf, -inf, -inf]], requires_grad=True)
for function in (softmax, torch.softmax):
    weights = function(scores, 1)
    (gradient,) = torch.autograd.grad(weights[:, 1].sum(), scores)
    print(f"{function.__module__.split('.')[0]:17} softmax {weights[1].tolist()}, gradient {gradient[1].tolist()}")

# %%
# Two results stay infinite or NaN, as in torch. If the *target* class is masked, the loss is infinite. If all rows are
# ignored, their mean is 0/0, which is NaN. In this second case, the gradient is 0, as in torch, so the parameters stay
# finite:

print(cross_entropy(torch.tensor([[0.0, -inf]]), torch.tensor([1])), end=" ")
print(cross_entropy(torch.tensor([[0.0, 1.0]]), torch.tensor([-100])))
row = torch.tensor([[0.0, 1.0]], requires_grad=True)
for function in (cross_entropy, F.cross_entropy):
    assert not torch.autograd.grad(function(row, torch.tensor([-100])), row)[0].any()

# %%
# The wrong version
# -----------------
#
# The wrong versions are the two functions under "See it work". You will notice the NaN of ``log_of_softmax``.
# ``SavesLogSumExp`` is harder to notice: it passes gradcheck, and with its Hessian, Newton's method still reduces the
# gradient. But this Hessian is :math:`\operatorname{diag}(p)`. The term :math:`-p p^\top` is missing, because autograd
# treats the saved log-sum-exp as a constant:

row = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
label = torch.tensor([0])
assert gradcheck(lambda x: SavesLogSumExp.apply(x, label), (row.clone().requires_grad_(),))
for name, function in {"saves the log-sum-exp": SavesLogSumExp.apply, "cross_entropy": cross_entropy}.items():
    hessian = torch.autograd.functional.hessian(lambda x, f=function: f(x, label), row).view(2, 2)
    print(f"{name:22} {[[round(v, 4) for v in values] for values in hessian.tolist()]}")
p = torch.softmax(row[0], 0)
assert torch.allclose(hessian, torch.diag(p) - p.outer(p), rtol=1e-12)

# %%
# What it costs
# -------------
#
# .. costs::
#
# This cell prints the bytes per logit that each function keeps for backward, and its peak, for 1000 rows of 1000
# classes in float32:

logits = torch.randn(1000, 1000, requires_grad=True)
labels = torch.randint(1000, (1000,))
for name, function in {
    "cross_entropy": cross_entropy,
    "F.cross_entropy": F.cross_entropy,
    "log of softmax": log_of_softmax,
}.items():
    kept, peak = (
        saved_bytes(function, logits, labels) / 1e6,
        peak_bytes(lambda f=function: f(logits, labels).backward()) / 1e6,
    )
    print(f"{name:16} keeps {kept:.2f}, {peak:5.2f} at the worst moment")
    assert (kept == 0) == (function is cross_entropy)

# %%
# To keep fewer bytes, the recipe computes the softmax a second time in backward. If the logits come from a linear
# layer, you can also avoid storing the logits: see :doc:`/cookbook/04_memory/linear_cross_entropy`.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/linear_cross_entropy`: how to avoid storing the logits.
# * :doc:`/cookbook/03_stability/sparsemax`: distributions with exact zeros.
# * :doc:`/cookbook/01_first_steps/reductions`: log-sum-exp, and the same mistake with a saved softmax.
# * :doc:`/cookbook/05_higher_order/hessian`: how to use a Hessian.
# * In torch's documentation: :func:`torch.nn.functional.cross_entropy`, :func:`torch.softmax`.
