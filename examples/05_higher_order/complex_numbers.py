r"""
Complex numbers: where the conjugate goes
=========================================

You will write gradients of functions of complex numbers in PyTorch's convention, and see what happens when you forget a
conjugate.
"""

# %%
# When to use it
# --------------
#
# Read this page when you write a function that takes complex tensors: signals, wave functions, spectra, optics. Copy
# ``polyval``, which evaluates a polynomial, because torch has no such function. It keeps nothing beyond its arguments.
# Horner's rule (in a loop, multiply by :math:`z` and add the next coefficient) keeps every step with autograd, even if
# you compile it (torch 2.13). ``abs_squared`` keeps nothing beyond its argument, and ``z.abs().square()`` keeps a
# result as well. ``phasor`` is the same function as ``torch.sgn``: use ``torch.sgn``, and read ``phasor`` for the
# formula.
#
# The gradient
# ------------
#
# On this page, a bar marks the complex conjugate, and :math:`\operatorname{grad}_z` is the gradient for :math:`z`. A
# derivative for :math:`z` treats :math:`\bar{z}` as a constant, and the other way around (Wirtinger derivatives). For a
# real loss :math:`L` of :math:`z = x + iy`, torch returns the direction in which :math:`L` grows fastest:
#
# .. math::
#
#    \operatorname{grad}_z = \frac{\partial L}{\partial x} + i\,\frac{\partial L}{\partial y}
#    = 2\,\frac{\partial L}{\partial \bar{z}} .
#
# Write :math:`w = f(z)` and :math:`g = \operatorname{grad}_w`. Then the loss changes by :math:`dL =
# \operatorname{Re}(\bar{g}\, dw)`, with :math:`dw = \frac{\partial f}{\partial z} dz + \frac{\partial f}{\partial
# \bar{z}} d\bar{z}`. Insert :math:`dw`, use :math:`\operatorname{Re} u = \operatorname{Re} \bar{u}` to turn
# :math:`d\bar{z}` into :math:`dz`, and collect the factors of :math:`dz`. The result is :math:`dL =
# \operatorname{Re}(\overline{\operatorname{grad}_z}\, dz)` with
#
# .. math::
#
#    \operatorname{grad}_z = g\, \overline{\frac{\partial f}{\partial z}}
#    + \bar{g}\, \frac{\partial f}{\partial \bar{z}} .
#
# * A holomorphic function (a power series in :math:`z`) has no second term: multiply :math:`g` by the **conjugate** of
#   the derivative.
# * :math:`|z|^2 = z\bar{z}` has the derivatives :math:`\bar{z}` and :math:`z`, and :math:`g` is real: the gradient is
#   :math:`2gz`.
# * :math:`w = z / |z|` needs both terms:
#   :math:`(g - w^2 \bar{g}) / (2|z|) = (g - w \operatorname{Re}(\bar{w} g)) / |z|`.
#
# The recipe
# ----------
#
# .. recipe:: polyval
#
# .. recipe:: abs_squared
#
# .. recipe:: phasor

# sphinx_gallery_tags = ["gradient", "second order", "memory"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook import audit
from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.complex_numbers import PolyvalFunction, abs_squared, phasor, polyval

# %%
# See it work
# -----------
#
# The figure shows gradient descent on :math:`|z^3 - 1|^2`, from 24 points around the origin. On the right, the backward
# lacks the conjugate, and most of the paths do not end at a root (a star):


def horner(coefficients, z):
    output = torch.zeros_like(z)
    for coefficient in coefficients:
        output = output * z + coefficient
    return output


class NoConjugate(PolyvalFunction):
    @staticmethod
    def backward(ctx, grad_output):
        coefficients, input = ctx.saved_tensors
        exponents = torch.arange(len(coefficients) - 1, 0, -1)
        return None, grad_output * horner(coefficients[:-1] * exponents, input)


cubic = torch.tensor([1.0, 0.0, 0.0, -1.0], dtype=torch.float64)
angles = 2 * torch.pi * (torch.arange(24, dtype=torch.float64) + 0.5) / 24
roots = torch.polar(torch.ones(3, dtype=torch.float64), 2 * torch.pi * torch.arange(3, dtype=torch.float64) / 3)


