r"""
A Triton kernel with a gradient
===============================

You will write forward and backward of a softmax as two Triton kernels in Python, and run them with and without a GPU.
"""

# %%
# When to use it
# --------------
#
# Write a Triton kernel when several operations should be one pass over the data on a GPU, and :func:`torch.compile`
# does not generate it. The compiler writes Triton, too, also for a softmax. Your own kernel is useful for an algorithm
# that no compiler finds, as on the page :doc:`/cookbook/06_beyond_autograd/flash_attention`. This page shows the code
# around such a kernel, with a kernel that is short enough to read.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# Each row is independent, and its gradient depends only on the output:
#
# .. math::
#
#    y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}}, \quad m = \max_j x_j, \qquad
#    \bar{x}_i = y_i \Big( \bar{y}_i - \sum_j \bar{y}_j y_j \Big) .
#
# For a fixed :math:`y`, the map from :math:`\bar{y}` to :math:`\bar{x}` is linear, and its matrix is symmetric. So the
# map is its own backward, and the second derivative can use the same kernel for the gradient with respect to
# :math:`\bar{y}`.
#
# The recipe
# ----------
#
# .. recipe:: triton_softmax
#
# ``operator`` takes a function that launches kernels, and registers it as an operator of torch, with
# :func:`torch.library.triton_op` and :func:`torch.library.wrap_triton`. So :func:`torch.compile` sees the kernel and
# can compile the code around it. The ``Function`` connects the operators. Without a GPU and without the interpreter,
# torch's operations run. The function ``backend`` says which code runs.
#
# Without a GPU, Triton's interpreter runs the kernel in NumPy. It runs the parallel copies of the kernel, which are
# called programs, one after the other. This is slow, but useful for tests and for ``print``. Triton reads the variable
# ``TRITON_INTERPRET`` when it is imported, so set it first:

# sphinx_gallery_tags = ["kernel", "second order", "compile"]
# sphinx_gallery_thumbnail_number = 1

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import matplotlib.pyplot as plt
import triton
import triton.language as tl
from torch.autograd import Function, gradcheck, gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes._triton import backend
from autograd_cookbook.recipes.triton_kernel import triton_softmax

device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"torch {torch.__version__}, triton {triton.__version__}, running in {backend(device)}")

# %%
# See it work
# -----------
#
# A GPU runs many copies of a kernel at once, called programs. Each program asks for its number, computes which elements
# it has to process, and masks the elements after the end of the row. The mask is needed because the size of a block is
# a power of two, and the width of the data usually is not. The next kernel stores which program processed which
# element. In the left panel of the figure, each row is one program, and the numbers count the rounds of its loop:


@triton.jit
def who(output, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    for start in range(0, width, BLOCK):
        inside = start + lanes < width
        tl.store(output + row * width + start + lanes, 10 * row + start // BLOCK, mask=inside)


rows, width, block = 6, 11, 4
written = torch.full((rows, width), -1.0, device=device)
who[(rows,)](written, width, block)
assert (written >= 0).all()

logits = torch.randn(rows, width, device=device)
logits[torch.rand(rows, width, device=device) < 0.25] = -torch.inf
logits.requires_grad_()
probabilities = triton_softmax(logits)
(gradient,) = torch.autograd.grad(probabilities[:, 0].sum(), logits)
torch.testing.assert_close(probabilities, torch.softmax(logits, 1))

figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
figure.suptitle("One program a row: its rounds, softmax of masked logits, and the gradient of the first column")
axes[0].imshow(written.cpu() // 10 + (written.cpu() % 10) / 3, cmap="viridis")
for (i, j), value in zip(torch.cartesian_prod(torch.arange(rows), torch.arange(width)), written.flatten(), strict=True):
    program, turn = divmod(int(value), 10)
    axes[0].text(j, i, str(turn), ha="center", va="center", fontsize=7, color="w" if program < 4 else "k")
axes[0].set(xlabel="element", ylabel="program", title="round of the loop")
shown = axes[1].imshow(probabilities.detach().cpu(), cmap="Blues", vmin=0)
axes[1].set(xlabel="element", title="output; masked: ×")
masked = torch.nonzero(logits.detach().cpu() == -torch.inf)
for axis in axes[1:]:
    axis.plot(masked[:, 1], masked[:, 0], "x", color="0.5", markersize=4)
    axis.set_yticks([])
largest = float(gradient.abs().max())
axes[2].imshow(gradient.cpu(), cmap="RdBu_r", vmin=-largest, vmax=largest)
axes[2].set(xlabel="element", title="gradient: rows sum to 0")
plt.show()

print("largest sum of a row of the gradient:", f"{float(gradient.sum(1).abs().max()):.0e}")
assert not gradient[logits == -torch.inf].any()

# %%
# The next cell runs the checks with the same kernels:

x = torch.randn(1, 2, dtype=torch.float64, device=device, requires_grad=True)
print("gradcheck     ", gradcheck(triton_softmax, x))
print("gradgradcheck ", gradgradcheck(triton_softmax, x))
batch = torch.randn(2, 2, dtype=torch.float64, device=device)
jacobian = torch.func.vmap(torch.func.jacrev(triton_softmax))(batch)
torch.testing.assert_close(jacobian, torch.func.vmap(torch.func.jacrev(lambda x: torch.softmax(x, 0)))(batch))
whole = torch.compile(triton_softmax, fullgraph=True, backend="aot_eager")
torch.testing.assert_close(whole(x), torch.softmax(x, 1))
print("vmap and torch.compile(fullgraph=True) agree with torch")

# %%
# In the interpreter, the recipe registers an operator that the compiler does not trace into. Tracing into the kernel
# would fail there, because the interpreter would run it on tensors without data.
#
# The wrong version
# -----------------
#
# A mask prevents *writing* after the end of a row. But values that are *read* there still enter every sum and every
# maximum of the block. Here ``other``, the value that is read outside of the row, is 0 instead of −∞:


@triton.jit
def wrong_kernel(input, output, width, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    lanes = tl.arange(0, BLOCK)
    inside = lanes < width
    x = tl.load(input + row + lanes, mask=inside, other=0.0)
    weights = tl.exp(x - tl.max(x, 0))
    tl.store(output + row + lanes, weights / tl.sum(weights, 0), mask=inside)


class WrongSoftmax(Function):
    @staticmethod
    def forward(input):
        output = torch.empty_like(input)
        wrong_kernel[(len(input),)](input, output, input.shape[1], triton.next_power_of_2(input.shape[1]))
        return output

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (output,) = ctx.saved_tensors
        return output * (grad_output - (grad_output * output).sum(1, keepdim=True))


for width in (4, 5):
    x = torch.zeros(1, width, dtype=torch.float64, device=device, requires_grad=True)
    found = gradcheck(WrongSoftmax.apply, x, raise_exception=False)
    total = float(WrongSoftmax.apply(x).detach().sum())
    print(f"width {width}: the row sums to {total:.3f}, gradcheck {found}")

# %%
# With a width of 4, a row fills its block, and the result is right. So test a kernel with odd widths, and with one
# element more than a block. Five zeros get one eighth each, because three more zeros were read. ``gradcheck`` passes,
# because the gradient really is the derivative of this wrong function. Only a comparison with a softmax shows the
# mistake.
#
# Autotune a backward kernel: reset the summed buffers
# ----------------------------------------------------
#
# In the first call for each new key (the values of the arguments that are named in ``key``), ``triton.autotune`` runs
# *every* configuration to measure its time. A kernel that adds to a buffer, with ``atomic_add`` or ``+=``, adds once in
# each of these runs. So the first gradient is too large, and later calls are right. Name the buffers in
# ``reset_to_zero``, which sets them to zero before each run. If the buffer must keep what it contains, name it in
# ``restore_value``. The interpreter can't measure times, so here ``do_bench`` runs each configuration once:


def summing_kernel(**options):
    @triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=["count"], do_bench=run_once, **options)
    @triton.jit
    def kernel(input, total, count, BLOCK: tl.constexpr):
        lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(total, tl.sum(tl.load(input + lanes, mask=lanes < count, other=0.0), 0))

    return kernel


def run_once(run, quantiles=None, **others):
    run()
    return [1.0, 1.0, 1.0]


ones = torch.ones(100, device=device)
sums = {}
for options in ({}, {"reset_to_zero": ["total"]}, {"restore_value": ["total"]}):
    kernel = summing_kernel(**options)
    totals = [torch.zeros(1, device=device) for _ in range(2)]
    for total in totals:
        kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](ones, total, 100)
    sums[next(iter(options), "no option")] = [total.item() for total in totals]
for option, found in sums.items():
    print(f"{option:13} first call {found[0]:.0f}, second call {found[1]:.0f}")
assert sums == {"no option": [300, 100], "reset_to_zero": [100, 100], "restore_value": [100, 100]}

# %%
# Two programs that *load*, add and *store* at the same address can lose additions: one overwrites the other's
# result. For example, in the backward of a convolution, each output position adds to several input positions. Use
# ``tl.atomic_add``. It is better to give each program some input positions, and to let it gather the terms that belong
# to them. Then each address is written once, and the result is the same in each run.
#
# What it costs
# -------------
#
# The recipe keeps its output for backward, like torch:

x = torch.randn(8, 100, device=device, requires_grad=True)
for name, softmax in (("ours", triton_softmax), ("torch", lambda x: torch.softmax(x, 1))):
    print(f"{name:5} {saved_bytes(softmax, x) / x.numel():.0f} bytes an element")
assert saved_bytes(triton_softmax, x) == 4 * x.numel()

# %%
# There are no times here, because this site is built without a GPU, and times of the interpreter say nothing about a
# GPU. The tests compile every kernel to machine code for a GPU, run it in the interpreter, and run it on a GPU if there
# is one (``nox -s gpu``). The interpreter of Triton 3.7 differs from a GPU in two results. The interpreter truncates to
# bfloat16 where a GPU rounds. It also computes wrong products of bfloat16 matrices, so the recipe of
# :doc:`/cookbook/06_beyond_autograd/flash_attention` does not use the interpreter for them.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/flash_attention`: kernels for an algorithm that no compiler finds.
# * :doc:`/cookbook/06_beyond_autograd/cuda_extension`: the same code around kernels in C++ and CUDA.
# * :doc:`/cookbook/03_stability/cross_entropy`: a softmax that is 0 for a fully masked row.
# * :doc:`/cookbook/07_compile/torch_compile`: let the compiler write the kernel.
# * In torch's documentation: :func:`torch.library.triton_op`, :func:`torch.library.wrap_triton`.
