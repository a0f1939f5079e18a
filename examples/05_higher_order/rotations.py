r"""
Rotations: exponential, logarithm, nearest rotation
===================================================

You will differentiate rotations without NaN and without lost digits: at an angle of zero, at tiny angles and at half a
turn, where textbook formulas divide by zero.
"""

# %%
# When to use it
# --------------
#
# Use these recipes when poses are unknowns or outputs, for example in robotics, bundle adjustment, molecules, or
# networks that predict an orientation.
#
# * ``rotation_exp`` makes a rotation matrix from three numbers (axis times angle), which you can optimize.
# * ``rotation_log`` computes these three numbers from a matrix, for a loss on the angle between two rotations.
# * ``nearest_rotation`` makes a rotation from nine numbers, as the last layer of a network. The result is NaN if
#   several rotations are equally near, as for a matrix of zeros.
#
# ``torch.linalg.matrix_exp`` has right derivatives, too, but it keeps and computes more. If the loss is only a
# distance, ``(R - S).square().sum()`` needs no logarithm.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{R}` is the gradient of the loss with respect to :math:`R`.
#
# A rotation has nine entries but can change in only three directions: :math:`dR = [\varphi]_\times R`, where
# :math:`[\varphi]_\times` is the matrix of the cross product with :math:`\varphi`. So the recipes compute all gradients
# with the three numbers :math:`\varphi`. ``axial`` turns a matrix into such numbers, :math:`m =
# \operatorname{axial}(\bar{R} R^\top)`. With the angle :math:`\theta = \lVert \omega \rVert`:
#
# .. math::
#
#    R = \exp [\omega]_\times: \quad
#    \bar{\omega} = m - c_2 \, \omega \times m + c_3 \, \omega \times (\omega \times m), \qquad
#    c_2 = \frac{1 - \cos \theta}{\theta^2}, \quad c_3 = \frac{\theta - \sin \theta}{\theta^3} .
#
# The coefficients are functions of :math:`s = \theta^2` with the series
# :math:`c_k(s) = \frac{1}{k!} - \frac{s}{(k+2)!} + \frac{s^2}{(k+4)!} - \dots`, and their derivatives are of the same
# kind, :math:`c_k' = (k \, c_{k+2} - c_{k+1}) / 2`. So no derivative divides by an angle.
#
# The nearest rotation is the factor :math:`Q` of :math:`M = Q P` with a symmetric :math:`P`. Its gradient is
#
# .. math::
#
#    \bar{M} = Q \, [\, (\operatorname{tr}(P) \, I - P)^{-1} \operatorname{axial}(Q^\top \bar{Q}) \,]_\times .
#
# The recipe
# ----------
#
# .. recipe:: rotation_exp
#
# .. recipe:: rotation_log
#
# .. recipe:: nearest_rotation

# sphinx_gallery_tags = ["stability", "second order", "forward mode", "gradient"]
# sphinx_gallery_thumbnail_number = 1

import math

import matplotlib.pyplot as plt
import torch
from torch.autograd import gradcheck

from autograd_cookbook import audit
from autograd_cookbook.recipes.rotations import (
    RotationLogFunction,
    axial,
    cross_matrix,
    nearest_rotation,
    rotation_exp,
    rotation_log,
    stumpff,
)

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The figure shows the error of the rotation vector in float32. The textbook formula computes the angle as
# :math:`\arccos \frac{\operatorname{tr} R - 1}{2}`. The cosine hardly changes at small angles or close to half a turn,
# so the formula loses all digits there. The rotations are made in float64 and rounded once, so the true angle is known.

axis = torch.tensor([0.48, -0.6, 0.64], dtype=torch.float64)
small = torch.logspace(-7, math.log10(math.pi / 2), 300, dtype=torch.float64)
angles = torch.cat([small, math.pi - small.flip(0)])
exact = rotation_exp(angles[:, None] * axis)


def by_arccos(rotation):
    angle = ((rotation.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) - 1) / 2).acos()
    return angle / (2 * angle.sin()) * axial(rotation)


