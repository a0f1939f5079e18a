"""Memory and shape: strided, expanded, offset, empty, small and large tensors."""

import contextlib
import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.checks.gradients import (
    adds_to_zero,
    along_directions,
    if_symmetric,
    output_weights,
    zeros_for_none,
)
from autograd_cookbook.auditing.diagnose import explain, first_line
from autograd_cookbook.auditing.domains import SYMMETRIC, may_be_symmetric
from autograd_cookbook.auditing.numeric import Derivative
from autograd_cookbook.auditing.report import Finding
from autograd_cookbook.auditing.roots import REPEATED
from autograd_cookbook.auditing.subject import Change, Outcome, Refused, Subject, Unmeasured, is_differentiable, real
from autograd_cookbook.auditing.variation import LAYOUTS, Deviation, deviation

CONTIGUITY = (
    "The code reads memory in order, as if the tensor were contiguous: a raw pointer, view, as_strided, or a NumPy "
    "array made from the storage."
)


def _applies(name: str, tensors: Sequence[Tensor]) -> bool:
    if name == "channels-last":
        return any(t.dim() == 4 for t in tensors)
    if name == "lazily conjugated":
        return any(t.is_complex() for t in tensors)
    if name == "a slice of longer rows":
        return any(t.dim() > 1 for t in tensors)
    if name == "transposed in the last two dims":
        return any(t.dim() > 2 for t in tensors)
    return True


def _blamable(subject: Subject, found: Deviation) -> bool:
    """Whether it is the function's fault: torch's own operations refuse some layouts, too."""
    return found.error is None or subject.custom


def _refuses(subject: Subject, layout: Callable[[Tensor], Tensor], error: BaseException) -> bool:
    """Whether an exception says that forward takes contiguous inputs: its own, or that of ``view``."""
    if "contiguous subspaces" not in str(error):
        return "contiguous" in str(error)
    try:
        subject.run(through=layout)
    except (Exception, SystemExit):
        return True
    return False  # it is backward that cannot have it


@check(capability="non_contiguous")
def input_layouts(subject: Subject) -> Iterator[Finding]:
    """Inputs that are strided, transposed, offset or expanded give the same numbers as contiguous ones.

    A slice, a transpose or a broadcast is a tensor with other strides. A slice is also offset: it starts in the middle
    of its memory. Kernels and NumPy code that ignore strides and offsets silently read the wrong elements.
    """
    for name, layout in LAYOUTS.items():
        if not _applies(name, subject.base):
            continue
        if subject.random:  # the order in memory is the order in which random numbers are drawn
            yield from (problems := list(_right_in(subject, name, layout)))
            if problems:
                return
            continue
        found = deviation(subject, functools.partial(subject.vjp, through=layout), subject.expected_inside)
        if found and found.error is not None and _refuses(subject, layout, found.error):
            raise Refused(first_line(found.error)) from found.error
        if found and _blamable(subject, found):
            yield finding(
                "error",
                f"if the inputs are {name}, {found.text}",
                *found.advice(CONTIGUITY, "Call contiguous() on each input in forward, or honor its strides."),
            )
            return
    if subject.nonleaf or subject.in_place or subject.random:
        return  # written to in place: torch itself refuses that for expanded tensors
    for slot in subject.leaves:
        for d in range(subject.base[slot].dim()):
            if subject.slots[slot].hidden or subject.base[slot].shape[d] < 2:
                continue
            try:
                dense = _expanded_in_full(subject, slot, d)
            except (Exception, SystemExit):
                continue
            if _singular(dense, subject.expected):
                continue
            found = deviation(
                subject,
                functools.partial(_expanded, subject, slot, d, lambda t: t),
                dense,
                moved=functools.partial(_expanded_in_full, subject, slot, d),
            )
            if found and _blamable(subject, found):
                yield finding(
                    "error",
                    f"with {subject.describe(slot)} expanded along dim {d}, {found.text}",
                    *found.advice(CONTIGUITY, "Call contiguous() on each input in forward, or honor its strides."),
                )
                return


