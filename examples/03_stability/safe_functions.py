r"""
Safe functions: softplus, x log y, square root, quotient
========================================================

You will take derivatives at the points where a formula divides by zero or overflows, and know which of torch's own
functions need no help there.
"""

# %%
# When to use it
# --------------
#
# When a loss is finite and a gradient NaN: an empty group was averaged, a probability is exactly 0, a vector is all
# zeros. Before you write anything, look at what torch has: its norms and standard deviations have gradient 0 at 0, and
# :func:`torch.nn.functional.softplus` in float32 has all digits of value and gradient. This page is for the rest:
# second derivatives of softplus, ``xlogy`` with a gradient for both arguments, roots and quotients that are no norms.
#
# The gradient
# ------------
#
# The product of 0 and infinity is NaN, in backward as anywhere. In :math:`x \log x` at 0, the value has a limit, and
# autograd multiplies :math:`0 \cdot 1/0`. Where the derivative has a limit, compute that; where it has none, choose:
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
# Four functions at their singular points, composed as you would write them, and safe. A cross at the
# bottom is where the composed one is NaN, the dot above or below it what is returned instead.


def slope(function, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


def curvature(function, x):
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x)[0]


def masked_mean(divide):
    """Of four numbers, with respect to the first, when so many of them count."""
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
# Digits of softplus, at 28,001 points between -700 and 700, as the largest relative error in units of rounding
# (1 is as good as it gets). Above 20, ``F.softplus`` returns its argument:


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
# ``F.softplus`` is off by :math:`2 \cdot 10^{-9}` just above 20, which only float64 can see. Value and gradient of
# ``torch.logaddexp`` are right to the last digit. A second derivative that is right everywhere has the recipe alone.
#
# The wrong version
# -----------------
#
# The usual repair is ``torch.where``. It chooses among *values*; backward runs through both branches, and sends 0 into
# the one that was not chosen. There 0 meets infinity. It takes a second ``where``, inside, so that no branch ever sees
# the point:


def single(x):
    return torch.where(x > 0, x.sqrt(), 0)


def double(x):
    return torch.where(x > 0, torch.where(x > 0, x, 1).sqrt(), 0)


x = torch.tensor([0.0, 4.0])
for name, function in {"sqrt": torch.sqrt, "one where": single, "two": double, "safe_sqrt": safe_sqrt}.items():
    print(f"{name:9} {slope(function, x).tolist()}")
assert slope(single, x).isnan().tolist() == [True, False]
assert slope(double, x).tolist() == slope(safe_sqrt, x).tolist() == [0.0, 0.25]

# %%
# The double ``where`` is right, at all orders. The recipe keeps less, and cannot be written half. The third repair,
# ``sqrt(x + eps)``, changes what is computed: at :math:`x = 10^{-8}` with :math:`\varepsilon = 10^{-6}`, by this
# factor:

small = torch.tensor(1e-8, dtype=torch.float64)
print(f"{float((small + 1e-6).sqrt() / small.sqrt()):.1f}")

# %%
# And gradient 0 is a choice. For a norm or a standard deviation it is the right one: 0 is the least value. A parameter
# under a root of its own stays at 0 with it for good; give such a parameter another form, its logarithm for example.
#
# What torch does at 0 by itself:

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
# The four are not there for speed: in these measurements torch's functions are at least as fast, and compiled
# compositions are faster still. The four gain range, where the table says so. Compared with two ``where``,
# ``safe_sqrt`` and ``safe_divide`` only save the bytes that those keep if they are not compiled:

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
# * :doc:`/cookbook/03_stability/cross_entropy`: the loss that must never see a logarithm of 0.
# * :doc:`/cookbook/03_stability/eigenvalues`: derivatives that divide by differences.
# * In torch's documentation: :func:`torch.xlogy`, :func:`torch.logaddexp`, :func:`torch.where`,
#   :func:`torch.nn.functional.softplus`.
