"""The recipes of the page ``rotations``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import randn
from autograd_cookbook.recipes import rotations


def _vectors() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3),))
    yield Sample("one", (randn(3),))
    yield Sample("two batch dims", (randn(2, 2, 3),))
    yield Sample("more than half a turn", ((3 * randn(3, 3).detach()).requires_grad_(),))
    yield Sample("small", ((1e-3 * randn(2, 3).detach()).requires_grad_(),))
    yield Sample("empty", (randn(0, 3),))


def _matrix_exp(vector: Tensor) -> Tensor:
    """Compute the rotation by torch's matrix exponential in float64, like the recipe."""
    return torch.linalg.matrix_exp(rotations.cross_matrix(vector.double())).to(vector.dtype)


def _rodrigues(vector: Tensor) -> Tensor:
    """Compute the rotation by the textbook formula, which divides by the angle."""
    angle = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    k = rotations.cross_matrix(vector / angle)
    angle = angle.unsqueeze(-1)
    return torch.eye(3, dtype=vector.dtype) + angle.sin() * k + (1 - angle.cos()) * (k @ k)


ROTATION_EXP = Recipe(
    name="rotation_exp",
    function=rotations.rotation_exp,
    exports=("rotation_exp", "cross_matrix"),
    samples=_vectors,
    reference=_matrix_exp,
    promises=("first_order", "second_order", "forward_mode", "vmap"),
    cost=Cost(
        lambda: (torch.randn(350_000, 3).requires_grad_(),),
        saved=0,
        minimum=0,
        composition=_rodrigues,
        built_in=lambda vector: torch.linalg.matrix_exp(rotations.cross_matrix(vector)),
        wins=("bytes", "range"),
    ),
)


def _matrices() -> Iterator[Sample]:
    """Matrices near rotations. Exact rotations are left out, because there the gradient of the reference is NaN."""
    yield Sample("batch", (_near(4),))
    yield Sample("one", (_near(),))
    yield Sample("two batch dims", (_near(2, 2),))
    yield Sample("empty", (_near(0),))


def _near(*batch: int) -> Tensor:
    exact = torch.linalg.matrix_exp(rotations.cross_matrix(torch.randn(*batch, 3, dtype=torch.float64)))
    return (exact + 0.2 * torch.randn(*batch, 3, 3, dtype=torch.float64)).requires_grad_()


def _by_decomposition(matrix: Tensor) -> Tensor:
    """The nearest rotation by torch's singular value decomposition and autograd. NaN if several are equally near."""
    u, sizes, vh = torch.linalg.svd(matrix.double())
    sign = torch.linalg.det(u @ vh).sign()
    ones = torch.ones_like(sign)
    largest, middle, smallest = sizes.detach().unbind(-1)
    one = torch.where(middle + sign * smallest > 1e-12 * largest, 1.0, torch.nan)[..., None, None]
    return (one * (u * torch.stack([ones, ones, sign], -1).unsqueeze(-2)) @ vh).to(matrix.dtype)


NEAREST_ROTATION = Recipe(
    name="nearest_rotation",
    function=rotations.nearest_rotation,
    exports=("nearest_rotation",),
    samples=_matrices,
    reference=_by_decomposition,
    promises=("first_order", "second_order", "forward_mode", "vmap"),
    cost=Cost(
        lambda: ((torch.eye(3) + 0.1 * torch.randn(120_000, 3, 3)).requires_grad_(),),
        saved=0,
        minimum=0,
        composition=_by_decomposition,
        wins=("bytes", "peak", "range"),
    ),
)


def _by_angle(matrix: Tensor) -> Tensor:
    """Compute the axis from the antisymmetric part, and the angle from this part and the trace. NaN at angle 0."""
    rotation = _by_decomposition(matrix.double())
    axis = rotations.axial(rotation)
    size = torch.linalg.vector_norm(axis, dim=-1, keepdim=True)
    angle = torch.atan2(size, rotation.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) - 1)
    return (angle * axis / size).to(matrix.dtype)


ROTATION_LOG = Recipe(
    name="rotation_log",
    function=rotations.rotation_log,
    exports=("rotation_log",),
    samples=_matrices,
    reference=_by_angle,
    promises=("first_order", "second_order", "forward_mode", "vmap"),
    cost=Cost(
        lambda: ((torch.eye(3) + 0.1 * torch.randn(120_000, 3, 3)).requires_grad_(),),
        saved=4,
        minimum=0,
        composition=_by_angle,
        wins=("bytes", "range"),
    ),
)
