r"""
Eigenvalues and singular values that coincide
=============================================

You will write gradients of decompositions that stay finite where two eigenvalues or singular values are equal, and
learn for which losses they are also right.
"""

# %%
# When to use it
# --------------
#
# Not for eigenvalues alone: torch's gradient of a symmetric function of them, such as :math:`\sum_i f(\lambda_i)`, is
# right everywhere. The trouble starts with *vectors*, and equal eigenvalues are no exotic case: the identity that a
# covariance starts from, orthogonal matrices, pixels that are always 0. Then take
#
# * ``matrix_function`` if the result is a function of the matrix: root, inverse root, logarithm, whitening. It is
#   right at any distance of the eigenvalues, and needs the derivative of the function;
# * ``svd`` for the polar factor :math:`U V^H`, the nearest orthogonal matrix;
# * ``eigh`` for subspaces: the projector onto a group of eigenvectors.
#
# A single eigenvector of an eigenvalue that is not single has no derivative. There is nothing to repair.
#
# The gradient
# ------------
#
# From :math:`A = V \Lambda V^H` follow :math:`d\lambda_i = v_i^H\, dA\, v_i` and
# :math:`v_i^H\, dv_j = \frac{v_i^H\, dA\, v_j}{\lambda_j - \lambda_i}`. Backward, the numerator is
# :math:`\tfrac{1}{2}(V^H \bar{V} - \bar{V}^H V)_{ij}`, and over equal eigenvalues it is 0/0 if the loss is one that
# has a derivative. The recipe for ``eigh`` says 0. That is right if the loss treats the cluster as one. For
# :math:`Y = V f(\Lambda) V^H` the limit is another one,
#
# .. math::
#
#    \frac{f(\lambda_j) - f(\lambda_i)}{\lambda_j - \lambda_i}\, (V^H \bar{Y} V)_{ij} \to f'(\lambda_i)\,
#    (V^H \bar{Y} V)_{ij} ,
#
# which cannot be known from :math:`\bar{V}` and :math:`\bar{\Lambda}` alone. A function that is told :math:`f'`
# can.
#
# The recipe
# ----------
#
# .. recipe:: matrix_function
#
# .. recipe:: eigh
#
# .. recipe:: svd

# sphinx_gallery_tags = ["stability", "gradient"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.autograd import Function

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.eigenvalues import eigh, matrix_function, svd

# %%
# See it work
# -----------
#
# A matrix of size 6 with two eigenvalues at a distance that shrinks to nothing, and the error of the gradient of two
# losses: one of the matrix exponential, one of the projector onto the pair. Next to torch stands the remedy that one
# finds most, broadening: :math:`d / (d^2 + \varepsilon^2)` instead of :math:`1/d`.


class BroadenedEigh(Function):
    """For real symmetric matrices, with a width of 1e-6."""

    @staticmethod
    def forward(ctx, input):
        values, vectors = torch.linalg.eigh(input)
        ctx.save_for_backward(values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx, grad_values, grad_vectors):
        values, vectors = ctx.saved_tensors
        d = values.unsqueeze(-2) - values.unsqueeze(-1)
        inner = vectors.mT @ grad_vectors * d / (d**2 + 1e-12) + torch.diag(grad_values)
        return vectors @ (inner + inner.mT) / 2 @ vectors.mT


torch.manual_seed(0)
bases = torch.linalg.qr(torch.randn(4, 6, 6, dtype=torch.float64)).Q
weight = torch.randn(6, 6, dtype=torch.float64)
weight = (weight + weight.mT) / 2


def worst(loss, values, factor):
    """The largest error of four matrices with these eigenvalues, and known divided differences."""
    errors = []
    for basis in bases:
        matrix = ((basis * values) @ basis.mT).requires_grad_()
        (gradient,) = torch.autograd.grad(loss((matrix + matrix.mT) / 2), matrix)
        expected = basis @ (factor * (basis.mT @ weight @ basis)) @ basis.mT
        errors.append(float((gradient - expected).norm() / expected.norm()))
    return max(errors)


def exponential(decompose):
    def loss(matrix):
        values, vectors = decompose(matrix)
        return ((vectors * values.exp()) @ vectors.mT * weight).sum()

    return loss


def projector(decompose):
    def loss(matrix):
        pair = decompose(matrix)[1][:, 4:]
        return (pair @ pair.mT * weight).sum()

    return loss


contenders = {
    "torch": torch.linalg.eigh,
    "broadened": BroadenedEigh.apply,
    "eigh": eigh,
    "eigh, gap=1e-3": lambda matrix: eigh(matrix, 1e-3),
}
curves = {(loss, name): loss(decompose) for loss in (exponential, projector) for name, decompose in contenders.items()}
curves[exponential, "matrix_function"] = lambda matrix: (matrix_function(matrix, torch.exp, torch.exp) * weight).sum()
del curves[exponential, "eigh, gap=1e-3"]

