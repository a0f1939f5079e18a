r"""
Reductions: sum, mean, variance, norm, maximum, log-sum-exp
===========================================================

You will write reductions that take ``dim`` in all its forms: None, a number, or several numbers. You will also see why
the *second* derivative can be wrong if you save the wrong tensor.
"""

# %%
# When to use it
# --------------
#
# Read this page if you write the backward of a function that ends in a reduction, as losses and norms do.
#
# Copy a recipe in the cases in which torch's result is NaN, infinite or wrong:
#
# * ``logsumexp`` for a fully masked row, which contains only :math:`-\infty`, and for large logits in half precision.
# * ``norm`` for the second derivative at 0, for the gradient of a :math:`p`-norm of large numbers in half precision,
#   and for numbers whose squares overflow or become 0.
# * ``var`` for ``dim=()``.
#
# In other cases, use torch's reductions.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`. In the formulas of the
# recipes, a star marks the complex conjugate.
#
# Backward of a sum gives every term the incoming gradient. The other reductions multiply the incoming gradient by a
# weight per element. The weights for an input :math:`x` with :math:`n` elements, the output :math:`y` and the mean
# :math:`m` are below. The number :math:`c` is the argument ``correction`` of the variance:
#
# .. math::
#
#    \text{mean: } \frac{1}{n}, \qquad
#    \text{max, min: } \frac{[x_i = y]}{\#\{j : x_j = y\}}, \qquad
#    \text{log-sum-exp: } e^{x_i - y} = \operatorname{softmax}(x)_i ,
#
#    \text{variance: } \frac{2\,(x_i - m)}{n - c}, \qquad
#    p\text{-norm: } \operatorname{sgn}(x_i) \left(\frac{|x_i|}{y}\right)^{p-1} .
#
# In the variance, the mean :math:`m` also depends on every :math:`x_i`. This adds nothing to the gradient, because the
# deviations from the mean add up to 0.
#
# The remaining difficulty is the shape. The incoming gradient lacks the reduced dimensions, unless ``keepdim`` was set.
# So backward must put dimensions of size 1 back at their *old positions* before the gradient can broadcast. One
# reshape, to the shape that ``keepdim=True`` would give, does this for every form of ``dim``.
#
# The recipe
# ----------
#
# .. recipe:: logsumexp
#
# .. recipe:: sum
#
# .. recipe:: mean
#
# .. recipe:: amax
#
# .. recipe:: amin
#
# .. recipe:: var
#
# .. recipe:: norm

# sphinx_gallery_tags = ["first steps", "shapes", "stability", "second order"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function, gradcheck, gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes import reductions
from autograd_cookbook.recipes.reductions import amax, logsumexp, norm, var

# %%
# See it work
# -----------
#
# The first derivative of log-sum-exp is the softmax. The figure shows the first and second derivative of
# :math:`\log(e^x + 1)`, for the recipe and for a version that saves the softmax:


class SavesSoftmax(Function):
    """Looks cheaper, because forward has already computed the softmax."""

    @staticmethod
    def forward(input):
        softmax = torch.softmax(input, -1)
        return torch.logsumexp(input, -1), softmax

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (softmax,) = ctx.saved_tensors
        return grad_output.unsqueeze(-1) * softmax


def saves_softmax(input, dim=-1):
    return SavesSoftmax.apply(input)[0]


def derivatives(function, x):
    """First and second derivative of ``function([x, 0])`` at each x."""
    x = x.clone().requires_grad_()
    y = function(torch.stack([x, torch.zeros_like(x)], dim=-1), -1)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    if not first.requires_grad:  # autograd treats the gradient as a constant
        return first, torch.zeros_like(x)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first.detach(), second


x = torch.linspace(-6, 6, 121, dtype=torch.float64)
right_first, right_second = derivatives(logsumexp, x)
wrong_first, wrong_second = derivatives(saves_softmax, x)

figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained", sharex=True)
figure.suptitle("Saving the softmax keeps the first derivative and loses the second")
for axis, ours, theirs, title in zip(
    axes, (right_first, right_second), (wrong_first, wrong_second), ("first", "second"), strict=True
):
    axis.plot(x, ours, label="saves its output")
    axis.plot(x, theirs, "--", label="saves the softmax")
    axis.set(xlabel="x", ylabel=f"{title} derivative of log(exp(x) + 1)")
axes[0].legend(loc="upper left", fontsize=8)
plt.show()

expected = torch.sigmoid(x) * torch.sigmoid(-x)
assert torch.allclose(right_second, expected, rtol=1e-12)
assert torch.equal(wrong_second, torch.zeros_like(x))

# %%
# The wrong version
# -----------------
#
# The class ``SavesSoftmax`` above is the wrong version. Its first derivative is right, it raises no error, and
# gradcheck passes. But autograd does not record operations inside ``forward``, so it treats the saved softmax, and a
# gradient computed from it, as constants:

logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
print("torch", torch.__version__)
print("gradcheck     ", gradcheck(saves_softmax, (logits,)))
try:
    gradgradcheck(saves_softmax, (logits,))
except RuntimeError as error:
    print("gradgradcheck ", str(error).splitlines()[0])
print("ours          ", gradcheck(logsumexp, (logits, -1)), gradgradcheck(logsumexp, (logits, -1)))

# %%
# So save only inputs and outputs, and compute all other tensors again in backward. Autograd can then differentiate the
# backward.
#
# The variance is often written as :math:`E[x^2] - E[x]^2`. With a large mean, this difference of two large numbers
# consists of rounding errors. The next cell has three float32 numbers with variance 2/3:

for offset in (0, 100, 10_000):
    shifted = torch.tensor([0.0, 1.0, 2.0]) + offset
    naive = shifted.square().mean() - shifted.mean().square()
    print(f"mean {offset + 1:>6}: E[x²] - E[x]² = {naive:.3f}, var = {var(shifted, correction=0):.3f}")
assert naive < 0 or naive > 1.2 * 2 / 3 or naive < 0.8 * 2 / 3

# %%
# A norm that is written as the square root of a sum of squares is another wrong version. At 0, the derivative of the
# square root is infinite and the derivative of the squares is 0, so their product is NaN. The end of the cell compares
# the gradients of a 3-norm in float16, where torch's gradient is NaN:

zero = torch.zeros(2, 1, requires_grad=True)
for name, function in {
    "sqrt(sum(x²))": lambda x: x.square().sum().sqrt(),
    "torch.linalg.vector_norm": torch.linalg.vector_norm,
    "the recipe": norm,
}.items():
    (first,) = torch.autograd.grad(function(zero), zero, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), zero)
    print(f"at 0, {name:24}: first derivative {first.flatten().tolist()}, second {second.flatten().tolist()}")
assert not first.any()
assert not second.any()

half = torch.tensor([300.0, -400.0], dtype=torch.float16, requires_grad=True)
for name, function in (("torch", torch.linalg.vector_norm), ("ours", norm)):
    (gradient,) = torch.autograd.grad(function(half, 3), half)
    print(f"3-norm of {half.tolist()} in float16, {name:5}: gradient {[round(g, 3) for g in gradient.tolist()]}")

# %%
# Keep the digits at every size
# -----------------------------
#
# Two obvious formulas fail for very large or very small numbers, which tests rarely use.
#
# The weights of ``logsumexp`` should add up to 1. The formula :math:`e^{x_i - y}` uses the rounded output :math:`y`. In
# bfloat16, for 1000 logits that are all 1000, these weights add up to only 0.34. So the recipe computes the softmax
# from the input.
#
# The squares in ``norm`` overflow above :math:`10^{19}` and become 0 below :math:`10^{-23}` in float32. So the recipe
# first divides by a power of two, which causes no rounding error:

logits = torch.full((1000,), 1000.0, dtype=torch.bfloat16, requires_grad=True)
for name, function in {"torch": torch.logsumexp, "ours": logsumexp}.items():
    (share,) = torch.autograd.grad(function(logits, 0), logits)
    print(f"{name:5} weights of 1000 equal logits add up to {share.float().sum():.3f}")
assert abs(share.float().sum() - 1) < 0.01