def error(function):
    """Return the error of the whole vector, relative to its length."""
    found = function(exact.float()).double()
    off = (found - angles[:, None] * axis).norm(dim=-1) / angles
    return off.nan_to_num(nan=10, posinf=10).clamp(1e-9, 10)


figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained", sharey=True)
figure.suptitle("The logarithm in float32: the arccos loses all digits at both ends")
for ax, part, x, label in (
    (axes[0], slice(300), angles[:300], "angle"),
    (axes[1], slice(300, None), math.pi - angles[300:], "what is missing to half a turn"),
):
    ax.loglog(x, error(by_arccos)[part], color="tab:orange", lw=1)
    ax.loglog(x, error(rotation_log)[part], color="tab:blue", lw=1)
    ax.set(xlabel=label)
axes[0].set(ylabel="relative error (10: or NaN)")
axes[0].text(3e-5, 2e-1, "arccos", color="tab:orange")
axes[0].text(3e-5, 4e-7, "rotation_log", color="tab:blue")
plt.show()

worst = {f.__name__: error(f).max().item() for f in (by_arccos, rotation_log)}
print("largest error:", {name: f"{w:.0e}" for name, w in worst.items()})
assert worst["by_arccos"] == 10
assert worst["rotation_log"] < 1e-6

# %%
# The next cell computes gradients where the formulas are 0 / 0. At an angle of zero, Rodrigues' formula divides by the
# angle, and its gradient is NaN. The singular value decomposition of a rotation also has a gradient of NaN, because the
# three singular values are equal:


def rodrigues(vector):
    angle = vector.norm()
    k = cross_matrix(vector / angle)
    return torch.eye(3) + angle.sin() * k + (1 - angle.cos()) * k @ k


def by_decomposition(matrix):
    u, _, vh = torch.linalg.svd(matrix)
    return u @ vh


weights = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 9.0]])


def gradient(function, point):
    point = point.clone().requires_grad_()
    return torch.autograd.grad((weights * function(point)).sum(), point)[0]


for function in (rodrigues, rotation_exp):
    print(f"{function.__name__} at no turn:      ", gradient(function, torch.zeros(3)).tolist())
for function in (by_decomposition, nearest_rotation):
    print(f"{function.__name__} at the identity, first row:", gradient(function, torch.eye(3))[0].tolist())
assert gradient(rodrigues, torch.zeros(3)).isnan().all()
assert gradient(rotation_exp, torch.zeros(3)).tolist() == [2, -4, 2]
assert gradient(by_decomposition, torch.eye(3)).isnan().any()
assert gradient(nearest_rotation, torch.eye(3)).isfinite().all()
assert nearest_rotation(torch.zeros(3, 3)).isnan().all()

# %%
# As an example, find the rotation between two clouds of points, starting at an angle of zero. The unknowns are three
# numbers. Newton's method works, because the second derivatives are right as well:

torch.manual_seed(0)
points = torch.randn(20, 3, dtype=torch.float64)
truth = torch.tensor([1.2, -0.7, 0.4], dtype=torch.float64)
seen = points @ rotation_exp(truth).mT


def loss(vector):
    return (points @ rotation_exp(vector).mT - seen).square().sum() / 2


vector = torch.zeros(3, dtype=torch.float64)
for step in range(8):
    slope, curvature = torch.func.grad(loss)(vector), torch.func.hessian(loss)(vector)
    smallest = torch.linalg.eigvalsh(curvature)[0]
    shift = max(0.0, 1.0 - smallest.item())  # far away the curvature need not be positive
    vector = vector - torch.linalg.solve(curvature + shift * torch.eye(3), slope)
    print(f"step {step}: loss {loss(vector).item():.1e}")

# The result may contain whole turns, which the logarithm removes.
found = rotation_log(rotation_exp(vector))
print("found:", [round(number, 6) for number in found.tolist()])
assert torch.allclose(found, truth, atol=1e-12)

