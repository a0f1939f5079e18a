r"""
An operator of your own, and what it adds to a Function
=============================================================

You will register a SciPy filter as an operator of torch, and put its gradient both on the operator and in a
``Function``. A table shows what each of them can do, and what works only with both.
"""

# %%
# When to use it
# --------------
#
# Register an operator when foreign code (NumPy, SciPy, a kernel) must run in a compiled or exported program, or when a
# policy of activation checkpointing, which decides what to keep and what to recompute, should refer to it by name. For
# code made of torch's operations a ``Function`` is enough, because the compiler traces into it.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`. A star marks the
# complex conjugate.
#
# An all-pole filter adds its own past output to its input. torch has no function for it. Written step by step, it would
# be a loop in Python, which is slow, because each step needs the step before. The derivative is the same recursion with
# another input, and the adjoint, which backward computes, is this recursion run backward in time:
#
# .. math::
#
#    y_t = x_t - \sum_{k=1}^{p} a_k\, y_{t-k}, \qquad
#    \bar{x}_t = \bar{y}_t - \sum_{k=1}^{p} a_k^*\, \bar{x}_{t+k}, \qquad
#    \bar{a}_k = -\sum_t \bar{x}_t\, y_{t-k}^* .
#
# Backward is the filter again, so there are gradients of every order.
#
# The recipe
# ----------
#
# .. recipe:: recursive_filter
#
# The same gradient is registered twice on purpose: on the operator, for exported graphs, and in a ``Function`` around
# the operator, for ``torch.func``. An operator is identified by its name alone, so put your own namespace before the
# ``::`` in your copy.

# sphinx_gallery_tags = ["black box", "second order", "compile"]
# sphinx_gallery_thumbnail_number = 1

import logging
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.autograd import Function, forward_ad, gradcheck, gradgradcheck
from torch.library import custom_op, opcheck

from autograd_cookbook.auditing import audit
from autograd_cookbook.recipes.custom_operator import (
    filter_gradients,
    filtered,
    recursive_filter,
    recursive_filter_op,
    save_for_filter,
)

torch._logging.set_logs(dynamo=logging.ERROR)  # refusals are printed below
warnings.filterwarnings("ignore", message="Dynamo does not know how to trace")
print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# In this example, random noise strikes an object with three resonances, and a microphone records the sound, with
# additional noise. The cell learns the six coefficients of the filter by gradients through SciPy. The filter is the
# product of three sections with two coefficients each. The parameters of a section are the radius and the angle of a
# pair of poles, and they keep the filter stable:


def poles(radius, angle):
    """Coefficients of a filter with these pairs of poles."""
    product = torch.ones(1)
    for r, w in zip(radius.sigmoid(), angle, strict=True):
        section = torch.stack([torch.ones(()), -2 * r * w.cos(), r * r])
        product = torch.nn.functional.conv1d(product[None, None], section.flip(0)[None, None], padding=2)[0, 0]
    return product[1:]


def response(coefficients, frequencies):
    """How loud a tone of each frequency comes out, in decibels."""
    powers = torch.exp(-1j * torch.outer(frequencies, torch.arange(1, len(coefficients) + 1)))
    return -20 * (1 + powers @ coefficients.to(powers.dtype)).abs().log10()


torch.manual_seed(0)
truth = poles(torch.tensor([3.6, 3.0, 2.4]), torch.tensor([0.35, 1.1, 2.2]))
struck = torch.randn(16, 400)
heard = recursive_filter(struck, truth) + 0.3 * torch.randn(16, 400)

radius = torch.full((3,), 1.0, requires_grad=True)
angle = torch.tensor([0.6, 1.4, 1.9], requires_grad=True)
start = poles(radius, angle).detach()
optimizer = torch.optim.Adam([radius, angle], lr=0.05)
losses = []
for _ in range(200):
    optimizer.zero_grad()
    loss = (recursive_filter(struck, poles(radius, angle)) - heard).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
learned = poles(radius, angle).detach()

figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.2), layout="constrained", width_ratios=(3, 2))
figure.suptitle("Three resonances, learned from sound by gradients through SciPy's recursive filter")
tones = torch.linspace(0, torch.pi, 400)
left.plot(tones / torch.pi, response(truth, tones), color="0.6", linewidth=5, label="truth")
left.plot(tones / torch.pi, response(start, tones), ":", label="start")
left.plot(tones / torch.pi, response(learned, tones), label="learned")
left.set(xlabel="frequency, as a part of half the sampling rate", ylabel="response in decibels")
left.legend(fontsize=8)
right.semilogy(losses)
right.axhline(0.09, color="0.6", linewidth=1)
right.annotate("noise", (5, 0.09), va="bottom", fontsize=8, color="0.4")
right.set(xlabel="step", ylabel="mean squared error")
plt.show()
print("largest error of a coefficient:", f"{float((learned - truth).abs().max()):.3f}")
assert (learned - truth).abs().max() < 0.05

