r"""
Eigenvalues and singular values that coincide
=============================================

You will write gradients of matrix decompositions that stay finite if two eigenvalues or singular values are equal. You
will learn for which losses these gradients are also right.
"""

# %%
# When to use it
# --------------
#
# For many losses, you do not need this page. If a loss is a smooth and *symmetric* function of the eigenvalues, such as
# :math:`\sum_i f(\lambda_i)` with a smooth :math:`f`, PyTorch's first derivative is right for equal eigenvalues, too.
# (Symmetric means that the order of the eigenvalues does not matter.) But in two similar cases, the gradient is wrong
# or NaN at equal eigenvalues, as the section "The wrong version" shows:
#
# * The largest eigenvalue is not smooth. If it is equal to another one, it has no derivative, and PyTorch returns the
#   gradient for one arbitrary eigenvector.
# * Second derivatives fail. With ``eigh`` and ``svd``, they are NaN, and ``matrix_function`` raises an error. With
#   torch's decompositions, they are NaN, or inaccurate if the computed eigenvalues differ by rounding errors.
#
# If your loss uses eigenvectors or singular *vectors*, equal eigenvalues or singular values are a problem, and they are
# common. Examples are a covariance that starts at the identity, orthogonal matrices (a common start for layers), and
# pixels that are always 0. Then use a recipe:
#
# * ``matrix_function`` if the result is a function of the matrix, for example a root, an inverse root, a logarithm or
#   whitening. Its gradient is right for equal, close and distant eigenvalues, but you must pass the derivative of the
#   function.
# * ``svd`` for the polar factor :math:`U V^H`, which is the nearest orthogonal matrix.
# * ``eigh`` for a projector onto the subspace of a group of eigenvectors.
#
# If several eigenvalues are equal, none of their eigenvectors has a derivative. Only the space that all these
# eigenvectors span together has one.
#
# The gradient
# ------------
#
# :math:`A = V \Lambda V^H` has the differentials :math:`d\lambda_i = v_i^H\, dA\, v_i` and :math:`v_i^H\, dv_j =
# \frac{v_i^H\, dA\, v_j}{\lambda_j - \lambda_i}`. So for each pair :math:`i`, :math:`j`, backward computes a quotient.
# Its numerator is :math:`\tfrac{1}{2}(V^H \bar{V} - \bar{V}^H V)_{ij}`, where :math:`\bar{V}` is the gradient of the
# loss with respect to :math:`V`. Its denominator is the difference of the two eigenvalues. If they are equal, the
# denominator is 0, and :func:`torch.linalg.eigh` has to choose eigenvectors in their common space. If the loss does not
# depend on this choice, the numerator is 0, too, so the quotient is 0/0.
#
# The recipe ``eigh`` replaces 0/0 by 0. A *cluster* is a group of equal eigenvalues with their eigenvectors. The 0 is
# right for two kinds of losses: for losses that use only the projector onto the eigenvectors of a cluster, and for
# losses that use only symmetric functions of its eigenvalues. But for :math:`Y = V f(\Lambda) V^H`, the limit of the
# quotient is not 0, so the 0 would be wrong:
#
# .. math::
#
#    \frac{f(\lambda_j) - f(\lambda_i)}{\lambda_j - \lambda_i}\, (V^H \bar{Y} V)_{ij} \to f'(\lambda_i)\,
#    (V^H \bar{Y} V)_{ij} .
#
# The backward of ``eigh`` gets only :math:`\bar{V}` and :math:`\bar{\Lambda}`, and cannot compute this limit from them,
# because the limit needs :math:`f'`. So ``matrix_function`` takes :math:`f'` as an argument.
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
# The next cell moves two eigenvalues of a 6×6 matrix closer and closer together. The figure shows the error of the
# gradient for two losses: one uses the matrix exponential, and the other uses the projector onto the two eigenvectors.
# It compares torch, the recipes and the most common fix, which is called broadening. Broadening uses :math:`d / (d^2 +
# \varepsilon^2)` instead of :math:`1/d` for the difference :math:`d` of two eigenvalues.


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
    """Return the largest error for four matrices with these eigenvalues. ``factor`` gives the exact gradient."""
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
# The numerator in backward contains rounding errors. If two eigenvalues are close, the division by their small
# difference makes these errors large. So the gradients of torch and of ``eigh`` become inaccurate long before two
# eigenvalues are equal. If their distance is below a limit, ``eigh`` treats them as one cluster, and the gradient is
# accurate for losses of the projector. The limit is ``gap`` times the norm of the matrix. By default, ``gap`` is 10 n
# ``eps`` for n rows, where ``eps`` is ``torch.finfo(dtype).eps``. If the rounding errors in your matrix are larger,
# equal eigenvalues can differ by more than this limit. In this case, raise ``gap``.
#
# ``matrix_function`` is accurate for every distance in the figure. Broadening helps with the projector. But for the
# exponential, broadening loses a part of the gradient if the distance is smaller than the width ε.
#
# PyTorch returns NaN only if two *computed* eigenvalues are equal bit by bit, as for a diagonal matrix. For other
# matrices with equal eigenvalues, torch returns wrong finite numbers. The next cell computes the covariance of
# handwritten digits. Three of the pixels are always 0, so three eigenvalues are equal. The cell compares gradients of
# the inverse root of this matrix, as in whitening:

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
# The next cell computes the nearest orthogonal matrix, :math:`U V^\top`, for the identity. All singular values of the
# identity are equal to 1. The loss is the sum of the entries of :math:`U V^\top`, each multiplied by an entry of a
# fixed matrix :math:`W`. The exact gradient is :math:`(W - W^\top) / 2`. The recipe ``svd`` returns it, and torch does
# not:

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
# A finite gradient can still be wrong. The next cell computes :math:`V e^{\Lambda} V^\top` with ``eigh`` at the
# identity. The gradient is finite, but its entries outside the diagonal are 0, because ``eigh`` replaces 0/0 by 0.
# Broadening and :math:`U f(S) V^\top` with ``svd`` have the same problem. Use ``matrix_function`` for such losses:

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
# For close eigenvalues, the quotient :math:`(f(\lambda_j) - f(\lambda_i)) / (\lambda_j - \lambda_i)` is inaccurate,
# because rounding dominates the differences. So ``matrix_function`` uses a weighted mean of three derivatives instead:
# one at each eigenvalue, and one at their midpoint (Simpson's rule). For distant eigenvalues, this mean can be wrong,
# because three derivatives say too little about the function between the eigenvalues. For example, :math:`\sin 2 \pi x`
# has the derivative :math:`2 \pi` at 0, 1 and 2, but the quotient for the eigenvalues 0 and 2 is 0. So the recipe uses
# the mean only if it agrees with the quotient within the rounding error:

