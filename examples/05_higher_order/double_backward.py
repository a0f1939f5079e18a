r"""
Double backward: what a gradient may be made of
===============================================

You will write functions whose second and third derivatives are right, in four ways, and learn what each way costs.
"""

# %%
# When to use it
# --------------
#
# Read this page when your gradient may be differentiated again, for example for Hessians, gradient penalties,
# physics-informed losses or meta-learning. If this never happens, you can mark the backward with
# ``once_differentiable``. The section "The wrong version" shows what this mark does not catch.
#
# Copy ``lambert_w`` if you need the solution :math:`y` of :math:`y e^y = x`, which torch does not have. If you need no
# second derivatives, compile its forward, which is no slower and keeps less. Copy ``logdet`` for large positive
# definite matrices: for these it takes less time than ``torch.logdet``, but for small ones it takes more.
#
# The gradient
# ------------
#
# For a second derivative, autograd records what your backward computes, and differentiates it. For this, autograd must
# know where each tensor in backward comes from. Autograd knows three origins: inputs of the node (the call of your
# ``Function`` in the graph), outputs of the node, and results of other functions that ran *in backward*. A tensor that
# ``forward`` made and kept without returning it has no known origin, so it counts as a constant. For :math:`y e^y = x`,
# backward needs the slope
#
# .. math::
#
#    s = y'(x) = \frac{e^{-y}}{1 + y} .
#
# It can get the slope in three ways:
#
# * Save the input :math:`x`, solve the equation again in backward, and use the formula.
# * Save the output :math:`y`, and use the formula.
# * Compute :math:`s` in forward, and return it as a second output. A second output needs its own gradient, here
#   :math:`s' = -s^2 (2 + y) / (1 + y)`.
#
# For :math:`\log\det A` with a positive definite :math:`A`, a second output is the best way. The gradient is :math:`Z =
# A^{-1}`. Computing :math:`Z` takes about twice as many operations as the Cholesky factorization from which forward
# gets the value. So ``logdet`` computes :math:`Z` once, in forward, for all derivatives, and returns it as a second
# output. A gradient :math:`\bar{Z}` of this output gives :math:`\bar{A} = -Z \bar{Z} Z`.
#
# The recipe
# ----------
#
# ``lambert_w`` keeps its output, and its backward calls another ``Function``, which has its own backward. The slope is
# more accurate if it is computed from input and output, so ``lambert_w`` also keeps its input. Your graph usually holds
# this input anyway. For a large :math:`y`, :math:`e^{-y}` magnifies the rounding error of the output. The quotient
# :math:`y / x`, which is equal to :math:`e^{-y}`, does not, so the recipe computes the quotient. Near :math:`y = -1`,
# few digits of :math:`1 + y` are right if you compute this sum from the rounded output, so the recipe computes it from
# the input. ``logdet`` has a second output, which its gradient needs and which the public function drops.
#
# .. recipe:: lambert_w
#
# .. recipe:: logdet

# sphinx_gallery_tags = ["second order", "ctx", "memory"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.double_backward import LambertWFunction, lambert_w, logdet

# %%
# See it work
# -----------
#
# The next cell adds four more ways to compute the gradient of the same forward:


class SavesInput(LambertWFunction):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        w = SavesInput.apply(*ctx.saved_tensors)
        return grad_output * torch.exp(-w) / (1 + w)


class SavesOutput(LambertWFunction):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (w,) = ctx.saved_tensors
        return grad_output * torch.exp(-w) / (1 + w)


class ReturnsSlope(Function):
    @staticmethod
    def forward(input):
        w = LambertWFunction.forward(input)
        return w, torch.exp(-w) / (1 + w)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx, grad_output, grad_slope):
        w, slope = ctx.saved_tensors
        return grad_output * slope - grad_slope * slope**2 * (2 + w) / (1 + w)


class SavesSlope(ReturnsSlope):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])  # as if it were no output at all
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        return grad_output * ctx.saved_tensors[0]


ways = {
    "saves the input, solves again": SavesInput.apply,
    "saves the output": SavesOutput.apply,
    "the recipe: by hand": lambert_w,
    "returns the slope": lambda x: ReturnsSlope.apply(x)[0],
    "saves the slope": lambda x: SavesSlope.apply(x)[0],
}


def derivatives(function, x):
    """Return the first three derivatives, with zeros where autograd sees a constant."""
    x = x.clone().requires_grad_()
    y, found = function(x), []
    for _ in range(3):
        y = torch.autograd.grad(y.sum(), x, create_graph=True)[0] if y.requires_grad else torch.zeros_like(x)
        found.append(y.detach())
    return found