for size in (1e20, 1e-25):
    pair = size * torch.tensor([3.0, 4.0])
    print(f"norm of {pair.tolist()}: torch {torch.linalg.vector_norm(pair):.1e}, ours {norm(pair):.1e}")
    assert torch.allclose(norm(pair) / size, torch.tensor(5.0))

# %%
# At infinity
# -----------
#
# A fully masked row contains only :math:`-\infty`. There, torch's gradient is NaN, because :math:`-\infty - (-\infty)`
# is NaN. The softmax has no limit there, and the recipe returns 0, so the masked entries get no gradient. With one
# entry of :math:`+\infty`, the softmax has a limit, and the recipe returns it. Several entries of :math:`+\infty` share
# the gradient evenly:

inf = float("inf")
for values in [[-inf, -inf, -inf], [0.0, -inf, 0.0], [inf, 0.0, 1.0], [inf, inf, 0.0]]:
    row = []
    for function in (logsumexp, torch.logsumexp):
        masked = torch.tensor(values, requires_grad=True)
        function(masked, -1).backward()
        row.append(masked.grad.tolist())
    print(f"{values!s:22} ours {row[0]!s:17} torch {row[1]}")

# %%
# Ties and forms of dim
# ---------------------
#
# Equal maxima share the gradient, as in :func:`torch.amax`. Every form of ``dim`` gives the same numbers as in torch,
# with one exception. :func:`torch.var` treats ``dim=()`` as all dimensions in forward but as no dimension in backward,
# so its gradient is wrong:

tied = torch.tensor([[2.0, 2.0, 1.0], [0.0, 3.0, 3.0]], requires_grad=True)
amax(tied, -1).sum().backward()
print(tied.grad)

cube = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
for dim in (None, 0, -1, (0, 2), (-1, 0)):
    for keepdim in (False, True):
        for name in ("sum", "mean", "var"):
            ours = getattr(reductions, name)(cube, dim, keepdim=keepdim)
            theirs = getattr(torch, name)(cube, dim, keepdim=keepdim)
            assert torch.allclose(ours, theirs, rtol=1e-14)
            grads = [torch.autograd.grad(y.square().sum(), cube)[0] for y in (ours, theirs)]
            assert torch.allclose(*grads, rtol=1e-12)

for name, function in (("torch", torch.var), ("ours", var)):
    pair = torch.tensor([1.0, 3.0], requires_grad=True)
    value = function(pair, ())
    print(f"var([1, 3], dim=()) = {value:.0f}, gradient of {name:5} {torch.autograd.grad(value, pair)[0].tolist()}")

# %%
# What it costs
# -------------
#
# .. costs::
#
# This cell prints the bytes that autograd keeps in addition to the argument, for 1000 rows of 100 float32 numbers:

table = torch.randn(1000, 100, requires_grad=True)
for name, function in {
    "sum": lambda t: reductions.sum(t, 1),
    "amax": lambda t: amax(t, 1),
    "logsumexp": lambda t: logsumexp(t, 1),
    "torch.logsumexp": lambda t: torch.logsumexp(t, 1),
    "log(sum(exp(t)))": lambda t: t.exp().sum(1).log(),
}.items():
    print(f"{name:17} {saved_bytes(function, table):>8,} bytes")
assert saved_bytes(lambda t: logsumexp(t, 1), table) == 0 < saved_bytes(lambda t: torch.logsumexp(t, 1), table)

# %%
# ``logsumexp`` keeps nothing, and torch's function keeps one number per row. The composition ``log(sum(exp(t)))`` keeps
# the whole table of exponentials, and overflows for large inputs. ``var`` keeps nothing either, but its composition
# keeps the table of deviations.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/broadcasting`: the reverse case, in which forward expands and backward sums.
# * :doc:`/cookbook/05_higher_order/hessian`: what a wrong second derivative does to a Hessian.
# * :doc:`/cookbook/04_memory/checkpointing`: how to compute tensors again instead of saving them, for whole networks.
# * In torch's documentation: :func:`torch.autograd.gradgradcheck`, :func:`torch.logsumexp`.
