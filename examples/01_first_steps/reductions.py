r"""
Reductions: sum, mean, variance, norm, maximum, log-sum-exp
===========================================================

You will write reductions that take ``dim`` in all its forms, and see why what you save decides whether the
*second* derivative is right.
"""

# %%
# When to use it
# --------------
#
# When your function ends in a reduction, as losses and norms do, and you write its backward by hand. Also when torch
# gives you NaN: ``logsumexp`` for a row of :math:`-\infty`, as masking makes, the second derivative of a norm at 0,
# or the gradient of a :math:`p`-norm in half precision. Otherwise torch's reductions are as good.
#
# The gradient
# ------------
#
# A sum hands its gradient back to every term, unchanged. The others multiply it by a weight per element:
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
# The mean :math:`m` depends on every :math:`x_i` too, but the deviations from it add up to 0, and the term is gone.
#
# The only trouble is shape. The gradient arrives without the reduced dimensions, unless ``keepdim`` was set, and
# must get them back *in place* before it can broadcast. Reshaping to the kept shape does it for every form of
# ``dim`` at once.
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
# The first derivative of log-sum-exp is the softmax, the second is what a softmax does when one logit moves. Here
# are both along :math:`x \mapsto \log(e^x + 1)`, next to a version that saves the softmax itself:


class SavesSoftmax(Function):
    """Looks cheaper: the softmax is there already when forward is done."""

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
    if not first.requires_grad:  # nothing left to differentiate: autograd takes the gradient for a constant
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
axes[1].legend(loc="center left", fontsize=8)
plt.show()

expected = torch.sigmoid(x) * torch.sigmoid(-x)
assert torch.allclose(right_second, expected, rtol=1e-12)
assert torch.equal(wrong_second, torch.zeros_like(x))

# %%
# The wrong version
# -----------------
#
# That was the wrong version. Its first derivative is right, no line of it raises, and gradcheck agrees. A tensor
# made inside ``forward`` has no history, so a gradient computed from it is a constant to autograd:

logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
print("torch", torch.__version__)
print("gradcheck     ", gradcheck(saves_softmax, (logits,)))
try:
    gradgradcheck(saves_softmax, (logits,))
except RuntimeError as error:
    print("gradgradcheck ", str(error).splitlines()[0])
print("ours          ", gradcheck(logsumexp, (logits, -1)), gradgradcheck(logsumexp, (logits, -1)))

# %%
# Save inputs and outputs, compute the rest again in backward: then autograd can see through it.
#
# The variance is often written :math:`E[x^2] - E[x]^2`. That is a difference of two large numbers; three numbers with
# variance 2/3 and a growing mean, in float32:

for offset in (0, 100, 10_000):
    shifted = torch.tensor([0.0, 1.0, 2.0]) + offset
    naive = shifted.square().mean() - shifted.mean().square()
    print(f"mean {offset + 1:>6}: E[x²] - E[x]² = {naive:.3f}, var = {var(shifted, correction=0):.3f}")
assert naive < 0 or naive > 1.2 * 2 / 3 or naive < 0.8 * 2 / 3

# %%
# And the norm as the square root of a sum of squares has an infinite derivative at 0, times the zero inside:

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
# Two obvious formulas fail at sizes that their tests rarely try. The weights :math:`e^{x_i - y}` of ``logsumexp`` come
# from an output :math:`y` that is rounded: in bfloat16, 1000 equal logits of 1000 get weights that add up to 0.34. So
# the recipe computes the softmax from the input. And the squares of ``norm`` overflow from :math:`10^{19}` and vanish
# below :math:`10^{-23}` in float32. So the recipe first divides by a power of two, which rounds nothing:

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
# A fully masked row is all :math:`-\infty`, and :math:`-\infty - (-\infty)` is NaN. The limit of the softmax does
# not exist there, and 0 is the one value that leaves masked entries alone. With one entry :math:`+\infty` the
# limit does exist:

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
# Equal maxima share the gradient, as in :func:`torch.amax`. Every way to write ``dim`` gives torch's numbers, with one
# exception, in which torch is wrong: its variance takes ``()`` for all dimensions forward and for none in backward.

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
# Bytes kept for backward, beyond the argument, for 1000 rows of 100 float32 numbers:

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
# Nothing, where the built-in keeps one number a row. The composition keeps the whole table of exponentials, and
# overflows. In the same way ``var`` keeps nothing, and its composition the table of deviations.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/broadcasting`: the transpose of this page.
# * :doc:`/cookbook/05_higher_order/hessian`: what a wrong second derivative does to a Hessian.
# * :doc:`/cookbook/04_memory/checkpointing`: computing again instead of saving, for whole networks.
# * In torch's documentation: :func:`torch.autograd.gradgradcheck`, :func:`torch.logsumexp`.