# %%
# One gradient, three wrappers
# ----------------------------
#
# The next cell compares three wrappers of the same code. The first is a ``Function`` without an operator. The second is
# the operator alone, with ``register_fake`` (the shape of the result, for the compiler), ``register_vmap`` and
# ``register_autograd``. The third is the recipe, which has both.


class BareFunction(Function):
    forward = staticmethod(filtered)  # NumPy and SciPy
    setup_context = staticmethod(save_for_filter)

    @staticmethod
    def backward(ctx, grad_output):
        return filter_gradients(BareFunction.apply, ctx, grad_output)

    @staticmethod
    def vmap(info, in_dims, input, coefficients):
        return BareFunction.apply(input.movedim(in_dims[0], 0), coefficients), 0


wrappers = {"Function": BareFunction.apply, "custom_op": recursive_filter_op, "both": recursive_filter}
x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
a = torch.tensor([-0.5, 0.2], dtype=torch.float64, requires_grad=True)
point, direction = a.detach(), torch.ones(2, dtype=torch.float64)
expected = torch.autograd.grad(recursive_filter(x, a).sum(), a)[0]
step = 1e-6 * direction
tangent = (recursive_filter(x, point + step) - recursive_filter(x, point - step)).detach() / 2e-6


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.a = function, nn.Parameter(point.clone())

    def forward(self, x):
        return self.function(x, self.a)


def verdict(found, wanted):
    return "yes" if found is not None and torch.allclose(found, wanted, rtol=1e-6) else "WRONG, silently"


def of_func_grad(f):
    return verdict(torch.func.grad(lambda a: f(x.detach(), a).sum())(point), expected)


def of_jacrev(f):
    return verdict(torch.func.jacrev(lambda a: f(x.detach(), a))(point).sum((0, 1)), expected)


def of_vmap(f):
    return verdict(torch.func.vmap(f, (0, None))(x.detach(), point), f(x, a).detach())


def of_jvp(f):
    return verdict(torch.func.jvp(lambda a: f(x.detach(), a), (point,), (direction,))[1], tangent)


def of_dual_numbers(f):
    with forward_ad.dual_level():
        return verdict(forward_ad.unpack_dual(f(x.detach(), forward_ad.make_dual(point, direction))).tangent, tangent)


def of_compile(f):
    torch._dynamo.reset()
    whole = torch.compile(lambda a: f(x.detach() * 1, a).sum(), fullgraph=True, backend="aot_eager")
    return verdict(torch.autograd.grad(whole(a), a)[0], expected)


def of_export(f):
    model = torch.export.export(Model(f), (x.detach(),)).module()
    return verdict(torch.autograd.grad(model(x.detach()).sum(), list(model.parameters()))[0], expected)


questions = {
    "gradcheck": lambda f: "yes" if gradcheck(f, (x, a)) else "no",
    "gradgradcheck": lambda f: "yes" if gradgradcheck(f, (x, a)) else "no",
    "torch.func.grad": of_func_grad,
    "torch.func.jacrev": of_jacrev,
    "vmap": of_vmap,
    "torch.func.jvp": of_jvp,
    "dual numbers": of_dual_numbers,
    "compile, fullgraph": of_compile,
    "export, with gradient": of_export,
}
table, reasons = {}, {}
for question, ask in questions.items():
    for name, function in wrappers.items():
        try:
            table[question, name] = ask(function)
        except Exception as error:
            table[question, name] = "raises"
            reasons[question, name] = f"{type(error).__name__}: {str(error).splitlines()[0][:110]}"
print(f"{'':22} {'Function':16} {'custom_op':16} both")
for question in questions:
    print(f"{question:22} {' '.join(f'{table[question, name]:16}' for name in wrappers)}")
for (question, name), reason in reasons.items():
    print(f"\n{question} of {name}:\n  {reason}")
assert [table["torch.func.jvp", name] for name in wrappers] == ["raises", "WRONG, silently", "raises"]
assert [table["torch.func.grad", name] for name in wrappers] == ["yes", "raises", "yes"]
assert [table["compile, fullgraph", name] for name in wrappers] == ["raises", "yes", "yes"]

# %%
# The table shows the limits of the first two wrappers. A bare ``Function`` around SciPy can't be compiled whole, and
# can't be exported with its gradient. NumPy is an exception, because the compiler translates its functions, as the next
# cell shows. The second wrapper has other limits: ``torch.func.grad`` refuses an operator with a registered gradient,
# and forward mode (``jvp`` and dual numbers in the table) silently treats the operator as a *constant*. An operator
# made with ``custom_op`` has no method that registers a forward derivative:

