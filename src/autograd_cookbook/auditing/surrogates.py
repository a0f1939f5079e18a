"""Gradients that are those of another function on purpose: the value does not move, and backward returns one."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from autograd_cookbook.auditing.diagnose import difference
from autograd_cookbook.auditing.numeric import Derivative, rounding
from autograd_cookbook.auditing.report import Finding
from autograd_cookbook.auditing.subject import Subject, real

STEPS = 1e-6, -1e-6
AT_A_KINK = 1e-3  # slopes of two sides differ by more, relative to the gradient
SUMMARY = (
    "looks like a surrogate: declare it. The value does not move when {} does, but backward returns a gradient for it"
)

FOR_AN_OUTPUT = (
    "looks like a surrogate: declare it. {} does not move when the inputs do, but backward returns a gradient for it"
)

CHANGED = (
    "looks like a surrogate: declare it. Forward returns {} as it is, and backward returns a gradient for it "
    "that is not grad_output"
)

IN_STEPS = (
    "looks like a surrogate: declare it. Forward rounds to eight bits, so the value moves in steps when {} does, and "
    "backward returns another gradient than that of the steps"
)


def is_still(subject: Subject, slot: int, values: Sequence[Tensor]) -> bool:
    """Whether no output moves if an input moves a little, to either side: at a step, they move to one side."""
    if not values[slot].numel():
        return False
    here, moved = subject.value([v.clone() for v in values]), []
    for step in STEPS:
        there = [v.clone() for v in values]
        there[slot] = _moved(there[slot], step)
        try:
            moved.append(subject.value(there) != here)
        except (Exception, SystemExit):
            return False  # at the edge of the domain
    return moved[0].shape == moved[1].shape and not bool((moved[0] & moved[1]).any())


def looks_like_surrogate(subject: Subject) -> list[int]:
    """The inputs that have a gradient on the sample though nothing moves with them."""
    outputs, grads = subject.expected
    return [
        s
        for s in subject.leaves
        if (grad := grads[s]) is not None
        and bool((grad.abs() > rounding(outputs, subject.base[s])).any())
        and is_still(subject, s, subject.copies())
    ]


def still_outputs(subject: Subject) -> list[int]:
    """The outputs that do not move with any input, as spikes do not, and for which backward returns a gradient."""
    here, still = subject.run().outputs, set(subject.active)
    for step in STEPS:
        try:
            there = subject.run(subject.copies(functools.partial(_moved, step=step))).outputs
        except (Exception, SystemExit):
            return []  # at the edge of the domain
        still = {i for i in still if torch.equal(here[i], there[i])}
    found = []
    for i in sorted(still):
        run = subject.run()
        weights = [torch.ones_like(o) * (o is run.outputs[i]) for o in run.outputs if o.requires_grad]
        grads = run.gradients(weights)
        if any(g is not None and bool(torch.count_nonzero(g)) for g in grads):
            found.append(i)
    return found


def _moved(tensor: Tensor, step: float) -> Tensor:
    return tensor + step * (1 + tensor.abs())


def passes_on(subject: Subject) -> list[int]:
    """The inputs that forward returns as they are, also far from the sample: then it is there for its backward."""

    def same(factor: float, shift: float) -> set[int]:
        values = subject.copies(lambda v: factor * v + shift)
        given = {s: real([values[s]]) for s in subject.leaves}
        value = subject.value([v.clone() for v in values])
        return {s for s in subject.leaves if torch.equal(value, given[s])}

    try:
        return sorted(same(1.0, 0.0) & same(-30.0, 1.0))  # a bias that is 0 on the sample does something there
    except (Exception, SystemExit):
        return []


def unlike_declared(
    subject: Subject, slot: int, values: Sequence[Tensor], ours: Tensor, theirs: Tensor, weights: Tensor, rtol: float
) -> str | None:
    """Where a gradient is not that of the declared surrogate, in words; None if it is.

    At a kink of the surrogate, anything between the slopes of its two sides will do. Which of them its own gradient
    takes is a convention: ``torch.clamp`` takes 1 at its bounds up to torch 2.13, and 0 since 2.14.
    """
    what = difference(ours, theirs, rtol)
    if what is None or difference(ours, theirs, AT_A_KINK) is None or not ours.isfinite().all():
        return what
    surrogate = Derivative(
        functools.partial(subject.value, function=subject.surrogate), values, [slot], subject.coarsest
    )
    if not surrogate.center.isfinite().all():
        return what
    return what if surrogate.compare(real([ours]), weights, AT_A_KINK) else None


def take_as_custom(subject: Subject, slots: Sequence[int], summary: str = SUMMARY) -> Finding:
    """Judge the gradient no more from here on, and say of which inputs and why, instead of that it is wrong."""
    return _custom(subject, summary.format(" or ".join(subject.describe(s) for s in slots)))


def take_outputs_as_custom(subject: Subject, outputs: Sequence[int]) -> Finding:
    """The same, where some outputs are those of a step."""
    return _custom(subject, FOR_AN_OUTPUT.format(" or ".join(f"output {i}" for i in outputs).capitalize()))


def _custom(subject: Subject, summary: str) -> Finding:
    subject.gradient, subject.undeclared = "custom", True
    return Finding(
        "",
        "info",
        summary,
        "The backward is the gradient of another function on purpose, as that of a straight-through estimator or of a "
        "gradient reversal is. Until you declare which, the audit cannot judge the numbers.",
        "Declare the function whose gradient it is with surrogate=, or in pyproject.toml with surrogate = "
        '"package.module:function". If there is no such function, as for a clipped gradient: gradient="custom".',
        "",
    )
