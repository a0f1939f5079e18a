r"""
Safe functions: softplus, x log y, square root, quotient
========================================================

You will compute finite derivatives at points where a formula divides by zero or overflows. You will also see which of
torch's functions are already right at these points.
"""

# %%
# When to use it
# --------------
#
# Use these functions if your loss is finite but a gradient is NaN. Typical reasons are the mean of an empty group, a
# probability of exactly 0, and a vector of zeros.
#
# First check whether a torch function is enough. PyTorch's vector norms have gradient 0 at 0. Its standard deviation
# has gradient 0 if the computed deviation is exactly 0. In float32, value and gradient of
# :func:`torch.nn.functional.softplus` are accurate unless the result is subnormal (so close to 0 that it is stored with
# fewer digits). Use ``softplus`` if you need its second derivative, ``safe_sqrt`` for a root outside of a norm and for
# the second derivative of a norm at 0, ``xlogy`` if both arguments need gradients, and ``safe_divide`` for a quotient
# outside of a norm.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{x}` is the gradient of the loss with respect to :math:`x`. In the formulas of the
# recipes, a star marks the complex conjugate.
#
# The product of 0 and infinity is NaN, also in backward. For example, :math:`x \log x` has the limit 0 at 0, but
# backward computes :math:`0 \cdot 1/0` there. A safe backward computes the limit of the derivative if this limit exists
# and is finite, and otherwise returns 0:
#
# .. math::
#
#    \begin{aligned}
#    \text{softplus: } & \sigma(x), \quad \sigma'(x) = \sigma(x)\,\sigma(-x) & & \text{everywhere} \\
#    x \log y: & \log y \text{ and } x / y & & 0 \text{ where } x = 0,\ y \le 0 \\
#    \sqrt{x}: & 1 / (2 \sqrt{x}) & & 0 \text{ where } x = 0 \\
#    x / y: & 1 / y \text{ and } -x / y^2 & & 0 \text{ where } y = 0
#    \end{aligned}
#
# The recipe
# ----------
#
# .. recipe:: softplus
#
# .. recipe:: xlogy
#
# .. recipe:: safe_sqrt
#
# .. recipe:: safe_divide

# sphinx_gallery_tags = ["stability", "second order", "memory"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.safe_functions import safe_divide, safe_sqrt, softplus, xlogy

# %%
# See it work
# -----------
#
# Each panel compares a formula of torch operations with a safe function. A cross at the bottom marks an input where the
# derivative of the formula is NaN. The dot at the same input shows the derivative of the safe function.


def slope(function, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


def curvature(function, x):
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x)[0]


def masked_mean(divide):
    """Return the gradients of the first of four numbers, for the means of the first 0, 1, 2, 3 and 4."""
    values, counts = torch.ones(5, 4, dtype=torch.float64), torch.arange(5)
    mask = (torch.arange(4) < counts[:, None]).double()
    return slope(lambda v: divide((v * mask).sum(1), mask.sum(1)), values)[:, 0]


fine, near = torch.linspace(0, 45, 181, dtype=torch.float64), torch.arange(-20, 21).double() / 10
share = torch.linspace(0, 1, 41, dtype=torch.float64)
panels = {
    "second derivative of softplus": (
        fine,
        {"log1p(exp(x))": curvature(lambda x: x.exp().log1p(), fine), "F.softplus": curvature(F.softplus, fine)},
        curvature(softplus, fine),
    ),
    "derivative of p log p": (
        share,
        {"p * log(p)": slope(lambda p: p * p.log(), share)},
        slope(lambda p: xlogy(p, p), share),
    ),
    "derivative of √(x²)": (
        near,
        {"sqrt(x²)": slope(lambda x: (x * x).sqrt(), near)},
        slope(lambda x: safe_sqrt(x * x), near),
    ),
    "gradient of the mean of n": (
        torch.arange(5.0),
        {"sum / n": masked_mean(torch.div)},
        masked_mean(safe_divide),
    ),
}

