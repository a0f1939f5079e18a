r"""
Several outputs: unused ones, and ones without a gradient
=========================================================

You will write functions that return more than one tensor, take None for a gradient that was not computed, and see
what a missing mark on an output does: nothing for an index, and a silent zero for a float.
"""

# %%
# When to use it
# --------------
#
# When two results come from one computation, and it would be a waste to do it twice: a value and where it was found,
# a quotient and its remainder, a factorization. If the outputs have nothing in common, write two functions.
# ``max_with_index`` is :func:`torch.max` and wins nothing over it; ``split_sign`` keeps less than two rectifiers do.
#
# The gradient
# ------------
#
# Each output is a path from the input to the loss, and the contributions of the paths add up:
#
# .. math::
#
#    \bar{x} = \Bigl(\frac{\partial y_1}{\partial x}\Bigr)^{\!\top} \bar{y}_1
#            + \Bigl(\frac{\partial y_2}{\partial x}\Bigr)^{\!\top} \bar{y}_2 + \dots
#
# Backward is called once, with all the :math:`\bar{y}_k`. If the loss uses only some outputs, the others'
# gradients are 0, and torch fills tensors with zeros for them, unless ``ctx.set_materialize_grads(False)`` says that
# you can deal with None. An output that has no derivative, such as an index, has no path at all:
# ``ctx.mark_non_differentiable`` takes it out of the graph.
#
# The recipe
# ----------
#
# .. recipe:: split_sign
#
# .. recipe:: max_with_index

# sphinx_gallery_tags = ["first steps", "ctx", "memory", "second order"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function, gradcheck, gradgradcheck

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.several_outputs import max_with_index, split_sign

# %%
# See it work
# -----------
#
# On the left, one backward for three losses: of the first output, of the second, of both. On the right, the bytes
# of backward at its worst moment if a function has many outputs and the loss uses one of them. The function
# is the same, and so is the number that it returns; what differs is who makes the zeros.


class Powers(Function):
    """x, x², x³, ...: as many outputs as you ask for."""

    @staticmethod
    def forward(input, count, materialize):
        return tuple(input**k for k in range(1, count + 1))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.set_materialize_grads(inputs[2])

    @staticmethod
    def backward(ctx, *grads):
        (input,) = ctx.saved_tensors
        return sum(g * k * input ** (k - 1) for k, g in enumerate(grads, start=1) if g is not None), None, None


def peak_of_backward(count, materialize):
    last = Powers.apply(numbers, count, materialize)[-1]
    return peak_bytes(torch.autograd.grad, last, numbers, ones) / ones.untyped_storage().nbytes()


def gradient_of_last(count, materialize):
    return torch.autograd.grad(Powers.apply(numbers, count, materialize)[-1], numbers, ones)[0]


ones = torch.ones(100_000)
numbers = torch.linspace(-1, 1, 100_000, requires_grad=True)
counts = [1, 2, 4, 8, 16]
peaks = {flag: [peak_of_backward(count, flag) for count in counts] for flag in (True, False)}

x = torch.linspace(-2, 2, 401, dtype=torch.float64, requires_grad=True)
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.3), layout="constrained")
figure.suptitle("Outputs that the loss does not use: no gradient, and no zeros if you take None")
for name, used, style in (("the first", slice(1), "-"), ("the second", slice(1, 2), "--"), ("both", slice(2), ":")):
    (gradient,) = torch.autograd.grad(sum(y.sum() for y in split_sign(x)[used]), x)
    left.plot(x.detach(), gradient, style, label=f"of {name}", linewidth=3 if name == "both" else 1.5)
left.set(xlabel="x", ylabel="gradient of the sum", title="split_sign")
left.legend(fontsize=8)
for flag, style in ((True, "-o"), (False, "--s")):
    right.plot(counts, peaks[flag], style, label="zeros (the default)" if flag else "None")
right.set(
    xlabel="outputs, one of them used",
    ylabel="peak, in tensors",
    xticks=counts,
    yticks=[0, 3, 7, 11, 19],
    title="x, x², x³, ...",
)
right.legend(fontsize=8)
plt.show()

assert torch.equal(gradient_of_last(8, True), gradient_of_last(8, False))
for count, zeros, none in zip(counts, peaks[True], peaks[False], strict=True):
    print(f"{count:>2} outputs: {zeros:2.0f} tensors with zeros, {none:.0f} with None")
assert set(peaks[False]) == {3}
assert peaks[True][1:] == [3 + count for count in counts[1:]]

# %%
# Twice differentiable, with any of the outputs unused:

