r"""
Forward mode: a jvp next to the backward
========================================

You will add a ``jvp`` to a function, compute a derivative forward in one pass, and learn what a ``jvp`` costs,
especially with ``torch.compile``.
"""

# %%
# When to use it
# --------------
#
# Use forward mode when there are few inputs and many outputs. Examples are the sensitivities of a simulation to three
# parameters, and a derivative with respect to time. Also use it for Hessian-vector products :math:`Hv`, where forward
# mode differentiates the gradient that a backward computes (forward over reverse). For a loss with many parameters, use
# backward and write no ``jvp``. If an input requires grad, ``torch.compile(fullgraph=True)`` refuses a class that has a
# ``jvp``, unless you mark its caller as shown under "Compiled". A function composed of torch's operations usually has
# forward mode already, but some operations have none.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# A tangent :math:`\dot{x}` is a change of the input. Forward mode computes the resulting change :math:`\dot{y}` of the
# output. ``jvp`` multiplies the tangent by the Jacobian :math:`J`, and ``backward`` multiplies the gradient by its
# transpose:
#
# .. math:: \dot{y} = J \dot{x}, \qquad \bar{x} = J^\top \bar{y}, \qquad \bar{y}^\top \dot{y} = \bar{x}^\top \dot{x} .
#
# With the last equation you can test ``jvp`` and ``backward`` against each other. For an element-wise function of real
# numbers, :math:`J` is diagonal, so both methods have the same formula. For several inputs, ``jvp`` adds up one term
# per input, :math:`\dot{y} = \sum_i J_i \dot{x}_i`, and backward returns one gradient per input. A Jacobian of :math:`m
# \times n` takes :math:`n` forward passes or :math:`m` backward passes.
#
# The recipe
# ----------
#
# .. recipe:: symlog
#
# .. recipe:: smooth_maximum

# sphinx_gallery_tags = ["forward mode", "second order", "ctx"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function, forward_ad, gradcheck
from torch.func import grad, jacfwd, jacrev, jvp
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes
from autograd_cookbook.recipes.forward_mode import SymlogFunction, smooth_maximum, symlog

# %%
# See it work
# -----------
#
# The figure shows the memory for the Jacobian of a layer ``symlog(W x)``. On the left, the layer has 16 inputs and a
# growing number of outputs. On the right, it has 16 outputs and a growing number of inputs. Forward mode (``jacfwd``)
# holds one tangent for each input at the same time, and reverse mode (``jacrev``) holds one gradient for each output.
# So use forward mode for few inputs, and reverse mode for few outputs:

torch.manual_seed(0)
sizes = [16, 32, 64, 128, 256, 512]
shapes = {"tall: 16 inputs, n outputs": lambda n: (n, 16), "wide: n inputs, 16 outputs": lambda n: (16, n)}
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained", sharey=True)
figure.suptitle("Forward mode needs less memory for few inputs, reverse mode for few outputs")
for axis, (name, shape_of) in zip(axes, shapes.items(), strict=True):
    peaks = {jacfwd: [], jacrev: []}
    for size in sizes:
        weight, x = torch.randn(shape_of(size)), torch.randn(shape_of(size)[1])
        forward, reverse = (mode(lambda x, w=weight: symlog(w @ x)) for mode in peaks)
        assert torch.allclose(forward(x), reverse(x), atol=1e-5)
        for mode, values in peaks.items():
            values.append(peak_bytes(mode(lambda x, w=weight: symlog(w @ x)), x) / weight.untyped_storage().nbytes())
    for (mode, values), style in zip(peaks.items(), ("-o", "--s"), strict=True):
        axis.loglog(sizes, values, style, label=mode.__name__)
    short, long = peaks.values() if name.startswith("tall") else reversed(peaks.values())
    assert max(short) < 6
    assert long[-1] > 30
    axis.set(xlabel="n", title=name, xticks=sizes, xticklabels=sizes)
    axis.title.set_fontsize(10)
    axis.minorticks_off()
    axis.legend()
axes[0].set_ylabel("peak memory / that of the Jacobian")
plt.show()

# %%
# The times differ in the same way, if the sizes are large enough:


def seconds(function, x):
    function(x)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        function(x)
        times.append(time.perf_counter() - start)
    return min(times)


print("torch", torch.__version__)
for name, shape_of in shapes.items():
    weight, x = torch.randn(shape_of(2048)), torch.randn(shape_of(2048)[1])
    took = [seconds(mode(lambda x, w=weight: symlog(w @ x)), x) for mode in (jacfwd, jacrev)]
    print(f"{name}: jacfwd takes {took[0] / took[1]:.2g} times the time of jacrev at n = 2048")

