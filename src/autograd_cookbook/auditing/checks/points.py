"""Special points: zeros, ties, kinks, large numbers and infinities, where formulas divide by zero or overflow."""

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.checks.gradients import ITERATIONS, in_steps, repetitions, zeros_for_none
from autograd_cookbook.auditing.checks.layouts import permutation
from autograd_cookbook.auditing.checks.precision import (
    clamps_in_backward,
    decomposes,
    is_guarded,
    passes_a_pole,
)
from autograd_cookbook.auditing.diagnose import (
    NOT_FINITE,
    difference,
    explain,
    first_line,
    raised_by_audit,
    writes_to_leaf,
)
from autograd_cookbook.auditing.numeric import Derivative, along, largest_of, rounding
from autograd_cookbook.auditing.observe import fewest_bits, observing
from autograd_cookbook.auditing.report import Finding
from autograd_cookbook.auditing.roots import IN_ORDER, REPEATED
from autograd_cookbook.auditing.subject import Change, Subject, is_differentiable, real, weights_of
from autograd_cookbook.auditing.surrogates import is_still, take_as_custom, unlike_declared
from autograd_cookbook.auditing.variation import at_random, other_flags, with_one


def _first_row_zero(tensor: Tensor) -> Tensor:
    result = tensor.clone()
    if result.dim() > 1 and result.shape[0]:
        result[0] = 0
    return result


def _ties(tensor: Tensor) -> Tensor:
    return (
        tensor.reshape(-1)[:1].expand(tensor.numel()).reshape(tensor.shape).clone()
        if tensor.numel()
        else tensor.clone()
    )


def _some_ties(tensor: Tensor) -> Tensor:
    result = tensor.clone()
    if result.numel() > 1:
        flat = result.view(-1)
        flat[::2] = flat[0].clone()
    return result


def _whole(tensor: Tensor) -> Tensor:
    return tensor.round() if not tensor.is_complex() else tensor.clone()


def _times(factor: float) -> Change:
    return lambda t: t * factor


def _alternating(size: float) -> Change:
    """Numbers of one size and both signs."""

    def point(tensor: Tensor) -> Tensor:
        signs = 1 - 2 * (torch.arange(tensor.numel()) % 2)
        return (signs * size + tensor.detach().cpu().reshape(-1) * 0.01).reshape(tensor.shape).to(tensor)

    return point


POINTS: dict[str, Change] = {
    "all zeros": torch.zeros_like,
    "one zero": functools.partial(with_one, number=0, where=0.5),
    "one of one": functools.partial(with_one, number=1, where=0.5),  # an opacity of one, a probability that is certain
    "a row of zeros": _first_row_zero,
    "all equal": _ties,
    "some equal": _some_ties,
    "whole numbers": _whole,
    "all ones": torch.ones_like,
    "the negated sample": _times(-1.0),
    "small numbers": _times(1e-4),
    "numbers near ±40": _alternating(40.0),
    "numbers near ±800": _alternating(800.0),
    "the sample times 1000": _times(1e3),
}
STRUCTURED = ("one zero", "one of one", "a row of zeros", "all equal", "some equal", "whole numbers", "all ones")
VANISHING = ("all zeros", "small numbers")
LARGE = ("numbers near ±40", "numbers near ±800", "the sample times 1000")
FAR = 1e12  # times the gradient on the sample: a slope that says nothing
BUDGET = 0.03  # seconds for the derivatives at one of them
SECONDS = 2.5  # for all of them
PAIRS = 3  # of arguments that are tried with the same numbers
# How a backward says that it does not go with these arguments.
DECLINED = (ValueError, TypeError, NotImplementedError)
OTHERWISE = (
    "backward does not do for this argument what forward does: it misses another mode, another dim, or a factor.",
    "Treat each mode in backward as forward does, or refuse those that it has no gradient for.",
)
MISSED = (
    "The formula misses a case: what happens at zeros, ties or kinks, or a branch that is taken there.",
    "Treat this case in backward as forward does.",
)
GUARDED = (
    "Forward keeps a number away from the edge of its domain there, by a clamp with a bound such as 1e-7 that changes "
    "nothing on the sample. Backward has the formula without the clamp.",
    "Nothing, if no caller passes such numbers; otherwise let the gradient be zero where forward clamps.",
)
CLAMPED = (
    "Backward clamps a number there, and forward does not. Beyond the bound, the gradient is that of another function.",
    "If this is intended, declare it: surrogate= with a function that has this gradient. Otherwise remove the clamp.",
)
ONE_INDEX = "one index repeated"
REVERSED = "whole numbers in reverse"
BOUNDLESS = {"plus infinity": torch.inf, "minus infinity": -torch.inf}