print([name for name in dir(recursive_filter_op) if name.startswith("register")])
assert not hasattr(recursive_filter_op, "register_jvp")


class NumpySine(torch.autograd.Function):
    @staticmethod
    def forward(input):
        return torch.from_numpy(np.sin(input.detach().numpy()))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return torch.from_numpy(grad_output.numpy() * np.cos(input.numpy()))


angles = torch.linspace(0, 1, 5, requires_grad=True)
compiled = torch.compile(lambda input: NumpySine.apply(input), fullgraph=True, backend="aot_eager")
assert torch.allclose(torch.autograd.grad(compiled(angles).sum(), angles)[0], angles.cos())
print("torch", torch.__version__, "compiles a Function of NumPy's sine whole, and its gradient is right")

# %%
# With the ``Function`` around the operator, forward mode raises an error instead.
#
# The next cell measures the time of each wrapper, for an operation that itself takes almost no time. So the numbers
# show the overhead per call, which does not depend on the size of the tensors:


class Twice(Function):
    @staticmethod
    def forward(input):
        return input * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


@custom_op("cookbook_page::twice", mutates_args=())
def twice(input: torch.Tensor) -> torch.Tensor:
    return input * 2


twice.register_autograd(lambda ctx, grad_output: grad_output * 2)


class TwiceBoth(Twice):
    forward = staticmethod(lambda input: twice(input))


contenders = {"x * 2": lambda x: x * 2, "Function": Twice.apply, "custom_op": twice, "both": TwiceBoth.apply}
fastest = dict.fromkeys(contenders, float("inf"))
small = torch.randn(8, requires_grad=True)
for _ in range(20):
    for name, function in contenders.items():  # in turns, so that other programs disturb all equally
        began = time.perf_counter()
        for _ in range(20):
            function(small).backward(small)
        fastest[name] = min(fastest[name], time.perf_counter() - began)
for name, seconds in fastest.items():
    print(f"{name:9} {seconds / fastest['x * 2']:4.1f} times the time, forward and backward of 8 numbers")

# %%
# The wrong version
# -----------------
#
# ``opcheck`` is torch's test for operators. It checks the registration (schema, shapes, tracing), but not whether the
# gradient is right. In the next cell, the gradient of the signal is wrong by a factor of 123, and ``opcheck`` does not
# notice it:


@custom_op("cookbook_page::wrong_filter", mutates_args=())
def wrong_filter(input: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
    return filtered(input, coefficients)


def wrong_gradients(ctx, grad_output):
    grad_input, grad_coefficients = filter_gradients(recursive_filter_op, ctx, grad_output)
    return 123 * grad_input, grad_coefficients


wrong_filter.register_fake(lambda input, coefficients: torch.empty_like(input))
wrong_filter.register_autograd(wrong_gradients, setup_context=save_for_filter)
print("opcheck:  ", opcheck(wrong_filter, (x, a)))
try:
    gradcheck(wrong_filter, (x, a))
except RuntimeError as error:
    print("gradcheck:", str(error).splitlines()[0])
report = audit(wrong_filter, (x, a), only=["first_order", "opcheck", "forward_mode"])
for finding in report.findings:
    print(f"audit:     {finding.severity}, {finding.check}: {finding.summary}")
assert not report.ok

# %%
# Operators must also follow two rules. A result must not share memory with an argument, and the schema must declare
# arguments that the operator writes to. torch enforces the first rule when the operator runs. Only ``opcheck`` tests
# the second:


@custom_op("cookbook_page::returns_its_input", mutates_args=())
def returns_its_input(input: torch.Tensor) -> torch.Tensor:
    return input


@custom_op("cookbook_page::writes", mutates_args=())
def writes(input: torch.Tensor) -> torch.Tensor:
    return input.mul_(2).clone()


try:
    returns_its_input(x)
except RuntimeError as error:
    print("returns its input:", str(error)[str(error).find("The output") :][:120])
print("writes undeclared:", "no error in a call,", writes(torch.ones(2)).tolist())
try:
    opcheck(writes, (torch.ones(2),))
except Exception as error:
    print("opcheck:          ", str(error)[:110])

# %%
# What it costs
# -------------
#
# .. costs::
#
# The table measures a thousand signals of a thousand steps. The alternative is a triangular system of equations, which
# torch can solve in one call.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/07_compile/export`: gradients in an exported file.
# * :doc:`/cookbook/07_compile/selective_checkpointing`: keep the result of this operator, and recompute all others.
# * :doc:`/cookbook/06_beyond_autograd/scipy_functions`: a shorter way, for eager code.
# * :doc:`/cookbook/06_beyond_autograd/cuda_extension`: operators in C++ and CUDA.
# * In torch's documentation: :func:`torch.library.custom_op`, :func:`torch.library.opcheck`.