figure, axes = plt.subplots(2, 2, figsize=(7, 4.6), layout="constrained")
figure.suptitle("Derivatives at singular points: composed ones are NaN there, or lose their digits on the way")
for axis, (title, (x, composed, safe)) in zip(axes.flat, panels.items(), strict=True):
    few, hole = len(x) < 10, next(iter(composed.values())).isnan()
    axis.plot(x, safe.masked_fill(hole, torch.nan), "o" if few else "-", color="C0", label="safe", markersize=8)
    axis.plot(x[hole], safe[hole], "o", color="C0", markersize=8)
    for (name, values), style in zip(composed.items(), ("--", ":"), strict=False):
        axis.plot(x, values, "s" if few else style, color="C1", label=name, markersize=4)
    axis.plot(
        x[hole], [0.06] * int(hole.sum()), "x", color="C1", markeredgewidth=2, transform=axis.get_xaxis_transform()
    )
    axis.set_title(title)
    axis.legend(fontsize=8)
axes[0, 0].set(yscale="log", xlabel="x", ylim=(1e-20, 3))
axes[0, 1].set(xlabel="p")
axes[1, 0].set(xlabel="x")
axes[1, 1].set(xlabel="n", xticks=range(5), ylim=(-0.25, 1.1))
plt.show()

for title, (_, composed, safe) in panels.items():
    print(f"{title:30}", *(f"{name}: {int(values.isnan().sum())} NaN" for name, values in composed.items()), sep="  ")
    assert safe.isfinite().all()

# %%
# The next cell measures the accuracy of softplus at 28,001 points, between -700 and 700 in float64 and between -80 and
# 80 in float32. It prints the largest relative error divided by the dtype's ``eps``, so a number near 1 means that all
# digits are right. Above 20, ``F.softplus`` returns x itself, so its second derivative is 0 instead of a small number:


def derivatives(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return y.detach(), first.detach(), second


def errors(function, dtype, limit):
    x = torch.linspace(-limit, limit, 28_001, dtype=dtype)
    tail = (-x.double().abs()).exp()
    exact = (
        x.double().clamp(min=0) + tail.log1p(),
        torch.where(x > 0, 1, tail) / (1 + tail),
        tail / (1 + tail) ** 2,
    )
    found = derivatives(function, x)
    worst = [((a.double() - e) / e).abs().nan_to_num(nan=torch.inf).max() for a, e in zip(found, exact, strict=True)]
    return [float(w) / torch.finfo(dtype).eps for w in worst]


contenders = {
    "softplus": softplus,
    "F.softplus": F.softplus,
    "torch.logaddexp(x, 0)": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "-F.logsigmoid(-x)": lambda x: -F.logsigmoid(-x),
}
print("torch", torch.__version__)
for dtype, limit in ((torch.float64, 700), (torch.float32, 80)):
    for name, function in contenders.items():
        value, first, second = errors(function, dtype, limit)
        print(f"{str(dtype)[6:]} {name:22} value {value:8.2g}  gradient {first:8.2g}  second {second:8.2g}")
        assert name != "softplus" or max(value, first, second) < 3
        assert name == "softplus" or second > 1e6
        assert not name.startswith("torch") or max(value, first) < 3

# %%
# Just above 20, the value of ``F.softplus`` has an error of :math:`2 \cdot 10^{-9}`, which float32 rounds away. Value
# and gradient of ``torch.logaddexp`` are accurate to the last digit in these ranges. Of these four functions, only the
# recipe has an accurate second derivative everywhere.
#
# The wrong version
# -----------------
#
# The usual fix is ``torch.where``, but one ``where`` is not enough. ``where`` selects *values*, but backward runs
# through both branches. The branch that was not selected gets the gradient 0, and multiplies it by an infinite
# derivative, which gives NaN. Add a second ``where`` inside the branch, so that the branch is never computed at the
# singular point:


def single(x):
    return torch.where(x > 0, x.sqrt(), 0)


def double(x):
    return torch.where(x > 0, torch.where(x > 0, x, 1).sqrt(), 0)


x = torch.tensor([0.0, 4.0])
for name, function in {"sqrt": torch.sqrt, "one where": single, "two": double, "safe_sqrt": safe_sqrt}.items():
    print(f"{name:9} {slope(function, x).tolist()}")
assert slope(single, x).isnan().tolist() == [True, False]
assert slope(double, x).tolist() == slope(safe_sqrt, x).tolist() == [0.0, 0.25]
for length in (torch.linalg.vector_norm, lambda point: safe_sqrt(point.square().sum())):
    point = torch.zeros(3, requires_grad=True)
    (first,) = torch.autograd.grad(length(point), point, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), point)
    assert not first.any()
    assert second.isnan().all() == (length is torch.linalg.vector_norm)