@check(needs="first_order")
def special_points(subject: Subject) -> Iterator[Finding]:
    """At zeros, ties, kinks and large numbers, the gradient is finite and right if the values are finite.

    The check also gives two arguments the same numbers, and varies the other arguments: masks that mask all, nothing or
    a part, indices in another order or repeated, labels to be ignored, flags, dimensions and numbers. It varies also
    those that the sample leaves to their defaults.

    The audit judges the gradient by differences from both sides. At a kink, it accepts any number between the slopes of
    the two sides. If the slope grows without bound, it accepts anything but NaN. Outside of the domain, it accepts
    anything. It reports a NaN from your own backward, but not one from the backward of a PyTorch operation.
    """
    if not subject.derivative:
        return
    subject.needs_dense()
    start = time.process_time()

    def in_time() -> bool:
        return time.process_time() - start < SECONDS

    yield from _with_other_arguments(subject, in_time)  # these are few
    found = list(_at_points(subject, in_time))
    yield from found or _at_the_same_numbers(subject, in_time)
    yield from _beyond_symmetry(subject, in_time)
    yield from _beyond_unit_length(subject, in_time)
    yield from _with_other_flags(subject, in_time)


def _at_points(subject: Subject, in_time: Callable[[], bool]) -> Iterator[Finding]:
    """Nothing, or what is wrong at the first point where something is."""
    leaves, guarded = subject.leaves, False
    groups = [leaves] if len(leaves) == 1 else [leaves, *([s] for s in leaves)]
    for name, make in POINTS.items():
        for group in groups:
            if not in_time():
                return
            values = [make(v) if s in group else v.clone() for s, v in enumerate(subject.base)]
            where = name if len(group) == len(leaves) else f"{name} in {subject.describe(group[0])}"
            problems = list(_at(subject, values, where))
            if problems and name in STRUCTURED and list(_at(subject, _ruffled(values, group), where)):
                continue  # it is as bad without the zeros or ties: an iteration that does not converge there, maybe
            if problems and name in VANISHING and repetitions(subject) >= ITERATIONS:
                near = [v * 1e-3 if s in group else v.clone() for s, v in enumerate(subject.base)]
                if list(_at(subject, near, where)):
                    continue  # a step size, as far as one can see: with one of zero, nothing converges
            beyond = any(p.cause == GUARDED[0] for p in problems)  # which says nothing of the other points
            yield from ([] if beyond and guarded else problems)
            guarded |= beyond
            if problems and not beyond:
                return


def _at_the_same_numbers(subject: Subject, in_time: Callable[[], bool]) -> Iterator[Finding]:
    """Nothing, or what is wrong where one argument is equal to another, as the two sets of a kernel often are."""
    pairs = [pair for pair in itertools.combinations(subject.leaves, 2) if _alike(subject, *pair)]
    for a, b in pairs[:PAIRS]:
        if not in_time():
            return
        values = subject.copies()
        values[b] = values[a].clone()
        where = f"the same numbers in {subject.describe(a)} and {subject.describe(b)}"
        problems = list(_at(subject, values, where))
        if problems and not list(_at(subject, _ruffled(values, [b]), where)):
            yield problems[0]
            return


ONLY_SYMMETRIC = (
    "Backward takes the matrix for symmetric, as it is in the sample, and forward takes any matrix: backward lacks a "
    "transpose.",
    "Use the transposed matrix in backward. If the function is one of symmetric matrices, refuse others, or pass "
    "domain= to the audit.",
)


