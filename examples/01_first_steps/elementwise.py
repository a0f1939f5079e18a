r"""
Element-wise functions: keep the input, the output or a mask
============================================================

You will choose what an element-wise function saves: the least that its gradient needs.
"""

# %%
# When to use it
# --------------
#
# Not for these functions: torch has nearly all of them, and the table at the end shows whose are faster. Read this
# page for the choice that every function of your own has to make. Two of the recipes do something that torch does not:
# ``gelu`` and ``mish`` have their limits at :math:`\pm\infty` where torch returns NaN, and all their digits far below
# 0 where torch returns 0. ``clamp`` keeps a mask of one byte per element, and torch's keeps the input: the mask is
# smaller only if nothing else keeps the input.
#
# The gradient
# ------------
#
# Each element has one slope, :math:`\bar{x} = \bar{y}\, f'(x)`. The slope is a function of the input; for some it is
# a function of the output, too, and for some of a single bit:
#
# .. math::
#
#    \text{input: } (x^n)' = n x^{n-1}, \qquad
#    \text{output: } \operatorname{relu}'(x) = [y > 0], \qquad
#    \text{mask: } \operatorname{clamp}'(x) = [a \le x \le b] .
#
# A tensor that the functions before or after yours keep anyway costs nothing: the output, if a matrix product follows;
# the input, if the operation before keeps its result. Do not save a floating-point tensor that ``forward`` makes in
# between: autograd takes it for a constant, so the second derivative is wrong. A mask has no derivative, so it may be
# saved.
#
# The recipe
# ----------
#
# .. recipe:: power
#
# .. recipe:: clamp
#
# .. recipe:: elu
#
# .. recipe:: gelu
#
# .. recipe:: mish
#
# .. recipe:: selu
#
# .. recipe:: square
#
# .. recipe:: quadratic

# sphinx_gallery_tags = ["first steps", "ctx", "memory", "second order"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.elementwise import clamp, elu, gelu, mish, power, quadratic, selu, square
from autograd_cookbook.recipes.template import relu

# %%
# See it work
# -----------
#
# Each function with its slope, and what the slope is computed from. Bytes are counted in the middle of a network:
# neither the input nor the output belongs to the caller.

functions = {
    "square": square,
    "power 3": lambda x: power(x, 3),
    "quadratic": lambda x: quadratic(x, 0.5, 1.0, -1.0),
    "clamp": lambda x: clamp(x, -1.0, 1.0),
    "relu": relu,
    "elu": elu,
    "selu": selu,
    "gelu": gelu,
    "mish": mish,
}
hidden = torch.randn(1000, requires_grad=True)
kept = {name: saved_bytes(lambda x, f=function: f(x + 0), hidden) / 1000 for name, function in functions.items()}

figure, axes = plt.subplots(3, 3, figsize=(7, 5.4), layout="constrained", sharex=True)
figure.suptitle("Functions (solid) with their slopes (dashed), and the bytes that they keep")
for axis, (name, function) in zip(axes.flat, functions.items(), strict=True):
    x = torch.linspace(-3, 3, 241, dtype=torch.float64).requires_grad_()
    y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    axis.plot(x.detach(), y.detach())
    axis.plot(x.detach(), slope, "--")
    axis.set_title(f"{name}: {kept[name]:g}", fontsize=9)
    axis.set_ylim(-2.5, 4)
plt.show()

assert kept["clamp"] == 1
assert all(size == 4 for name, size in kept.items() if name != "clamp")

# %%
# Which of the two tensors to keep depends on what stands around it. A linear layer keeps its input. Before one, a
# function that saves its *output* adds nothing; one that saves its *input* adds a whole activation:

weight = torch.randn(100, 100, requires_grad=True)
table = torch.randn(500, 100, requires_grad=True)


def between_two_layers(function):
    return lambda table, weight: function(table @ weight.mT) @ weight.mT


for name in ("relu", "gelu", "clamp"):
    size = saved_bytes(between_two_layers(functions[name]), table, weight) / table.numel()
    print(f"linear, {name:5} linear: {size:g} bytes an element")
assert saved_bytes(between_two_layers(relu), table, weight) == 4 * table.numel()
assert saved_bytes(between_two_layers(gelu), table, weight) == 8 * table.numel()

