"""The same computation in other circumstances, which must come to the same numbers."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from traceback import clear_frames
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.auditing.diagnose import difference, explain, first_line
from autograd_cookbook.auditing.numeric import largest_of
from autograd_cookbook.auditing.subject import Change, Outcome, Subject, is_differentiable


@dataclass(frozen=True)
class Deviation:
    """What went otherwise: an exception, or a number. ``slot`` is None if it is an output that differs."""

    text: str
    error: BaseException | None = None
    slot: int | None = None

    def advice(self, cause: str, fix: str) -> tuple[str, str]:
        """Cause and fix: what is known about an exception, otherwise what is given."""
        return explain(self.error) if self.error is not None else (cause, fix)


def deviation(
    subject: Subject,
    outcome: Callable[[], Outcome],
    expected: Outcome,
    rtol: float | None = None,
    moved: Callable[[Change], Outcome] | None = None,
) -> Deviation | None:
    """Run something and compare it with what is expected: the first thing that differs, or None.

    Where it is not about the sample, ``moved`` computes what is expected with the inputs put through a change.
    """
    given, rtol = rtol, subject.rounding if rtol is None else rtol
    try:
        outputs, grads = outcome()
    except (Exception, SystemExit) as error:
        # The exception is kept, and with it the variables of all calls that it went through. In torch 2.12.1, one of
        # them is what checkpoint has entered: its hooks on saved tensors would stay active for the checks to come.
        clear_frames(error.__traceback__)
        return Deviation(f"it raises {first_line(error)}", error)
    found = _differing(subject, (outputs, grads), expected, rtol)
    if found and given is None:
        amplified = 30 * (subject.amplification(expected, moved) if moved else subject.amplified)
        return _differing(subject, (outputs, grads), expected, max(rtol, amplified))
    return found


def _differing(subject: Subject, outcome: Outcome, expected: Outcome, rtol: float) -> Deviation | None:
    outputs, grads = outcome
    for i, theirs in enumerate(expected[0]):
        what = difference(outputs[i].detach(), theirs, rtol) if i < len(outputs) else "missing"
        if what:
            return Deviation(f"output {i} is {what}")
    # Gradients that cancel to zero, such as that of a bias before a normalization, are noise compared with the others,
    # or with themselves on the sample.
    others = 1e-4 * _largest(expected[1])
    for slot, wanted in enumerate(expected[1]):
        if not subject.slots[slot].leaf:
            continue
        zero = torch.zeros_like(subject.base[slot])
        ours = grads[slot] if slot < len(grads) else None
        if ours is None and wanted is None:
            continue
        a, e = (zero if g is None else g.detach() for g in (ours, wanted))
        if what := difference(a, e, rtol, max(others, _largest([subject.expected[1][slot]]))):
            return Deviation(f"the gradient of {subject.describe(slot)} is {what}", slot=slot)
    return None


def _largest(grads: Sequence[Tensor | None]) -> float:
    """The largest entry of some gradients that is finite."""
    return largest_of(g.abs().nan_to_num(posinf=0.0) for g in grads if g is not None)


def _fill(tensor: Tensor) -> Tensor:
    """What lies between the numbers: NaN, so that code that reads it is found out."""
    return torch.full_like(tensor, torch.nan) if is_differentiable(tensor) else torch.zeros_like(tensor)


def strided(tensor: Tensor) -> Tensor:
    """The same tensor with room after every element: no two neighbors in memory."""
    return torch.stack([tensor, _fill(tensor)], -1)[..., 0]


def spaced_rows(tensor: Tensor) -> Tensor:
    """The same tensor as a slice of one with longer rows, as ``qkv[..., :n]`` is."""
    return torch.cat([tensor, _fill(tensor)], -1)[..., : tensor.shape[-1]] if tensor.dim() > 1 else tensor.clone()


def offset(tensor: Tensor) -> Tensor:
    """The same tensor, beginning one element into its storage."""
    return torch.cat([_fill(tensor.reshape(-1)[:1]), tensor.reshape(-1)])[1:].view(tensor.shape)


def transposed(tensor: Tensor) -> Tensor:
    """The same tensor with its dims in reverse order in memory."""
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def swapped(tensor: Tensor) -> Tensor:
    """The same tensor with its last two dims exchanged in memory."""
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor.clone()


def channels_last(tensor: Tensor) -> Tensor:
    """The same tensor in the layout that convolutions of images like."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor.clone()