# %%
# Quaternions
# -----------
#
# A quaternion of any length except 0 gives a rotation if you divide by its squared norm. So its length needs no
# constraint, and you can train its four numbers as parameters. Build the matrix with ``torch.stack``. ``torch.tensor``
# and ``torch.asarray`` make new tensors from the *numbers*, so the gradient is lost. PyTorch warns about this only once
# in a program:


def matrix_of(quaternion):  # w, x, y, z in the last dimension
    w, x, y, z = quaternion.unbind(-1)
    s = 2 / quaternion.square().sum(-1)
    rows = [
        *(1 - s * (y * y + z * z), s * (x * y - z * w), s * (x * z + y * w)),
        *(s * (x * y + z * w), 1 - s * (x * x + z * z), s * (y * z - x * w)),
        *(s * (x * z - y * w), s * (y * z + x * w), 1 - s * (x * x + y * y)),
    ]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


quaternion = torch.tensor([1.0, 0.2, -0.3, 0.1], dtype=torch.float64, requires_grad=True)
print("gradcheck of matrix_of:", gradcheck(matrix_of, quaternion))
print("torch.asarray of parts keeps a graph:", torch.asarray([q * 2 for q in quaternion]).requires_grad)
assert not torch.asarray([q * 2 for q in quaternion]).requires_grad
assert torch.stack([q * 2 for q in quaternion]).requires_grad

# %%
# To compute a rotation vector from a quaternion, the usual formula is ``2 * acos(w)`` times the axis. At an angle of
# zero, ``acos`` has an infinite slope, and the axis is 0 divided by 0. So the gradient is NaN, and ``clamp`` or
# ``torch.where`` around the result do not help. With ``atan2``, and a series for small sines, the gradient is finite
# for every rotation. At half a turn, ``w`` is 0, and the series would divide by it. So ``torch.where`` also replaces
# ``w`` where the series is not used:


def vector_of(quaternion):
    quaternion = torch.where(quaternion[..., :1] < 0, -quaternion, quaternion)  # both mean the same rotation
    w, axis = quaternion[..., :1], quaternion[..., 1:]
    squared = axis.square().sum(-1, keepdim=True)
    small = squared < torch.finfo(w.dtype).eps * w.square()  # a fixed 1e-8 would be zero in float16
    sine, cosine = torch.where(small, 1.0, squared).sqrt(), torch.where(small, w, 1.0)
    series = 2 / cosine * (1 - squared / (3 * cosine.square()))
    return torch.where(small, series, 2 * torch.atan2(sine, w) / sine) * axis


def by_acos(quaternion):
    unit = quaternion / quaternion.norm()
    angle = 2 * unit[0].clamp(-1, 1).acos()
    return angle * unit[1:] / unit[1:].norm()


identity = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64, requires_grad=True)
for function in (by_acos, vector_of):
    print(
        f"{function.__name__:9} gradient at no turn:",
        torch.autograd.grad(function(identity).sum(), identity)[0].tolist(),
    )
assert torch.autograd.grad(by_acos(identity).sum(), identity)[0].isnan().any()
assert gradcheck(vector_of, identity)
assert gradcheck(vector_of, quaternion)
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    for cosine in (0.0, 1e-3):  # half a turn, and nearly half a turn
        half_turn = torch.tensor([cosine, 1, 0, 0], dtype=dtype, requires_grad=True)
        assert torch.autograd.grad(vector_of(half_turn).sum(), half_turn)[0].isfinite().all()
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    at_no_turn = identity.detach().to(dtype).requires_grad_()
    assert torch.autograd.grad(vector_of(at_no_turn).sum(), at_no_turn)[0].tolist() == [0, 2, 2, 2]
    for size in (1e-6, 1e-3, 3e-2, 0.3):  # on both sides of the switch to the series
        close = torch.tensor([1, size, 0, 0], dtype=dtype)
        right = 2 * torch.atan2(close[1].double(), close[0].double())
        assert abs(vector_of(close)[0].double() / right - 1) < 4 * torch.finfo(dtype).eps
