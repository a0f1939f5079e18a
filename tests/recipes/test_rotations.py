"""Rotations: against mpmath at every angle, against differences, and at the points where formulas fail."""

import math
from functools import partial

import mpmath
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import audit
from autograd_cookbook.recipes.rotations import (
    RotationLogFunction,
    axial,
    cross_matrix,
    nearest_rotation,
    rotation_exp,
    rotation_log,
    stumpff,
)

AXIS = torch.tensor([0.48, -0.6, 0.64], dtype=torch.float64)
ANGLES = [0, 1e-300, 1e-30, 1e-12, 1e-6, 1e-3, 0.5, 1, 2.99, 3.01, math.pi - 1e-3, math.pi - 1e-7, math.pi, 4, 10]
each_angle = pytest.mark.parametrize("angle", ANGLES)
each_derivative = pytest.mark.parametrize(
    "check",
    [partial(gradcheck, check_forward_ad=True), partial(gradgradcheck, check_fwd_over_rev=True)],
    ids=["first", "second"],
)
up_to_half_a_turn = pytest.mark.parametrize("angle", [a for a in ANGLES if a <= math.pi])


def exact(vector: Tensor) -> Tensor:
    """Rodrigues' formula in fifty digits."""
    with mpmath.workdps(50):
        x, y, z = (mpmath.mpf(float(number)) for number in vector)
        size = mpmath.sqrt(x * x + y * y + z * z)
        k = mpmath.matrix([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        once, twice = (mpmath.sin(size) / size, (1 - mpmath.cos(size)) / size**2) if size else (1, 0)
        rotation = mpmath.eye(3) + once * k + twice * k * k
        return torch.tensor([[float(rotation[i, j]) for j in range(3)] for i in range(3)], dtype=torch.float64)


@pytest.mark.parametrize("k", range(7))
@pytest.mark.parametrize("s", [0.0, 1e-12, 0.5, 4.0, 8.999, 9.001, 30.0, 1e4])
def test_stumpff_functions_are_their_series(k: int, s: float) -> None:
    with mpmath.workdps(200):
        expected = float(mpmath.nsum(lambda j: (-mpmath.mpf(s)) ** int(j) / mpmath.factorial(2 * j + k), [0, 300]))
    found = stumpff(torch.tensor(s, dtype=torch.float64), k).item()
    assert found == pytest.approx(expected, rel=1e-13, abs=1e-14 if k < 3 else 1e-17), (k, s)


@each_angle
def test_exp_is_exact_to_float64(angle: float) -> None:
    vector = angle * AXIS
    torch.testing.assert_close(rotation_exp(vector), exact(vector), rtol=1e-15, atol=1e-15)


@each_angle
@each_derivative
def test_exp_has_first_and_second_derivatives_at_every_angle(angle: float, check) -> None:
    vector = (angle * AXIS).requires_grad_()
    assert check(rotation_exp, (vector,))


@up_to_half_a_turn
def test_log_finds_the_vector_to_all_digits(angle: float) -> None:
    vector = angle * AXIS
    found = rotation_log(rotation_exp(vector))
    if angle == math.pi:  # either end of the axis is right
        found = found * (found @ vector).sign()
    torch.testing.assert_close(found, vector, rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("angle", [0.01, 1.0, 3.0, 3.13])
def test_log_of_a_rounded_rotation_is_off_by_its_rounding(angle: float, dtype: torch.dtype) -> None:
    vector = angle * AXIS
    found = rotation_log(rotation_exp(vector).to(dtype))
    assert found.dtype == dtype
    assert (found.double() - vector).abs().max() < 4 * torch.finfo(dtype).eps * max(1.0, angle)


@pytest.mark.parametrize("angle", [0, 1e-12, 1e-3, 1.0, 3.0])
@each_derivative
@pytest.mark.parametrize("function", [rotation_log, nearest_rotation])
def test_derivatives_are_finite_and_right_at_rotations_and_beside_them(function, check, angle: float) -> None:
    rotation = exact(angle * AXIS)
    noise = 0.05 * torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for matrix in (rotation, rotation + noise):
        assert check(function, (matrix.requires_grad_(),), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "function", [rotation_exp, RotationLogFunction.apply, nearest_rotation], ids=["exp", "log", "nearest"]
)
def test_derivatives_are_rounded_once(function, dtype: torch.dtype) -> None:
    """They are those in float64 at the same point, in the dtype of the input."""
    point = torch.stack([2.5 * AXIS, 0.5 * AXIS]).to(dtype)
    point = point if function is rotation_exp else rotation_exp(point)
    chance = torch.Generator().manual_seed(0)
    tangent = torch.randn(point.shape, generator=chance).to(dtype)
    output, moved = torch.func.jvp(function, (point,), (tangent,))
    torch.testing.assert_close(
        moved, torch.func.jvp(function, (point.double(),), (tangent.double(),))[1].to(dtype), rtol=0, atol=0
    )
    grad_output = torch.randn(output.shape, generator=chance).to(dtype)
    (grad,) = torch.func.vjp(function, point)[1](grad_output)
    (exact_grad,) = torch.func.vjp(function, point.double())[1](grad_output.double())
    torch.testing.assert_close(grad, exact_grad.to(dtype), rtol=0, atol=0)


def test_log_near_half_a_turn_has_the_gradient_along_rotations() -> None:
    """Differences of entries cross to the other side there; differences along rotations do not."""
    vector = (math.pi - 1e-4) * AXIS
    rotation = exact(vector).requires_grad_()
    weights = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64)
    (grad,) = torch.autograd.grad(rotation_log(rotation) @ weights, rotation)
    for step in torch.eye(3, dtype=torch.float64):
        moved = [rotation_log(rotation_exp(h * step) @ rotation.detach()) @ weights for h in (1e-6, -1e-6)]
        along = (grad * (cross_matrix(step) @ rotation.detach())).sum()
        assert along.item() == pytest.approx((moved[0] - moved[1]).item() / 2e-6, rel=1e-7)


def test_the_tangent_gradient_alone_is_right_along_rotations_only() -> None:
    rotation = exact(AXIS).requires_grad_()
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(RotationLogFunction.apply, (rotation,))
    assert gradcheck(lambda m: RotationLogFunction.apply(nearest_rotation(m)), (rotation,))


def test_the_audit_accepts_it_with_a_domain() -> None:
    rotation = exact(AXIS).requires_grad_()
    options = {"only": ("first_order", "second_order")}
    report = audit(RotationLogFunction.apply, (rotation,), domain=lambda m: (nearest_rotation(m),), **options)
    assert report.ok, report
    report = audit(RotationLogFunction.apply, (rotation,), domain="any", only=("first_order",))
    assert not report.ok


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_the_nearest_rotation_is_one_and_none_is_nearer(scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = scale * torch.randn(50, 3, 3, dtype=torch.float64, generator=generator)
    found = nearest_rotation(matrix)
    torch.testing.assert_close(found @ found.mT, torch.eye(3, dtype=torch.float64).expand(50, 3, 3))
    torch.testing.assert_close(torch.linalg.det(found), torch.ones(50, dtype=torch.float64))
    for other in rotation_exp(0.3 * torch.randn(20, 3, dtype=torch.float64, generator=generator)):
        assert ((matrix * (found @ other)).sum((-2, -1)) <= (matrix * found).sum((-2, -1)) * (1 + 1e-12)).all()


def test_the_nearest_rotation_of_a_reflection_is_a_rotation() -> None:
    reflection = torch.diag(torch.tensor([1.0, 2.0, -0.5], dtype=torch.float64)).requires_grad_()
    assert torch.equal(nearest_rotation(reflection), torch.eye(3, dtype=torch.float64))
    assert gradcheck(nearest_rotation, (reflection,))


@pytest.mark.parametrize("matrix", [torch.zeros(3, 3), torch.ones(3, 3), -torch.eye(3)], ids=["0", "rank 1", "-I"])
def test_where_many_rotations_are_nearest_the_result_is_nan(matrix: Tensor) -> None:
    assert nearest_rotation(matrix).isnan().all()
    assert rotation_log(torch.stack([matrix, torch.eye(3)]))[1].tolist() == [0, 0, 0]  # and no other is harmed


def test_axial_is_the_adjoint_of_the_cross_matrix() -> None:
    generator = torch.Generator().manual_seed(2)
    vector, matrix = torch.randn(3, generator=generator), torch.randn(3, 3, generator=generator)
    torch.testing.assert_close((cross_matrix(vector) * matrix).sum(), vector @ axial(matrix))
    torch.testing.assert_close(cross_matrix(vector) @ matrix[0], torch.linalg.cross(vector, matrix[0]))


@pytest.mark.parametrize(
    ("function", "shape"), [(rotation_exp, (3, 4)), (nearest_rotation, (3,)), (rotation_log, (3, 2))]
)
def test_shapes_and_dtypes_are_checked(function, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"\(\.\.\., 3.*, got \({shape[0]},"):
        function(torch.ones(shape))
    with pytest.raises(TypeError, match=r"expected a floating tensor, got torch.int64"):
        function(torch.ones(shape).long())