gaps = torch.logspace(-16, -1, 31, dtype=torch.float64)
errors = {key: [] for key in curves}
in_pair = torch.arange(6) >= 4
for gap in gaps:
    values = torch.tensor([-1.0, 0.2, 0.7, 1.0, 2.0, 2.0 + gap], dtype=torch.float64)
    d = values.unsqueeze(0) - values.unsqueeze(1)
    half = torch.where(d == 0, 1.0, d / 2)
    middle = (values.unsqueeze(0) + values.unsqueeze(1)) / 2
    factors = {
        exponential: middle.exp() * torch.where(d == 0, 1.0, half.sinh() / half),
        projector: torch.where(in_pair.unsqueeze(0) ^ in_pair.unsqueeze(1), 1 / d.abs(), 0.0),
    }
    for (loss, name), function in curves.items():
        errors[loss, name].append(worst(function, values, factors[loss]))

figure, axes = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained", sharey=True)
figure.suptitle("Error of the gradient against the distance of two eigenvalues, for two losses")
styles = {"torch": "-", "broadened": ":", "eigh": "--", "eigh, gap=1e-3": "-.", "matrix_function": "-"}
colors = dict(zip(styles, ("C1", "C3", "C0", "C4", "C2"), strict=True))
for axis, loss in zip(axes, (exponential, projector), strict=True):
    for (of, name), values in errors.items():
        if of is loss:
            axis.loglog(gaps, values, styles[name], color=colors[name], label=name)
    axis.set(xlabel="distance of the eigenvalues", title="exp(A)" if loss is exponential else "projector onto the pair")
    axis.legend(fontsize=8, loc=(0.03, 0.2) if loss is exponential else "upper right")
axes[0].set_ylabel("relative error of the gradient")
plt.show()

assert max(errors[exponential, "matrix_function"]) < 1e-13
assert max(errors[projector, "eigh, gap=1e-3"][:24]) < 1e-13
assert max(errors[exponential, "torch"][:6]) > 1e-4 < max(errors[projector, "torch"][:6])
assert max(errors[exponential, "broadened"][:18]) > 0.1 < max(errors[exponential, "eigh"][:2])

# %%
# Rounding is divided by the distance, so torch loses digits long before there is a coincidence, and so does ``eigh``
# down to the distance that it takes for none, 10 n ε. Its argument ``gap`` says what counts as one cluster.
# ``matrix_function`` loses nothing. Broadening helps with the projector; of the exponential it loses a part of the
# gradient, wherever the distance is below its width.
#
# Torch returns NaN only if two *computed* eigenvalues are equal in every bit, as for diagonal matrices. Otherwise it
# returns numbers that are wrong. Here is the covariance of handwritten digits, of which three pixels are always 0,
# and the gradient of its inverse root, with which one whitens:

pixels = torch.tensor(load_digits().data)
pixels = pixels - pixels.mean(0)
covariance = pixels.mT @ pixels / len(pixels) + 0.1 * torch.eye(64, dtype=torch.float64)
weight = torch.randn(64, 64, dtype=torch.float64)
weight = weight + weight.mT
direction = torch.randn(64, 64, dtype=torch.float64)
direction = direction + direction.mT


def whitening(matrix):
    return (matrix_function(matrix, torch.rsqrt, lambda x: -0.5 * x**-1.5) * weight).sum()


def whitening_by(decompose):
    def loss(matrix):
        values, vectors = decompose(matrix)
        return ((vectors * values.rsqrt()) @ vectors.mT * weight).sum()

    return loss


step = 1e-5 * direction
expected = float((whitening(covariance + step) - whitening(covariance - step)) / 2e-5)
print(f"torch {torch.__version__}, slope along a direction by differences: {expected:.4f}")
slopes = {}
for name, loss in {
    "matrix_function": whitening,
    "torch.linalg.eigh": whitening_by(torch.linalg.eigh),
    "eigh": whitening_by(eigh),
}.items():
    matrix = covariance.clone().requires_grad_()
    slopes[name] = float((torch.autograd.grad(loss(matrix), matrix)[0] * direction).sum())
    print(f"{name:18} {slopes[name]:.4f}, off by {abs(slopes[name] / expected - 1):.1e}")
assert abs(slopes["matrix_function"] / expected - 1) < 1e-5
assert not abs(slopes["torch.linalg.eigh"] / expected - 1) < 1e-5
assert not abs(slopes["eigh"] / expected - 1) < 1e-5