# %%
# If no tensor requires grad, forward mode keeps no graph. The next cell prints the peak memory of a chain of 30
# functions, in units of the input's size:

x = torch.rand(100_000)


def chain(x):
    for _ in range(30):
        x = symlog(x)
    return x


peaks = {
    "jvp": peak_bytes(lambda: jvp(chain, (x,), (torch.ones_like(x),))),
    "backward": peak_bytes(lambda: chain(x.clone().requires_grad_()).sum().backward()),
}
print({name: round(peak / x.untyped_storage().nbytes()) for name, peak in peaks.items()})
assert peaks["jvp"] < peaks["backward"] / 3
trained = torch.ones((), requires_grad=True)
assert jvp(lambda x: trained * x, (x,), (x,))[1].grad_fn is not None  # a graph for the gradient of trained

# %%
# The next cell uses forward mode without ``torch.func``. It makes dual numbers, tensors that hold a value and a
# tangent. For an input without a tangent, ``jvp`` receives zeros, or None after ``set_materialize_grads(False)``, as in
# ``smooth_maximum``. For an argument that is not a tensor, ``jvp`` receives None.

x, direction = torch.tensor([-1.0, 0.0, 3.0]), torch.ones(3)
with forward_ad.dual_level():
    dual = forward_ad.make_dual(x, direction)
    value, tangent = forward_ad.unpack_dual(smooth_maximum(dual, torch.zeros(()), 0.5))
print("value", [f"{v:.4f}" for v in value.tolist()], "tangent", [f"{v:.4f}" for v in tangent.tolist()])
assert torch.allclose(tangent, torch.sigmoid(2 * x))

a, b = (torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
assert gradcheck(smooth_maximum, (a, b, 0.5), check_forward_ad=True, check_batched_forward_grad=True)

# %%
# Some of torch's own operations have no forward mode, and PyTorch raises an error for them. These are three examples on
# a CPU:

few = torch.randn(1, 2, 3, 4)
for name, function in {
    "torch.cdist": lambda x: torch.cdist(x, x),
    "F.grid_sample": lambda x: F.grid_sample(x, few[:, :, :, :2]),
    "F.scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x, x),
}.items():
    try:
        jvp(function, (few,), (few,))
        assert torch.__version__ >= (2, 14), f"{name} has forward mode: say so above"
        print(f"{name}: works")
    except NotImplementedError as error:
        print(f"{name}: {str(error).partition(' because')[0]}")

# %%
# The wrong version
# -----------------
#
# A ``jvp`` is a second formula, and ``gradcheck`` does not test it by default. This ``jvp`` returns the tangent without
# multiplying it by the slope:


class Careless(SymlogFunction):
    @staticmethod
    def jvp(ctx, tangent):
        return tangent


x = torch.randn(3, dtype=torch.float64, requires_grad=True)
print("gradcheck:", gradcheck(Careless.apply, (x,)))
try:
    gradcheck(Careless.apply, (x,), check_forward_ad=True)
except RuntimeError as error:
    print("with check_forward_ad=True:", str(error).splitlines()[0])
else:
    raise AssertionError("gradcheck did not see it")

# %%
# Forward over forward
# --------------------
#
# With two levels of forward mode, the inner level calls your ``jvp``, and the outer level treats the result as a
# constant. So the second derivative of your function is silently 0:

x = torch.tensor(2.0, dtype=torch.float64)
exact = -1 / 9  # of log(1 + x), twice differentiated at 2
nested = {
    "forward over forward": jacfwd(jacfwd(symlog)),
    "forward over reverse": jacfwd(grad(symlog)),
    "reverse over forward": grad(jacfwd(symlog)),
    "reverse over reverse": grad(grad(symlog)),
    "forward over forward, composed": jacfwd(jacfwd(lambda x: x.sign() * x.abs().log1p())),
}
print(f"torch {torch.__version__}, exact {exact:.4f}")
for name, function in nested.items():
    second = function(x).item()
    print(f"{name:30} {second:.4f}")
    lost = name == "forward over forward" and second == 0
    assert lost or abs(second - exact) < 1e-12

# %%
# Combinations of forward and reverse mode are right if ``jvp`` and ``backward`` compute from saved inputs and outputs.
# If you
# need two levels of forward mode, write the function with torch's operations. See
# `pytorch#197867 <https://github.com/pytorch/pytorch/issues/197867>`_.
#
# Compiled
# --------
#
# With ``fullgraph=True``, the compiler raises an error if your class has a ``jvp`` and an input requires grad. If you
# call ``torch.func.jvp`` *inside* of compiled code, the compiler silently drops your ``jvp`` and differentiates
# ``forward`` instead. For ``symlog``, these two derivatives differ at 0. In both cases, call the custom function in a
# function that you mark with ``torch.compiler.allow_in_graph``. Then the graph stays whole, and PyTorch uses your
# ``backward`` and your ``jvp``:


def slope_at_zero(function):
    return jvp(function, (torch.zeros(()),), (torch.ones(()),))[1]


try:
    torch.compile(lambda x: symlog(x), fullgraph=True, backend="eager")(torch.zeros((), requires_grad=True))
except RuntimeError as error:
    print(type(error).__name__, "-", str(error).strip().splitlines()[0])
else:
    raise AssertionError("fullgraph takes a class with a jvp: say so above")


@torch.compiler.allow_in_graph
def kept(x):
    return symlog(x)


compiled = torch.compile(slope_at_zero, backend="aot_eager", fullgraph=True)
lost = compiled(symlog)
print(f"slope at 0: {slope_at_zero(symlog):g}, compiled {lost:g}, with allow_in_graph {compiled(kept):g}")
assert slope_at_zero(symlog) == compiled(kept) == 1 != lost

trained = torch.compile(lambda x: kept(x).square().sum(), backend="aot_eager", fullgraph=True)
x = torch.linspace(-3, 3, 7, requires_grad=True)
(gradient,) = torch.autograd.grad(trained(x), x)
torch.testing.assert_close(gradient, torch.autograd.grad(symlog(x).square().sum(), x)[0])
print("gradient through the compiled function:", gradient)

# %%
# What each method may read
# -------------------------
#
# Use ``save_for_forward`` to save the tensors that ``jvp`` reads, in addition to ``save_for_backward``. The next cell
# shows what happens if you forget it, and three other mistakes:


class Forgotten(SymlogFunction):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)


