"""Gradients of small rotations and motions, as libraries for Lie groups return them, and what is merely wrong."""

import functools
import math

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.auditing import Report, audit


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def product(a: Tensor, b: Tensor) -> Tensor:
    """Quaternions, the real part last."""
    u, v = a[..., :3], b[..., :3]
    vector = a[..., 3:] * v + b[..., 3:] * u + torch.linalg.cross(u, v)
    return torch.cat([vector, a[..., 3:] * b[..., 3:] - (u * v).sum(-1, keepdim=True)], -1)


def rotated(q: Tensor, p: Tensor) -> Tensor:
    pure = torch.cat([p, torch.zeros_like(p[..., :1])], -1)
    return product(product(q, pure), conjugate(q))[..., :3]


def conjugate(q: Tensor) -> Tensor:
    return torch.cat([-q[..., :3], q[..., 3:]], -1)


def padded(tangent: Tensor) -> Tensor:
    return torch.cat([tangent, torch.zeros_like(tangent[..., :1])], -1)


class Rotate(Function):
    """Turns points; the gradient is that of a small rotation from the left, or else from the right."""

    side, factor, last = "left", 1.0, 0.0

    @staticmethod
    def forward(ctx, q, p):
        ctx.save_for_backward(q, p)
        return rotated(q, p)

    @staticmethod
    def backward(ctx, grad_output):
        q, p = ctx.saved_tensors
        inside = rotated(conjugate(q), grad_output)
        moved = (rotated(q, p), grad_output) if Rotate.side == "left" else (p, inside)
        grad = Rotate.factor * torch.linalg.cross(*moved)
        return padded(grad) + Rotate.last, inside


class Multiply(Function):
    """The product of two rotations, with gradients of small rotations everywhere, from the left."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a)
        return product(a, b)

    @staticmethod
    def backward(ctx, grad_output):
        (a,) = ctx.saved_tensors
        grad = grad_output[..., :3]
        return padded(grad), padded(rotated(conjugate(a), grad))


class Move(Function):
    """Turns and shifts points: seven numbers, and six directions of a motion from the left."""

    @staticmethod
    def forward(ctx, pose, p):
        moved = rotated(pose[..., 3:], p) + pose[..., :3]
        ctx.save_for_backward(pose, moved)
        return moved

    @staticmethod
    def backward(ctx, grad_output):
        pose, moved = ctx.saved_tensors
        grad = torch.cat([grad_output, torch.linalg.cross(moved, grad_output)], -1)
        return padded(grad), rotated(conjugate(pose[..., 3:]), grad_output)


class ForgetsTheLast(Function):
    """The derivative with respect to the numbers, of which the last is forgotten."""

    @staticmethod
    def forward(ctx, q, p):
        ctx.save_for_backward(q, p)
        return rotated(q, p)

    @staticmethod
    def backward(ctx, grad_output):
        q, p = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            grad, other = torch.autograd.grad(rotated(q, p), (q, p), grad_output)
        return padded(grad[..., :3]), other


def rotation() -> Tensor:
    return torch.nn.functional.normalize(numbers(2, 4), dim=-1).requires_grad_()


def pose() -> Tensor:
    return torch.cat([numbers(2, 3), rotation().detach()], -1).requires_grad_()


def points() -> Tensor:
    return numbers(2, 3).requires_grad_()


first_order = functools.partial(audit, only=["first_order", "linear_in_grad_output", "second_order"])


def declared(report: Report) -> str:
    (found,) = (f for f in report.findings if f.check == "first_order")
    assert report.ok, str(report)
    assert found.summary.startswith("looks like a gradient in a tangent space: declare it. Backward returns")
    assert 'gradient="custom"' in found.fix
    return f"{found.summary} {found.cause}"


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_gradient_of_a_small_rotation_is_recognized_with_its_side(side, monkeypatch):
    monkeypatch.setattr(Rotate, "side", side)
    told = declared(first_order(Rotate.apply, (rotation(), points())))
    assert f"a small rotation of input 0 from the {side}" in told
    assert "zero as the last component of the gradient of input 0" in told


def test_outputs_that_are_rotations_have_gradients_of_small_rotations_too():
    told = declared(first_order(Multiply.apply, (rotation(), rotation())))
    assert "a small rotation of input 0, input 1 and output 0 from the left" in told
    assert "does not use the last component of grad_output for output 0" in told


def test_a_gradient_of_a_small_motion_is_recognized():
    assert "a small motion of input 0 from the left" in declared(first_order(Move.apply, (pose(), points())))


def test_a_gradient_in_a_tangent_space_that_is_wrong_is_wrong(monkeypatch):
    sample = rotation(), points()
    assert {f.check for f in first_order(ForgetsTheLast.apply, sample).of("error")} >= {"first_order"}
    monkeypatch.setattr(Rotate, "factor", 2.0)
    assert {f.check for f in first_order(Rotate.apply, sample).of("error")} >= {"first_order"}
    monkeypatch.setattr(Rotate, "factor", 1.0)
    monkeypatch.setattr(Rotate, "last", 0.1)
    assert {f.check for f in first_order(Rotate.apply, sample).of("error")} >= {"first_order"}


class NotANumber(Rotate):
    """One entry of the gradient is no number; the others are those of a small rotation."""

    @staticmethod
    def backward(ctx, grad_output):
        grads = Rotate.backward(ctx, grad_output)
        grads[1].view(-1)[0] = math.nan
        return grads


def test_a_gradient_that_is_no_number_is_no_tangent():
    found = first_order(NotANumber.apply, (rotation(), points())).findings
    assert any(f.severity == "error" for f in found), found
    assert not any("tangent space" in f.summary for f in found), found


def test_an_empty_input_leaves_a_tangent_what_it_is():
    nothing = torch.empty(0, dtype=torch.float64, requires_grad=True)
    report = first_order(lambda q, p, n: Rotate.apply(q, p) + n.sum(), (rotation(), points(), nothing))
    assert "a small rotation of input 0 from the left" in declared(report)


def test_the_gradient_with_respect_to_the_numbers_needs_no_declaration():
    report = first_order(lambda q, p: rotated(q, p), (rotation(), points()))
    assert report.ok
    assert not [f for f in report.findings if f.check == "first_order"]


class Turn(Function):
    """The rotation by a vector, whose gradient has a part of the series for small rotations from the left."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        half = torch.linalg.vector_norm(x, dim=-1, keepdim=True) / 2
        return torch.cat([half.sin() / (2 * half) * x, half.cos()], -1)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        tangent = grad_output[..., :3]
        once = torch.linalg.cross(tangent, x)
        return tangent + once / 2 + torch.linalg.cross(once, x) / 6


@pytest.mark.parametrize(("size", "severity"), [(1e-3, "info"), (0.4, "warning")])
def test_a_series_that_is_cut_short_is_a_tangent_that_is_not_exact(size: float, severity: str) -> None:
    (found,) = audit(Turn.apply, ((size * numbers(2, 3)).requires_grad_(),), only=["first_order"]).findings
    assert found.severity == severity, str(found)
    assert found.summary.startswith("looks like a gradient in a tangent space")
    assert ("a series that is cut short" in found.cause) == (severity == "warning")
