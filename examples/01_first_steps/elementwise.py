r"""
Element-wise functions: keep the input, the output or a mask
============================================================

You will choose which tensor an element-wise function saves for backward, so that it needs the least memory.
"""

# %%
# When to use it
# --------------
#
# In most cases, use torch's functions instead: torch has nearly all of these functions, and "What it costs" compares
# the speed. Read this page to learn which tensor your own function should save.
#
# Two of the recipes do something that torch's functions do not. At :math:`\pm\infty`, ``gelu`` and ``mish`` return the
# limits of the value and of the slope, but torch's slopes are NaN. ``gelu`` is also accurate for very negative inputs.
# There, torch returns 0: below -5.6 in float32, and below -8.4 in float64. At -5.5 and -8.34, torch's result is off by
# more than 10 %.
#
# ``clamp`` saves a mask of one byte per element, and :func:`torch.clamp` saves the input. So the mask reduces the
# memory only if no other function keeps the input.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`. In the formulas of the
# recipes, a star marks the complex conjugate.
#
# The gradient of each element is :math:`\bar{x} = \bar{y}\, f'(x)`. The slope :math:`f'(x)` can be computed from the
# input. For some functions, the output is enough. For others a mask is enough, which says for each element whether the
# slope is 0 or 1:
#
# .. math::
#
#    \text{input: } (x^n)' = n x^{n-1}, \qquad
#    \text{output: } \operatorname{relu}'(x) = [y > 0], \qquad
#    \text{mask: } \operatorname{clamp}'(x) = [a \le x \le b] .
#
# Saving a tensor costs nothing if the function before or after yours keeps it anyway. Save your output if a product
# with a trained weight follows, because this product keeps its input. Save your input if the operation before keeps its
# result, as ``exp``, ``sigmoid`` and ``softmax`` do. But save the input in any case if a slope that is computed from
# the output consists of rounding errors. This happens for ``elu`` in bfloat16, as the last section shows.
#
# Do not save a floating-point tensor that ``forward`` computes between input and output, unless you also return it as
# an output (:doc:`/cookbook/05_higher_order/double_backward`). Autograd treats this tensor as a constant, so the second
# derivative would be wrong. You may save a mask, because a mask has no derivative.
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
# The figure shows each function with its slope and the bytes per element that it saves. The count is for a function in
# the middle of a network, where no other code keeps its input or its output.

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
# Whether to save the input or the output depends on the next function. A linear layer with a trained weight keeps its
# input. So a function before such a layer needs no additional memory if it saves its *output*. If it saves its *input*,
# autograd keeps one more tensor of this size:

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
# At the ends of the interval, ``clamp`` has a kink, so both slopes 0 and 1 are valid. :func:`torch.clamp` uses slope 1
# up to torch 2.13 and slope 0 since torch 2.14. The recipe uses slope 1 with every release:

for label, function in (("ours ", clamp), ("torch", torch.clamp)):
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    (slope,) = torch.autograd.grad(function(x, 0.0, 1.0).sum(), x)
    print(f"{label} clamp at its ends: slope {slope.tolist()}")
    assert slope.tolist() == ([0, 0] if label == "torch" and torch.__version__ >= (2, 14) else [1, 1])

# %%
# A mask, for example in attention, often writes :math:`-\infty` into a tensor. The limits of ``gelu`` and ``mish`` at
# :math:`\pm\infty` exist, and the recipes return them. To compute the slope there, PyTorch multiplies :math:`\infty` by
# 0, which gives NaN:

print("torch", torch.__version__)
for name, ours, theirs in (("gelu", gelu, F.gelu), ("mish", mish, F.mish)):
    for label, function in (("ours ", ours), ("torch", theirs)):
        x = torch.tensor([-torch.inf, torch.inf], requires_grad=True)
        y = function(x)
        y.sum().backward()
        print(f"{name} {label}: values {y.tolist()}, slopes {x.grad.tolist()}")
        assert x.grad.isfinite().all() == (label == "ours ")
        assert label != "ours " or y.tolist() == [0, torch.inf]
for dtype, far, near in ((torch.float32, -5.6, -5.5), (torch.float64, -8.4, -8.34)):
    assert gelu(torch.tensor(far, dtype=dtype)) < 0 == F.gelu(torch.tensor(far, dtype=dtype))
    near = torch.tensor(near, dtype=dtype)
    assert (F.gelu(near) / gelu(near) - 1).abs() > 0.1

# %%
# The wrong version
# -----------------
#
# The power rule from a textbook fails for :math:`n = 0` at :math:`x = 0`. The factor :math:`n` is 0 and
# :math:`x^{n-1}` is infinite, so their product is NaN:


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
# If you write a polynomial as a sum over ``coefficient * BookPower.apply(x, n)``, its constant term has this NaN. In
# backward, the NaN spreads to the gradients of all earlier layers. PyTorch's ``x**n`` does not have this problem.
#
# What it costs
# -------------
#
# .. costs::
#
# A mask takes one byte per element, because a bool in torch takes one byte. To pack eight elements into one byte, see
# :doc:`/cookbook/04_memory/masks`.
#
# Keep all digits in half precision and in the tails
# --------------------------------------------------
#
# In the usual formulas, two numbers nearly cancel each other. For ``gelu``, these are :math:`1` and
# :math:`\operatorname{erf} \approx -1`. For the slope of ``elu``, they are the output :math:`y \approx -\alpha` and
# :math:`\alpha`. For the slope of ``mish``, they are :math:`1` and :math:`t^2 \approx 1`, where :math:`t` is the tanh
# in its formula. Each of the two numbers is rounded, so only rounding errors remain. The recipes use other formulas and
# compute half precision in float32.
#
# The figure shows the error of the ELU's slope at each bfloat16 number between -80 and -0.01. The error is counted in
# units in the last place: one unit is the distance from one bfloat16 number to the next. At and below -6.25, the slope
# from the rounded output is 0. A bfloat16 number has 8 significant bits, so this is an error of up to 256 units. The
# slope from the input has an error of at most half a unit, which is the least possible.

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
for error in errors.values():
    axis.semilogy(every.float(), error.clamp(min=1e-3), ".", markersize=2)
axis.text(-78, 40, "from the output", color="C0")
axis.text(-78, 2, "from the input", color="C1")
axis.set_title("The slope of the ELU needs its input: from the output, it has no digits below -6")
axis.set_xlabel("x, in bfloat16")
axis.set_ylabel("error, units in the last place")
plt.show()

for name, error in errors.items():
    print(f"{name}: up to {error.max():.3g} units in the last place")
assert errors["from the output"].max() > 100
assert torch.equal(y.detach() + 1 == 0, every <= -6.25)
assert errors["from the input"].max() < 0.6

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/template`: relu, sigmoid and tanh, and what each line of a ``Function`` does.
# * :doc:`/cookbook/04_memory/masks`: masks of one bit per element.
# * :doc:`/cookbook/03_stability/safe_functions`: functions whose slopes do not exist everywhere.
# * In torch's documentation: :func:`torch.nn.functional.gelu`, :func:`torch.clamp`.
