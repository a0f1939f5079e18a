"""Sets that a sample visibly belongs to: recognized there and only there, and a way in that leaves members alone."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from autograd_cookbook.auditing import audit
from autograd_cookbook.auditing.domains import may_be_symmetric, recognized


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def turned(orthonormal: Tensor) -> Tensor:
    first = orthonormal[..., :1] * torch.linalg.det(orthonormal).sign()[..., None, None]
    return torch.cat([first, orthonormal[..., 1:]], -1)


MEMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "positive definite": lambda x: x @ x.mT + torch.eye(4, dtype=x.dtype),
    "symmetric": lambda x: x + x.mT,
    "a rotation": lambda x: turned(torch.linalg.qr(x)[0]),
    "orthonormal": lambda x: torch.linalg.qr(x)[0][..., :3],
    "a probability distribution": lambda x: x.softmax(-1),
    "of unit length": lambda x: torch.nn.functional.normalize(x, dim=-1),
    "sorted": lambda x: x.sort(-1).values,
    "padded with zeros": lambda x: x * (torch.arange(4) < 1),
}


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_member_is_recognized_and_stays_where_it_is(name: str, dtype: torch.dtype) -> None:
    member = MEMBERS[name](normal(2, 4, 4).to(dtype))
    domain = recognized(member, leaf=True)
    assert domain is not None
    assert domain.name == name
    torch.testing.assert_close(domain.project(member), member)


@pytest.mark.parametrize("name", MEMBERS)
def test_the_way_in_leads_in_and_has_a_gradient(name: str) -> None:
    member = MEMBERS[name](normal(2, 4, 4))
    domain = recognized(member, leaf=True)
    assert domain is not None
    outside = (member + 0.01 * normal(*member.shape)).requires_grad_()
    assert domain.holds(domain.project(outside).detach())
    assert torch.autograd.gradcheck(domain.project, (outside,))


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (1, 1), (2, 1), (3,), ()])
def test_numbers_of_any_kind_are_not_recognized(shape: tuple[int, ...]) -> None:
    assert recognized(normal(*shape), leaf=True) is None
    assert recognized(torch.zeros(shape), leaf=True) is None
    assert recognized(torch.complex(normal(*shape), normal(*shape)), leaf=True) is None


def test_a_domain_is_what_derivatives_are_compared_along() -> None:
    class LowerTriangle(torch.autograd.Function):
        @staticmethod
        def forward(ctx, matrix):
            return matrix.tril().sum() + matrix.tril(-1).sum()

        @staticmethod
        def backward(ctx, g):
            return g.expand(3, 3)

    matrix = normal(3, 3).requires_grad_()
    assert not audit(LowerTriangle.apply, (matrix,), only=["first_order"]).ok
    assert audit(LowerTriangle.apply, (matrix,), only=["first_order"], domain=lambda m: ((m + m.mT) / 2,)).ok


def test_the_report_says_what_was_recognized() -> None:
    report = audit(torch.logdet, (MEMBERS["positive definite"](normal(4, 4)).requires_grad_(),), only=["first_order"])
    assert any("input 0 is positive definite" in note for note in report.notes)


def test_a_domain_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="domain must be callable"):
        audit(torch.sin, (normal(3).requires_grad_(),), domain=1)  # type: ignore[arg-type]


def test_a_set_is_recognized_unless_the_domain_is_anywhere() -> None:
    x = normal(3, 3)
    sample = (x + x.mT).requires_grad_()
    assert any("symmetric" in note for note in audit(torch.sin, (sample,), only=["runs"]).notes)
    assert not audit(torch.sin, (sample,), only=["runs"], domain="any").notes


def test_a_domain_that_is_a_word_is_any() -> None:
    with pytest.raises(ValueError, match="domain must be a callable or 'any', got 'all'"):
        audit(torch.sin, (normal(2).requires_grad_(),), domain="all")  # type: ignore[arg-type]


def test_a_mirror_is_orthonormal_and_no_rotation() -> None:
    rotation = turned(torch.linalg.qr(normal(3, 3))[0])
    domain = recognized(rotation, leaf=True)
    assert domain is not None
    assert domain.name == "a rotation"
    with pytest.raises(ValueError, match="mirrors"):
        domain.project(-rotation)
    mirror = recognized(-rotation, leaf=True)
    assert mirror is not None
    assert mirror.name == "orthonormal"
    torch.testing.assert_close(mirror.project(-rotation), -rotation)


def test_of_no_matrices_none_is_symmetric() -> None:
    assert may_be_symmetric(torch.zeros(2, 3, 3))
    assert not may_be_symmetric(torch.zeros(0, 3, 3))