@contextlib.contextmanager
def _anywhere(subject: Subject, slot: int) -> Iterator[None]:
    """One argument is not brought into the set that the sample's is in, while inside; forward may refuse it there."""
    usual = subject.recognized
    subject.recognized = {s: domain for s, domain in usual.items() if s != slot}
    try:
        with contextlib.suppress(Exception, SystemExit):
            yield
    finally:
        subject.recognized = usual


def _beyond_symmetry(subject: Subject, in_time: Callable[[], bool]) -> Iterator[Finding]:
    """Nothing, if the gradient is right for a matrix that is not symmetric, too, where the sample's is by chance."""
    for s, domain in list(subject.recognized.items()):
        if domain.name not in ("symmetric", "positive definite") or not in_time():
            continue
        base = subject.base[s]
        values, mirrored = subject.copies(), subject.copies()
        values[s] = base + 0.1 * base.abs().mean() * torch.ones_like(base).triu(1)
        mirrored[s] = values[s].mT.contiguous()
        with _anywhere(subject, s):
            there, back, here = (subject.value([v.clone() for v in at]) for at in (values, mirrored, subject.base))
            # One triangle alone is read, or the mean of both.
            if not any(torch.allclose(a, b) for a, b in ((there, here), (back, here), (there, back))):
                for found in _at(subject, values, f"a matrix that is not symmetric in {subject.describe(s)}"):
                    yield replace(found, severity="warning", cause=ONLY_SYMMETRIC[0], fix=ONLY_SYMMETRIC[1])


def _beyond_unit_length(subject: Subject, in_time: Callable[[], bool]) -> Iterator[Finding]:
    """Nothing, if a function that normalizes its input is right for inputs that are longer, too."""
    for s, domain in list(subject.recognized.items()):
        if domain.name != "of unit length" or not in_time():
            continue
        values = subject.copies()
        values[s] = 2 * values[s]
        with _anywhere(subject, s):
            there, here = (subject.value([v.clone() for v in at]) for at in (values, subject.base))
            if torch.allclose(there, here):  # it normalizes, and does not take for granted that others have
                yield from _at(subject, values, f"twice the length in {subject.describe(s)}")


def _with_other_arguments(subject: Subject, in_time: Callable[[], bool]) -> Iterator[Finding]:
    """Nothing, or what is wrong with the first masks, indices or labels with which something is."""
    for name, values in _other_arguments(subject):
        if not in_time():
            return
        problems = list(_at(subject, values, name))
        yield from problems
        if problems:
            return


@contextlib.contextmanager
def _on_copies(subject: Subject) -> Iterator[None]:
    """No input is a leaf while inside, if the function writes to one, as with a flag such as inplace=True."""
    usual = subject.nonleaf
    try:
        subject.run()
    except (Exception, SystemExit) as error:
        subject.nonleaf |= writes_to_leaf(error)
    try:
        yield
    finally:
        subject.nonleaf = usual


def _with_other_flags(subject: Subject, in_time: Callable[[], bool]) -> Iterator[Finding]:
    """Nothing, or what is wrong with the first flag, dim or number with which something is."""
    for name, other in other_flags(subject):
        if not in_time():
            return
        with other, _on_copies(subject):
            usual = _moves(subject) and not _narrows(subject) and not passes_a_pole(subject, subject.copies())
            problems = list(_at(subject, subject.copies(), name)) if usual else []
        problems = [p for p in problems if not any(f"raises {e.__name__}" in p.summary for e in DECLINED)]
        for found in problems:
            miss = found.cause == MISSED[0]
            yield replace(found, cause=OTHERWISE[0], fix=OTHERWISE[1]) if miss else found
        if problems:
            return


def _alike(subject: Subject, a: int, b: int) -> bool:
    """Whether two arguments are of one kind, with perhaps another number of rows."""
    one, other = subject.base[a], subject.base[b]
    free = not {a, b} & {*subject.recognized} and not (subject.slots[a].hidden or subject.slots[b].hidden)
    return free and one.dtype is other.dtype and one.dim() == other.dim() > 0 and one.shape[1:] == other.shape[1:]