# %%
# The nearest orthogonal matrix, at a matrix that is orthogonal already, as a layer may start from. All singular
# values are 1. The slope is known: the part of the weight that is no rotation drops out.

weight = torch.tensor([[1.0, 2.0], [4.0, 3.0]])
for name, decompose in {"torch": lambda matrix: torch.linalg.svd(matrix, full_matrices=False), "svd": svd}.items():
    matrix = torch.eye(2, requires_grad=True)
    U, _, Vh = decompose(matrix)
    (gradient,) = torch.autograd.grad((U @ Vh * weight).sum(), matrix)
    print(f"{name:6} {gradient.tolist()}")
    assert torch.allclose(gradient, (weight - weight.mT) / 2) == (name == "svd")

# %%
# The wrong version
# -----------------
#
# To take a finite gradient for a right one. The gradient of :math:`V e^{\Lambda} V^\top` through ``eigh`` at the
# identity is finite, and what is off the diagonal is gone: this is the 0 that replaces 0/0. The same holds for
# :math:`U f(S) V^\top` through ``svd``. Broadening has the same hole.

weight = torch.tensor([[1.0, 2.0], [2.0, 3.0]])
for name, loss in {
    "torch": exponential(torch.linalg.eigh),
    "broadened": exponential(BroadenedEigh.apply),
    "eigh": exponential(eigh),
    "matrix_function": lambda matrix: (matrix_function(matrix, torch.exp, torch.exp) * weight).sum(),
    "matrix_exp": lambda matrix: (torch.linalg.matrix_exp(matrix) * weight).sum(),
}.items():
    matrix = torch.eye(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(matrix), matrix)
    print(f"{name:16} {[[round(v, 3) for v in row] for row in gradient.tolist()]}")
    right = torch.allclose(gradient, weight * torch.tensor(1.0).exp())
    assert right == name.startswith("matrix")

# %%
# The quotient loses its digits between close eigenvalues, so ``matrix_function`` uses a mean of the derivative at three
# points there. The obvious test for "close", that the three are equal, fails: they may be a period apart. So the mean
# also has to agree with the quotient, as far as the quotient has digits. With :math:`\sin 2 \pi x` at eigenvalues 0 and
# 2, the derivative is :math:`2 \pi` at all three points and its mean is 0:

matrix = torch.diag(torch.tensor([0.0, 2.0], dtype=torch.float64)).requires_grad_()
turn = 2 * torch.pi
sine = matrix_function(matrix, lambda x: (turn * x).sin(), lambda x: turn * (turn * x).cos())
(gradient,) = torch.autograd.grad(sine[0, 1], matrix)
print(f"gradient of the sine's entry (0, 1): {gradient[0, 1]:.1e}")
assert gradient.abs().max() < 1e-14

# %%
# With second derivatives the recipes take no such risk. Where eigenvalues coincide they are NaN, also for
# :math:`\sum_i f(\lambda_i)`, whose first derivative is right:

for name, function in {"torch": torch.linalg.eigvalsh, "eigh": lambda matrix: eigh(matrix)[0]}.items():
    for entries in ([1.0, 2.0], [1.0, 1.0]):
        matrix = torch.diag(torch.tensor(entries)).requires_grad_()
        (first,) = torch.autograd.grad(function(matrix).exp().sum(), matrix, create_graph=True)
        (second,) = torch.autograd.grad(first.trace(), matrix)
        print(f"{name:6} at diag{entries}: second derivative {second.diag().tolist()}")
        assert second.isfinite().all() == (entries[0] < entries[1])

# %%
# What it costs
# -------------
#
# The decomposition decides the time; what the backward adds are the same few products as torch's. All keep the
# factors, ``matrix_function`` at the price of a second derivative, which it refuses.

matrix = torch.randn(100, 100, requires_grad=True)
for name, function in {
    "torch.linalg.eigh": torch.linalg.eigh,
    "eigh": eigh,
    "matrix_function": lambda matrix: matrix_function(matrix, torch.exp, torch.exp),
    "torch.linalg.matrix_exp": torch.linalg.matrix_exp,
    "svd": svd,
}.items():
    print(f"{name:24} keeps {saved_bytes(function, matrix) / matrix.numel():5.2f} bytes an entry, beyond the matrix")

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/03_stability/safe_functions`: 0/0 in a single number.
# * :doc:`/cookbook/05_higher_order/implicit`: gradients through a solver, by its solution.
# * :doc:`/cookbook/05_higher_order/complex_numbers`: what the bars mean for complex matrices.
# * In torch's documentation: :func:`torch.linalg.eigh`, :func:`torch.linalg.svd`.