assert torch.allclose(rotation_exp(vector_of(quaternion)), matrix_of(quaternion))
for sign in (1, -1):
    assert torch.allclose(vector_of(sign * quaternion), rotation_log(matrix_of(quaternion)))

# %%
# To compute a quaternion from a matrix, compute the rotation vector first. The cosine and sine of half its angle give
# the quaternion. Both are smooth functions of the *square* of this half angle. The series ``stumpff`` of the recipe
# computes them from the square, so no root of zero is differentiated: ``stumpff(s, 0)`` is :math:`\cos \sqrt s` and
# ``stumpff(s, 1)`` is :math:`\sin \sqrt s / \sqrt s`.
#
# A common older formula for ``matrix_to_quaternion`` takes the *sizes* of x, y and z from the diagonal and only their
# *signs* from the other entries. A sign has a slope of zero, so the entries off the diagonal get no gradient. Near the
# identity, these are the entries that change with the angle, while the diagonal consists of cosines with a slope of
# zero. So an angle that starts at zero gets no gradient and stays there. The cell compares both formulas:


def quaternion_of(matrix):
    vector = rotation_log(matrix)
    s = vector.square().sum(-1, keepdim=True) / 4  # the square of half the angle
    return torch.cat([stumpff(s, 0), vector / 2 * stumpff(s, 1)], -1)


def by_signs(matrix):
    a, b, c = matrix.diagonal(dim1=-2, dim2=-1).unbind(-1)
    squares = torch.stack([1 + a + b + c, 1 + a - b - c, 1 - a + b - c, 1 - a - b + c], -1)
    sizes = torch.where(squares > 0, torch.where(squares > 0, squares, 1).sqrt() / 2, 0)
    signs = torch.cat([torch.ones_like(a)[..., None], axial(matrix)], -1)
    return sizes.copysign(signs)


for function in (by_signs, quaternion_of):
    matrix = torch.eye(3, requires_grad=True)
    slopes = torch.autograd.grad(function(matrix)[1:].sum(), matrix)[0]
    print(f"{function.__name__}: gradient of x + y + z at the identity:", slopes.tolist())

turned = rotation_exp(torch.tensor([0.4, -1.0, 0.3], dtype=torch.float64)).requires_grad_()
for function in (by_signs, quaternion_of):
    assert torch.allclose(matrix_of(function(turned)), turned)
assert gradcheck(quaternion_of, turned)
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    matrix = torch.eye(3, dtype=dtype, requires_grad=True)
    for i, turn in enumerate(cross_matrix(torch.eye(3, dtype=dtype)), 1):  # half of the vector
        assert torch.equal(torch.autograd.grad(quaternion_of(matrix)[i], matrix)[0], turn / 4)
        assert not torch.autograd.grad(by_signs(matrix)[i], matrix)[0].any()
    assert not torch.autograd.grad(quaternion_of(matrix)[0], matrix)[0].any()
matrix = torch.eye(3, dtype=torch.float64, requires_grad=True)
assert gradcheck(quaternion_of, matrix)
assert torch.autograd.gradgradcheck(quaternion_of, matrix)

# %%
# If the loss can compare matrices, you need no quaternion: ``(R - S).square().sum()`` has a gradient for every entry.
# Two other parametrizations also have right gradients at the identity:
#
# * **Euler angles** fail elsewhere. At a middle angle of 90 degrees, the first and the last angle turn about the same
#   axis. So no change of the angles gives a turn about the third axis (gimbal lock).
# * **6D** consists of two columns of three numbers, which the Gram-Schmidt method makes orthonormal. It is suitable for
#   gradient descent: the map is smooth while the two columns are not parallel, and six numbers reach every rotation
#   without a jump. ``nearest_rotation`` of nine numbers is the symmetric counterpart.


def euler(angles):
    x, y, z = rotation_exp(torch.diag(angles))  # one rotation about each axis
    return z @ y @ x


