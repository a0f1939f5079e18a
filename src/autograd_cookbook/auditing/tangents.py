"""Gradients in the tangent space of a Lie group: those of a small rotation or motion, and not of the numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autograd_cookbook.auditing.numeric import Derivative
from autograd_cookbook.auditing.report import enumerated
from autograd_cookbook.auditing.subject import Subject, real, weights_of

# Elements of a group by how many numbers they have, the quaternion with its real part last: does the element have a
# translation in front of the quaternion, and a scale behind it?
GROUPS = {4: (False, False), 5: (False, True), 7: (True, False), 8: (True, True)}
NEAR = 0.05  # of the largest entry: what is further off is another gradient
SUMMARY = (
    "looks like a gradient in a tangent space: declare it. Backward returns the derivative with respect to a small "
    "{} {}, and not with respect to its numbers"
)
CAUSE = (
    "The numbers hold a unit quaternion. The gradient with respect to a rotation has one component less than the "
    "quaternion has: backward {}. Libraries for Lie groups do so on purpose."
)
FIX = (
    'If this is intended, declare gradient="custom", here or in pyproject.toml. Connect the function only to functions '
    "with the same convention: PyTorch's own operations expect the derivative with respect to the numbers."
)
INACCURATE = " (it is off by up to {:.1g} of its largest entry)"
SERIES = (
    " It is not exact: a series that is cut short, as for the Jacobian of an exponential, is off for large motions."
)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """The product of two quaternions."""
    u, v = a[..., :3], b[..., :3]
    vector = a[..., 3:] * v + b[..., 3:] * u + torch.linalg.cross(u, v)
    return torch.cat([vector, a[..., 3:] * b[..., 3:] - (u * v).sum(-1, keepdim=True)], -1)


def _quaternion(element: Tensor) -> Tensor:
    start = 3 if GROUPS[element.shape[-1]][0] else 0
    return element[..., start : start + 4]


def is_element(tensor: Tensor) -> bool:
    """Whether a tensor has the size of elements of a group, and a unit quaternion where they have it."""
    if not tensor.is_floating_point() or not tensor.dim() or tensor.shape[-1] not in GROUPS or not tensor.numel():
        return False
    norms = torch.linalg.vector_norm(_quaternion(tensor), dim=-1)
    return torch.allclose(norms, torch.ones_like(norms), rtol=1e-5, atol=0)


def directions(element: Tensor, left: bool) -> Tensor:
    """How the numbers of elements move if a small motion comes from the left or from the right.

    The result has one column for each direction: the translations, the rotations, and the growth.
    """
    moves, grows = GROUPS[element.shape[-1]]
    q = _quaternion(element)
    basis = torch.eye(3).to(element).expand(*element.shape[:-1], 3, 3).unbind(-2)
    nothing = torch.zeros_like(element[..., :3])
    scale = element[..., -1:] if grows else torch.ones_like(element[..., :1])
    none = [torch.zeros_like(scale)] if grows else []
    columns = []
    for e in basis if moves else ():
        pure, conjugate = torch.cat([e, torch.zeros_like(scale)], -1), torch.cat([-q[..., :3], q[..., 3:]], -1)
        rotated = scale * _product(_product(q, pure), conjugate)[..., :3]
        columns.append(torch.cat([e if left else rotated, torch.zeros_like(q), *none], -1))
    for e in basis:
        pure = torch.cat([e, torch.zeros_like(scale)], -1) / 2
        turned = _product(pure, q) if left else _product(q, pure)
        swung = torch.linalg.cross(e, element[..., :3]) if left else nothing
        columns.append(torch.cat([*([swung] if moves else []), turned, *none], -1))
    if grows:
        shifted = element[..., :3] if left else nothing
        columns.append(torch.cat([*([shifted] if moves else []), torch.zeros_like(q), scale], -1))
    return torch.stack(columns, -1)


@dataclass(frozen=True)
class Tangent:
    """Of which small motion a gradient is the derivative: its name, its side, and the tensors that it moves.

    ``off`` is how far it is from that, relative to its largest entry.
    """

    kind: str
    side: str
    named: list[str]
    off: float


def in_tangent_space(subject: Subject) -> Tangent | None:
    """The small motion that the gradient is the derivative of.

    None unless the gradients of all inputs are that, with the components of grad_output for the outputs that are
    elements of a group, too.
    """
    along, subject.along_domain = subject.along_domain, False
    try:
        return _found(subject)
    except (Exception, SystemExit):
        return None
    finally:
        subject.along_domain = along


def _found(subject: Subject) -> Tangent | None:
    outputs, grads = subject.vjp()
    chosen = [outputs[i] for i in subject.active]
    slots = subject.leaves
    if any(subject.base[s].is_complex() for s in slots):
        return None
    filled = {s: torch.zeros_like(subject.base[s]) if (g := grads[s]) is None else g for s in slots}
    moved = [s for s in slots if is_element(subject.base[s]) and filled[s].any() and not filled[s][..., -1].any()]
    turned = [is_element(o) for o in chosen]
    if not moved and not any(turned):
        return None
    numeric = {s: Derivative(subject.value, subject.base, [s], subject.coarsest) for s in slots}
    if not all(n.complete and n.center.isfinite().all() for n in numeric.values()):
        return None
    for left in (True, False):
        weights = real(
            [_back(w, o, left) if t else w for w, o, t in zip(weights_of(chosen), chosen, turned, strict=True)]
        )
        off = max(
            _off(filled[s], numeric[s].gradient(weights).reshape(filled[s].shape), subject.base[s], s in moved, left)
            for s in slots
        )
        if off < NEAR:
            named = [subject.describe(s) for s in moved]
            named += [f"output {i}" for i, t in zip(subject.active, turned, strict=True) if t]
            sizes = {
                t.shape[-1]
                for t in (*(subject.base[s] for s in moved), *(o for o, t in zip(chosen, turned, strict=True) if t))
            }
            off = 0.0 if off < (1e-5 if subject.dtype is torch.float64 else 1e-2) else off
            kind, side = "rotation" if sizes == {4} else "motion", "from the left" if left else "from the right"
            return Tangent(kind, side, named, off)
    return None


def _back(weights: Tensor, output: Tensor, left: bool) -> Tensor:
    """What grad_output is for the numbers, if its components but the last are for directions of the tangent space."""
    inverse = torch.linalg.pinv(directions(output.double(), left))
    return (weights[..., None, :-1].double() @ inverse)[..., 0, :]


def _off(ours: Tensor, gradient: Tensor, value: Tensor, moved: bool, left: bool) -> float:
    """How far a gradient is from that of a small motion, relative to its largest entry."""
    expected = gradient
    if moved:
        along = (gradient[..., None, :] @ directions(value.double(), left))[..., 0, :]
        expected = torch.cat([along, torch.zeros_like(along[..., :1])], -1)
    if not ours.numel():
        return 0.0
    difference, scale = float((ours.double() - expected).abs().max()), float(expected.abs().max())
    off = difference / scale if scale else math.inf if difference else 0.0
    return math.inf if math.isnan(off) else off


def summary_and_advice(found: Tangent) -> tuple[str, str, str]:
    """What is said of it."""
    inputs, outputs = ([n for n in found.named if n.startswith("output") is is_output] for is_output in (False, True))
    parts: Sequence[str] = [
        *([f"returns zero as the last component of the gradient of {enumerated(inputs)}"] if inputs else []),
        *([f"does not use the last component of grad_output for {enumerated(outputs)}"] if outputs else []),
    ]
    summary = SUMMARY.format(found.kind, f"of {enumerated(found.named)} {found.side}")
    cause = CAUSE.format(", and ".join(parts))
    return (f"{summary}{INACCURATE.format(found.off)}", f"{cause}{SERIES}", FIX) if found.off else (summary, cause, FIX)