def _moves(subject: Subject) -> bool:
    """Whether the values depend on every leaf: what rounds, or clamps all, has no derivative to compare with."""
    try:
        before = subject.value(subject.copies())
        for s in subject.leaves:
            moved = subject.copies()
            moved[s] = moved[s] * 1.001 + 1e-4
            if torch.equal(before, subject.value(moved)):
                return False
    except (Exception, SystemExit, IndexError):
        return False
    return True


def _narrows(subject: Subject) -> bool:
    """Whether digits are given up on the way, as by a flag that has activations stored in eight bits."""
    try:
        return fewest_bits(subject.vjp) < torch.finfo(subject.dtype).bits
    except (Exception, SystemExit):
        return False


def _other_arguments(subject: Subject) -> Iterator[tuple[str, list[Tensor]]]:
    """Masks and indices that the sample does not have: all or nothing masked, an index that repeats, no length."""
    for s, slot in enumerate(subject.slots):
        base = subject.base[s]
        if slot.leaf or not base.numel() or s in subject.recognized or base.is_floating_point() or base.is_complex():
            continue
        if base.dtype is torch.bool:
            others = {
                **{"nothing but False": torch.zeros_like(base), "nothing but True": torch.ones_like(base)},
                "True and False at random": at_random(base),
            }
        elif base.numel() > 1 and base.dim() and not permutation(base.reshape(-1)):
            numbers = (*subject.flat, *subject.defaults.values())
            marks = [a for a in numbers if type(a) is int and a < -base.dim()]  # labels that are left out
            # A length of nothing, and one that is less than the others, if they are lengths.
            marks += dict.fromkeys([0, int(base.reshape(-1)[0]) - 1]) if bool((base > 0).all()) else []
            others = {f"{mark} as one entry": with_one(base, mark) for mark in marks} | {
                REVERSED: base.flip(-1),
                ONE_INDEX: base.reshape(-1)[:1].expand(base.numel()).reshape(base.shape).clone(),
            }
        else:
            continue
        for name, other in others.items():
            yield f"{name} in {subject.describe(s)}", [other if k == s else v for k, v in enumerate(subject.copies())]


def _ruffled(values: list[Tensor], group: list[int]) -> list[Tensor]:
    """The same numbers, each a little smaller, as ones may be the most there is: without zeros, ties, whole numbers."""
    generator = torch.Generator().manual_seed(0)
    result = [v.clone() for v in values]
    for s in group:
        noise = torch.rand(values[s].shape, generator=generator, dtype=torch.float64).to(values[s])
        result[s] = values[s] * (0.6 + 0.35 * noise) + 0.1 * (noise - 0.4) * values[s].abs().mean()
    return result