class WrongShape(SymlogFunction):
    @staticmethod
    def jvp(ctx, tangent):
        return tangent.sum()


class WrongDtype(SymlogFunction):
    @staticmethod
    def jvp(ctx, tangent):
        return SymlogFunction.jvp(ctx, tangent).double()


class Missing(Function):
    @staticmethod
    def forward(input):
        return input.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


x = torch.ones(2)
for name, function in {
    "nothing saved for forward": Forgotten.apply,
    "tangent of another shape": WrongShape.apply,
    "no jvp": Missing.apply,
}.items():
    try:
        jvp(function, (x,), (x,))
    except (RuntimeError, ValueError) as error:
        print(f"{name}: {str(error).splitlines()[0][:100]}")
    else:
        raise AssertionError(f"{name} raises nothing")
print("tangent of another dtype: no error,", jvp(WrongDtype.apply, (x,), (x,))[1].dtype)

# %%
# What it costs
# -------------
#
# .. costs::
#
# A ``jvp`` costs nothing until it is called, except that ``fullgraph`` refuses it. In eager mode, both recipes keep
# less than their compositions of torch operations. If you compile the compositions, they keep as little or less, and
# are faster. But the composition of ``symlog`` has the slope 0 at 0, because :math:`\operatorname{sign}(0) = 0`. So a
# parameter that starts at 0 would stay at 0:

for name, function in {"symlog": symlog, "composed": lambda x: x.sign() * x.abs().log1p()}.items():
    parameter = torch.zeros(1, requires_grad=True)
    (function(parameter) - 1).square().sum().backward()
    print(f"{name}: gradient at 0 {parameter.grad.item():g}")
    assert (parameter.grad.item() == 0) == (name == "composed")

# %%
# You could also compute the slope of ``symlog`` from its output, as :math:`e^{-|y|}`. But then the exponential makes
# the relative rounding error of a large :math:`y` larger by the factor :math:`|y|`. So the recipe keeps its input and
# computes :math:`1 / (1 + |x|)`.

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/05_higher_order/hessian`: forward over reverse, and when it is faster.
# * :doc:`/cookbook/07_compile/torch_compile`: what else ``fullgraph`` refuses.
# * :doc:`/cookbook/05_higher_order/per_sample_gradients`: the third transformation, ``vmap``.
# * In torch's documentation: :func:`torch.autograd.gradcheck`, :func:`torch.func.hessian`.