def descend(function, steps=150):
    z = torch.polar(torch.full_like(angles, 1.3), angles)
    path = [z]
    for _ in range(steps):
        gradient = torch.func.grad(lambda z: abs_squared(function(cubic, z)).sum())(z)
        # Steps of limited length, to be seen in the figure.
        z = z - 0.05 * gradient / (1 + gradient.abs())
        path.append(z)
    return torch.stack(path)


figure, axes = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained", sharex=True, sharey=True)
figure.suptitle("Gradient descent to the roots of z³ = 1, with the conjugate and without")
x, y = torch.meshgrid(torch.linspace(-1.7, 1.7, 120), torch.linspace(-1.7, 1.7, 120), indexing="xy")
level = abs_squared(polyval(cubic.float(), torch.complex(x, y))).log1p()
reached = {}
for axis, (name, function) in zip(axes, {"right": polyval, "no conjugate": NoConjugate.apply}.items(), strict=True):
    path = descend(function)
    nearest = (path[-1][:, None] - roots).abs().amin(1)
    reached[name] = int((nearest < 0.01).sum())
    axis.contourf(x, y, level, levels=14, cmap="Greys_r", alpha=0.5)
    axis.plot(path.real, path.imag, "-", color="C0" if name == "right" else "C1", linewidth=1)
    axis.plot(path[0].real, path[0].imag, ".", color="0.2", markersize=3)
    axis.plot(roots.real, roots.imag, "k*", markersize=10)
    axis.set(title=f"{name}: {reached[name]} of 24 arrive", xlabel="Re z", aspect="equal", xlim=(-1.7, 1.7))
    axis.set_ylim(-1.7, 1.7)
axes[0].set_ylabel("Im z")
plt.show()

assert reached["right"] == 24
assert reached["no conjugate"] < 12

# %%
# The next cell checks the convention. It computes finite differences of a real loss along both axes, and combines them
# as in the first formula.

torch.manual_seed(0)
coefficients = torch.randn(4, dtype=torch.complex128)
weight = torch.randn((), dtype=torch.complex128)


def loss(z):
    return (weight * phasor(polyval(coefficients, z))).real + abs_squared(z) / 3


z = torch.tensor(0.4 - 0.7j, dtype=torch.complex128, requires_grad=True)
loss(z).backward()
step = 1e-6
with torch.no_grad():
    along_x = (loss(z + step) - loss(z - step)) / (2 * step)
    along_y = (loss(z + 1j * step) - loss(z - 1j * step)) / (2 * step)
print(f"gradient    {z.grad.item():.8f}")
print(f"differences {torch.complex(along_x, along_y).item():.8f}")
assert torch.allclose(z.grad, torch.complex(along_x, along_y), rtol=1e-7)

# %%
# Real and complex arguments can be mixed. The gradient of a real tensor is real, because the tensor can't move in the
# direction of an imaginary part.

real = torch.randn(4, dtype=torch.float64, requires_grad=True)
polyval(real, z.detach()).abs().backward()
print("real coefficients, complex argument:", real.grad.dtype)
assert real.grad.dtype == torch.float64

# %%
# A complex layer is often written as two real ones, for the real and the imaginary part. Both versions have the same
# gradient: the two real tensors get the real and the imaginary part of the complex gradient. For the weight of :math:`w
# x`, the gradient of a real loss is :math:`g\,\bar{x}`, although the derivative of :math:`w x` is :math:`x`. So both
# versions differ from a formula that contains :math:`x` without the conjugate, and both are right:

weight, x = torch.randn(3, 2, dtype=torch.complex128, requires_grad=True), torch.randn(2, dtype=torch.complex128)
of_real, of_imag = (part.detach().clone().requires_grad_() for part in (weight.real, weight.imag))

