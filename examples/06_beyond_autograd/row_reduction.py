r"""
A reduction in a kernel: RMS norm in C++ and CUDA
=================================================

You will wrap a kernel whose backward adds in two directions: along each row, and across all rows. Its results have the
same bits in every run and on any number of threads.
"""

# %%
# When to use it
# --------------
#
# Write such a kernel when the compiler's kernel reads memory more often than necessary. This happens with reductions,
# as the table at the end shows. Also use this recipe if the squares of a row may overflow. Do not use the recipe to
# keep fewer bytes for backward: a few lines of Python keep as few (:doc:`/cookbook/04_memory/selective_saving`), and
# run everywhere.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# RMS norm divides a row :math:`x` of :math:`n` numbers by its root mean square, and multiplies the result by a weight
# :math:`w`. So each :math:`x_i` affects the output twice: directly, and through :math:`r`, which contains the mean over
# the row.
#
# .. math::
#
#    \hat{x} = r x, \quad r = \Big(\frac{1}{n} \sum_j x_j^2 + \varepsilon\Big)^{-1/2}, \quad y = w\,\hat{x}, \qquad
#    \bar{x} = r \Big(w \bar{y} - \hat{x}\,\frac{1}{n} \sum_j w_j \bar{y}_j \hat{x}_j\Big), \qquad
#    \bar{w} = \sum_{\text{rows}} \bar{y}\,\hat{x} .
#
# Backward needs :math:`\sum x_j^2` and :math:`\sum w_j \bar{y}_j x_j`. One pass along the row computes both. So
# backward can compute :math:`r` again, and only the arguments are kept. A second pass writes :math:`\bar{x}` and adds
# the row's term to :math:`\bar{w}`; by then the row is in the cache.
#
# The sum for :math:`\bar{w}` goes across rows, which different threads process. Atomic additions, with which many
# threads add to one number in memory, would run in another order each time, and the rounding would differ. Here each
# part of the rows has its own sum, and the kernel adds these sums in a fixed order.
#
# The recipe
# ----------
#
# ``RMS_NORM.build()`` compiles the C++ and CUDA sources of the recipe's module. Later calls in the process, and later
# processes, use the compiled library. Without a compiler the recipe runs in Python.
#
# .. recipe:: fused_rms_norm

# sphinx_gallery_tags = ["black box", "kernel", "second order", "compile", "speed"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.nn import functional as F

from autograd_cookbook.recipes.row_reduction import RMS_NORM, fused_rms_norm

try:
    RMS_NORM.build()
except FileNotFoundError as error:
    print(error)
print(f"torch {torch.__version__}, running in {RMS_NORM.backend()}")

# %%
# See it work
# -----------
#
# The left figure shows the reduction along a row: steps of gradient descent for rows of two numbers. With
# :math:`\varepsilon = 0` the output does not depend on the norm of a row, so each gradient is perpendicular to its row,
# and the arrows are tangents of the circles. The right figure shows the reduction across rows. It compares the recipe
# with a kernel that adds in bfloat16, the type of its data. Once such a sum is 512 times as large as its further terms,
# bfloat16 drops all of them.

figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.5), layout="constrained")
angles = torch.arange(0, 2 * torch.pi, torch.pi / 8)
target = torch.tensor([1.2, 0.75])
for radius, color in ((1.0, "C0"), (2.0, "C2")):
    rows = (radius * torch.stack([angles.cos(), angles.sin()], -1)).requires_grad_()
    (fused_rms_norm(rows, torch.ones(2), 0.0) - target).square().sum().backward()
    along, step = rows.detach().T.numpy(), -0.15 * rows.grad.T.numpy()
    left.add_patch(plt.Circle((0, 0), radius, fill=False, color="0.7", linewidth=0.8))
    left.quiver(*along, *step, angles="xy", scale_units="xy", scale=1, color=color, width=0.008)
left.plot([0, 2.4 * target[0] / target.norm()], [0, 2.4 * target[1] / target.norm()], "--", color="C1")
left.annotate("target", (1.15, 1.45), color="C1")
left.set(aspect="equal", xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), title="along a row: all arrows are tangents")

torch.manual_seed(0)
x = torch.randn(4096, 64)
upstream = (1 + torch.randn(4096, 64) / 4) * x.sign()  # so that the terms do not cancel
counts = 2 ** np.arange(2, 13)
data, weight, terms = x.bfloat16(), torch.ones(64).bfloat16().requires_grad_(), upstream.bfloat16()
exact = (terms.double() * F.rms_norm(data.double(), (64,), eps=1e-6)).cumsum(0)[counts - 1]
total, held = torch.zeros(64).bfloat16(), []
for term in terms * F.rms_norm(data, (64,), eps=1e-6):
    total = total + term
    held.append(total)
ours = [torch.autograd.grad(fused_rms_norm(data[:n], weight), weight, terms[:n])[0] for n in counts]
for found, label, style in ((torch.stack(held)[counts - 1], "summed in bfloat16", "C1s--"), (ours, "recipe", "C0o-")):
    found = torch.stack(list(found)).double()
    right.loglog(counts, (found - exact).norm(dim=1) / exact.norm(dim=1), style, label=label)
right.set(xlabel="rows", ylabel="relative error", title="across rows: the weight's gradient")
right.legend()
figure.suptitle("The two reductions in the backward of RMS norm")
plt.show()