def _right_in(subject: Subject, name: str, layout: Callable[[Tensor], Tensor]) -> Iterator[Finding]:
    """Whether the gradient in a layout is the derivative of the values in that layout, along a random direction."""
    slots = [s for s in subject.leaves if not subject.slots[s].hidden]
    if subject.gradient != "exact" or not slots or not subject.right:
        return
    try:
        outputs, grads = subject.vjp(through=layout)
    except (Exception, SystemExit) as error:
        yield finding("error", f"if the inputs are {name}, it raises {first_line(error)}", *explain(error))
        return

    def value(values: list[Tensor]) -> Tensor:
        with torch.no_grad():
            run = subject.run(values, subject.without_graph, through=layout)
        return real([run.outputs[i] for i in subject.active])

    numeric = Derivative(value, subject.base, slots, subject.coarsest)
    gradient = real(zeros_for_none(subject, grads, slots))
    if numeric.compare(gradient, output_weights(outputs, subject.active)) is not None:
        yield finding(
            "error",
            f"if the inputs are {name}, the gradient is not that of the values",
            CONTIGUITY,
            "Call contiguous() on each input in forward, or honor its strides.",
        )


def _singular(outcome: Outcome, usual: Outcome) -> bool:
    """Whether rounding decides what comes out: of the inverse of a matrix with equal rows, or of what cancels."""

    def sizes(outcome: Outcome) -> list[float]:
        tensors = [t for t in (*outcome[0], *outcome[1]) if is_differentiable(t) and t.numel()]
        return [float(t.detach().abs().max()) for t in tensors]

    largest, typical = (max(sizes(each), default=0.0) for each in (outcome, usual))
    if not largest < 1e6 * max(typical, 1.0):
        return True
    return any(0 < size < 1e-12 * typical for size in sizes(outcome))


def _expanded(subject: Subject, slot: int, d: int, change: Change) -> Outcome:
    """One input repeated along a dim, with strides of zero or, by ``change``, with memory of its own."""
    shape = subject.base[slot].shape
    seen = [0]
    order = [i for i, s in enumerate(subject.slots) if not s.hidden]

    def through(tensor: Tensor) -> Tensor:
        index = order[seen[0]]
        seen[0] += 1
        return change(tensor.narrow(d, 0, 1).expand(shape)) if index == slot else tensor

    return subject.vjp(through=through)


def _expanded_in_full(subject: Subject, slot: int, d: int, change: Change = torch.clone) -> Outcome:
    """The same with memory of its own, put through a change."""
    return _expanded(subject, slot, d, lambda t: change(t.clone(memory_format=torch.contiguous_format)))


def _with_batches(subject: Subject) -> Iterator[tuple[str, list[Tensor] | None, Outcome]]:
    """The sample, and what comes of it; then with three instead of one, where a batch of one hides its layout."""
    yield "", None, subject.expected
    if subject.random or not any(1 in subject.base[s].shape for s in subject.leaves):
        return
    for where, values in resizings(subject, 3):
        ones = all(n == 1 for _, _, n in _changed(subject, values))
        if ones and not _out_of_place(subject, values) and accepted(subject, [v.clone() for v in values]) is not None:
            try:
                outputs, grads = subject.vjp([v.clone() for v in values])
            except (Exception, SystemExit):
                continue  # which is the business of the check of sizes
            yield f"with size 3 in {where}, ", values, (outputs, grads)
            return