# %%
# With two ``where``, derivatives of every order are finite, and they are 0 at :math:`x = 0`. The recipe keeps fewer
# bytes, and you cannot forget one ``where``. Another common fix, ``sqrt(x + eps)``, changes the result. For :math:`x =
# 10^{-8}` and :math:`\varepsilon = 10^{-6}`, the result changes by this factor:

small = torch.tensor(1e-8, dtype=torch.float64)
print(f"{float((small + 1e-6).sqrt() / small.sqrt()):.1f}")

# %%
# The square root has an infinite derivative at 0, and ``safe_sqrt`` returns 0 instead. This is right for a norm or a
# standard deviation, because 0 is their smallest value. Do not use ``safe_sqrt`` for a parameter :math:`x` that you
# train, because its gradient at 0 is 0. So if no other part of the loss uses :math:`x`, it stays 0 once it is 0. For
# example, train the logarithm of :math:`x` instead.
#
# The next cell prints the gradients of torch's functions at 0:

zeros = torch.zeros(3)
for name, function in {
    "torch.linalg.vector_norm": torch.linalg.vector_norm,
    "torch.std": torch.std,
    "torch.hypot(x, x)": lambda x: torch.hypot(x, x),
    "torch.xlogy(x, 2)": lambda x: torch.xlogy(x, torch.tensor(2.0)),
    "torch.xlogy(x, x)": lambda x: torch.xlogy(x, x),
    "F.kl_div(·, target=x)": lambda x: F.kl_div(torch.zeros(3), x, reduction="sum"),
}.items():
    print(f"{name:25} gradient {slope(function, zeros)[0].item():.4g}")
assert slope(torch.linalg.vector_norm, zeros).eq(0).all()
assert slope(torch.std, zeros).eq(0).all()
assert slope(lambda x: torch.xlogy(x, x), zeros).isnan().all()
assert slope(lambda x: xlogy(x, x), zeros).eq(0).all()

# %%
# What it costs
# -------------
#
# .. costs::
#
# In these measurements, torch's functions and the compiled compositions are at least as fast as the recipes. So use a
# recipe for finite and accurate results, not for speed. In eager mode, ``safe_sqrt`` and ``safe_divide`` also keep
# fewer bytes than the versions with two ``where``:

x, y = torch.rand(100_000, requires_grad=True), torch.rand(100_000, requires_grad=True)


def double_divide(x, y):
    return torch.where(y == 0, 0, x / torch.where(y == 0, 1, y))


for name, ours, theirs, args in (("sqrt", safe_sqrt, double, (x,)), ("divide", safe_divide, double_divide, (x, y))):
    kept = [saved_bytes(f, *args) // 100_000 for f in (ours, theirs)]
    print(f"{name:6} bytes an element: {kept[0]}, with two where {kept[1]}")
    assert kept[0] < kept[1]

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/reductions`: a norm with gradient 0 at 0, and logarithms of sums of exponentials.
# * :doc:`/cookbook/03_stability/cross_entropy`: a loss that avoids the logarithm of 0.
# * :doc:`/cookbook/03_stability/eigenvalues`: derivatives with differences in the denominator.
# * In torch's documentation: :func:`torch.xlogy`, :func:`torch.logaddexp`, :func:`torch.where`,
#   :func:`torch.nn.functional.softplus`.