def rotation_of_6d(six):
    first, second = six.unflatten(-1, (2, 3)).unbind(-2)
    x = torch.nn.functional.normalize(first, dim=-1)
    y = torch.nn.functional.normalize(second - (x * second).sum(-1, keepdim=True) * x, dim=-1)
    return torch.stack([x, y, torch.linalg.cross(x, y)], -1)


def directions(function, point):
    """Return the number of independent directions in which the rotation can turn."""
    return torch.linalg.matrix_rank(torch.func.jacrev(function)(point).reshape(9, -1), rtol=1e-6).item()


for name, angles in {"Euler at zero": [0.0, 0.0, 0.0], "Euler at 90 degrees": [0.3, math.pi / 2, 0.2]}.items():
    print(f"{name}: {directions(euler, torch.tensor(angles, dtype=torch.float64))} directions")
two_columns = torch.tensor([1.0, 0, 0, 0, 1, 0], dtype=torch.float64)
print(f"6D at the identity: {directions(rotation_of_6d, two_columns)} directions")

level, upright = (torch.tensor([0.3, pitch, 0.2], dtype=torch.float64) for pitch in (0.0, math.pi / 2))
assert [directions(euler, angles) for angles in (torch.zeros_like(level), level, upright)] == [3, 3, 2]
assert directions(rotation_of_6d, two_columns) == 3
assert torch.equal(rotation_of_6d(two_columns), torch.eye(3, dtype=torch.float64))
assert gradcheck(rotation_of_6d, two_columns.requires_grad_())
assert gradcheck(lambda m: (m - turned.detach()).square().sum(), torch.eye(3, dtype=torch.float64, requires_grad=True))
start = torch.zeros(3, requires_grad=True)  # the whole chain: angles, matrix, quaternion
assert not torch.autograd.grad(by_signs(euler(start))[1:].sum(), start)[0].any()
assert torch.autograd.grad(quaternion_of(euler(start))[1:].sum(), start)[0].tolist() == [0.5, 0.5, 0.5]

# %%
# The wrong version
# -----------------
#
# This version computes the logarithm, and its gradient, without a call of ``nearest_rotation`` before it. The gradient
# is right for every step from one rotation to another. But ``gradcheck`` changes one entry at a time, and the changed
# matrix is not a rotation. So ``gradcheck`` rejects it:

rotation = rotation_exp(truth).requires_grad_()
try:
    gradcheck(RotationLogFunction.apply, (rotation,))
except RuntimeError as problem:
    print("gradcheck:", str(problem).splitlines()[0])
else:
    raise AssertionError("gradcheck did not notice")

# %%
# Whether this gradient is wrong depends on what the function is for. Test a function of *rotations* only with
# rotations. For this, give the audit a ``domain``, which maps any numbers to valid arguments:

checks = ["first_order", "second_order"]
within = audit(RotationLogFunction.apply, (rotation,), domain=lambda m: (nearest_rotation(m),), only=checks)
print("audit within rotations:", "ok" if within.ok else within)
assert within.ok

# %%
# A function of *matrices* needs the projection, which defines the result for matrices that are not rotations.
# ``rotation_log`` includes the projection:

print("gradcheck of rotation_log:", gradcheck(rotation_log, (rotation,)))

# %%
# What it costs
# -------------
#
# .. costs::
#
# All recipes compute in float64, even for tensors of lower precision, because errors multiply along a chain of joints,
# and float64 costs little for matrices of this size. ``rotation_exp`` and ``nearest_rotation`` keep only their
# argument, and ``rotation_log`` also keeps the nearest rotation. ``nearest_rotation`` computes one decomposition in
# forward and another in backward.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/03_stability/eigenvalues`: other decompositions whose gradients divide by differences.
# * :doc:`/cookbook/05_higher_order/implicit`: derivatives of functions that are defined by an equation.
# * :doc:`/guide/audit`: what ``domain`` does.
# * Libraries: `PyPose <https://pypose.org>`__ and `roma <https://github.com/naver/roma>`__ have more groups and
#   parametrizations.