# %%
# The next cell runs the checks. The recipe also normalizes a row whose squares overflow, while torch's function returns
# zeros:

x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
weight = torch.rand(4, dtype=torch.float64, requires_grad=True)
print("gradcheck     ", gradcheck(fused_rms_norm, (x, weight)))
print("gradgradcheck ", gradgradcheck(fused_rms_norm, (x, weight)))

many = torch.randn(3000, 101)
grads = []
before = torch.get_num_threads()
for threads in (before + 1, before):
    torch.set_num_threads(threads)
    weight = torch.ones(101, requires_grad=True)
    grads.append(torch.autograd.grad(fused_rms_norm(many, weight).square().sum(), weight)[0])
if RMS_NORM.backend() == "C++":
    print("the same bits on other numbers of threads:", torch.equal(*grads))

large = torch.tensor([1e30, 2e30, 2e30])
print("torch ", F.rms_norm(large, (3,), eps=1e-6).tolist())
print("recipe", [round(v, 4) for v in fused_rms_norm(large, torch.ones(3)).tolist()])
assert torch.allclose(fused_rms_norm(large, torch.ones(3)), torch.tensor([1.0, 2.0, 2.0]) / 3**0.5)

# %%
# The wrong version
# -----------------
#
# The usual mistake treats :math:`r` as a constant. All other terms are right, and the loss still falls:


class ForgetsTheMean(Function):
    @staticmethod
    def forward(input, weight):
        return F.rms_norm(input, weight.shape, weight, 1e-6)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        r = torch.rsqrt(input.square().mean(-1, keepdim=True) + 1e-6)
        return grad_output * weight * r, (grad_output * input * r).sum_to_size(weight.shape)


features, labels = torch.randn(64, 16), torch.randn(64, 16)
for name, function in (("wrong", ForgetsTheMean.apply), ("recipe", fused_rms_norm)):
    torch.manual_seed(1)
    layer, weight = (torch.randn(16, 16) / 4).requires_grad_(), torch.ones(16, requires_grad=True)
    start = float(layer.detach().norm())
    losses = []
    for _ in range(200):
        loss = (function(features @ layer, weight) - labels).square().mean()
        losses.append(float(loss.detach()))
        for p, g in zip((layer, weight), torch.autograd.grad(loss, (layer, weight)), strict=True):
            p.data -= g
    found = f"loss {losses[0]:.3f} to {losses[-1]:.3f}"
    print(f"{name:6} {found}, norm of the layer {start:.2f} to {float(layer.detach().norm()):.2f}")

x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
weight = torch.ones(5, dtype=torch.float64, requires_grad=True)
try:
    gradcheck(ForgetsTheMean.apply, (x, weight))
except RuntimeError as error:
    print("gradcheck:", str(error).splitlines()[0])

# %%
# The wrong gradient has an additional component along :math:`x`. The output does not depend on the norm of a row, so
# this component is useless. For the same reason, the output does not depend on the scale of the layer. So the right
# gradient is perpendicular to the layer, and each step makes the norm of the layer a little larger. The wrong steps
# make it smaller. The loss ends higher, but you can't see this from one loss curve. ``gradcheck`` detects the mistake
# at once.
#
# What it costs
# -------------
#
# .. costs::
#
# The next table shows data larger than the cache: :math:`10^7` numbers in rows of 4000, in float32, with two threads of
# an AMD EPYC. Each entry is the time of forward and backward, divided by the kernel's time. For comparison, the table
# also contains swish, the element-wise kernel of :doc:`/cookbook/06_beyond_autograd/cuda_extension`.
#
# .. csv-table::
#    :header: "", "composition, eager", "composition, compiled", "built-in", "C++"
#
#    "rms_norm, memory kept", "5.15", "2.61", "4.89", "1.00"
#    "rms_norm, memory fresh", "5.89", "1.30", "5.90", "1.00"
#    "swish, memory kept", "3.09", "1.27", "1.01", "1.00"
#    "swish, memory fresh", "3.49", "1.09", "0.93", "1.00"
#
# For swish, which is element-wise, the compiled version takes 1.09 and 1.27 times as long as the kernel; for the norm,
# it takes 1.30 and 2.61 times as long. Across rows, the compiler adds in a separate loop, which reads :math:`x` and
# :math:`\bar{y}` once more, column by column (``TORCH_LOGS=output_code`` shows it, in torch 2.13). The built-in for
# swish is torch's silu, which has no gate to learn. In the rows "memory fresh", malloc has its default settings: it
# returns the memory of a tensor of this size to the system as soon as the tensor is freed. The next tensor then needs
# new pages, and getting them takes longer than the kernels, for all versions. In the rows "memory kept", malloc uses
# the same pages again.
#
# The machine that made these figures compiled the CUDA kernels, but had no GPU to run them on. On a machine with a GPU,
# ``nox -s gpu`` tests the kernels, and ``nox -s bench -- native`` measures which share of the GPU's bandwidth they use.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/cuda_extension`: the parts around a kernel, one by one.
# * :doc:`/cookbook/04_memory/selective_saving`: keep as few bytes with a few lines of Python.
# * :doc:`/cookbook/01_first_steps/reductions`: reductions without a kernel.
# * In torch's documentation: :func:`torch.nn.functional.rms_norm`, :func:`torch.library.register_fake`.