output = weight @ x
(gradient,) = torch.autograd.grad(output.abs().square().sum(), weight)
real_part, imag_part = of_real @ x.real - of_imag @ x.imag, of_imag @ x.real + of_real @ x.imag
parts = torch.autograd.grad(real_part.square().sum() + imag_part.square().sum(), (of_real, of_imag))
print("one complex layer and two real ones agree:", torch.allclose(gradient, torch.complex(*parts)))
assert torch.allclose(gradient, torch.complex(*parts))
assert torch.allclose(gradient, 2 * output.detach()[:, None] * x.conj())

# %%
# At 0, where the phase is not defined, ``phasor`` and ``torch.sgn`` have value 0 and gradient 0. The gradient of the
# quotient ``z / z.abs()`` is NaN there:

for name, function in {"phasor": phasor, "torch.sgn": torch.sgn, "z / z.abs()": lambda z: z / z.abs()}.items():
    zero = torch.zeros((), dtype=torch.complex64, requires_grad=True)
    value = function(zero)
    value.real.backward()
    print(f"{name:12} value {value.item()}, gradient {zero.grad.item()}")
    assert zero.grad.isnan().item() == (name == "z / z.abs()")

# %%
# The wrong version
# -----------------
#
# Without the conjugate, every test with real numbers passes. ``gradgradcheck`` passes even with complex numbers,
# because it compares the backward only with its own derivative.

real = torch.randn(3, dtype=torch.float64, requires_grad=True)
complex_ = torch.randn(3, dtype=torch.complex128, requires_grad=True)


def wrong(z):
    return NoConjugate.apply(cubic, z)


print("torch", torch.__version__)
for name, run in {
    "gradcheck, real": lambda: gradcheck(wrong, (real,)),
    "gradgradcheck, complex": lambda: gradgradcheck(wrong, (complex_,)),
    "gradcheck, complex": lambda: gradcheck(wrong, (complex_,)),
}.items():
    try:
        print(f"{name}: {run()}")
        assert name != "gradcheck, complex"
    except RuntimeError as error:
        assert name == "gradcheck, complex"
        print(f"{name}: {str(error).splitlines()[0]}")

# %%
# So test with complex inputs, or raise an error for them. If you give ``audit`` (:doc:`/guide/audit`) only real
# samples, it tries complex ones as well:

report = audit(wrong, (real,), only=["first_order", "complex128"])
for finding in report.findings:
    print(f"{finding.severity}: {finding.summary}\n{finding.cause}")
assert report.capabilities["complex128"] == "wrong"

# %%
# What it costs
# -------------
#
# .. costs::
#
# The next cell prints the bytes that autograd keeps beyond the arguments, for a polynomial of degree 8 and a thousand
# complex numbers of 8 bytes:

numbers = torch.randn(1000, dtype=torch.complex64, requires_grad=True)
nine = torch.randn(9, dtype=torch.complex64)

compiled = torch.compile(horner, backend="aot_eager_decomp_partition", fullgraph=True)
kept = {
    "polyval": saved_bytes(polyval, nine, numbers),
    "Horner's rule": saved_bytes(horner, nine, numbers),
    "the same compiled": saved_bytes(compiled, nine, numbers),
    "abs_squared": saved_bytes(abs_squared, numbers),
    "abs().square()": saved_bytes(lambda z: z.abs().square(), numbers),
    "phasor": saved_bytes(phasor, numbers),
    "torch.sgn": saved_bytes(torch.sgn, numbers),
}
for name, count in kept.items():
    print(f"{name:17} {count:>6,} bytes")
assert kept["polyval"] == kept["abs_squared"] == kept["phasor"] == 0
assert kept["Horner's rule"] == 9 * 8000
assert kept["the same compiled"] == 9 * 8000 or torch.__version__ >= (2, 14)

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/broadcasting`: a product that takes real and complex factors.
# * :doc:`/cookbook/05_higher_order/double_backward`: a backward that calls its own function again.
# * :doc:`/cookbook/03_stability/safe_functions`: more quotients whose denominator may be zero.
# * In torch's documentation: :func:`torch.autograd.gradcheck`, :func:`torch.autograd.gradgradcheck`.