matrix = torch.diag(torch.tensor([0.0, 2.0], dtype=torch.float64)).requires_grad_()
turn = 2 * torch.pi
sine = matrix_function(matrix, lambda x: (turn * x).sin(), lambda x: turn * (turn * x).cos())
(gradient,) = torch.autograd.grad(sine[0, 1], matrix)
print(f"gradient of the sine's entry (0, 1): {gradient[0, 1]:.1e}")
assert gradient.abs().max() < 1e-14

# %%
# If eigenvalues are equal, the second derivatives of ``eigh`` and ``svd`` are NaN, because finite ones would be wrong.
# For :math:`\sum_i f(\lambda_i)`, too, the second derivative is NaN, although the first derivative is right:

for name, function in {"torch": torch.linalg.eigvalsh, "eigh": lambda matrix: eigh(matrix)[0]}.items():
    for entries in ([1.0, 2.0], [1.0, 1.0]):
        matrix = torch.diag(torch.tensor(entries)).requires_grad_()
        (first,) = torch.autograd.grad(function(matrix).exp().sum(), matrix, create_graph=True)
        (second,) = torch.autograd.grad(first.trace(), matrix)
        print(f"{name:6} at diag{entries}: second derivative {second.diag().tolist()}")
        assert second.isfinite().all() == (entries[0] < entries[1])

# %%
# The largest eigenvalue has a kink where it is equal to another eigenvalue. At the identity, both eigenvalues are
# equal. If you move away from the identity along the direction in the next cell, or against it, the largest eigenvalue
# grows. So its slope is −1 on the left and 1 on the right, but PyTorch returns a slope of 0. PyTorch's gradient of the
# largest eigenvalue is right only where no other eigenvalue is equal to it:

direction = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
for entries in ([1.0, 2.0], [1.0, 1.0]):
    matrix = torch.diag(torch.tensor(entries)).requires_grad_()
    largest = torch.linalg.eigvalsh(matrix)[-1]
    slope = (torch.autograd.grad(largest, matrix)[0] * direction).sum()
    sides = [(torch.linalg.eigvalsh(matrix + h * direction)[-1] - largest) / h for h in (-1e-3, 1e-3)]
    print(f"diag{entries}: slope {slope:.0f}, on the left {sides[0]:.3f}, on the right {sides[1]:.3f}")
    assert all(abs(side - slope) < 0.01 for side in sides) == (entries[0] < entries[1])

# %%
# What it costs
# -------------
#
# The decomposition takes most of the time. The backward of the recipes needs about as many matrix products as torch's
# backward. All functions keep the factors of the decomposition. ``matrix_function`` raises an error for a second
# derivative.

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
# * :doc:`/cookbook/03_stability/safe_functions`: 0/0 in functions of single numbers.
# * :doc:`/cookbook/05_higher_order/implicit`: how to compute gradients of a solver from its solution.
# * :doc:`/cookbook/05_higher_order/complex_numbers`: how PyTorch defines gradients of complex numbers.
# * In torch's documentation: :func:`torch.linalg.eigh`, :func:`torch.linalg.svd`.
