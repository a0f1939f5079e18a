r"""
A C++ and CUDA kernel with a gradient
=====================================

You will wrap forward and backward kernels of your own so that autograd, ``vmap`` and ``torch.compile`` take them for
an operation like any other.
"""

# %%
# When to use it
# --------------
#
# When you *have* a kernel, or the compiler cannot make the one you need. For a chain of element-wise operations, as
# here, :func:`torch.compile` writes as good a kernel as you will. This page uses such a chain anyway, so that you can
# compare its numbers with the compiled composition. A solver or a lattice code fits into the same files.
#
# The gradient
# ------------
#
# Swish with a learnable gate. The gate is one number, so its gradient is a sum over all elements: a reduction inside
# of the backward kernel, in wider arithmetic than the data.
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
# The file below carries its C++ and CUDA sources. It runs as it is, in Python; ``SWISH.build()`` compiles what the
# machine has compilers for, once, and from then on the kernels are used; ``python -m autograd_cookbook build`` does so
# for all that this package has. They are registered on torch's *stable ABI*: one binary for every torch from
# 2.11 on, which includes each release that this package supports.
#
# .. recipe:: swish
#
# From the kernel up, the parts are these. The C++ function makes its inputs contiguous and checks what Python cannot
# be trusted with. ``STABLE_TORCH_LIBRARY`` names it and gives its schema. ``register_fake`` tells the compiler the
# shapes. The ``Function`` ties backward to forward; the gradient is a ``Function``, too, so there is a second
# derivative. Its ``vmap`` falls back on torch's operations.

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
# The family of curves, from the linear function to almost a ReLU, and what a gate learns from each :math:`x`:

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
# The right-hand curves are per-sample gradients, by ``vmap`` over ``grad``. The checks:

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
# Most bugs in wrapped kernels are about layout. This backward reads ``grad_output`` in the order of memory, as a
# kernel does that takes a pointer and a count. gradcheck finds nothing, because the gradients that it sends are
# contiguous:


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
        if room < grad_output.numel():  # a kernel would read on, past the end; here the first number is repeated
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
# A transpose downstream is enough: the gradient comes back transposed in memory. The kernel must call ``contiguous``,
# or use strides. Test with a transpose and with ``sum()``, whose gradient is one number with strides of 0.
#
# What it costs
# -------------
#
# .. costs::
#
# Forward and backward at :math:`10^6` elements in float32, in one run. Kept for backward: the input, which the caller
# has anyway.


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
# On :doc:`/cookbook/07_compile/torch_compile` a compiled chain of this kind is many times faster than an eager one,
# with no line of C++. The kernel earns its keep where the compiler has nothing to offer.
#
# This site is built on machines without a GPU: the CUDA kernels on this page are compiled there, and not run. The
# tests run them where there is one (``nox -s gpu``).
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/row_reduction`: a kernel that adds along rows and across them.
# * :doc:`/cookbook/07_compile/torch_compile`: let the compiler write the kernel.
# * :doc:`/cookbook/06_beyond_autograd/approximate_gradients`: when there is no formula for the gradient.
# * :doc:`/cookbook/05_higher_order/hessian`: what a second derivative needs.
# * In torch's documentation: :func:`torch.library.register_fake`, :func:`torch.library.opcheck`.
