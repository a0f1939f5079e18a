r"""
Broadcasting: what forward expands, backward must sum
=====================================================

You will write gradients for inputs whose shapes differ, and see what the engine does with a gradient of the
wrong shape: sometimes it raises, and sometimes it adds up numbers and says nothing.
"""

# %%
# When to use it
# --------------
#
# Whenever an input of a custom function may be smaller than its output: a bias, a scale, a learned threshold, a
# temperature. If each step of your forward is a torch operation, autograd already does all of this.
#
# The gradient
# ------------
#
# Broadcasting copies. If element :math:`x_j` is copied to several places :math:`i`, each copy has an influence of
# its own on the loss, and by the chain rule they add up:
#
# .. math::
#
#    y_i = x_{j(i)}, \qquad \bar{x}_j = \sum_{i\,:\,j(i) = j} \bar{y}_i .
#
# So the gradient of ``expand`` is a sum over the dimensions that were added or stretched, and everything on this
# page is one helper, ``sum_to_shape``, used where shapes may differ.
#
# The recipe
# ----------
#
# .. recipe:: sum_to_shape
#
# .. recipe:: bias_add
#
# .. recipe:: multiply
#
# .. recipe:: scaled_sigmoid

# sphinx_gallery_tags = ["first steps", "shapes"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function, gradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.broadcasting import bias_add, multiply, sum_to_shape

# %%
# See it work
# -----------
#
# A column of 3 numbers times a row of 4. Each of the 12 products sends its gradient back; a column entry collects
# a row of them, and a row entry a column.

torch.manual_seed(0)
column = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
row = torch.tensor([4.0, 1.0, 0.0, 2.0], requires_grad=True)
weights = torch.tensor([[1.0, 0.0, 2.0, 1.0], [0.0, 1.0, 1.0, 0.0], [2.0, 1.0, 0.0, 1.0]])

multiply(column, row).backward(weights)

figure, axes = plt.subplots(2, 3, figsize=(7, 3.6), layout="constrained", width_ratios=(1, 4, 4), height_ratios=(3, 1))
figure.suptitle("Each gradient of a broadcast product is a sum along the dimension that was expanded")
panels = {
    (0, 0): (column.grad, "sum of the right grid\nalong each row"),
    (0, 1): (weights * column.detach(), r"$\bar{Y} \cdot$ column"),
    (0, 2): (weights * row.detach(), r"$\bar{Y} \cdot$ row"),
    (1, 1): (row.grad[None], "sum of the grid above along each column"),
}
for place, axis in zip([(i, j) for i in range(2) for j in range(3)], axes.flat, strict=True):
    axis.axis("off")
    if place in panels:
        values, title = panels[place]
        axis.imshow(values, cmap="Blues", vmin=0, vmax=16, aspect="auto")
        axis.set_title(title, fontsize=8)
        for (i, j), value in zip(torch.cartesian_prod(*map(torch.arange, values.shape)), values.flatten(), strict=True):
            axis.text(j, i, f"{value:.0f}", ha="center", va="center", color="white" if value > 8 else "black")
plt.show()

assert torch.equal(row.grad, (weights * column).sum(0))
assert torch.equal(column.grad, (weights * row).sum(1, keepdim=True))

# %%
# All pairs of shapes, missing dimensions and empty ones included:

for left, right in [((2, 3), (3,)), ((4, 1), (3,)), ((2, 1, 3), (4, 1)), ((2, 3), ()), ((0, 3), (1, 3))]:
    pair = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in (left, right)]
    assert gradcheck(multiply, pair)
    grads = torch.autograd.grad(multiply(*pair).sum(), pair)
    print(f"{left!s:10} * {right!s:7} -> gradients {tuple(grads[0].shape)} and {tuple(grads[1].shape)}")

# %%
# The wrong version
# -----------------
#
# What if backward returns a gradient of another shape than its input? Try them:


class ReturnsShape(Function):
    """Backward returns ones of the shape that the caller asks for."""

    @staticmethod
    def forward(input, shape):
        return input.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.expand(ctx.shape), None


print("torch", torch.__version__)
for input_shape, returned in [
    ((3,), (2, 3)),
    ((1, 3), (2, 3)),
    ((), (3,)),
    ((2, 3), (3,)),
    ((2, 3), (1, 3)),
    ((3,), (2,)),
]:
    x = torch.ones(input_shape, requires_grad=True)
    try:
        ReturnsShape.apply(x, returned).backward()
        print(f"input {input_shape!s:7} returned {returned!s:7} accepted, summed to {x.grad.flatten().tolist()}")
    except RuntimeError as error:
        print(f"input {input_shape!s:7} returned {returned!s:7} raises: {str(error).partition(' - ')[2]}")

# %%
# A gradient that is too small raises. One that is too *large* is summed down, if broadcasting could have made its
# shape from that of the input, silently. For a forgotten sum this happens to give the right number. It
# hides the bug below: ``weight`` has shape ``(n, 1)``, the product of a vector and a column is a matrix, and the
# engine sums that matrix to a vector.


class ScaleEach(Function):
    @staticmethod
    def forward(input, weight):
        return input * weight.squeeze(1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        (weight,) = ctx.saved_tensors
        return grad_output * weight, None  # (n,) * (n, 1) is (n, n)


x = torch.ones(3, dtype=torch.float64, requires_grad=True)
weight = torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64)
ScaleEach.apply(x, weight).sum().backward()
print("no error; x.grad =", x.grad.tolist(), "and it should be", weight.flatten().tolist())
assert x.grad.tolist() == [111.0] * 3

try:
    gradcheck(ScaleEach.apply, (x, weight))
except RuntimeError as error:
    print("gradcheck:", str(error).splitlines()[0])

# %%
# An explicit ``sum_to_shape`` would have raised no error here either: ``(3, 3)`` does sum to ``(3,)``. What
# helps is to assert the shape where a bug could hide, and gradcheck with a size that no other dimension has.
#
# What it costs
# -------------
#
# .. costs::
#
# A bias gradient needs no value at all, a product needs both factors, kept as they came and not expanded:

image, bias = torch.randn(8, 16, 32, 32, requires_grad=True), torch.randn(16, requires_grad=True)
scale = torch.randn(16, 1, 1, requires_grad=True)
kept = {
    "bias_add": saved_bytes(bias_add, image, bias),
    "multiply": saved_bytes(multiply, image, scale),
    "expand first": saved_bytes(lambda x, s: multiply(x, s.expand_as(x).clone()), image, scale),
}
for name, count in kept.items():
    print(f"{name:13} {count:>9,} bytes beyond the arguments")
assert kept["bias_add"] == kept["multiply"] == 0

# %%
# torch's own ``+`` and ``*`` keep no more than these, and are what you should use outside of a ``Function``;
# ``sum_to_shape`` is the part worth copying. It returns its argument where there is nothing to sum:

assert sum_to_shape(image, image.shape) is image

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/template`: the parts of a ``Function``, one by one.
# * :doc:`/cookbook/01_first_steps/reductions`: the transpose of this page: forward sums, backward expands.
# * :doc:`/cookbook/01_first_steps/convolution`: one input element used many times, in a pattern.
# * In torch's documentation: :func:`torch.autograd.gradcheck`, :meth:`torch.Tensor.sum_to_size`.