x = torch.linspace(-0.1, 3, 131, dtype=torch.float64)
w = lambert_w(x)
exact = [
    torch.exp(-w) / (1 + w),
    -torch.exp(-2 * w) * (2 + w) / (1 + w) ** 3,
    torch.exp(-3 * w) * (2 * w**2 + 8 * w + 9) / (1 + w) ** 5,
]
for name, function in ways.items():
    right = [torch.allclose(a, b, rtol=1e-9) for a, b in zip(derivatives(function, x), exact, strict=True)]
    assert right == [True, name != "saves the slope", name != "saves the slope"]

figure, axes = plt.subplots(1, 3, figsize=(7, 3), layout="constrained", sharex=True)
figure.suptitle("Keep an intermediate of Lambert W, and its second derivative is 0")
for axis, ours, theirs, title in zip(
    axes, derivatives(lambert_w, x), derivatives(ways["saves the slope"], x), ("first", "second", "third"), strict=True
):
    axis.plot(x, ours, label="saves the output")
    axis.plot(x, theirs, "--", label="saves the slope")
    axis.set(xlabel="x", title=f"{title} derivative")
    axis.title.set_fontsize(10)
axes[1].legend(loc="lower right", fontsize=8)
plt.show()

# %%
# All ways are right except the last one, which saves the slope. The next cell prints what they cost. The first number
# is the bytes per float32 element that autograd keeps for the first backward, beyond the argument. The second number is
# the bytes after a backward with ``create_graph=True``. The third number is the processor time of forward and backward.

table = torch.rand(300, 500, requires_grad=True)


def gradient(function, **options):
    return torch.autograd.grad(function(table).sum(), table, **options)


def seconds(function):
    start = time.process_time()
    gradient(function)
    return time.process_time() - start


rounds = [[seconds(function) for function in ways.values()] for _ in range(8)]
fastest = dict(zip(ways, map(min, zip(*rounds, strict=True)), strict=True))
kept = {}
for name, function in ways.items():
    first = saved_bytes(lambda _, f=function: f(table), table) / table.numel()
    both = saved_bytes(lambda _, f=function: gradient(f, create_graph=True), table) / table.numel()
    kept[name] = round(first), round(both)
    ratio = fastest[name] / fastest["the recipe: by hand"]
    print(f"{name:30} {first:3.0f} bytes, {both:3.0f} with the second graph, {ratio:4.1f} times the time")
assert kept["saves the input, solves again"][0] == 0
assert kept["saves the output"][0] == kept["the recipe: by hand"][0] == 4
assert kept["returns the slope"][0] == 8
assert min(both for first, both in kept.values()) == kept["saves the slope"][1]
assert kept["the recipe: by hand"][1] < kept["saves the output"][1]

# %%
# If you can compute the gradient from the output, save the output. A second ``Function`` for the backward needs less
# memory for the second derivative, because it keeps only its arguments. Without it, autograd keeps every step of the
# formula. If your backward is a kernel (compiled code that autograd does not see into), a second derivative needs a
# second ``Function``, or an operator with a gradient of its own.
#
# An intermediate as output
# -------------------------
#
# ``logdet`` can't compute its gradient from its output, because this is only one number. So it returns the inverse as
# well. The operator behind ``torch.linalg.slogdet`` also returns an intermediate, its factorization, and keeps it:

generator = torch.Generator().manual_seed(0)
factor = torch.randn(5, 5, dtype=torch.float64, generator=generator)
matrix = (factor @ factor.mT + torch.eye(5)).requires_grad_()
node = torch.linalg.slogdet(matrix).logabsdet.grad_fn
print(f"torch {torch.__version__}: {node.name()} keeps {[name for name in dir(node) if name.startswith('_saved')]}")
print(torch.ops.aten._linalg_slogdet.default._schema)
assert gradcheck(logdet, (matrix,))
assert gradgradcheck(logdet, (matrix,))

direction = torch.ones(5, 5, dtype=torch.float64)
ratio = torch.linalg.solve(matrix.detach(), direction)
t = torch.zeros((), dtype=torch.float64, requires_grad=True)
y = logdet(matrix.detach() + t * direction)
for n, power in ((1, ratio.trace()), (2, -(ratio @ ratio).trace()), (3, 2 * (ratio @ ratio @ ratio).trace())):
    (y,) = torch.autograd.grad(y, t, create_graph=True)
    print(f"derivative {n} along a line: {y.item():+.6f}, by the formula {power.item():+.6f}")
    assert torch.allclose(y, power)

# %%
# The wrong version
# -----------------
#
# You may want to forbid the second derivative with ``once_differentiable``. But it does not catch every case:


class Once(SavesOutput):
    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (w,) = ctx.saved_tensors
        return grad_output * torch.exp(-w) / (1 + w)


