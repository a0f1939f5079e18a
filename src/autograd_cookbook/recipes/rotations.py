"""Rotations in three dimensions: exponential, logarithm and projection, with right derivatives at every angle."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context

TERMS = 14  # the number of terms of the series, which is used for angles up to 3


class StumpffFunction(Function):
    """The functions c_k(s) = 1/k! - s/(k+2)! + s²/(k+4)! - .... Their derivatives are functions of the same kind."""

    generate_vmap_rule = True

    @staticmethod
    def forward(s: Tensor, k: int) -> Tensor:
        if k < 3:
            return closed(s.clamp(min=torch.finfo(s.dtype).tiny).sqrt_(), k)
        near = s.clamp(max=9).neg_()
        series = torch.full_like(s, 1 / math.factorial(k + 2 * TERMS))
        for term in reversed(range(TERMS)):
            series.mul_(near).add_(1 / math.factorial(k + 2 * term))
        return torch.where(s < 9, series, closed(s.clamp(min=9).sqrt_(), k))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, int], output: Tensor) -> None:
        s, ctx.k = inputs
        ctx.save_for_backward(s)
        ctx.save_for_forward(s)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (s,) = ctx.saved_tensors
        return grad_output * (ctx.k * stumpff(s, ctx.k + 2) - stumpff(s, ctx.k + 1)) / 2, None

    @staticmethod
    def jvp(ctx: Context, tangent: Tensor, _: None) -> Tensor:
        (s,) = ctx.saved_tensors
        return tangent * (ctx.k * stumpff(s, ctx.k + 2) - stumpff(s, ctx.k + 1)) / 2


def closed(angle: Tensor, k: int) -> Tensor:
    """Return c_k of the square of an angle. The angle must not be 0 up to c_2, and must be large from c_3 on."""
    if k == 0:
        return angle.cos()
    if k == 1:
        return angle.sin().div_(angle)
    if k == 2:  # not by the recursion, whose difference cancels near whole turns
        return (angle / 2).sin_().div_(angle).pow_(2).mul_(2)
    return (1 / math.factorial(k - 2) - closed(angle, k - 2)).div_(angle).div_(angle)


def stumpff(s: Tensor, k: int) -> Tensor:
    """Return c_k(s): cos √s, sin √s / √s, (1 - cos √s) / s and so on, without a division by zero."""
    return StumpffFunction.apply(s, k)


def cross_matrix(vector: Tensor) -> Tensor:
    """Return the antisymmetric matrix whose product with another vector is the cross product of both vectors."""
    x, y, z = vector.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(*x.shape, 3, 3)


def axial(matrix: Tensor) -> Tensor:
    """Return the vector of the antisymmetric matrix M - Mᵀ. This map is the adjoint of ``cross_matrix``."""
    difference = matrix - matrix.mT
    return torch.stack([difference[..., 2, 1], difference[..., 0, 2], difference[..., 1, 0]], -1)


def _along(vector: Tensor, v: Tensor, once: float | Tensor, twice: Tensor) -> Tensor:
    """Return v + once · ω × v + twice · ω × (ω × v). Exponential and logarithm have Jacobians of this form."""
    turned = torch.linalg.cross(vector, v)
    return v + once * turned + twice * torch.linalg.cross(vector, turned)


class RotationExpFunction(Function):
    """Keeps the vector. Backward reduces the gradient to three numbers, and needs no matrix function."""

    generate_vmap_rule = True

    @staticmethod
    def forward(vector: Tensor) -> Tensor:
        w = vector.double()
        s = w.square().sum(-1, keepdim=True)
        # K² = ω ωᵀ - θ² I, because products of small matrices take long; and 1 - c_2 θ² is the cosine, c_0.
        rotation = (stumpff(s, 2) * w).unsqueeze(-1) * w.unsqueeze(-2)
        rotation.add_(cross_matrix(stumpff(s, 1) * w)).diagonal(dim1=-2, dim2=-1).add_(stumpff(s, 0))
        return rotation.to(vector.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (vector,) = ctx.saved_tensors
        w = vector.double()
        s = w.square().sum(-1, keepdim=True)
        # The sum over the columns is axial(Ḡ Rᵀ).
        moment = torch.linalg.cross(RotationExpFunction.apply(w), grad_output.double(), dim=-2).sum(-1)
        return _along(w, moment, -stumpff(s, 2), stumpff(s, 3)).to(vector.dtype)

    @staticmethod
    def jvp(ctx: Context, tangent: Tensor) -> Tensor:
        (vector,) = ctx.saved_tensors
        w = vector.double()
        s = w.square().sum(-1, keepdim=True)
        velocity = _along(w, tangent.double(), stumpff(s, 2), stumpff(s, 3))
        return (cross_matrix(velocity) @ RotationExpFunction.apply(w)).to(vector.dtype)


def rotation_exp(vector: Tensor) -> Tensor:
    r"""Rotation matrix of a rotation vector (axis times angle). All derivatives are finite at every angle.

    .. math::
        R = I + c_1 K + c_2 K^2, \quad K = [\omega]_\times, \quad
        c_1 = \frac{\sin \theta}{\theta}, \quad c_2 = \frac{1 - \cos \theta}{\theta^2}, \quad \theta = |\omega|

        \bar{\omega} = m - c_2\, \omega \times m + c_3\, \omega \times (\omega \times m), \qquad
        m = \operatorname{axial}(\bar{R} R^\top), \quad c_3 = \frac{\theta - \sin \theta}{\theta^3}

    Here :math:`[\omega]_\times` is the matrix of the cross product with :math:`\omega`, and
    :math:`\operatorname{axial}(M)` is the vector :math:`v` with :math:`[v]_\times = M - M^\top`.

    Args:
        vector: ``(..., 3)``, floating. The function computes in float64 for every dtype.

    Returns:
        ``(..., 3, 3)``, in the dtype of ``vector``.

    Raises:
        ValueError: if the last dim does not have 3 elements.
        TypeError: if ``vector`` is not floating.

    Source: J. Solà, J. Deray and D. Atchuthan, A micro Lie theory for state estimation in robotics, arXiv:1812.01537.

    >>> rotation_exp(torch.tensor([0.0, 0.0, torch.pi / 2])).round(decimals=3).abs()
    tensor([[0., 1., 0.],
            [1., 0., 0.],
            [0., 0., 1.]])
    """
    if not vector.is_floating_point():
        raise TypeError(f"expected a floating tensor, got {vector.dtype}")
    if vector.shape[-1:] != (3,):
        raise ValueError(f"expected rotation vectors (..., 3), got {tuple(vector.shape)}")
    return RotationExpFunction.apply(vector)


class NearestRotationFunction(Function):
    """Keeps the matrix. A rotation can change in three directions, so backward solves a system of three equations."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> Tensor:
        m = matrix.double()
        u, sizes, vh = torch.linalg.svd(m)
        turn = torch.linalg.det(u @ vh)[..., None, None].sign()
        last = torch.tensor([0.0, 0.0, 1.0], dtype=m.dtype, device=m.device)
        nearest = (u * (1 - last + turn * last)) @ vh
        largest, middle, smallest = sizes[..., None, None].unbind(-3)
        nearest = torch.where(middle + turn * smallest > 1e-12 * largest, nearest, torch.nan)  # NaN if it is not unique
        # If the matrix is a rotation up to rounding, only Newton's iteration keeps the digits of small angles.
        eye = torch.eye(3, dtype=m.dtype, device=m.device)
        close = ((m.mT @ m - eye).abs().amax((-2, -1), keepdim=True) < 1e-2) & (turn > 0)
        for _ in range(4):
            m = m @ (3 * eye - m.mT @ m) / 2
        return torch.where(close, m, nearest).to(matrix.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def _derivative(matrix: Tensor, change: Tensor) -> Tensor:
        """Return Q [T⁻¹ axial(Qᵀ change)]ₓ with T = tr(P) I - P. The map is symmetric, so backward and jvp share it."""
        m = matrix.double()  # in a lower dtype, two gradients could overflow although their sum does not
        rotation = NearestRotationFunction.apply(m)
        stretch = rotation.mT @ m
        stretch = (stretch + stretch.mT) / 2
        trace = stretch.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        system = trace * torch.eye(3, dtype=stretch.dtype, device=stretch.device) - stretch
        moment = axial(rotation.mT @ change.double()).unsqueeze(-1)
        return (rotation @ cross_matrix(torch.linalg.solve_ex(system, moment)[0].squeeze(-1))).to(matrix.dtype)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (matrix,) = ctx.saved_tensors
        return NearestRotationFunction._derivative(matrix, grad_output)

    @staticmethod
    def jvp(ctx: Context, tangent: Tensor) -> Tensor:
        (matrix,) = ctx.saved_tensors
        return NearestRotationFunction._derivative(matrix, tangent)


def nearest_rotation(matrix: Tensor) -> Tensor:
    r"""The rotation closest to a matrix. Its gradient is finite where the gradient of ``torch.linalg.svd`` is NaN.

    .. math::
        M = Q P, \quad P = P^\top, \quad \det Q = 1, \qquad
        \bar{M} = Q\, [\,(\operatorname{tr}(P)\, I - P)^{-1} \operatorname{axial}(Q^\top \bar{Q})\,]_\times

    For the symbols, see :func:`rotation_exp`. A rotation has three equal singular values, and the gradient of the
    singular value decomposition divides by their differences. This formula divides by their sums, which are zero only
    if several rotations are equally close. Then the result is NaN, as for a matrix of zeros.

    Args:
        matrix: ``(..., 3, 3)``, floating, finite. The function computes in float64 for every dtype.

    Returns:
        A tensor like ``matrix``.

    Raises:
        ValueError: if the last dims are not 3 by 3.
        TypeError: if ``matrix`` is not floating.

    Source: J. Levinson et al., An analysis of SVD for deep rotation estimation, arXiv:2006.14616.

    >>> matrix = torch.eye(3, requires_grad=True)
    >>> nearest_rotation(matrix)[1, 0].backward()
    >>> matrix.grad
    tensor([[ 0.0000, -0.5000,  0.0000],
            [ 0.5000,  0.0000,  0.0000],
            [ 0.0000,  0.0000,  0.0000]])
    """
    if not matrix.is_floating_point():
        raise TypeError(f"expected a floating tensor, got {matrix.dtype}")
    if matrix.shape[-2:] != (3, 3):
        raise ValueError(f"expected matrices (..., 3, 3), got {tuple(matrix.shape)}")
    return NearestRotationFunction.apply(matrix)


class RotationLogFunction(Function):
    """The logarithm of rotations. For changes that do not lead to another rotation, the slope is 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rotation: Tensor) -> Tensor:
        r = rotation.double()
        a, b, c = r.diagonal(dim1=-2, dim2=-1).unbind(-1)
        x, y, z = axial(r).unbind(-1)
        xy, xz, yz = r[..., 0, 1] + r[..., 1, 0], r[..., 0, 2] + r[..., 2, 0], r[..., 1, 2] + r[..., 2, 1]
        # Each row is a multiple of the quaternion. The row with the largest diagonal element has all digits.
        rows = torch.stack([1 + a + b + c, x, y, z, x, 1 + a - b - c, xy, xz, y, xy, 1 - a + b - c, yz,
                            z, xz, yz, 1 - a - b + c], -1).reshape(*a.shape, 4, 4)  # fmt: skip
        largest = rows.diagonal(dim1=-2, dim2=-1).argmax(-1)[..., None, None]
        quaternion = rows.take_along_dim(largest, -2).squeeze(-2)
        quaternion = quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)
        quaternion = torch.where(quaternion[..., :1] < 0, -quaternion, quaternion)
        real, vector = quaternion[..., :1], quaternion[..., 1:]
        sine = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
        angle = 2 * torch.atan2(sine, real)
        # For a smaller sine, the squares underflow. There, the sine equals half the angle to all digits.
        return torch.where(sine > 1e-100, angle * vector / sine.clamp(min=1e-100), 2 * vector).to(rotation.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def _twice(vector: Tensor) -> Tensor:
        """Return (1 - θ/2 cot θ/2) / θ², computed from functions of the half angle, so that no digits cancel."""
        quarter = vector.square().sum(-1, keepdim=True) / 4
        return (stumpff(quarter, 2) - stumpff(quarter, 3)) / (4 * stumpff(quarter, 1))

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (rotation,) = ctx.saved_tensors
        r = rotation.double()
        w = RotationLogFunction.apply(r)
        moment = _along(w, grad_output.double(), 0.5, RotationLogFunction._twice(w))
        return (cross_matrix(moment) @ r / 2).to(rotation.dtype)

    @staticmethod
    def jvp(ctx: Context, tangent: Tensor) -> Tensor:
        (rotation,) = ctx.saved_tensors
        r = rotation.double()
        w = RotationLogFunction.apply(r)
        return _along(w, axial(tangent.double() @ r.mT) / 2, -0.5, RotationLogFunction._twice(w)).to(rotation.dtype)


def rotation_log(matrix: Tensor) -> Tensor:
    r"""Rotation vector of the rotation closest to a matrix, accurate at all angles, also near 0 and half a turn.

    .. math::
        \omega = \theta\, n, \quad 0 \le \theta \le \pi, \qquad
        \bar{R} = \tfrac{1}{2} [\,\bar{\omega} + \tfrac{1}{2} \omega \times \bar{\omega}
        + d\, \omega \times (\omega \times \bar{\omega})\,]_\times R, \qquad
        d = \frac{1 - \frac{\theta}{2} \cot \frac{\theta}{2}}{\theta^2}

    Here :math:`R` is the closest rotation. The gradient of the matrix follows from :math:`\bar{R}` as in
    :func:`nearest_rotation`. At half a turn, the vector jumps to its negative. There, the gradient is that of the
    returned vector.

    Args:
        matrix: ``(..., 3, 3)``, floating, finite. It need not be a rotation.

    Returns:
        ``(..., 3)``, in the dtype of ``matrix``.

    Raises:
        ValueError: if the last dims are not 3 by 3.
        TypeError: if ``matrix`` is not floating.

    Source: S. W. Shepperd, Quaternion from rotation matrix, 1978, for the choice among four formulas.

    >>> rotation_log(rotation_exp(torch.tensor([0.1, -0.2, 0.3])))
    tensor([ 0.1000, -0.2000,  0.3000])
    """
    return RotationLogFunction.apply(nearest_rotation(matrix))
