r"""
Broadcasting: what forward expands, backward must sum
=====================================================

You will write gradients for inputs whose shapes differ. You will also see what the autograd engine, which runs
backward, does with a gradient of the wrong shape: sometimes it raises an error, and sometimes it silently sums the
gradient.
"""

# %%
# When to use it
# --------------
#
# Read this page if an input of your custom function may be smaller than its output, for example a bias, a scale, a
# learned threshold or a temperature. A composition of torch operations does not need this page, because autograd
# computes the sums for it.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`. In the formulas of the
# recipes, a star marks the complex conjugate.
#
# Broadcasting copies elements. If element :math:`x_j` is copied to several places :math:`i`, each copy influences the
# loss. By the chain rule, the gradient of the element is the sum over its copies:
#
# .. math::
#
#    y_i = x_{j(i)}, \qquad \bar{x}_j = \sum_{i\,:\,j(i) = j} \bar{y}_i .
#
# So the gradient of ``expand`` is a sum over the dimensions that were added or stretched. The helper ``sum_to_shape``
# computes this sum. ``multiply`` and ``scaled_sigmoid`` call it for each of their inputs.
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
# The next cell multiplies a column of 3 numbers by a row of 4 numbers. The gradients of the 12 products form a grid
# :math:`\bar{Y}` with 3 rows and 4 columns. To get the gradient of one factor, multiply :math:`\bar{Y}` by the *other*
# factor, and sum the products. For an entry of the column, multiply one row of :math:`\bar{Y}` by the row of 4 numbers,
# and sum. For an entry of the row, multiply one column of :math:`\bar{Y}` by the column of 3 numbers, and sum.

torch.manual_seed(0)
column = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
row = torch.tensor([4.0, 1.0, 0.0, 2.0], requires_grad=True)
weights = torch.tensor([[1.0, 0.0, 2.0, 1.0], [0.0, 1.0, 1.0, 0.0], [2.0, 1.0, 0.0, 1.0]])

multiply(column, row).backward(weights)

figure, axes = plt.subplots(2, 3, figsize=(7, 3.6), layout="constrained", width_ratios=(2, 4, 4), height_ratios=(3, 1))
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
assert not torch.equal(column.grad, weights.sum(1, keepdim=True))

# %%
# Check pairs of shapes, also with missing dimensions and empty tensors:

for left, right in [((2, 3), (3,)), ((4, 1), (3,)), ((2, 1, 3), (4, 1)), ((2, 3), ()), ((0, 3), (1, 3))]:
    pair = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in (left, right)]
    assert gradcheck(multiply, pair)
    grads = torch.autograd.grad(multiply(*pair).sum(), pair)
    print(f"{left!s:10} * {right!s:7} -> gradients {tuple(grads[0].shape)} and {tuple(grads[1].shape)}")

# %%
# The wrong version
# -----------------
#
# Which wrong shapes of a gradient does the engine accept? The next cell returns six of them from backward:


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
# The engine silently sums a gradient that is too *large*, if the input could be broadcast to the shape of the
# gradient. For any other wrong shape, it raises an error. If the missing sum is the only mistake in backward, the
# result is right.
#
# But the silent sum hides the bug below. Forward squeezes ``weight`` from shape ``(n, 1)`` to ``(n,)``, and backward
# forgets to do so. So the product of the vector ``grad_output`` and this column is a matrix. The engine sums the matrix
# to a vector, which is not the gradient.


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
# An explicit ``sum_to_shape`` would raise no error here either, because a tensor of shape ``(3, 3)`` can be summed
# to shape ``(3,)``. To find such a bug, assert the shape in backward *before* the sum: the product must have the shape
# of the output. After the sum, the shape is right even if the numbers are wrong. Also run gradcheck with a different
# size for each dimension, and use a size of 1 only where forward needs it. If ``n`` is 1, the product above has a
# single element, so its gradient is right, and gradcheck finds no mistake.

grad_output = torch.ones(3, dtype=torch.float64)
wrong, right = grad_output * weight, grad_output * weight.squeeze(1)
assert sum_to_shape(wrong, x.shape).shape == x.shape  # after the sum: the wrong gradient passes
assert wrong.shape != grad_output.shape == right.shape  # before the sum: it does not
assert right.tolist() == weight.flatten().tolist()
single = torch.ones(1, dtype=torch.float64, requires_grad=True)
assert gradcheck(ScaleEach.apply, (single, weight[1:2]))  # of size 1: gradcheck does not find the mistake

# %%
# What it costs
# -------------
#
# .. costs::
#
# The gradient of a bias needs no saved tensor. The gradient of a product needs both factors, and ``multiply`` saves
# them without expanding them:

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
# PyTorch's ``+`` and ``*`` keep the same number of bytes, so use them outside of a ``Function``. Copy ``sum_to_shape``
# for the backward of your own functions. It returns its argument if there is nothing to sum:

assert sum_to_shape(image, image.shape) is image

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/template`: the parts of a ``Function``, one by one.
# * :doc:`/cookbook/01_first_steps/reductions`: the reverse case, in which forward sums and backward expands.
# * :doc:`/cookbook/01_first_steps/convolution`: each input element is used several times, in a sliding window.
# * In torch's documentation: :func:`torch.autograd.gradcheck`, :meth:`torch.Tensor.sum_to_size`.