torch.manual_seed(0)
table = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
for name, function in {
    "split_sign, first output ": lambda x: split_sign(x)[0],
    "split_sign, second output": lambda x: split_sign(x)[1],
    "split_sign, both         ": split_sign,
    "max_with_index           ": lambda x: max_with_index(x, 0)[0],
}.items():
    print(name, gradcheck(function, (table,)), gradgradcheck(function, (table,)))

# %%
# The wrong version
# -----------------
#
# It is often said that an index must be marked, or else autograd would differentiate it. Leave the mark away:


class Unmarked(Function):
    """The largest entry of each row and where it is, as an int64 and as a float: no mark on either."""

    @staticmethod
    def forward(input):
        values, index = input.max(-1)
        return values, index, index.to(input.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_values, grad_index, grad_place):
        (index,) = ctx.saved_tensors
        zeros = grad_values.new_zeros(ctx.shape)
        return zeros.scatter(-1, index.unsqueeze(-1), grad_values.unsqueeze(-1))


class Marked(Unmarked):
    @staticmethod
    def setup_context(ctx, inputs, output):
        Unmarked.setup_context(ctx, inputs, output)
        ctx.mark_non_differentiable(*output[1:])


print("torch", torch.__version__)
for function in (Unmarked, Marked):
    values, index, place = function.apply(table)
    print(
        f"{function.__name__:8} requires_grad: values {values.requires_grad}, int64 {index.requires_grad}, "
        f"float {place.requires_grad}"
    )
    try:
        (gradient,) = torch.autograd.grad((place - 1).square().sum(), table)
        print(f"         a loss of the float: all gradients zero: {not gradient.any()}")
    except RuntimeError as error:
        print(f"         a loss of the float: {error}")

# %%
# Integers never require grad, so for an index the mark is a matter of form. For a *float* without a derivative, a
# place, a count, a mask, it decides: unmarked, a loss of it trains nothing and says nothing; marked, it raises.
#
# The second classic is to ask for None and to forget that it comes:


class ForgetsNone(Function):
    @staticmethod
    def forward(input):
        return input.clamp(min=0), (-input).clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad_positive, grad_negative):
        (input,) = ctx.saved_tensors
        return grad_positive * (input > 0) - grad_negative * (input < 0)


for name, used in (("both", slice(2)), ("second", slice(1, 2))):
    try:
        torch.autograd.grad(sum(y.sum() for y in ForgetsNone.apply(table)[used]), table)
        print(f"{name:6} used: fine")
    except TypeError as error:
        print(f"{name:6} used: {error}")

# %%
# A test with a loss of all outputs does not see it. :func:`torch.autograd.gradcheck` looks at one output at a
# time, and runs into it:

try:
    gradcheck(ForgetsNone.apply, (table,))
    raise AssertionError("gradcheck has not seen it")
except TypeError as error:
    print("gradcheck:", error)

# %%
# What it costs
# -------------
#
# .. costs::
#
# ``split_sign`` keeps its input, which the caller has; two rectifiers keep both results. It is slower than these,
# whose backward is a kernel of its own. And the zeros for an unused output, in exact bytes at the worst moment of
# forward and backward, for a million float32 numbers: 4 bytes each for the zeros, and 4 for what becomes of them.

million = torch.randn(1_000_000, requires_grad=True)
ones = torch.ones_like(million)


class Materialized(Function):
    """split_sign with the default of torch."""

    forward = staticmethod(lambda input: (input.clamp(min=0), (-input).clamp(min=0)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_positive, grad_negative):
        (input,) = ctx.saved_tensors
        return torch.where(input <= 0, 0, grad_positive) - torch.where(input >= 0, 0, grad_negative)


for name, function in (("zeros", Materialized.apply), ("None", split_sign)):
    peak = peak_bytes(lambda function=function: torch.autograd.grad(function(million)[0], million, ones))
    print(f"{name:5} for the second output: {peak:>10,} bytes at the peak")
assert peak == 12_000_000
two_rectifiers = saved_bytes(lambda x: (x.relu(), (-x).relu()), million)
print(f"saved: {saved_bytes(split_sign, million)} bytes, by two rectifiers {two_rectifiers:,}")
assert (saved_bytes(split_sign, million), two_rectifiers) == (0, 8_000_000)

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/reductions`: a maximum whose ties share the gradient.
# * :doc:`/cookbook/01_first_steps/arguments`: None on the other side, as an argument.
# * :doc:`/cookbook/05_higher_order/double_backward`: outputs that exist for the second derivative alone.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.max`.
