r"""
Convolution: an input that is used many times
=============================================

You will write the gradients of a convolution for its input and its weight, with any stride, padding, dilation and
number of groups. You will see that each of these gradients is a convolution again.
"""

# %%
# When to use it
# --------------
#
# Copy the recipe if you change something *inside* a convolution, for example quantized weights, noise on the gradient,
# or another multiplication. For a plain convolution, call torch's function, which the recipe also calls in its forward.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`. In the formulas of the
# recipes, a star marks the complex conjugate.
#
# The formulas are for one dimension. With stride :math:`s`, dilation :math:`d` and padding :math:`p`, output :math:`t`
# reads input :math:`i = st + dk - p` and multiplies it by weight :math:`k`. All three formulas follow from this
# relation:
#
# .. math::
#
#    y_t = \sum_k w_k\, x_{st + dk - p}, \qquad
#    \bar{w}_k = \sum_t \bar{y}_t\, x_{st + dk - p}, \qquad
#    \bar{x}_i = \sum_{(t, k)\,:\,st + dk - p = i} \bar{y}_t\, w_k .
#
# The gradient of the weight, the second formula, is the first formula with :math:`t` and :math:`k` exchanged. So it is
# a convolution of the input with :math:`\bar{y}`, in which stride and dilation are exchanged, too. The gradient of the
# input, the third formula, goes from outputs to inputs. It is a *transposed* convolution.
#
# The recipe
# ----------
#
# .. recipe:: conv2d
#
# .. recipe:: conv1d

# sphinx_gallery_tags = ["first steps", "shapes"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function, gradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.convolution import conv2d

# %%
# See it work
# -----------
#
# If every weight and every output gradient is 1, the gradient of a pixel counts how often the convolution reads this
# pixel. The figure shows this count for several options:

kernel = torch.ones(1, 1, 3, 3)
geometries = {
    "plain": {},
    "padding 1": {"padding": 1},
    "stride 2": {"stride": 2},
    "dilation 2": {"dilation": 2},
    "stride 4": {"stride": 4},
}
figure, axes = plt.subplots(1, len(geometries), figsize=(7.5, 2.2), layout="constrained")
figure.suptitle("How often a 3×3 convolution reads each pixel of a 10×10 image: its gradient, for weights of 1")
for axis, (name, options) in zip(axes, geometries.items(), strict=True):
    image = torch.zeros(1, 1, 10, 10, requires_grad=True)
    conv2d(image, kernel, **options).sum().backward()
    counts = image.grad[0, 0]
    shown = axis.imshow(counts, cmap="viridis", vmin=0, vmax=9)
    axis.set(title=name, xticks=[], yticks=[])
    axis.text(9.2, 9.2, f"max {counts.max():.0f}", color="white", ha="right", va="bottom", fontsize=8)
figure.colorbar(shown, ax=axes, label="reads")
plt.show()

# %%
# With stride 4, the windows skip some rows and columns, and do not reach the last ones. The output does not depend on
# these pixels, so their gradient is 0.
#
# Compare all options at once with torch and with finite differences:

torch.manual_seed(0)
x = torch.randn(2, 4, 7, 6, dtype=torch.float64, requires_grad=True)
w = torch.randn(6, 2, 3, 2, dtype=torch.float64, requires_grad=True)
b = torch.randn(6, dtype=torch.float64, requires_grad=True)
options = {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2), "groups": 2}

ours, theirs = conv2d(x, w, b, **options), F.conv2d(x, w, b, **options)
weights = torch.randn_like(ours)
for name, a, e in zip(
    ("input", "weight", "bias"),
    torch.autograd.grad(ours, (x, w, b), weights),
    torch.autograd.grad(theirs, (x, w, b), weights),
    strict=True,
):
    print(f"gradient of {name:6} differs from torch's by at most {float((a - e).abs().max()):.1e}")
    assert torch.allclose(a, e, rtol=1e-12, atol=1e-12)
print("gradcheck", gradcheck(lambda *args: conv2d(*args, **options), (x, w, b)))

# %%
# The wrong version
# -----------------
#
# The gradient of the input is a convolution with the same kernel, but the kernel must be *flipped*. A test with a
# symmetric kernel, such as a blur, does not find a missing flip:


class ForgetsToFlip(Function):
    @staticmethod
    def forward(input, weight):
        return F.conv2d(input, weight, padding=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        (weight,) = ctx.saved_tensors
        return F.conv2d(grad_output, weight, padding=1), None


image = torch.randn(1, 1, 5, 5, dtype=torch.float64, requires_grad=True)
blur = torch.tensor([[[[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]]], dtype=torch.float64) / 16
edge = torch.tensor([[[[1.0, 0, -1], [2, 0, -2], [1, 0, -1]]]], dtype=torch.float64) / 8
for name, kernel in (("blur", blur), ("edge", edge)):
    try:
        print(f"{name}: gradcheck", gradcheck(ForgetsToFlip.apply, (image, kernel)))
    except RuntimeError as error:
        print(f"{name}: gradcheck raises: {str(error).splitlines()[0]}")

# %%
# So check with random weights. A second common mistake concerns the last rows, which the windows do not reach because
# of the stride. Without ``output_padding``, a transposed convolution leaves out these rows, and PyTorch raises an
# error:


class ForgetsLeftOver(ForgetsToFlip):
    @staticmethod
    def forward(input, weight):
        return F.conv2d(input, weight, stride=2)

    @staticmethod
    def backward(ctx, grad_output):
        (weight,) = ctx.saved_tensors
        return F.conv_transpose2d(grad_output, weight, stride=2), None


for size in (5, 6):
    image = torch.randn(1, 1, size, size, dtype=torch.float64, requires_grad=True)
    try:
        ForgetsLeftOver.apply(image, edge).sum().backward()
        print(f"{size}x{size}: no error")
    except RuntimeError as error:
        print(f"{size}x{size}: {error}")

# %%
# What it costs
# -------------
#
# .. costs::
#
# The recipe keeps nothing in addition to its arguments. The textbook form with ``unfold`` and a matrix product keeps
# the windows. With stride 1 and a padding that keeps the size, the windows have as many elements as the input times the
# kernel size. The next cell compares time and bytes:


def unfolded(input, weight):
    windows = F.unfold(input, weight.shape[2:], padding=1)
    return (weight.flatten(1) @ windows).unflatten(2, input.shape[2:])


def seconds(function, *args):
    times = []
    for _ in range(9):
        start = time.perf_counter()
        function(*args).sum().backward()
        times.append(time.perf_counter() - start)
    return min(times)


def padded(convolution):
    return lambda input, weight: convolution(input, weight, padding=1)


image, weight = torch.randn(4, 16, 32, 32, requires_grad=True), torch.randn(16, 16, 3, 3, requires_grad=True)
baseline = seconds(padded(F.conv2d), image, weight)
print(f"torch {torch.__version__}, forward and backward, one run")
for name, function in (("F.conv2d", padded(F.conv2d)), ("ours", padded(conv2d)), ("unfold", unfolded)):
    kept = saved_bytes(function, image, weight) / image.untyped_storage().nbytes()
    ratio = seconds(function, image, weight) / baseline
    print(f"{name:9} {ratio:4.1f} times the time, keeps {kept:.0f} times the input")
assert saved_bytes(padded(conv2d), image, weight) == 0

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/broadcasting`: the simplest case of an input that is used many times.
# * :doc:`/cookbook/06_beyond_autograd/cuda_extension`: how to use your own kernel in forward and backward.
# * In torch's documentation: :func:`torch.nn.functional.conv2d`, :func:`torch.nn.functional.conv_transpose2d`.
