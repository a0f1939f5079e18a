r"""
A C++ and CUDA kernel with a gradient
=====================================

You will wrap your own forward and backward kernels so that autograd, ``vmap`` and ``torch.compile`` treat them like any
other operation.
"""

# %%
# When to use it
# --------------
#
# Write an extension when you already *have* a kernel, or when the compiler cannot generate the kernel that you need.
# For a chain of element-wise operations, :func:`torch.compile` writes a kernel that is as good as yours. This page uses
# such a chain anyway, so that you can compare its numbers with the compiled composition. For your own kernel, for
# example of a solver or a simulation, start from the same files.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# The example is swish with a learnable gate :math:`\beta`. The gate is one number, so its gradient is a sum over all
# elements. The backward kernel computes this sum, in a wider dtype than the data.
#
# .. math::
#
#    y = x\,\sigma(\beta x), \qquad
#    \bar{x} = \bar{y}\,(s + \beta x\, s (1 - s)), \qquad
#    \bar{\beta} = \sum \bar{y}\, x^2 s (1 - s), \qquad s = \sigma(\beta x) .
#
# The recipe
# ----------
#
# The file below contains its C++ and CUDA sources. Without a build, it runs in Python. ``SWISH.build()`` compiles the
# C++ kernel if the machine has a C++ compiler, and the CUDA kernel if it has a CUDA compiler. From then on, the recipe
# uses the compiled kernels. The command ``python -m autograd_cookbook build`` does the same for all kernels of this
# package. The kernels are registered with torch's *stable ABI*, a binary interface that stays the same from release to
# release. So you don't have to compile again when you change the release of torch. One binary works with torch 2.11 and
# with later releases that support this interface. All releases that this package supports do so.
#
# .. recipe:: swish
#
# The recipe consists of these parts, beginning with the kernel:
#
# * The C++ function makes its inputs contiguous and checks what a caller in Python might get wrong.
# * ``STABLE_TORCH_LIBRARY`` gives the operator its name and its schema, the list of its arguments and results with
#   their types.
# * ``register_fake`` tells the compiler the shapes of the operator's results.
# * A ``Function`` connects backward with forward. Its backward calls a second ``Function`` that has a backward of its
#   own, so there is a second derivative. ``vmap`` uses torch's operations instead of the kernel.

# sphinx_gallery_tags = ["black box", "kernel", "second order", "compile"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function, gradcheck, gradgradcheck

from autograd_cookbook.recipes.cuda_extension import SWISH, composed_gradients, swish

try:
    SWISH.build()
except FileNotFoundError as error:
    print(error)
print(f"torch {torch.__version__}, running in {SWISH.backend()}")

# %%
# See it work
# -----------
#
# The left figure shows swish for several gates, from a linear function to almost a ReLU. The right figure shows the
# gradient that the gate gets from each :math:`x`:

x = torch.linspace(-5, 5, 401)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
figure.suptitle(r"Swish $x\,\sigma(\beta x)$ by $\beta$, and the gradient that $\beta$ gets from each $x$")
for value, style in zip((0.0, 0.5, 1.0, 2.0, 8.0), ("-", "--", "-.", ":", "-"), strict=True):
    beta = torch.tensor(value)
    left.plot(x, swish(x, beta), style, label=f"β = {value:g}")
    each = torch.func.vmap(torch.func.grad(swish, argnums=1), in_dims=(0, None))(x, beta)
    right.plot(x, each, style)
left.set(xlabel="x", ylabel="y")
right.set(xlabel="x", ylabel="derivative by β")
left.legend(fontsize=8)
plt.show()

# %%
# The curves on the right are per-sample gradients, computed by ``vmap`` over ``grad``. The next cell runs the checks:

x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
print("gradcheck     ", gradcheck(swish, (x, beta)))
print("gradgradcheck ", gradgradcheck(swish, (x, beta)))
whole = torch.compile(swish, fullgraph=True, backend="aot_eager")
assert torch.equal(whole(x, beta), swish(x, beta))
print("torch.compile  takes it whole")
if SWISH.backend() == "C++":
    operator = torch.ops.autograd_cookbook.swish_forward.default
    print("opcheck       ", torch.library.opcheck(operator, (x.detach(), beta.detach())))

# %%
# The wrong version
# -----------------
#
# Most bugs in wrapped kernels are about memory layout. This backward reads ``grad_output`` in the order of memory, like
# a kernel that receives a pointer and a count. ``gradcheck`` passes, because it sends contiguous gradients:


class TrustsLayout(Function):
    @staticmethod
    def forward(input, beta):
        return input * torch.sigmoid(beta * input)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        input, beta = ctx.saved_tensors
        steps = torch.empty(input.shape).stride()
        room = grad_output.untyped_storage().nbytes() // grad_output.element_size()
        if room < grad_output.numel():  # a kernel would read past the end; here the first number is repeated
            in_memory = grad_output.as_strided((1,), (1,)).expand(grad_output.numel()).view(input.shape)
        else:
            in_memory = grad_output.as_strided(input.shape, steps, 0)
        return composed_gradients(in_memory, input, beta)


print("gradcheck of the wrong one:", gradcheck(TrustsLayout.apply, (x, beta)))
weights = torch.randn(5, 6, dtype=torch.float64)
for name, function in (("wrong", TrustsLayout.apply), ("recipe", swish)):
    (found,) = torch.autograd.grad((function(x, beta).mT * weights).sum(), x)
    (expected,) = torch.autograd.grad(((x * torch.sigmoid(beta * x)).mT * weights).sum(), x)
    print(f"{name:6} with a transpose behind it: error {float((found - expected).abs().max()):.1e}")

# %%
# If you transpose the output of this function, the gradient is wrong, because ``grad_output`` then arrives transposed
# in memory. To fix this, call ``contiguous`` in the kernel's wrapper, or use the strides in the kernel. Write two
# tests, because each finds a different layout mistake. In the first, transpose the output, multiply it by random
# weights, and sum, as in the cell above. In the second, sum the output and do nothing else to it: the backward of
# ``sum()`` sends one number, expanded to the shape of the output, so all strides of ``grad_output`` are 0.
#
# What it costs
# -------------
#
# .. costs::
#
# The next cell measures the time of forward and backward for :math:`10^6` elements in float32. For backward, the recipe
# keeps only its inputs. The caller holds them anyway, so this needs no additional memory.


def milliseconds(function):
    data = torch.randn(1_000_000, requires_grad=True)
    gate = torch.tensor(1.0, requires_grad=True)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        function(data, gate).sum().backward()
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


eager = milliseconds(lambda data, gate: data * torch.sigmoid(gate * data))
print(f"composed, eager: 1.0; this recipe, in {SWISH.backend()}: {milliseconds(swish) / eager:.2f} times the time")

# %%
# On the page :doc:`/cookbook/07_compile/torch_compile`, a compiled chain of this kind is many times faster than an
# eager one, without any C++. So write a kernel only for code that the compiler can't handle.
#
# The machine that builds this site has no GPU. It compiles the CUDA kernels of this page, but does not run them. The
# tests run them on machines that have a GPU (``nox -s gpu``).
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/row_reduction`: a kernel that adds along rows and across them.
# * :doc:`/cookbook/07_compile/torch_compile`: let the compiler write the kernel.
# * :doc:`/cookbook/06_beyond_autograd/approximate_gradients`: when there is no formula for the gradient.
# * :doc:`/cookbook/05_higher_order/hessian`: what a second derivative needs.
# * In torch's documentation: :func:`torch.library.register_fake`, :func:`torch.library.opcheck`.
