r"""
In place: overwrite the input, and say so
=========================================

You will write an activation that overwrites its input, and declare this with ``mark_dirty``. You will also see which
results are silently wrong without this declaration.
"""

# %%
# When to use it
# --------------
#
# Overwrite the input of an activation if backward needs only the output, and no other code needs the input. For leaky
# ReLU, use :func:`torch.nn.functional.leaky_relu_`, which does the same as the recipe. For ReLU, an in-place activation
# keeps as many bytes for backward as ``F.relu``, as the figure shows. Copy the recipe for your own invertible
# activation, or as an example of a ``Function`` that writes to its argument.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# With a slope :math:`s > 0`, the output has the same sign as the input, so backward needs only the output:
#
# .. math::
#
#    y = \max(x, 0) + s \min(x, 0), \qquad
#    \bar{x} = \begin{cases} \bar{y} & y > 0 \\ s\,\bar{y} & y \le 0 . \end{cases}
#
# If a linear layer with a trained weight follows, it keeps its input :math:`y` anyway. The in-place activation
# overwrites :math:`x`, so each layer keeps one activation instead of two.
#
# The recipe
# ----------
#
# .. recipe:: leaky_relu_

# sphinx_gallery_tags = ["memory", "ctx", "second order"]
# sphinx_gallery_thumbnail_number = 1

import gc
import weakref

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.auditing import audit, peak_bytes
from autograd_cookbook.recipes.in_place import leaky_relu_

# %%
# See it work
# -----------
#
# The figure shows the peak memory for forward and backward of a chain of linear layers and activations, as a multiple
# of one activation's bytes.

rows, width = 4000, 16
x = torch.randn(rows, width)
weight = torch.randn(width, width, requires_grad=True)
depths = [1, 2, 4, 8, 12, 16]


def peak(activation, depth):
    def run():
        h = x
        for _ in range(depth):
            h = activation(F.linear(h, weight))
        h.sum().backward()

    run()
    return peak_bytes(run) / x.untyped_storage().nbytes()


activations = {
    "F.leaky_relu": F.leaky_relu,
    "F.relu": F.relu,
    "F.relu_": F.relu_,
    "leaky_relu_, the recipe": leaky_relu_,
}
curves = {name: [peak(f, depth) for depth in depths] for name, f in activations.items()}

figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, values), style in zip(curves.items(), ("-o", "-.s", ":^", "--D"), strict=True):
    axis.plot(depths, values, style, label=name, markersize=5)
axis.set(xlabel="layers", ylabel="activations alive at the peak", xticks=depths)
axis.set_title("In-place leaky ReLU halves the peak memory; in-place ReLU saves nothing")
axis.legend()
plt.show()

slopes = {name: (values[-1] - values[0]) / (depths[-1] - depths[0]) for name, values in curves.items()}
print("torch", torch.__version__, {name: f"{slope:.2f} activations a layer" for name, slope in slopes.items()})
assert slopes["F.leaky_relu"] > 1.8 * slopes["leaky_relu_, the recipe"]
assert curves["F.relu"] == curves["F.relu_"]

# %%
# ``F.relu`` saves its *output*. The next layer saves the same tensor, so ``F.relu_`` cannot reduce what is kept. It
# only avoids a second tensor during its own call, as the next cell shows. ``F.leaky_relu`` saves its input, because it
# also allows a negative slope, for which the output alone is not enough.
# The in-place version does not keep this input, so it needs one activation less per
# layer.

calls = {f: peak_bytes(lambda f=f: f(x * weight.detach()[0])) / x.untyped_storage().nbytes() for f in (F.relu, F.relu_)}
print("peak of the call alone:", {f.__name__: round(peak, 2) for f, peak in calls.items()}, "activations")
assert round(calls[F.relu]) == 2
assert round(calls[F.relu_]) == 1

# %%
# You can test a function that writes to its argument with ``audit`` (:doc:`/guide/audit`), which passes copies:

point = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
report = audit(leaky_relu_, (point, 0.2), skip=["compile"])
print(report.ok, {name: report.capabilities[name] for name in ("first_order", "second_order", "vmap")})
assert report.ok

# %%
# The wrong version
# -----------------
#
# The wrong version does not call ``mark_dirty``. Its ``forward`` returns the overwritten input, and its
# ``setup_context`` saves this tensor, so PyTorch raises an error:


class Unmarked(Function):
    """Writes to its argument without mark_dirty."""

    @staticmethod
    def forward(input, slope):
        return F.leaky_relu_(input, slope)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.slope = inputs[1]
        ctx.save_for_backward(output)

    backward = staticmethod(lambda ctx, grad: (torch.where(ctx.saved_tensors[0] > 0, grad, ctx.slope * grad), None))


class ReturnsView(Unmarked):
    """Follows the advice of torch's message."""

    @staticmethod
    def forward(input, slope):
        return F.leaky_relu_(input, slope).view_as(input)


try:
    Unmarked.apply(torch.ones(2), 0.5)
except RuntimeError as error:
    print(error)

# %%
# The error message proposes to return a view. With this view, the function runs, and the gradient through its *result*
# is right. But the next cell shows three wrong results:
#
# * The variable that you passed as input has the new values. But if a loss uses this variable, the gradient ignores the
#   activation.
# * The function overwrites a leaf that requires grad, without an error.
# * If the input is a view and a loss uses its base (the tensor that owns the memory), the gradient ignores the
#   activation, too.
#
# In the last test, another function has saved the tensor before the write. PyTorch raises an error for the wrong
# version and for the recipe:


def attempt(function):
    try:
        return [round(number, 3) for number in function().flatten().tolist()]
    except RuntimeError as error:
        return "refused: " + str(error)[:65] + "..."


def gradient_of_result(activation):
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    return torch.autograd.grad(activation(1 * leaf, 0.5).sum(), leaf)[0]


def gradient_of_old_name(activation):
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    hidden = 1 * leaf
    activation(hidden, 0.5)
    return torch.autograd.grad(hidden.sum(), leaf)[0]


def gradient_of_base(activation):
    leaf = torch.tensor([[-2.0, 3.0], [-4.0, 5.0]], requires_grad=True)
    hidden = 1 * leaf
    activation(hidden[0], 0.5)
    return torch.autograd.grad(hidden.sum(), leaf)[0]


def leaf_afterwards(activation):
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    activation(leaf, 0.5)
    return leaf.detach()


def saved_by_another(activation):
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    hidden = 1 * leaf
    square = hidden.square()
    activation(hidden, 0.5)
    return torch.autograd.grad(square.sum(), leaf)[0]


found = {}
for test in (gradient_of_result, gradient_of_old_name, gradient_of_base, leaf_afterwards, saved_by_another):
    print(test.__name__)
    for name, activation in (("unmarked", ReturnsView.apply), ("recipe", leaky_relu_)):
        found[name, test.__name__] = attempt(lambda test=test, activation=activation: test(activation))
        print(f"    {name:8} {found[name, test.__name__]}")

assert found["recipe", "gradient_of_old_name"] == found["recipe", "gradient_of_result"] == [0.5, 1]
assert found["unmarked", "gradient_of_old_name"] == [1, 1]
assert found["recipe", "gradient_of_base"] == [0.5, 1, 1, 1]
assert found["unmarked", "gradient_of_base"] == [1, 1, 1, 1]
assert found["unmarked", "leaf_afterwards"] == [-1, 3]
assert all(found[name, "saved_by_another"].startswith("refused") for name in ("unmarked", "recipe"))

# %%
# Some releases leak memory if a ``Function`` saves an output that is a view and is marked as dirty. The reason is a
# reference cycle, `reported for torch 2.8 <https://github.com/pytorch/pytorch/issues/160317>`__. Memory then grows in
# each step, also after ``gc.collect()``. The releases that we ran, 2.12 to 2.15, free the memory.
#
# If you see this leak, save ``output.detach()`` instead. The detached tensor shares memory and version counter (the
# number of writes so far) with the output, so autograd still detects later writes. It does not refer to the graph, so
# there is no cycle. The next cell counts the objects ``ctx`` that are still in memory. If your release has the leak,
# their number is not 0:

contexts = []


class InPlaceRelu(Function):
    @staticmethod
    def forward(ctx, input, detached):
        output = input.relu_()
        ctx.mark_dirty(output)
        ctx.save_for_backward(output.detach() if detached else output)
        contexts.append(weakref.ref(ctx))
        return output

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * (ctx.saved_tensors[0] > 0), None


