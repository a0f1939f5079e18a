"""Where a function may be asked: sets that its arguments visibly belong to, and how to get back into them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

UNLIKELY = math.log(100)  # against an order that is there by chance
SEVERAL = 8  # numbers that are no zeros, in a sample that was drawn and padded, and not typed in
STEPS = 25  # of Newton's iteration, from far away


@dataclass(frozen=True)
class Domain:
    """A set of tensors: which belong to it, and a differentiable way into it that leaves those where they are."""

    name: str
    holds: Callable[[Tensor], bool]
    project: Callable[[Tensor], Tensor]


def _tolerance(tensor: Tensor) -> float:
    """How far a tensor may be off that was computed in many steps."""
    eps = torch.finfo(tensor.dtype).eps
    return min(1000 * eps, math.sqrt(eps))


def _square(tensor: Tensor) -> bool:
    return tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 1


def _symmetric(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or not _square(tensor) or bool((tensor == tensor.reshape(-1)[:1]).all()):
        return False
    diagonal = torch.equal(tensor, torch.diag_embed(tensor.diagonal(dim1=-2, dim2=-1)))
    # An entry that is small by cancellation has the error of the large ones.
    return not diagonal and torch.allclose(
        tensor, tensor.mT, rtol=0, atol=_tolerance(tensor) * float(tensor.abs().max())
    )


def _symmetrized(tensor: Tensor) -> Tensor:
    return (tensor + tensor.mT) / 2


def _positive_definite(tensor: Tensor) -> bool:
    return _symmetric(tensor) and float(torch.linalg.eigvalsh(tensor.double()).min()) > 0


def _kept_definite(tensor: Tensor) -> Tensor:
    symmetric = _symmetrized(tensor)
    if float(torch.linalg.eigvalsh(symmetric.detach()).min()) <= 0:
        raise ValueError("the matrix is not positive definite any more")
    return symmetric


def _orthonormal(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.dim() < 2 or not 1 < tensor.shape[-1] <= tensor.shape[-2]:
        return False
    identity = torch.eye(tensor.shape[-1], dtype=tensor.dtype, device=tensor.device)
    gram = tensor.mT @ tensor
    return torch.allclose(gram, identity.expand_as(gram), atol=_tolerance(tensor)) and not bool(
        ((tensor == 0) | (tensor == 1)).all()
    )


def _orthonormalized(tensor: Tensor) -> Tensor:
    """The nearest orthonormal columns, by an iteration that is smooth where a singular value decomposition is not."""
    columns = tensor.shape[-1]
    result = tensor * (columns**0.5 / torch.linalg.matrix_norm(tensor, keepdim=True))
    for _ in range(STEPS):
        gram = result.mT @ result
        result = 1.5 * result - 0.5 * result @ gram
    gram = (result.mT @ result).detach()
    if not torch.allclose(gram, torch.eye(columns).to(gram).expand_as(gram), atol=1e-6):
        raise ValueError("the columns are too much alike to be made orthonormal")
    return result


def _proper(tensor: Tensor) -> bool:
    return _square(tensor) and _orthonormal(tensor) and bool((torch.linalg.det(tensor.double()) > 0).all())


def _kept_proper(tensor: Tensor) -> Tensor:
    if bool((torch.linalg.det(tensor.detach().double()) <= 0).any()):
        raise ValueError("the matrix mirrors: it is not a rotation any more")
    return _orthonormalized(tensor)


def _normed(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.dim() or tensor.shape[-1] < 2 or tensor.numel() < 3:
        return False
    norms = torch.linalg.vector_norm(tensor, dim=-1)
    return torch.allclose(norms, torch.ones_like(norms), rtol=_tolerance(tensor), atol=0) and not _one_hot(tensor)


def _normalized(tensor: Tensor) -> Tensor:
    return tensor / torch.linalg.vector_norm(tensor, dim=-1, keepdim=True)


def _probability(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.dim() or tensor.shape[-1] < 2 or bool((tensor < 0).any()):
        return False
    sums = tensor.sum(-1)
    return torch.allclose(sums, torch.ones_like(sums), rtol=_tolerance(tensor), atol=0) and not _one_hot(tensor)


def _distributed(tensor: Tensor) -> Tensor:
    return tensor.abs() / tensor.abs().sum(-1, keepdim=True)


def _one_hot(tensor: Tensor) -> bool:
    if not tensor.dim() or tensor.shape[-1] < 2 or tensor.is_complex() or tensor.dtype is torch.bool:
        return False
    return bool(((tensor == 0) | (tensor == 1)).all() & (tensor.sum(-1) == 1).all())


def _chosen(tensor: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(tensor.argmax(-1), tensor.shape[-1]).to(tensor)


def _sorted(tensor: Tensor) -> bool:
    if not tensor.dim() or tensor.is_complex() or tensor.dtype is torch.bool or tensor.shape[-1] < 2:
        return False
    rows = tensor.numel() // tensor.shape[-1]
    unlikely = rows * math.lgamma(tensor.shape[-1] + 1)
    steps = tensor.diff(dim=-1)
    strictly = bool((steps > 0).any()) if not tensor.is_floating_point() else bool((steps > 0).all())
    return tensor.numel() > 0 and unlikely > UNLIKELY and strictly and bool((steps >= 0).all())


def _in_order(tensor: Tensor) -> Tensor:
    return tensor.sort(-1).values


def _padded(tensor: Tensor) -> Domain | None:
    """The tensors that end in as many zeros along a dim, where that is a good part of it, and no other number is zero.

    Of another size, the same part is zero.
    """
    if not tensor.is_floating_point() or len(tensor[tensor != 0].unique()) < SEVERAL:
        return None
    for dim in range(-1, -tensor.dim() - 1, -1):
        size = tensor.shape[dim]
        entries = (tensor != 0).movedim(dim, 0).reshape(size, -1)
        first = int(entries.any(1).sum())  # numbers, and only zeros behind them
        if size - first >= max(3, size / 4) and first and bool(entries[:first].all()):
            share = first / size

            def project(tensor: Tensor, dim: int = dim, share: float = share) -> Tensor:
                size = tensor.shape[dim]
                kept = torch.arange(size, device=tensor.device) < math.ceil(share * size)
                return tensor * kept.to(tensor.dtype).reshape([size] + [1] * (-dim - 1))

            return Domain("padded with zeros", lambda t: torch.equal(project(t), t), project)
    return None


SYMMETRIC = Domain("symmetric", _symmetric, _symmetrized)
DOMAINS = (
    Domain("positive definite", _positive_definite, _kept_definite),
    SYMMETRIC,
    Domain("a rotation", _proper, _kept_proper),
    Domain("orthonormal", _orthonormal, _orthonormalized),
    Domain("a probability distribution", _probability, _distributed),
    Domain("of unit length", _normed, _normalized),
    Domain("sorted", _sorted, _in_order),
)
FROZEN = (Domain("one-hot", _one_hot, _chosen), *DOMAINS)  # no way into it can be differentiated


@torch.no_grad()
def may_be_symmetric(tensor: Tensor) -> bool:
    """Whether a matrix is symmetric, but may be so by chance, as one of zeros or a diagonal one is."""
    if not tensor.numel() or not tensor.is_floating_point() or not _square(tensor) or not tensor.isfinite().all():
        return False
    return torch.equal(tensor, tensor.mT) and not _symmetric(tensor)


def mirrored(tensor: Tensor) -> Callable[[Tensor], Tensor] | None:
    """How a tensor of the sample is its own mirror image: as a matrix, or as one of blocks.

    Blocks are of shape (n, n, k, k) or (n, k, n, k). None if it is none, or is known as a symmetric matrix anyway.
    """
    if may_be_symmetric(tensor):
        return lambda other: other.mT
    if tensor.dim() < 4 or not tensor.is_floating_point() or not tensor.isfinite().all():
        return None
    for pairs in (((-4, -3), (-2, -1)), ((-4, -2), (-3, -1))):

        def mirror(other: Tensor, pairs: tuple[tuple[int, int], ...] = pairs) -> Tensor:
            for pair in pairs:
                other = other.transpose(*pair)
            return other

        other = mirror(tensor)
        if other.shape == tensor.shape and torch.allclose(other, tensor, rtol=1e-10, atol=1e-12):
            return mirror
    return None


@torch.no_grad()
def recognized(tensor: Tensor, leaf: bool) -> Domain | None:
    """The set that a tensor of the sample visibly belongs to; None for numbers of any kind."""
    if not tensor.numel() or not tensor.isfinite().all():
        return None
    known = next((d for d in (DOMAINS if leaf else FROZEN) if d.holds(tensor)), None)
    return known or (_padded(tensor) if leaf and tensor.dim() else None)