def _at(subject: Subject, values: list[Tensor], where: str) -> Iterator[Finding]:
    try:
        with torch.no_grad():
            outputs = subject.run([v.clone() for v in values], subject.without_graph).outputs
    except (Exception, SystemExit):
        return  # refused
    if max(subject.active) >= len(outputs):
        return
    chosen = [outputs[i] for i in subject.active]
    if not all(is_differentiable(o) for o in chosen) or not real(chosen).isfinite().all():
        return
    with observing(subject.classes, saved=False) as record:
        try:
            run = subject.run([v.clone() for v in values])
        except (Exception, SystemExit) as error:
            if raised_by_audit(error):
                raise
            return  # forward refuses it where a gradient is wanted
        try:
            grads = run.gradients()
        except (Exception, SystemExit) as error:
            if raised_by_audit(error):
                raise
            if subject.custom and "no output requires grad" not in str(error):
                yield finding(
                    "error", f"at {where}, forward runs but backward raises {first_line(error)}", *explain(error)
                )
            return
    # What is infinite for the function, and rightly so, may be NaN along its domain.
    bad = torch.isnan if subject.domain or subject.recognized else lambda g: ~torch.isfinite(g)
    blamed = not subject.classes or any(
        isinstance(g, Tensor) and bad(g).any()
        for call in record.backwards
        for g in call.returned
        if isinstance(g, Tensor) and all(r is None or torch.isfinite(r).all() for r in call.received)
    )
    weights = real(weights_of(chosen))
    for slot in subject.judged:
        grad = zeros_for_none(subject, grads, [slot])[0]
        if grad.shape != values[slot].shape:
            continue
        odd = not grad.isfinite().all()
        if odd and not (blamed and subject.custom):
            continue  # torch's own
        smooth = True
        if subject.gradient == "surrogate":
            theirs = subject.run([v.clone() for v in values], function=subject.surrogate).gradients()[slot]
            theirs = torch.zeros_like(grad) if theirs is None else theirs
            finite = bool(theirs.isfinite().all())
            what = unlike_declared(subject, slot, values, grad, theirs, weights, 1e-6) if finite else None
            detail = f"{what}, which the declared surrogate has" if what else ""
        else:
            if not odd and is_still(subject, slot, values) and is_still(subject, slot, subject.copies()):
                if bool(
                    (grad.abs() > rounding(chosen, values[slot])).any()
                ):  # it is zero on the sample, where first_order has looked
                    yield take_as_custom(subject, [slot])
                    return
                continue
            numeric = Derivative(subject.value, values, [slot], subject.coarsest, budget=BUDGET, lenient=True)
            if subject.lossy and where.startswith(LARGE) and not odd:
                continue  # what float32 inside of the function loses there was told by the check of the digits
            if (subject.accuracy or subject.rough) and not odd:
                continue  # a solver is as accurate as its steps are short compared with these numbers
            usual = zeros_for_none(subject, subject.expected[1], subject.leaves)
            floor = 1e-11 * largest_of(usual)  # rounding, below that
            if where.startswith(LARGE):  # what is lost in the rounding of the outputs cannot be asked for
                floor = (
                    1e-4
                    * float(weights.abs() @ numeric.center.abs())
                    / max(1.0, float(values[slot].abs().max()) if values[slot].numel() else 1.0)
                )
            mismatch = numeric.compare(real([grad]), weights, 1e-3, floor)
            if mismatch and not odd and is_still(subject, slot, values) and passes_a_pole(subject, values):
                continue  # forward divides by zero there, and what it returns is finite by chance
            if mismatch and not odd and in_steps(subject, values, weights):
                continue  # here a solver stops early, if not on the sample
            if mismatch and not odd and mismatch.expected == 0 and repetitions(subject) >= ITERATIONS:
                continue  # here the result is the end of the range that a solver searches
            if mismatch and odd and abs(mismatch.expected) > FAR * (1 + largest_of(usual)):
                continue  # of a matrix that is singular there, whatever the solver returns
            if odd and decomposes(subject, values):
                continue  # of zeros or equal numbers, where not all singular vectors are defined
            way = torch.ones(numeric.n, dtype=torch.float64)
            if mismatch:
                way = (torch.arange(numeric.n) == mismatch.index).double()
            if odd and numeric.has_kink(way, weights) and passes_a_pole(subject, values):
                continue  # forward divides by zero there, and what it returns is finite by chance
            smooth = not odd or numeric.settles(way, weights)
            if not smooth and (where.startswith(ONE_INDEX) or not numeric.jumps(way, weights)):
                continue  # infinite, as that of a root at zero, is no more useful than NaN; or a singular matrix
            if mismatch:
                detail = f"{mismatch.actual:.6g} in entry {mismatch.index}, but the values " + (
                    f"change by {mismatch.expected:.6g}" if smooth else "have no slope there"
                )
            else:
                detail = _together(numeric, real([grad]), weights)
            claimed = along(real([grad]), way)
            if detail and not odd and _occurs_nearby(subject, values, slot, claimed, way, weights):
                continue  # a kink for all arguments at once, as a threshold of zero is at zero
        if detail:
            guarded = not odd and is_guarded(subject, values)
            cause = REPEATED if where.startswith(ONE_INDEX) else IN_ORDER if where.startswith(REVERSED) else MISSED
            if cause is MISSED and not (guarded or odd) and clamps_in_backward(subject, values):
                cause = CLAMPED
            yield finding(
                # Without a slope, no number is right, but NaN spreads.
                "info" if guarded else "error" if smooth else "warning",
                f"at {where}, the gradient of {subject.describe(slot)} is {detail}",
                *(GUARDED if guarded else NOT_FINITE if odd else cause),
            )
            return


