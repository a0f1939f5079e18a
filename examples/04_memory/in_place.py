r"""
In place: overwrite the input, and say so
=========================================

You will write an activation that stands where its input did, declare that with ``mark_dirty``, and see what goes
wrong, silently, if you do not.
"""

# %%
# When to use it
# --------------
#
# When the output determines the gradient and the input is no longer needed. For leaky ReLU
# :func:`torch.nn.functional.leaky_relu_` does the same, and for ReLU there is nothing to gain in training, as the
# figure shows. Copy the recipe for an invertible activation of your own, or as the pattern for anything that writes to
# its argument.
#
# The gradient
# ------------
#
# With a slope :math:`s > 0` the output has the sign of the input, so the gradient follows from the output alone:
#
# .. math::
#
#    y = \max(x, 0) + s \min(x, 0), \qquad
#    \bar{x} = \begin{cases} \bar{y} & y > 0 \\ s\,\bar{y} & y \le 0 . \end{cases}
#
# A linear layer behind it keeps :math:`y` as its input anyway. In place, :math:`x` is not there any more: one
# activation a layer is alive, where two were.
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
# A chain of linear layers and activations, forward and backward. Memory is counted in activations, exactly.

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
axis.set_title("Peak memory of training: in place halves leaky ReLU, and gives ReLU nothing")
axis.legend()
plt.show()

slopes = {name: (values[-1] - values[0]) / (depths[-1] - depths[0]) for name, values in curves.items()}
print("torch", torch.__version__, {name: f"{slope:.2f} activations a layer" for name, slope in slopes.items()})
assert slopes["F.leaky_relu"] > 1.8 * slopes["leaky_relu_, the recipe"]
assert curves["F.relu"] == curves["F.relu_"]

# %%
# ReLU keeps its *output*, which the next layer keeps as well, so ``inplace=True`` changes nothing. Leaky ReLU keeps
# its input, because its slope might be negative: that is the activation which is saved here.
#
# The audit works with functions that write to their argument: it hands them copies of leaves.

point = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
report = audit(leaky_relu_, (point, 0.2), skip=["compile"])
print(report.ok, {name: report.capabilities[name] for name in ("first_order", "second_order", "vmap")})
assert report.ok

# %%
# The wrong version
# -----------------
#
# Without ``mark_dirty``. If ``forward`` saves the output and returns its input, torch refuses:


class Unmarked(Function):
    """Writes to its argument, and does not say so."""

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
# With the view that the message proposes, it runs, and the gradient of the *result* is right. Nothing else is: the old
# name shows new values with the old gradient, a leaf is overwritten, and a view leaves its base behind.


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
# A view of a larger tensor, written to, marked and saved as an output: this made a cycle inside of autograd that
# nothing freed, `reported for torch 2.8 <https://github.com/pytorch/pytorch/issues/160317>`__. The symptom is memory
# that grows in each step, also after ``gc.collect()``. The releases that we ran, 2.12 to 2.15, free it. If you see
# it, save ``output.detach()``: it shares memory and version counter, so later writes are still noticed, and it has no
# graph that could close a cycle. The count of contexts that are still alive tells whether your release has the leak:

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
# The version counter works either way: who has saved the old values is told. And ``mark_dirty`` alone does not protect
# a leaf. It raises when ``forward`` has already run, so the recipe asks before:


class Marked(Unmarked):
    """Declares what it writes to; returns the argument itself."""

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
# Under :func:`torch.compile`, it is lost: on a tensor from outside of the compiled part, the result has the gradient of
# the identity. The recipe breaks the graph, and is right:

for name, activation in (("marked", Marked.apply), ("recipe", leaky_relu_)):
    leaf = torch.tensor([-2.0, 3.0], requires_grad=True)
    compiled = torch.compile(lambda hidden, f=activation: f(hidden, 0.5), backend="aot_eager")
    (gradient,) = torch.autograd.grad(compiled(1 * leaf).sum(), leaf)
    print(f"torch {torch.__version__}, compiled, {name}: {gradient.tolist()}")
assert gradient.tolist() == [0.5, 1]

# %%
# Returning an input as it is
# ---------------------------
#
# A function that changes nothing in forward, as gradient reversal, does not return the same tensor: torch makes a view,
# so that the result can have a history of its own. It can not be written to in place. Where no gradient is recorded, it
# can, and the input changes with it:


class Triple(Function):
    """The identity, with three times the gradient."""

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

# %%
# What it costs
# -------------
#
# Nothing is kept beyond the output. There is no table of costs, since torch's in-place function keeps the same; the
# figure has the difference to the one that is not. What you give up is the old values: for anybody who needs them,
# backward raises.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/masks`: one bit an element, where the input must survive.
# * :doc:`/cookbook/04_memory/reversible`: inputs computed from outputs, for whole layers.
# * :doc:`/cookbook/04_memory/detaching`: the version counter, and how ``.data`` evades it.
# * :doc:`/cookbook/02_changing_the_gradient/reversal`: a function that returns its input.
# * In torch's documentation: :meth:`torch.autograd.function.FunctionCtx.mark_dirty`,
#   :func:`torch.nn.functional.leaky_relu_`.
