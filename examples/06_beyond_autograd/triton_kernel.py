r"""
A Triton kernel with a gradient
===============================

You will write the forward and the backward of a softmax as two kernels in Python, and run them with and without a GPU.
"""

# %%
# When to use it
# --------------
#
# When several operations should be one pass over the data on a GPU, and :func:`torch.compile` does not make that pass:
# it writes Triton, too, and for a softmax as good a kernel as this. The reason to write your own is an algorithm that
# no compiler finds, such as :doc:`/cookbook/06_beyond_autograd/flash_attention`. This page has the frame around it,
# with a kernel that is short enough to read.
#
# The gradient
# ------------
#
# Each row by itself, and a function of the output alone:
#
# .. math::
#
#    y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}}, \quad m = \max_j x_j, \qquad
#    \bar{x}_i = y_i \Big( \bar{y}_i - \sum_j \bar{y}_j y_j \Big) .
#
# The gradient is linear and symmetric in :math:`\bar{y}`, so the second derivative along :math:`\bar{y}` is the same
# kernel once more.
#
# The recipe
# ----------
#
# .. recipe:: triton_softmax
#
# ``operator`` registers the functions that launch kernels as operators of torch, by :func:`torch.library.triton_op`
# and :func:`torch.library.wrap_triton`: with these :func:`torch.compile` sees the kernel and can compile around it.
# The ``Function`` ties the operators together. Where there is neither a GPU nor the interpreter, torch's operations
# run; ``backend`` says which it is.
#
# Without a GPU, Triton's interpreter runs a kernel in NumPy, program by program: slow, and good for tests and for
# ``print``. Triton decides when it is imported, so the environment comes first:

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
# A kernel is run by many programs at once. Each asks for its number, works out which elements are its own, and masks
# what lies behind the end of a row: blocks have a power of two for a size, data rarely has. This kernel writes down
# who was where:


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
# The checks, on the same kernels:

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
# On the interpreter the recipe registers an opaque operator. An operator that the compiler would look into does not
# compile there: its code is run on tensors without data.
#
# The wrong version
# -----------------
#
# The mask keeps lanes behind the end of a row from being *written*. What they have *read* is in every sum and every
# maximum of the block, all the same. Here ``other``, the value that is read outside, is 0 and not −∞:


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
# A width of 4 fills its block, and all is well: the tests of a kernel need odd widths, and one more than a block.
# Five zeros get an eighth each, because three more were read. Gradcheck passes, and it is right: that gradient is the
# derivative of that function. Only a comparison with a softmax tells that it is not one.
#
# What it costs
# -------------
#
# The output is kept for backward, as torch keeps it:

x = torch.randn(8, 100, device=device, requires_grad=True)
for name, softmax in (("ours", triton_softmax), ("torch", lambda x: torch.softmax(x, 1))):
    print(f"{name:5} {saved_bytes(softmax, x) / x.numel():.0f} bytes an element")
assert saved_bytes(triton_softmax, x) == 4 * x.numel()

# %%
# There are no times here: this site is built without a GPU, and the interpreter's say nothing about one. The tests
# compile every kernel to machine code for such a GPU, run it on the interpreter, and run it on a GPU where there is one
# (``nox -s gpu``). Two things differ on the interpreter of Triton 3.7: bfloat16 is cut off where a GPU rounds,
# and a product of bfloat16 matrices is wrong, so that :doc:`/cookbook/06_beyond_autograd/flash_attention` does not
# use it there.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/flash_attention`: kernels that earn their keep.
# * :doc:`/cookbook/06_beyond_autograd/cuda_extension`: the same frame around C++ and CUDA.
# * :doc:`/cookbook/03_stability/cross_entropy`: a softmax that is 0 over a row masked as a whole.
# * :doc:`/cookbook/07_compile/torch_compile`: let the compiler write the kernel.
# * In torch's documentation: :func:`torch.library.triton_op`, :func:`torch.library.wrap_triton`.