# %%
# At the ends of an interval, ``clamp`` has two slopes, and either will do. :func:`torch.clamp` chose 1 up to torch
# 2.13, and has chosen 0 since 2.14. The recipe's is 1 with all of them:

for label, function in (("ours ", clamp), ("torch", torch.clamp)):
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    (slope,) = torch.autograd.grad(function(x, 0.0, 1.0).sum(), x)
    print(f"{label} clamp at its ends: slope {slope.tolist()}")
    assert slope.tolist() == ([0, 0] if label == "torch" and torch.__version__ >= (2, 14) else [1, 1])

# %%
# At infinity, where a masked score may have come from, the limits are known. torch multiplies :math:`\infty` by 0:

print("torch", torch.__version__)
for name, ours, theirs in (("gelu", gelu, F.gelu), ("mish", mish, F.mish)):
    for label, function in (("ours ", ours), ("torch", theirs)):
        x = torch.tensor([-torch.inf, torch.inf], requires_grad=True)
        y = function(x)
        y.sum().backward()
        print(f"{name} {label}: values {y.tolist()}, slopes {x.grad.tolist()}")
        assert x.grad.isfinite().all() == (label == "ours ")

# %%
# The wrong version
# -----------------
#
# The power rule as it stands in a book, with :math:`n = 0`: the factor is 0, and the other one is infinite at 0.


class BookPower(torch.autograd.Function):
    @staticmethod
    def forward(input, exponent):
        return input**exponent

    @staticmethod
    def setup_context(ctx, inputs, output):
        input, ctx.exponent = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * ctx.exponent * input ** (ctx.exponent - 1), None


for name, function in (("book", BookPower.apply), ("ours", power), ("torch", torch.pow)):
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    function(x, 0).sum().backward()
    print(f"{name:5} gradient of x**0 at 0 and 2: {x.grad.tolist()}")
    assert x.grad.isnan().any() == (name == "book")

# %%
# A polynomial written as a sum over ``coefficient * x**n`` meets it in its constant term, and one NaN is enough to
# spoil every parameter before it.
#
# What it costs
# -------------
#
# .. costs::
#
# A mask is a byte an element because torch has no smaller type; :doc:`/cookbook/04_memory/masks` packs eight of them
# into one.
#
# Keep all digits in half precision and in the tails
# --------------------------------------------------
#
# The usual formulas subtract two numbers that are nearly equal: :math:`1 + \operatorname{erf}` in ``gelu``,
# :math:`y + \alpha` in ``elu``, :math:`1 - t^2` in ``mish``. Each of the two is rounded, and their difference consists
# of rounding errors. The recipes use forms without such a difference and compute half precision in float32.
#
# The figure shows the slope of the ELU at each negative bfloat16 number. A slope computed from the rounded output is
# wrong by up to 256 units in the last place, which means that it is 0. Computed from the input, it is wrong by half a
# unit, the least that is possible.

every = torch.arange(-(2**15), 0).to(torch.int16).view(torch.bfloat16)
every = every[(every >= -80) & (every <= -0.01)].sort().values
exact = every.double().exp()
unit = 2 ** (exact.log2().floor() - 7)

x = every.clone().requires_grad_()
y = elu(x)
(ours,) = torch.autograd.grad(y.sum(), x)
errors = {
    "from the output": ((y.detach() + 1).double() - exact).abs() / unit,
    "from the input": (ours.double() - exact).abs() / unit,
}

figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
for name, error in errors.items():
    axis.semilogy(every.float(), error.clamp(min=1e-3), ".", markersize=2, label=name)
axis.set_title("The slope of the ELU needs its input: from the output, it has no digits below -6")
axis.set_xlabel("x, in bfloat16")
axis.set_ylabel("error, units in the last place")
axis.legend()
plt.show()

for name, error in errors.items():
    print(f"{name}: up to {error.max():.3g} units in the last place")
assert errors["from the output"].max() > 100
assert errors["from the input"].max() < 0.6

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/template`: relu, sigmoid and tanh, and what each line of a ``Function`` is for.
# * :doc:`/cookbook/04_memory/masks`: masks of one bit.
# * :doc:`/cookbook/03_stability/safe_functions`: functions whose slopes do not exist everywhere.
# * In torch's documentation: :func:`torch.nn.functional.gelu`, :func:`torch.clamp`.