def slope_of_the_product(function):
    """The derivative of x f'(x), by differentiating twice."""
    x = torch.tensor(1.0, requires_grad=True)
    (first,) = torch.autograd.grad(function(x), x, create_graph=True)
    (second,) = torch.autograd.grad(x * first, x)
    return second.item()


print(f"derivative of x f'(x) at 1: right {slope_of_the_product(lambert_w):+.4f}", end=", ")
print(f"with once_differentiable {slope_of_the_product(Once.apply):+.4f}, and no error")
assert abs(slope_of_the_product(Once.apply) - 0.3619) < 1e-4  # f'(1) alone, and f''(1) is missing

# %%
# With ``once_differentiable``, ``.backward()`` raises only if ``grad_output`` itself requires a gradient. Even then,
# ``torch.autograd.grad`` is silent if another path leads to the input: the engine follows only this other path, and
# does not reach the marked backward (see :doc:`/guide/gradgradcheck`). Here ``grad_output`` is the constant 1, so the
# first derivative counts as a constant. The other path, through the factor ``x``, still returns a part of the
# derivative. Two other ways to compute the second derivative raise an error. In the first, ``.backward()`` reaches the
# marked backward. In the second, no path is left, so the result requires no gradient:

x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
for name, attempt in {
    "through a square": lambda: torch.autograd.grad(Once.apply(x).square().sum(), x, create_graph=True)[0].sum(),
    "without another path": lambda: torch.autograd.grad(Once.apply(x).sum(), x, create_graph=True)[0].sum(),
}.items():
    try:
        attempt().backward()
    except RuntimeError as error:
        print(f"{name}: {error}")
for name, function in {"Once": Once.apply, "SavesSlope": ways["saves the slope"]}.items():
    try:
        gradgradcheck(function, (x,))
    except RuntimeError as error:
        print(f"gradgradcheck of {name}: {str(error).splitlines()[0]}")
assert gradgradcheck(lambert_w, (x,))

# %%
# What it costs
# -------------
#
# .. costs::
#
# ``lambert_w`` keeps 4 bytes per element beyond its argument, and its forward differentiated by autograd keeps more
# than 200. The compiled forward keeps one byte and is no slower, but compiled code can be differentiated only once:

compiled = torch.compile(LambertWFunction.forward, backend="aot_eager_decomp_partition", fullgraph=True)
ways = {"recipe": lambert_w, "forward with autograd": LambertWFunction.forward, "forward, compiled": compiled}
kept = {name: saved_bytes(function, table) / table.numel() for name, function in ways.items()}
print("bytes per element:", {name: round(size) for name, size in kept.items()})
assert kept["recipe"] == 4
assert kept["forward, compiled"] <= 1 < 200 < kept["forward with autograd"]
x = torch.tensor(1.0, requires_grad=True)
(first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
try:
    torch.autograd.grad(first, x)
except RuntimeError as error:
    print(str(error).splitlines()[0])
else:
    raise AssertionError("compiled code has a second derivative: say so above")

# %%
# ``logdet`` is faster with large matrices. Its forward computes a factorization and an inverse, which together take
# about :math:`n^3` floating-point operations, and its backward only scales the inverse. The backward of
# ``torch.linalg.cholesky`` or ``torch.logdet`` must solve systems with the whole matrix. With small matrices the
# overhead of the calls dominates, and ``logdet`` takes longer. The next cell prints the time of forward and backward in
# float32, as a multiple of the time of ``torch.logdet``. The machine that built this page measured it on one thread:


def seconds(function, matrix):
    start = time.perf_counter()
    torch.autograd.grad(function(matrix), matrix)
    return time.perf_counter() - start


ratios = {}
for size in (3, 30, 100, 500):
    factor = torch.randn(size, size)
    positive = (factor @ factor.mT / size + torch.eye(size)).requires_grad_()
    rounds = [[seconds(f, positive) for f in (logdet, torch.logdet)] for _ in range(10)]
    ours, built_in = map(min, zip(*rounds, strict=True))  # they take turns
    ratios[size] = ours / built_in
print({f"{size} × {size}": f"{ratio:.2f}" for size, ratio in ratios.items()})

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/05_higher_order/hessian`: how to use second derivatives.
# * :doc:`/cookbook/05_higher_order/implicit`: more equations that forward solves.
# * :doc:`/cookbook/01_first_steps/reductions`: the Hessian of a function that saves a softmax.
# * :doc:`/guide/compiled_rules`: how to keep this backward when you compile code that calls :mod:`torch.func`.
# * In torch's documentation: :func:`torch.autograd.gradgradcheck`, :class:`torch.autograd.Function`.