@check(capability="non_contiguous")
def grad_output_layouts(subject: Subject) -> Iterator[Finding]:
    """A grad_output that is strided, transposed, offset or expanded gives the same gradients as a contiguous one.

    The operation that follows your function decides the layout. If ``.sum()`` follows, grad_output is one number with
    strides of zero. If ``.mT`` follows, grad_output is transposed. gradcheck tries only contiguous ones.
    """
    for where, values, expected in _with_batches(subject):
        for name, layout in LAYOUTS.items():
            if not _applies(name, expected[0]):
                continue
            run = functools.partial(subject.vjp, values and [v.clone() for v in values], change=layout)
            if (found := deviation(subject, run, expected)) and _blamable(subject, found):
                yield finding(
                    "error",
                    f"{where}if grad_output is {name}, {found.text}",
                    *found.advice(CONTIGUITY, "Call grad_output.contiguous() first, or honor its strides."),
                )
                return

    def spread(weights: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return weights.reshape(-1)[:1].reshape([1] * weights.dim()).expand(weights.shape)
        return (
            weights.narrow(dim, 0, 1).expand(weights.shape) if dim < weights.dim() and weights.shape[dim] else weights
        )

    def filled(weights: Tensor, dim: int | None) -> Tensor:
        return spread(weights, dim).clone(memory_format=torch.contiguous_format)

    depth = max(o.dim() for o in subject.expected[0])
    for dim in (None, *range(depth)):
        try:
            dense = subject.vjp(change=functools.partial(filled, dim=dim))
        except (Exception, SystemExit):
            continue
        dense = (dense[0], [None if g is None else g.clone() for g in dense[1]])
        expanded = functools.partial(subject.vjp, change=functools.partial(spread, dim=dim))
        if found := deviation(subject, expanded, dense):
            where = "everywhere, as behind sum()" if dim is None else f"along dim {dim}"
            yield finding(
                "error",
                f"if grad_output is expanded {where}, {found.text}",
                *found.advice(CONTIGUITY, "Call grad_output.contiguous() first, or honor its strides."),
            )
            return


@check()
def given_layout(subject: Subject) -> Iterator[Finding]:
    """The tensors that you pass to the audit, in their own layout, give the same numbers as contiguous copies."""
    given = [s.tensor for s in subject.slots]
    if all(t.is_contiguous() for t in given):
        return

    def as_given() -> Outcome:
        values = [
            g.detach().to(b.dtype).as_strided(g.size(), g.stride()) if g.dtype == b.dtype else b.clone()
            for g, b in zip(given, subject.base, strict=True)
        ]
        values = [v.clone() if s.hidden else _like(v) for v, s in zip(values, subject.slots, strict=True)]
        return subject.vjp(values)

    if found := deviation(subject, as_given, subject.expected):
        yield finding(
            "error",
            f"with the inputs in the layout that they have, {found.text}",
            *found.advice(CONTIGUITY, "Call contiguous() on each input in forward, or honor its strides."),
        )


def _like(tensor: Tensor) -> Tensor:
    """A copy with the same strides, on a storage of its own."""
    room = tensor.new_empty_strided(tensor.size(), tensor.stride())
    if 0 in tensor.stride():
        return tensor
    return room.copy_(tensor)


# --- sizes ---


def permutation(index: Tensor, dim: int = -1) -> bool:
    """Whether every number from zero on occurs once along a dim: an order, in which nothing may occur twice."""
    if is_differentiable(index) or index.dtype is torch.bool or not index.dim():
        return False
    order = torch.arange(index.shape[dim]).to(index)
    return torch.equal(index.sort(dim).values.movedim(dim, -1), order.expand(index.movedim(dim, -1).shape))


def _resized(tensor: Tensor, dim: int, size: int, generator: torch.Generator | None) -> Tensor:
    """A tensor of another size, with numbers like those that it has: repeated, and moved a little if they may be.

    An order stays one: what is repeated comes after what is there.
    """
    if (given := tensor.shape[dim]) == 0:
        return tensor
    pick = torch.arange(size, device=tensor.device) % given
    result = tensor.index_select(dim, pick)
    if given > 1 and permutation(tensor, dim):
        rounds = (torch.arange(size, device=tensor.device) // given).to(tensor) * given
        result = (result.movedim(dim, -1) + rounds).argsort(-1).argsort(-1).to(tensor).movedim(-1, dim)
    if generator is not None and size > tensor.shape[dim]:
        wiggle = torch.rand(result.shape, generator=generator, dtype=torch.float64).to(result)
        result = result * (1 + 0.1 * wiggle)
    return result


def _are_offsets(index: Tensor, sizes: set[int]) -> bool:
    """Whether whole numbers say where the rows of something begin and end, as those of a compressed matrix do."""
    if is_differentiable(index) or index.dtype is torch.bool or index.dim() != 1 or len(index) < 2:
        return False
    steps = index.diff()
    return int(index[0]) == 0 and int(index[-1]) in sizes and bool((steps >= 0).all()) and not bool((steps == 1).all())


def resizings(subject: Subject, size: int) -> Iterator[tuple[str, list[Tensor]]]:
    """The sample with one of its sizes changed, wherever that size occurs, or in one place alone.

    Only as far as a call on it does not take too long.
    """
    places = [
        (i, d, n)
        for i, slot in enumerate(subject.slots)
        if not slot.hidden
        for d, n in enumerate(subject.base[i].shape)
    ]
    groups: list[list[tuple[int, int]]] = []
    offsets = [b for b in subject.base if _are_offsets(b, {n for _, _, n in places})]
    divided = {n for b in offsets for n in (len(b), int(b[-1]))}
    for n in dict.fromkeys(n for _, _, n in places):
        if n in divided:
            continue  # of a ragged tensor, or a compressed one, which any other size breaks
        same = [(i, d) for i, d, m in places if m == n]
        batch: list[tuple[int, int]] = []
        if n == 1:  # a size of one ties nothing: constants such as the taps of a filter have it by chance
            # But a batch of one has labels, indices or lengths for one.
            batch = [
                (i, 0) for i, d in same if d == 0 and (subject.slots[i].leaf or not is_differentiable(subject.base[i]))
            ]
            same = [(i, d) for i, d in same if subject.slots[i].leaf]
        first = [(i, d) for i, d in same if d == 0]
        # Labels, indices, masks and one side of a square matrix are tied to others and are not broadcast.
        tied = len({i for i, _ in same}) < len(same) or not all(subject.slots[i].leaf for i, _ in same)
        alone = [] if tied else same
        for group in (same, first, batch, *([p] for p in alone)):
            # Constants alone are left as they are: the caller makes them as they must be.
            varies = any(subject.slots[i].leaf or not is_differentiable(subject.base[i]) for i, _ in group)
            if varies and group not in groups:
                groups.append(group)

    def resized(group: list[tuple[int, int]], size: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        values = subject.copies()
        for i, d in group:
            values[i] = _resized(values[i], d, size, generator if subject.slots[i].leaf else None)
        return values

    for group in groups:
        shapes = [list(v.shape) for v in subject.base]
        for i, d in group:
            shapes[i][d] = size
        if not subject.affordable(sum(math.prod(shape) for shape in shapes)):
            continue

        def seconds(size: int, group: list[tuple[int, int]] = group) -> float:
            return _seconds(subject, resized(group, size))

        if not _quick(size, seconds):
            continue
        yield ", ".join(f"dim {d} of {subject.slots[i].name}" for i, d in group), resized(group, size)


def _quick(size: int, seconds: Callable[[int], float]) -> bool:
    """Whether a call at a size is likely to be quick: a loop over pairs, or a matrix for them, grows steeply."""
    ladder = [1, *(p for p in PROBES if p < size), size]
    before = 0.0
    for last, this, following in zip(ladder, ladder[1:], ladder[2:], strict=False):
        now = seconds(this)
        steepness = math.log(now / before) / math.log(this / last) if now > 1e-3 and before > 1e-5 else 2.0
        if now * (following / this) ** max(2.0, steepness) > 1.0:
            return False
        before = now
    return True


def _seconds(subject: Subject, values: list[Tensor]) -> float:
    """How much longer forward takes on these values than on the sample; 0 if it refuses them."""
    times = []
    for tensors in (subject.base, values):
        runs: list[float] = []
        while len(runs) < 3 and sum(runs) < 0.05:  # the quickest of three, but for what takes long anyway
            start = time.process_time()
            with torch.no_grad(), contextlib.suppress(Exception):
                subject.run([t.clone() for t in tensors], subject.without_graph)
            runs.append(time.process_time() - start)
        times.append(min(runs))
    return max(0.0, times[1] - times[0])


PROBES = (10, 33, 100)  # sizes that tell how long the next one takes
PATIENCE = 0.3  # seconds for one forward at another size
ELEMENTS = 300_000  # of an output, beyond which nothing is learned that takes so long


def accepted(subject: Subject, values: list[Tensor]) -> list[Tensor] | None:
    """The outputs for these values, or None if forward refuses them or takes too long."""
    start = time.process_time()
    try:
        with torch.no_grad():
            outputs = subject.run(values, subject.without_graph).outputs
    except (Exception, SystemExit):
        return None
    return outputs if time.process_time() - start < PATIENCE else None


@check(capability="empty")
def empty(subject: Subject) -> Iterator[Finding]:
    """If forward accepts an empty batch, backward returns a gradient for it, too.

    The last batch of a filtered data set can be empty, and so can the batch of an expert that gets no token. The
    gradients must have the right shapes: empty for the batch, zero for the weights.
    """
    if any(callable(a) for a in subject.flat):
        return  # what a function among the arguments makes of nothing is its own matter
    for where, values in resizings(subject, 0):
        if _out_of_place(subject, values):
            continue
        outputs = accepted(subject, [v.clone() for v in values])
        if outputs is None or max(subject.active) >= len(outputs):
            continue
        if not all(is_differentiable(outputs[i]) for i in subject.active):
            continue
        if any(values[s].shape[-1:] == (0,) for s in subject.recognized):
            continue  # a distribution, a direction or a matrix of nothing is none
        if any(0 in o.shape[1:] for o in outputs):
            continue  # no batch: channels or classes are never none at all
        numbers = real([outputs[i] for i in subject.active])
        try:
            run = subject.run([v.clone() for v in values])
        except (Exception, SystemExit):
            continue  # forward refuses it where a gradient is wanted
        try:
            grads = run.gradients()
        except (Exception, SystemExit) as error:
            if not subject.custom or _parted(subject, values) or _fixed(subject, values):
                continue
            yield finding(
                "error",
                f"with {where} empty, forward runs but backward raises {first_line(error)}",
                *explain(error, "Handle a size of zero, or refuse it in forward."),
            )
            return
        if not numbers.isfinite().all():
            continue  # the mean of nothing: whatever comes back is as good
        for slot in subject.leaves:
            grad = grads[slot]
            if grad is None or grad.numel() == 0:
                continue
            advice = NEVER_WRITTEN
            if numbers.numel():  # which depend on what is not empty
                if subject.gradient != "exact" or not subject.right:
                    continue
                numeric = Derivative(subject.value, values, [slot], subject.coarsest)
                mismatch = numeric.compare(real([grad]), output_weights(outputs, subject.active))
                if mismatch is None:
                    continue
                said, advice = f"{mismatch.actual:.6g}, but the values change by {mismatch.expected:.6g}", SOME_SIZES
            elif torch.count_nonzero(grad) and not (subject.gradient == "custom" and adds_to_zero(subject)):
                said = f"{grad.reshape(-1)[grad.abs().argmax()].item():.6g} and not 0"
            else:
                continue
            yield finding("error", f"with {where} empty, the gradient of {subject.describe(slot)} is {said}", *advice)
            return


def _fixed(subject: Subject, values: list[Tensor]) -> bool:
    """Whether the sizes that were changed have a meaning, as of three coordinates: one entry more is refused, too."""
    try:
        subject.run(_one_more(subject, values)).gradients()
    except (Exception, SystemExit):
        return True
    return False


def _one_more(subject: Subject, values: list[Tensor]) -> list[Tensor]:
    """The sample with one entry more in each dim of which the size was changed."""
    more = subject.copies()
    for i, d, n in _changed(subject, values):
        more[i] = _resized(more[i], d, n + 1, None)
    return more


def _broken_square(subject: Subject, values: list[Tensor]) -> bool:
    """Whether one side of a square matrix was changed, which forward takes by broadcasting alone, if at all."""
    squares = [i for i, b in enumerate(subject.base) if b.dim() > 1 and b.shape[-1] == b.shape[-2] > 1]
    broken = any(values[i].shape[-1] != values[i].shape[-2] for i in squares)
    return broken and accepted(subject, _one_more(subject, values)) is None


SOME_SIZES = (
    "The backward is right only for some sizes: a tile loop that skips the remainder, a hard-coded size, a squeeze "
    "that drops a dim of size one, a factor that depends on the size.",
    "Handle the remainder in the last tile; name the dims that squeeze may drop; divide by the actual size.",
)
NEVER_WRITTEN = (
    "The mean of nothing was taken, or the memory of the gradient was allocated and, with nothing to loop over, never "
    "written.",
    "Allocate it with zeros, and handle a size of zero.",
)
FEW = (
    "The sample hides it: most of its numbers are equal, as zeros or an identity are. The sizes have no part in it.",
    "Pass a sample of random numbers to have the gradient checked entry by entry; if the function takes only some "
    "numbers, pass domain= as well.",
)
BROADCAST = (
    "Forward broadcasts an input of size one, and backward takes it for granted that the sizes are equal.",
    "Sum the gradient over the dims that were broadcast, as by grad.sum_to_size(input.shape); or refuse other sizes in "
    "forward.",
)
DOUBLED = 0  # stands for a size that is twice the given one
SIZES = (1, 2, 7, 17, 33, 65, 129, 257, 1025)
SECONDS = 1.5


def _doublings(subject: Subject) -> Iterator[tuple[str, list[Tensor]]]:
    """The sample with a dim of all inputs twice as large, as heads of attention are, of which some share a key."""
    shown = [s for s, slot in enumerate(subject.slots) if not slot.hidden]
    dims = {subject.base[s].dim() for s in shown}
    # Constants are as the caller made them.
    free = all(subject.slots[s].leaf or not is_differentiable(subject.base[s]) for s in shown)
    for d in range(dims.pop()) if free and len(dims) == 1 and len(shown) > 1 else ():
        generator = torch.Generator().manual_seed(0)
        values = subject.copies()
        for s in shown:
            wiggled = generator if subject.slots[s].leaf else None
            values[s] = _resized(values[s], d, 2 * values[s].shape[d], wiggled)
        if subject.affordable(sum(v.numel() for v in values)):
            yield f"dim {d} of all inputs", values


def _in_full(subject: Subject) -> Iterator[tuple[str, list[Tensor]]]:
    """An argument of which forward uses each entry many times, as a bias of all samples, with an entry for each use.

    One number for each channel belongs to a layer, and no caller has more of them.
    """
    shape = subject.expected[0][subject.active[0]].shape
    for s in subject.leaves:
        base = subject.base[s]
        if subject.slots[s].hidden or s in subject.recognized or base.shape == shape or base.dim() < 2:
            continue
        try:
            whole = base.expand(shape)
        except RuntimeError:
            continue  # it has other dims than the result
        apart = 1 + 0.2 * torch.rand(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        values = subject.copies()
        values[s] = whole * apart.to(whole)
        yield subject.describe(s), values


IN_FULL = (
    "backward adds up what belongs to one entry: it takes for granted that forward uses each entry for several "
    "results, as in the sample.",
    "Sum over the dims alone in which the argument was expanded: grad.sum_to_size(argument.shape).",
)


@check(needs="first_order")
def sizes(subject: Subject) -> Iterator[Finding]:
    """The gradient is also right if a tensor that you pass to the audit has another size, from 1 to 1025.

    A kernel may work in tiles and skip the remainder, ``squeeze`` may drop a batch of one, and a buffer may fit only
    one batch size. The audit finds this with derivatives along random directions, which take little time at any size.
    An argument of two or more dims that forward expands, such as a bias of all samples, is also tried with an entry for
    each result.
    """
    if not subject.derivative:
        return
    if not subject.right:  # first_order has let it pass
        raise Unmeasured("the gradient is right only if a matrix stays symmetric")
    start = time.process_time()
    for where, values in _in_full(subject):
        outputs = accepted(subject, [v.clone() for v in values])
        usual = subject.expected[0]
        if outputs is not None and [o.shape for o in outputs] == [o.shape for o in usual]:
            found = along_directions(subject, values, f"with an entry for each result in {where}", IN_FULL)
            yield from (problems := [p for p in found if "backward raises" not in p.summary])  # which is noticed
            if problems:
                return
    for size in (*SIZES[:2], DOUBLED, *SIZES[2:]):
        done = 0
        for where, values in resizings(subject, size) if size else _doublings(subject):
            if done == 3 or time.process_time() - start > SECONDS:
                continue
            if _out_of_place(subject, values) or _broken_square(subject, values):
                continue
            outputs = accepted(subject, [v.clone() for v in values])
            if outputs is None or max(subject.active) >= len(outputs):
                continue
            if not all(is_differentiable(outputs[i]) for i in subject.active):
                continue
            numbers = real([outputs[i] for i in subject.active])
            if not numbers.isfinite().all() or not 0 < numbers.numel() < ELEMENTS:
                continue
            parted = _parted(subject, values)
            broadcasts = parted and _broadcasts(subject, values, numbers)
            if parted and not (broadcasts or _free(subject, values)):
                continue  # what forward does not refuse is not always a call that it is made for
            done += 1
            label = f"with size {size} in {where}" if size else f"with {where} twice as large"
            problems = list(along_directions(subject, values, label, SOME_SIZES))
            single = any(v.shape.count(1) - b.shape.count(1) > 1 for v, b in zip(values, subject.base, strict=True))
            stands_for_many = broadcasts and size == 1
            unusual = _index_parted(subject, values) or _kernel_resized(subject, values)
            if single or (parted and not stands_for_many) or unusual:
                # An image of one pixel, a matrix of one entry, or sizes that no caller mixes: an exception is noticed.
                problems = [p for p in problems if "backward raises" not in p.summary]
            elif stands_for_many:
                # It is noticed, and a caller may always pass equal sizes: no broadcasting is a capability, like others.
                raises = [replace(p, severity="info", cause=BROADCAST[0], fix=BROADCAST[1]) for p in problems]
                problems = [r if "backward raises" in p.summary else p for p, r in zip(problems, raises, strict=True)]
            if problems and not list(along_directions(subject, _gentle(subject, values), label, SOME_SIZES)):
                continue  # it is the larger numbers, as where an iteration does not converge, and not the size
            if problems and not list(along_directions(subject, _repeated(subject, values), label, SOME_SIZES)):
                continue  # it is the new numbers: those of the sample have an order, such as that of a flat matrix
            if problems and _right_with_counts(subject, values):
                continue  # a number among the arguments was the size, and would have to be the new one
            if problems and not _used(subject, values, outputs):
                continue  # forward takes as many entries as it needs, such as three coordinates
            if problems and (elsewhere := _wrong_nearby(subject)):
                yield from elsewhere
                return
            if problems and _cannot_repeat(subject, values):
                problems = [replace(p, cause=REPEATED[0], fix=REPEATED[1]) for p in problems]
            yield from problems
            if problems:
                return


def _wrong_nearby(subject: Subject) -> list[Finding]:
    """What is wrong at other numbers, of the sample's own size, if those of the sample are few, as zeros are.

    What is wrong there has nothing to do with the size.
    """
    plain = [s for s in subject.leaves if not subject.slots[s].hidden and s not in subject.recognized]
    few = [s for s in plain if 0 < len((numbers := real([subject.base[s]])).unique()) <= len(numbers) // 2]
    generator = torch.Generator().manual_seed(9)
    precise = {s: torch.complex128 if subject.base[s].is_complex() else torch.float64 for s in few}
    noise = {s: torch.rand(subject.base[s].shape, generator=generator, dtype=precise[s]) for s in few}

    def nearby(noise: dict[int, Tensor]) -> list[Tensor]:
        values = subject.copies()
        for s in few:
            values[s] = values[s] + 0.1 * max(float(values[s].abs().max()), 1.0) * noise[s].to(values[s])
        return values

    label = "near the sample, at the same sizes"
    found = list(along_directions(subject, nearby(noise), label, SOME_SIZES)) if few else []
    if found and (mirrored := [s for s in few if may_be_symmetric(subject.base[s])]):
        mirrors = nearby(noise | {s: noise[s] + noise[s].mT for s in mirrored})
        grads = subject.vjp(mirrors)[1]
        symmetric = all((g := grads[s]) is not None and torch.allclose(g, g.mT) for s in mirrored)
        recognized = subject.recognized
        subject.recognized = recognized | dict.fromkeys(mirrored, SYMMETRIC)  # the derivative is taken along the set
        try:
            if symmetric and not list(along_directions(subject, mirrors, label, SOME_SIZES)):
                return [if_symmetric(subject, mirrored)]
        finally:
            subject.recognized = recognized
    return [replace(f, cause=FEW[0], fix=FEW[1]) for f in found]


def _cannot_repeat(subject: Subject, values: list[Tensor]) -> bool:
    """Whether another size repeats an index that the sample has once, and that alone makes the gradient wrong."""

    def repeats(tensor: Tensor) -> bool:
        return len(tensor.unique()) < tensor.numel()

    for s, (base, value) in enumerate(zip(subject.base, values, strict=True)):
        if is_differentiable(base) or base.dtype is torch.bool or base.numel() < 2 or repeats(base):
            continue
        one = subject.copies()
        one[s] = base.clone()
        one[s].view(-1)[1] = base.view(-1)[0]
        if repeats(value) and list(along_directions(subject, one, "", SOME_SIZES)):
            return True
    return False


def _out_of_place(subject: Subject, values: list[Tensor]) -> bool:
    """Whether what has a meaning as a whole, as a distribution has, was cut or repeated apart from the others."""
    return _parted(subject, values) and any(
        values[s].shape != subject.base[s].shape for s in subject.recognized if s < len(values)
    )


def _parted(subject: Subject, values: list[Tensor]) -> bool:
    """Whether a size that several inputs have in one dim, as a batch, was changed in some of them alone."""
    shapes = [
        (b.shape, v.shape)
        for slot, b, v in zip(subject.slots, subject.base, values, strict=True)
        if not slot.hidden and is_differentiable(b)
    ]
    changed = {(d, n) for base, now in shapes for d, n in enumerate(base) if now[d] != n}
    return any(d < len(base) and base[d] == now[d] == n for d, n in changed for base, now in shapes)


def _broadcasts(subject: Subject, values: list[Tensor], numbers: Tensor) -> bool:
    """Whether an input of size one stands for as many equal entries as its partners have."""
    expanded = list(values)
    for i, d, n in _changed(subject, values):
        m = values[i].shape[d]
        if 1 not in (n, m):
            return False
        for k, base in enumerate(subject.base):
            if not subject.slots[k].hidden and base.shape[d : d + 1] == (n,) and expanded[k].shape[d] == 1:
                expanded[k] = expanded[k].repeat_interleave(max(n, m), d)
    outputs = accepted(subject, [v.clone() for v in expanded])
    if outputs is None or max(subject.active) >= len(outputs):
        return False
    found = real([outputs[i] for i in subject.active])
    return found.shape == numbers.shape and torch.allclose(found, numbers, rtol=1e-6, equal_nan=True)


def _free(subject: Subject, values: list[Tensor]) -> bool:
    """Whether forward takes the inputs that have another size both longer and shorter than the others, and shows it.

    A loop over the length of one input, which reads from another one, fails for one of the two, or ignores what is
    left: then its outputs are as large as before.
    """
    usual = [o.shape for o in subject.run().outputs]
    for by in (1, -1):
        others = subject.copies()
        for i, d, n in _changed(subject, values):
            if n == 1:
                return False
            others[i] = _resized(others[i], d, n + by, None)
        outputs = accepted(subject, others)
        if outputs is None or [o.shape for o in outputs] == usual:
            return False
    return True


def _changed(subject: Subject, values: list[Tensor]) -> list[tuple[int, int, int]]:
    """Which inputs have another size than in the sample, in which dim, and what it is there."""
    pairs = enumerate(zip(subject.base, values, strict=True))
    return [(i, d, n) for i, (b, v) in pairs for d, n in enumerate(b.shape) if v.shape[d] != n]


def _index_parted(subject: Subject, values: list[Tensor]) -> bool:
    """Whether the length of an index, a mask or labels was changed, and not the size that it had in common."""
    pairs = [(b, v) for slot, b, v in zip(subject.slots, subject.base, values, strict=True) if not slot.hidden]
    changed = {n for b, v in pairs if not is_differentiable(b) for n, m in zip(b.shape, v.shape, strict=True) if n != m}
    return any(
        n == m and n in changed for b, v in pairs if is_differentiable(b) for n, m in zip(b.shape, v.shape, strict=True)
    )


def _kernel_resized(subject: Subject, values: list[Tensor]) -> bool:
    """Whether a constant of several equal sizes was changed in more than one, as the taps of a filter are not."""
    changed = Counter(i for i, _, _ in _changed(subject, values))
    return any(n > 1 and is_differentiable(subject.base[i]) and not subject.slots[i].leaf for i, n in changed.items())


def _right_with_counts(subject: Subject, values: list[Tensor]) -> bool:
    """Whether the gradient is right once whole numbers among the arguments that were the size are the new one, too."""
    old = {n for _, _, n in _changed(subject, values)}
    if len(old) > 1 or not any(type(a) is int and a in old for a in subject.flat):
        return False
    size = next(values[i].shape[d] for i, d, _ in _changed(subject, values))
    with subject.settings([size if type(a) is int and a in old else a for a in subject.flat]):
        outputs = accepted(subject, [v.clone() for v in values])
        return outputs is not None and not list(along_directions(subject, values, "", SOME_SIZES))


def _used(subject: Subject, values: list[Tensor], outputs: list[Tensor]) -> bool:
    """Whether the entries that were added to the sample make a difference, in each dim that has become longer."""
    before = real([outputs[i] for i in subject.active])
    for i, dim, size in _changed(subject, values):
        if not subject.slots[i].leaf or (now := values[i].shape[dim]) < size:
            continue
        changed = [v.clone() for v in values]
        changed[i].narrow(dim, size, now - size).mul_(0.9).add_(0.01)
        again = accepted(subject, changed)
        if again is not None and torch.equal(before, real([again[k] for k in subject.active])):
            return False
    return True


def _repeated(subject: Subject, values: list[Tensor]) -> list[Tensor]:
    """What is longer than in the sample has its numbers, each time with a factor of its own."""
    repeated = list(values)
    for i, d, given in _changed(subject, values):
        if subject.slots[i].leaf and (n := values[i].shape[d]) > given > 0:
            factors = 1 + 0.1 * torch.rand(n, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
            shape = [n if k == d else 1 for k in range(values[i].dim())]
            repeated[i] = _resized(subject.base[i], d, n, None) * factors.reshape(shape).to(values[i])
    return repeated if all(r.shape == v.shape for r, v in zip(repeated, values, strict=True)) else values


def _gentle(subject: Subject, values: list[Tensor]) -> list[Tensor]:
    """Smaller numbers, so that sums over more of them are no larger than in the sample."""
    growth = max(v.numel() / max(1, b.numel()) for v, b in zip(values, subject.base, strict=True))
    return [
        0.5 * v / growth if slot.leaf and not slot.hidden else v for v, slot in zip(values, subject.slots, strict=True)
    ]


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """Have torch fill fresh memory with NaN, as it can for the sake of determinism."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    deterministic: Any = torch.utils.deterministic  # makes a property of its switch, which no type checker sees
    fill = deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        deterministic.fill_uninitialized_memory = fill


@check()
def unwritten_memory(subject: Subject) -> Iterator[Finding]:
    """Write to all memory from ``torch.empty`` before you read it.

    ``torch.empty`` mostly returns zeros in a small test, and old numbers in a long run. This check fills all fresh
    memory with NaN.
    """

    def outcome() -> Outcome:
        with poisoned_memory():
            return subject.vjp()

    found = deviation(subject, outcome, subject.expected)
    if found and found.error is None:
        yield finding(
            "error",
            f"with fresh memory filled with NaN, {found.text}",
            "A buffer from torch.empty is returned, or added to, where nothing was written.",
            "Use torch.zeros, or write every element.",
        )