def _occurs_nearby(
    subject: Subject, values: list[Tensor], slot: int, claimed: float, way: Tensor, weights: Tensor
) -> bool:
    """Whether the values have a slope at points close by, to which all arguments move."""
    if len(slots := subject.leaves) < 2:
        return False  # which has been looked at
    numeric = Derivative(subject.value, values, slots, subject.coarsest, lenient=True)
    parts = [way if s == slot else torch.zeros(n) for s, n in zip(slots, numeric.sizes, strict=True)]
    return numeric.occurs_nearby(claimed, torch.cat(parts), weights, 1e-3 * abs(claimed))


def _together(numeric: Derivative, gradient: Tensor, weights: Tensor) -> str:
    """What is wrong with the slope if all entries move together; empty if nothing is.

    Where two numbers tie, either may have the gradient, or both a half; if both have all of it, this shows it.
    """
    claimed = float(gradient.sum())
    ones = torch.ones_like(gradient)
    best, error, noise = numeric.slope(ones, numeric.steps()[0])
    value, scale = float(weights @ best), float(gradient.abs().sum())
    rounding = 1e-11 * float(weights.abs().sum())  # of zeros that are differences
    if abs(claimed - value) <= 1e-3 * abs(value) + float(weights.abs() @ (error + noise)) + rounding:
        return ""
    expected = numeric.judge(claimed, ones, weights, 1e-3, scale if math.isfinite(scale) else 0.0)
    if expected is None:
        return ""
    return f"{claimed:.6g} in sum, but if all entries move together the values change by {expected:.6g}"


@check()
def reference_points(subject: Subject) -> Iterator[Finding]:
    """At special points and infinities, values and gradients are equal to those of the reference.

    This check runs only with ``reference=``. At points where the audit cannot take differences, such as infinity, a
    second implementation decides. The check requires nothing if the reference itself gives NaN or overflows. It also
    requires nothing at infinite complex numbers, because PyTorch's kernels disagree there about which parts of a
    product are NaN.
    """
    if subject.reference is None or not subject.derivative:
        return
    infinite = {name: functools.partial(torch.full_like, fill_value=x) for name, x in BOUNDLESS.items()}
    mixed = {f"one {name}": functools.partial(with_one, number=x) for name, x in BOUNDLESS.items()}
    complex_leaf = any(subject.base[s].is_complex() for s in subject.leaves)
    for name, make in (POINTS if complex_leaf else POINTS | infinite | mixed).items():
        values = [make(v) if s in subject.leaves else v.clone() for s, v in enumerate(subject.base)]
        try:
            theirs = subject.vjp([v.clone() for v in values], function=subject.reference)
            theirs = ([o.clone() for o in theirs[0]], [None if g is None else g.clone() for g in theirs[1]])
        except (Exception, SystemExit):
            continue
        try:
            ours = subject.vjp([v.clone() for v in values])
        except (Exception, SystemExit) as error:
            yield finding(
                "error", f"at {name}, it raises {first_line(error)}, and the reference does not", *explain(error)
            )
            return
        pairs = [(f"output {i}", ours[0][i], theirs[0][i]) for i in subject.active if i < len(theirs[0])]
        if "infinity" in name or subject.gradient == "surrogate":
            pairs += [
                (f"the gradient of {subject.describe(s)}", ours_of, theirs_of)
                for s in subject.leaves
                if (ours_of := ours[1][s]) is not None and (theirs_of := theirs[1][s]) is not None
            ]
        for label, a, e in pairs:
            known = ~torch.isnan(real([e])) if "infinity" in name else real([e]).isfinite()
            what = difference(torch.where(known, real([a]), 0.0), torch.where(known, real([e]), 0.0), 1e-6)
            if what:
                yield finding(
                    "error",
                    f"at {name}, {label} is {what}, which the reference gives",
                    "The formula overflows, divides zero by zero, or misses the case.",
                    "Compute a safe form of it where the plain one is not finite.",
                )
                return
