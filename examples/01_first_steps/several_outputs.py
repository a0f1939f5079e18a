r"""
Several outputs: unused ones, and ones without a gradient
=========================================================

You will write functions that return several tensors, with a backward that accepts None for an unused output. You will
also mark outputs without a derivative, and see that a float output without this mark silently gives zero gradients.
"""

# %%
# When to use it
# --------------
#
# Return several outputs if one computation gives several results, for example a maximum and its index, a quotient and
# its remainder, or the factors of a matrix. If the outputs share no computation, write two functions.
#
# This page has two recipes. ``split_sign`` returns ``relu(x)`` and ``relu(-x)``, and keeps fewer bytes than two
# separate calls of ``relu``. ``max_with_index`` returns a maximum and its index. It is only an example: in your
# program, use :func:`torch.max`, which computes the same and costs no more.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{x}` is the gradient of the loss with respect to :math:`x`.
#
# The input influences the loss through each output, so the gradient of the input is a sum over the outputs:
#
# .. math::
#
#    \bar{x} = \Bigl(\frac{\partial y_1}{\partial x}\Bigr)^{\!\top} \bar{y}_1
#            + \Bigl(\frac{\partial y_2}{\partial x}\Bigr)^{\!\top} \bar{y}_2 + \dots
#
# The engine calls backward once, with the gradients :math:`\bar{y}_k` of all outputs. If the loss does not use an
# output, its gradient is 0, and PyTorch passes a tensor of zeros. To get None instead of zeros, call
# ``ctx.set_materialize_grads(False)``.
#
# An output without a derivative, such as an index, adds nothing to this sum. Pass such an output to
# ``ctx.mark_non_differentiable``, which marks it as a constant in the graph.
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
# The left figure shows the gradient of ``split_sign`` for three losses, which use the first output, the second output,
# or both. The right figure shows the peak memory of backward for a function with many outputs, of which the loss uses
# one. The memory is counted in tensors of the size of the input. Both curves are for the same function and the same
# gradient. In one curve, backward gets zeros for the unused outputs, and in the other curve, it gets None.


class Powers(Function):
    """Returns ``count`` outputs: x, x², x³, ..."""

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
# The next cell checks first and second derivatives, also with an unused output:

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
# Must you mark an index? The next cell compares a function without marks and the same function with marks:


class Unmarked(Function):
    """Returns the maximum of each row, its index as int64 and its index as float, without any mark."""

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
    of_place = (place - 1).square().sum()
    (mixed,) = torch.autograd.grad(of_place + values.sum(), table, retain_graph=True)
    (alone,) = torch.autograd.grad(values.sum(), table, retain_graph=True)
    print(f"         a loss of both: the gradient of the values alone: {torch.equal(mixed, alone)}")
    assert torch.equal(mixed, alone)
    try:
        (gradient,) = torch.autograd.grad(of_place, table)
        print(f"         a loss of the float: all gradients zero: {not gradient.any()}")
        assert not gradient.any()
    except RuntimeError as error:
        print(f"         a loss of the float: {error}")
        assert function is Marked

# %%
# Integer tensors never require grad, so an index needs no mark. But mark every *float* output without a derivative, for
# example a position, a count or a mask. If a loss uses *only* an unmarked float output, all gradients are silently
# zero, so nothing is trained. If it uses only a marked output, PyTorch raises an error. If the loss has other terms,
# the term of the float output silently adds nothing to the gradient, with the mark and without it.
#
# The second common mistake is to call ``set_materialize_grads(False)`` without a test for None in backward:


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
# A test with a loss that uses all outputs does not find this mistake. :func:`torch.autograd.gradcheck` differentiates
# one output at a time, so it raises the error:

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
# ``split_sign`` keeps only its input, which the caller usually keeps anyway, but two calls of ``relu`` keep both
# results. ``split_sign`` takes a little longer than the two calls.
#
# The next cell shows the cost of zeros for an unused output. It counts the exact bytes at the peak of forward and
# backward, for a million float32 numbers. The zeros take 4 bytes per number, and the products that backward computes
# from the zeros take another 4 bytes.

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
# * :doc:`/cookbook/01_first_steps/reductions`: a maximum in which equal maxima share the gradient.
# * :doc:`/cookbook/01_first_steps/arguments`: how to accept None as an argument.
# * :doc:`/cookbook/05_higher_order/double_backward`: an intermediate result as an output, for second derivatives.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.max`.