for detached in (False, True):
    contexts.clear()
    for _ in range(5):
        hidden = torch.randn(3, 4, requires_grad=True) + 1
        InPlaceRelu.apply(hidden[0], detached)
    del hidden
    gc.collect()
    print(f"torch {torch.__version__}, detached {detached}: {sum(c() is not None for c in contexts)} of 5 alive")
    assert all(context() is None for context in contexts)

hidden = torch.tensor([[-1.0, 2.0], [3.0, -4.0]], requires_grad=True)
rows = hidden * 1
InPlaceRelu.apply(rows[0], True)
assert torch.autograd.grad(rows.sum(), hidden)[0].tolist() == [[0, 1], [1, 1]]
rows = hidden * 1
InPlaceRelu.apply(rows[0], True)
rows.mul_(2)
try:
    rows.sum().backward()
except RuntimeError as error:
    print("a later write, with the detached output saved:", str(error)[:95], "...")
else:
    raise AssertionError("the later write was not noticed")

# %%
# ``mark_dirty`` does not protect a leaf from being overwritten. PyTorch raises an error for a leaf that requires grad,
# but only after ``forward`` has changed its values. So the recipe tests for such a leaf before it calls ``apply``:


class Marked(Unmarked):
    """Calls mark_dirty for its argument, and returns the argument itself."""

    @staticmethod
    def forward(input, slope):
        F.leaky_relu_(input, slope)
        return input

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.slope = inputs[1]
        ctx.save_for_backward(output)


for activation in (Marked.apply, leaky_relu_):
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    try:
        activation(leaf, 0.5)
    except RuntimeError as error:
        print(error, leaf.tolist())

# %%
# :func:`torch.compile` does not support ``mark_dirty`` for a tensor from outside of the compiled function. Since torch
# 2.13, with the backends ``aot_eager`` and ``inductor`` (the default), the compiled backward silently returns the
# incoming gradient unchanged.
# The recipe causes a graph break (a place where the compiler splits the code), so it runs outside of the
# compiled code and its gradient is right:

for name, activation in (("marked", Marked.apply), ("recipe", leaky_relu_)):
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    compiled = torch.compile(lambda hidden, f=activation: f(hidden, 0.5), backend="aot_eager")
    (gradient,) = torch.autograd.grad(compiled(1 * leaf).sum(), leaf)
    print(f"torch {torch.__version__}, compiled, {name}: {gradient.tolist()}")
    assert name == "recipe" or torch.__version__ < (2, 13) or gradient.tolist() == [1, 1]
assert gradient.tolist() == [0.5, 1]

# %%
# Returning an input as it is
# ---------------------------
#
# If you return the input from ``forward``, as in a gradient reversal, PyTorch turns the result into a view of the
# input. If you then write to this view in place and the input requires grad, PyTorch raises an error. If the input does
# not require grad, or under ``torch.no_grad()``, PyTorch raises no error, and the write changes the input:


class Triple(Function):
    """Returns its input, and multiplies the gradient by three."""

    forward = staticmethod(lambda input: input)
    setup_context = staticmethod(lambda ctx, inputs, output: None)
    backward = staticmethod(lambda ctx, grad_output: 3 * grad_output)


leaf = torch.ones(2, requires_grad=True)
hidden = 2 * leaf
result = Triple.apply(hidden)
print("same object:", result is hidden, " same memory:", result.data_ptr() == hidden.data_ptr())
try:
    result.mul_(5)
except RuntimeError as error:
    print(str(error).partition(". This view")[0])
with torch.no_grad():
    Triple.apply(hidden).mul_(5)
print("under no_grad the input is now", hidden.tolist())
assert hidden.tolist() == [10, 10]
plain = torch.ones(2)
Triple.apply(plain).mul_(5)
assert plain.tolist() == [5, 5]

# %%
# What it costs
# -------------
#
# The recipe keeps the same bytes as torch's in-place function: only its output. If another function needs the old
# values of the input in backward, PyTorch raises an error.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/masks`: how to save one bit per element if the input must not be overwritten.
# * :doc:`/cookbook/04_memory/reversible`: how to compute inputs from outputs, for whole layers.
# * :doc:`/cookbook/04_memory/detaching`: the version counter, and why ``.data`` does not use it.
# * :doc:`/cookbook/02_changing_the_gradient/reversal`: a function that returns its input.
# * In torch's documentation: :meth:`torch.autograd.function.FunctionCtx.mark_dirty`,
#   :func:`torch.nn.functional.leaky_relu_`.