def lazily_conjugated(tensor: Tensor) -> Tensor:
    """The same tensor as a conjugate that is not computed yet."""
    return tensor.conj().resolve_conj().conj() if tensor.is_complex() else tensor.clone()


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "strided": strided,
    "a slice of longer rows": spaced_rows,
    "transposed": transposed,
    "transposed in the last two dims": swapped,
    "offset in storage": offset,
    "channels-last": channels_last,
    "lazily conjugated": lazily_conjugated,
}


# Of a word among the arguments, others that may stand in its place.
WORDS = (
    ("none", "mean", "sum"),
    ("zeros", "border", "reflection"),
    ("constant", "reflect", "replicate", "circular"),
    ("nearest", "bilinear", "bicubic"),
    ("none", "tanh"),
    ("same", "valid", "full"),
    ("forward", "backward", "ortho"),
)


def with_one(tensor: Tensor, number: float, where: float = 0.0) -> Tensor:
    """The same tensor with another number in one entry: the first, or one so far on the way to the last."""
    result = tensor.clone()
    if result.numel():
        result.view(-1)[int(where * result.numel())] = number
    return result


def other_flags(subject: Subject, guess: bool = True) -> Iterator[tuple[str, AbstractContextManager[None]]]:
    """Flags, modes, dims and numbers that the sample does not have, each in a context; the function may refuse them.

    Where the sample has None, small numbers and a mask are tried, unless ``guess`` is False: some are bad guesses, such
    as one step for an iteration.
    """
    for place, value in enumerate(subject.flat):
        # Of lengths and sizes in a tuple, forward does not refuse what has no meaning.
        counts = subject.custom and "[" not in subject.arguments_names[place]
        for other in _others(subject, value, counts, guess):
            flat = [*subject.flat[:place], other, *subject.flat[place + 1 :]]
            if _matters(subject, value, subject.settings(flat)):
                yield (
                    f"{_shown(other)} instead of {value!r} in {subject.arguments_names[place]}",
                    subject.settings(flat),
                )
    for name, value in subject.defaults.items() if subject.gradient == "exact" else ():
        for other in _others(subject, value, subject.custom, guess):
            if _matters(subject, value, subject.option(name, other)):
                yield f"{name}={_shown(other)} instead of {value!r}", subject.option(name, other)


def _shown(other: Any) -> str:
    return "<a random mask>" if isinstance(other, Tensor) else repr(other)


def _matters(subject: Subject, value: Any, other: AbstractContextManager[None]) -> bool:
    """Whether to try another value: not of a zero or None that forward does not use, as of noise for the gradient."""
    if not (value is None or (type(value) is float and value == 0)):
        return True
    usual = subject.value(subject.copies())
    try:
        with other:
            return not torch.equal(subject.value(subject.copies()), usual)
    except (Exception, SystemExit):
        return False  # refused


def _others(subject: Subject, value: Any, counts: bool, guess: bool) -> list[Any]:
    """Other values of the same kind; whole numbers may be counts as well as dims."""
    if value is None and guess:
        return [1, 2, *(at_random(subject.base[s]) for s in subject.leaves[:1])]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return list(dict.fromkeys(w for words in WORDS if value in words for w in words if w != value))
    if isinstance(value, int):
        dims = max((v.dim() for v in subject.base), default=0)
        near = (value - dims, value + dims, value + 1, value - 1) if -dims <= value < dims else ()
        more = (value + 1, value - 1, 2 * value) if counts and value > 0 else ()
        return list(dict.fromkeys([*(d for d in near if -dims <= d < dims), *(n for n in more if n > 0)]))
    if isinstance(value, float) and math.isfinite(value):
        return [0.75 * value, 0.0] if value else [0.5]
    return []


def at_random(like: Tensor) -> Tensor:
    """A mask of this shape."""
    return torch.rand(like.shape, generator=torch.Generator().manual_seed(6)).to(like.device) < 0.5
