"""The numbers: first and second derivatives, in both modes, against differences of the values."""

import contextlib
import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.checks.execution import results
from autograd_cookbook.auditing.diagnose import (
    NEARLY,
    NOT_FINITE,
    NOT_ZERO,
    PASSED_ON,
    difference,
    explain,
    first_line,
    in_some,
    pattern,
)
from autograd_cookbook.auditing.domains import mirrored
from autograd_cookbook.auditing.kept import Kept, Place
from autograd_cookbook.auditing.numeric import BUDGET, RTOL, Derivative, Mismatch, along, rounding
from autograd_cookbook.auditing.observe import Record, fewest_bits, observing, same, saving_copies
from autograd_cookbook.auditing.report import Finding, enumerated
from autograd_cookbook.auditing.roots import IGNORED, NO_PATTERN, WRITES_GRAD
from autograd_cookbook.auditing.steps import LOOKS, SPACINGS, Line, jumps_often, size_of_steps
from autograd_cookbook.auditing.steps import slope as slope_over_steps
from autograd_cookbook.auditing.subject import (
    Refused,
    Run,
    Subject,
    Unmeasured,
    Wrong,
    functions_of,
    is_differentiable,
    nodes_of,
    own_nodes_of,
    real,
    tensors_in,
    weights_of,
)
from autograd_cookbook.auditing.surrogates import (
    CHANGED,
    IN_STEPS,
    looks_like_surrogate,
    passes_on,
    still_outputs,
    take_as_custom,
    take_outputs_as_custom,
    unlike_declared,
)
from autograd_cookbook.auditing.tangents import in_tangent_space, summary_and_advice
from autograd_cookbook.auditing.variation import other_flags, with_one
from autograd_cookbook.layouts import parts

TOLERANCE = 0.05  # of approximate gradients, unless another is given
SECONDS = 1.0  # for measuring how good they are


def zeros_for_none(subject: Subject, grads: Sequence[Tensor | None], slots: Sequence[int]) -> list[Tensor]:
    """The gradients of some slots, zero where there is none."""
    return [torch.zeros_like(subject.base[s]) if (g := grads[s]) is None else g for s in slots]


def output_weights(outputs: Sequence[Tensor], active: Sequence[int]) -> Tensor:
    """The weights of :func:`weights_of` for all outputs as one real vector."""
    return real(weights_of([outputs[i] for i in active]))


def _unflatten(vector: Tensor, like: Tensor) -> Tensor:
    if like.is_complex():
        return torch.view_as_complex(vector.reshape(*like.shape, 2).contiguous()).to(like.dtype)
    return vector.reshape(like.shape).to(like.dtype)


@check(capability="first_order")
def first_order(subject: Subject) -> Iterator[Finding]:
    """The gradient agrees with differences of the values.

    The audit compares an exact gradient with differences of forward in float64, which show even a factor of 0.9999. At
    a kink, it accepts any number between the slopes of the two sides. It compares a surrogate gradient with the
    gradient of the declared function, and an approximate gradient with differences over many seeds. It does not judge a
    custom gradient. If the value does not move with the input, but backward returns a gradient, the audit asks you to
    declare a surrogate. It also does so if forward returns its input as it is, and backward changes the gradient. If an
    input or output holds unit quaternions, and the gradient is that of a small rotation or motion, as in libraries for
    Lie groups, the audit asks you to declare a custom gradient.

    If forward iterates, as a solver does, the gradient may differ by a thousandth of its norm. If the iteration stops
    so early that the values change in steps, the audit takes differences over distances that are long compared with the
    steps.
    """
    if subject.gradient == "custom":
        return  # the derivative of nothing
    outputs, grads = subject.expected
    if subject.gradient == "surrogate":
        yield from _as_declared(subject, outputs, grads)
        return
    if subject.gradient == "approximate":
        yield from _quality(subject)
        return
    slots = subject.leaves
    numeric = Derivative(subject.value, subject.base, slots, subject.coarsest)
    weights = output_weights(outputs, subject.active)
    if not numeric.center.isfinite().all():
        return  # the check of the values has said so
    judged = subject.judged
    # Differences of values that come in steps say nothing, also where they happen to agree.
    if found := _over_steps(subject, grads, judged, weights):
        subject.rough, subject.right = True, found.severity == "info"
        still = [] if subject.right else looks_like_surrogate(subject)
        yield take_as_custom(subject, still) if still else found
        return
    singles = {s: Derivative(subject.value, subject.base, [s], subject.coarsest) for s in judged}
    floors = {s: rounding(outputs, subject.base[s]) for s in judged}
    compared = {
        s: single.compare(real(zeros_for_none(subject, grads, [s])), weights, floor=floors[s])
        for s, single in singles.items()
    }
    wrong = {s: (mismatch, singles[s]) for s, mismatch in compared.items() if mismatch is not None}
    if wrong and (still := looks_like_surrogate(subject)):
        if estimate := _is_slope_of_the_mean(subject):
            subject.gradient, subject.undeclared = "custom", True
            yield finding(
                "info",
                "looks like an estimator: declare it. For one draw, the value does not move when "
                f"{subject.describe(still[0])} does, but the mean over {estimate[0]} draws does, and the gradient "
                "agrees with it",
                "Forward is random and goes in steps, and backward estimates the derivative of the mean, as stochastic "
                "rounding and perturbed optimizers do. The audit compared the slopes along one direction, with a "
                f"standard error of {estimate[1]:.2g} of the slope.",
                'Declare gradient="custom". If you know the mean, pass it as surrogate= to have each entry checked.',
            )
        else:
            yield take_as_custom(subject, still)
        return
    if wrong and len(subject.active) > 1 and (steps := still_outputs(subject)):
        yield take_outputs_as_custom(subject, steps)
        return
    if wrong and (passed := passes_on(subject)):
        yield take_as_custom(subject, passed, CHANGED)
        return
    if wrong and fewest_bits(subject.run) == 8:
        yield take_as_custom(subject, list(wrong), IN_STEPS)
        return
    if wrong and subject.custom and (tangent := in_tangent_space(subject)):
        subject.gradient = "custom"
        yield finding("warning" if tangent.off else "info", *summary_and_advice(tangent))
        return
    if wrong and all(_right_if_symmetric(subject, s, grads[s], singles[s], weights) for s in wrong):
        subject.right = False
        yield if_symmetric(subject, list(wrong))
        return
    if wrong and (draws := _draws_that_agree(subject)):
        subject.gradient = "approximate"
        yield finding(
            "info",
            "looks like an estimator: declare it. For one draw, the gradient of "
            f"{enumerated([subject.describe(s) for s in wrong])} is not the derivative of the values, but the means "
            f"over {draws} draws agree",
            "Forward is random, and backward returns another gradient with the same mean, as an estimator with less "
            "variance does. The means agree for a loss that is linear in the outputs and for one that is quadratic.",
            'Declare gradient="approximate". The audit then compares the mean with the values to within a tolerance.',
        )
        return
    slopes = _slopes(subject, grads, singles, weights) if wrong and repetitions(subject) >= ITERATIONS else {}
    missing = any(grads[s] is None for s in singles)
    if slopes and not missing and (accuracy := _accuracy_of_a_solver(slopes)):
        subject.accuracy = max(1e-3, 10 * accuracy)
        yield finding(
            "info",
            f"the gradient differs by {accuracy:.1g} of its norm from what the values say, as that of an iterative "
            "solver does",
            f"Forward repeats the same operation {repetitions(subject)} times. A gradient that solves another "
            "equation has the accuracy of that solver, and not that of float64.",
            "Nothing, if the accuracy suffices; otherwise tighten the tolerance or the step of the solver in backward.",
        )
        return
    if len(wrong) > 1 and slopes:
        wrong = {s: wrong[s] for s in _beyond_a_solver(slopes) if s in wrong} or wrong
    for slot, (mismatch, single) in wrong.items():
        subject.right = False
        given = grads[slot]
        missing = given is None
        recognized = ""
        if single.complete and given is not None:
            expected = _unflatten(single.gradient(weights), subject.base[slot])
            recognized = (
                pattern(subject, slot, given, expected, outputs)
                or _conjugated(subject, slot, single)
                or _transposed(subject, slot, given, weights)
                or in_some(subject, slot, given, expected)
            )
        place = subject.describe(slot, mismatch.index)
        actual = "missing (None)" if missing else f"{mismatch.actual:.6g}"
        count = "" if mismatch.count is None else f" ({mismatch.count} of {mismatch.size} entries are off)"
        summary = f"the gradient of {place} is {actual}, but the values change by {mismatch.expected:.6g}{count}"
        yield finding("error", summary, *_cause_of_wrong_gradient(subject, slot, missing, recognized, single))


TOO_SLOW = (
    "The formula of the backward is not the derivative of the forward. Which entries are wrong was not looked at: the "
    "function is too slow for that.",
    "Audit it on a smaller sample, or with a larger budget=, to see which entries are wrong and how.",
)
ROUGHLY = 0.05  # of the norm: a solver that is slow is more accurate than that


def in_brief(subject: Subject) -> Iterator[Finding]:
    """What :func:`first_order` says of a function that is too slow for it: along directions, and roughly."""
    if not subject.derivative:
        return
    for found in along_directions(subject, subject.copies(), "on the sample", TOO_SLOW, accuracy=ROUGHLY):
        if still := looks_like_surrogate(subject):
            yield take_as_custom(subject, still)
        elif passed := passes_on(subject):
            yield take_as_custom(subject, passed, CHANGED)
        else:
            subject.right = False
            yield found


def along_directions(
    subject: Subject, values: list[Tensor], label: str, advice: tuple[str, str], accuracy: float = 0.0
) -> Iterator[Finding]:
    """Whether the gradient is right along a few random directions, but for a share of its norm."""
    accuracy = accuracy or subject.accuracy or 0.0
    try:
        run = subject.run([v.clone() for v in values])
    except (Exception, SystemExit):
        return  # forward refuses it where a gradient is wanted
    try:
        grads = run.gradients()
    except (Exception, SystemExit) as error:
        if subject.custom:
            yield finding("error", f"{label}, forward runs but backward raises {first_line(error)}", *explain(error))
        return
    slots = [s for s in subject.leaves if not subject.slots[s].hidden]
    filled = real([torch.zeros_like(values[s]) if (g := grads[s]) is None else g for s in slots])
    weights = output_weights(run.outputs, subject.active)
    if subject.gradient == "surrogate":
        declared = subject.run([v.clone() for v in values], function=subject.surrogate).gradients()
        theirs = real([torch.zeros_like(values[s]) if (g := declared[s]) is None else g for s in slots])
        if not torch.allclose(filled, theirs, rtol=1e-6, atol=1e-8):
            yield finding("error", f"{label}, the gradient is not that of the declared surrogate", *advice)
        return
    if subject.rough:
        return  # differences of the values say nothing
    numeric = Derivative(subject.value, values, slots, subject.coarsest)
    rtol = accuracy or 1e-5
    generator = torch.Generator().manual_seed(3)
    wrong: list[tuple[float, float]] = []
    # Where the first is wrong, two of three directions decide: along one, a gradient can be right by chance.
    for _ in range(3):
        direction = torch.randn(numeric.n, generator=generator, dtype=torch.float64)
        claimed = float(filled @ direction)
        slope, err, noise = numeric.slope(direction, numeric.steps()[0] * 0.1)
        expected = float(weights @ slope)
        allowed = rtol * abs(expected) + accuracy * float(filled.norm()) + float(weights.abs() @ (err + noise)) + 1e-9
        if abs(claimed - expected) > allowed:
            judged = numeric.judge(claimed, direction, weights, rtol, abs(expected))
            wrong += [] if judged is None else [(claimed, judged)]
        if len(wrong) in (0, 2):
            break
    if len(wrong) < 2:
        return
    claimed, expected = wrong[-1]
    yield finding(
        "error",
        f"{label}, the gradient gives the slope {claimed:.6g} in a random direction, but the values have the slope "
        f"{expected:.6g}",
        *(advice if math.isfinite(claimed) else NOT_FINITE),
    )


def if_symmetric(subject: Subject, slots: Sequence[int]) -> Finding:
    """What is said of a gradient that is right where a matrix that is symmetric stays so."""
    return finding(
        "info",
        f"the gradient of {enumerated([subject.describe(s) for s in slots])} is right only if the matrix stays "
        "symmetric, as it is in the sample",
        "The sum of each pair of mirrored entries agrees with the values, and the two entries do not. This is right "
        "for a function of symmetric matrices, and wrong for one of all matrices.",
        "Pass a sample that is not symmetric if the function takes one; otherwise pass domain=, which symmetrizes.",
    )


def _right_if_symmetric(subject: Subject, slot: int, given: Tensor | None, single: Derivative, weights: Tensor) -> bool:
    """Whether a gradient at a matrix that is symmetric, perhaps by chance, is symmetric, and right for such changes.

    A gradient that is transposed by mistake is right for them, too, but not symmetric. Where forward reads one of each
    two entries alone, as a Cholesky decomposition does, there is no such mistake.
    """
    mirror = mirrored(subject.base[slot])
    if given is None or not single.complete or not given.isfinite().all() or mirror is None:
        return False
    expected = _unflatten(single.gradient(weights), subject.base[slot])
    numbers = torch.arange(given.numel()).reshape(given.shape)
    unread = (expected == 0) | (mirror(expected) == 0) | (mirror(numbers) == numbers)
    symmetric = bool(given.any()) and (torch.allclose(given, mirror(given)) or bool(unread.all()))
    return symmetric and difference(given + mirror(given), expected + mirror(expected), RTOL) is None


CONJUGATED = (
    "it is the complex conjugate of the right one if grad_output is real: PyTorch multiplies grad_output by the "
    "conjugate of the derivative"
)


def _conjugated(subject: Subject, slot: int, numeric: Derivative) -> str:
    """Whether the derivative lacks its conjugate, which shows for a grad_output without an imaginary part."""
    outputs = [subject.expected[0][i] for i in subject.active]
    if not subject.base[slot].is_complex() or not any(o.is_complex() for o in outputs):
        return ""
    given = subject.vjp(change=_without_imaginary_part)[1][slot]
    weights = real([_without_imaginary_part(w) for w in weights_of(outputs)])
    expected = _unflatten(numeric.gradient(weights), subject.base[slot]).conj()
    return CONJUGATED if given is not None and torch.allclose(given, expected, rtol=1e-4) else ""


def _transposed(subject: Subject, slot: int, given: Tensor, weights: Tensor) -> str:
    """Whether a gradient is the one at another matrix: at a square one of the other inputs, transposed."""
    for other, value in enumerate(subject.base):
        if other == slot or not is_differentiable(value) or value.dim() < 2 or value.shape[-1] != value.shape[-2]:
            continue
        values = [v.mT.contiguous() if s == other else v for s, v in enumerate(subject.base)]
        with contextlib.suppress(Exception):  # outside of the domain
            there = Derivative(subject.value, values, [slot], subject.coarsest)
            if torch.allclose(given, _unflatten(there.gradient(weights), given), rtol=1e-4, atol=1e-9):
                return f"it is the right one for {subject.describe(other)} transposed: backward lacks a transpose"
    return ""


def _without_imaginary_part(weights: Tensor) -> Tensor:
    return weights.real.to(weights.dtype)


ITERATIONS = 20  # so many times does a solver do the same, at least
ACCURATE = 1e-3  # of a solver, relative to the norm of the gradient


class Repetitions(TorchDispatchMode):
    """How often each operation runs on tensors of the same shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[Any, ...]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func, *(tuple(a.shape) for a in args if isinstance(a, Tensor))] += 1
        return func(*args, **(kwargs or {}))


def repetitions(subject: Subject, backward: bool = False) -> int:
    """How often forward, or backward, repeats the operation that it repeats most."""
    if backward:
        run = subject.run()
        with Repetitions() as seen:
            run.gradients()
    else:
        with torch.no_grad(), Repetitions() as seen:
            subject.run(requires=subject.without_graph)
    return max(seen.counts.values(), default=0)


def _stops_early(subject: Subject, slot: int, scale: float, base: Sequence[Tensor | None]) -> float:
    """How far off the gradient is for a small grad_output, relative to its norm; 0 if no iteration in backward does it.

    An iteration with a fixed tolerance is the less accurate, the smaller grad_output is, and does the more, the larger.
    """
    if repetitions(subject, backward=True) < ITERATIONS:
        return 0.0
    usual = real(zeros_for_none(subject, base, [slot]))

    def off(scale: float) -> float:
        grads = subject.vjp(change=functools.partial(torch.mul, other=scale))[1]
        return float((real(zeros_for_none(subject, grads, [slot])) / scale - usual).norm() / usual.norm())

    here, smaller = off(scale), off(1e-2 * scale)
    return here if 0 < here < 0.5 and smaller > 3 * here else 0.0


def _slopes(
    subject: Subject, grads: Sequence[Tensor | None], singles: dict[int, Derivative], weights: Tensor
) -> dict[int, tuple[Tensor, Tensor]]:
    """For each input what the gradient claims along some ways, and the slopes of the values along them.

    The ways are the coordinates, or a few random directions where there is no time for every entry.
    """
    found = {}
    for s, single in singles.items():
        given, ways = real(zeros_for_none(subject, grads, [s])), single.directions()
        slopes = [float(weights @ single.slope(way, single.steps()[0])[0]) for way in ways]
        claims = [along(given, way) for way in ways]
        found[s] = torch.tensor(claims, dtype=torch.float64), torch.tensor(slopes, dtype=torch.float64)
    return found


def _beyond_a_solver(slopes: dict[int, tuple[Tensor, Tensor]]) -> list[int]:
    """The inputs whose gradient is not as accurate as a solver is, compared with the largest of all."""
    most = max(float(expected.norm()) for _, expected in slopes.values())
    return [
        s
        for s, (claimed, expected) in slopes.items()
        if not float((claimed - expected).norm()) <= ACCURATE * max(float(expected.norm()), 1e-2 * most)
    ]


def _accuracy_of_a_solver(slopes: dict[int, tuple[Tensor, Tensor]]) -> float:
    """How far off the whole gradient of an iteration is, relative to its norm; 0 if it is wrong in another way.

    A factor that is off everywhere is a mistake in the formula, however near to one it is.
    """
    actual, expected = (torch.cat(each) for each in zip(*slopes.values(), strict=True))
    norm, off = float(expected.norm()), float((actual - expected).norm())
    if not off or _beyond_a_solver(slopes):
        return 0.0
    factor = float(actual @ expected) / norm**2
    rest = float((actual - factor * expected).norm())
    return off / norm if rest > 0.1 * off else 0.0


def _summed(
    subject: Subject, values: Sequence[Tensor], slots: Sequence[int], weights: Tensor
) -> tuple[Derivative, float]:
    """The weighted sum of the outputs at some point, and how far it moves at least if it jumps, and not by rounding."""
    total = Derivative(lambda v: (weights @ subject.value(v)).reshape(1), values, slots, subject.coarsest)
    scale = float(weights.abs() @ subject.value([v.clone() for v in values]).abs())
    return total, max(1e-9, 100 * total.eps) * scale


def _anywhere(total: Derivative) -> list[Tensor]:
    generator = torch.Generator().manual_seed(6)
    return [torch.randn(total.n, generator=generator, dtype=torch.float64) * total.unit for _ in range(6)]


def _largest_steps(total: Derivative, lines: Sequence[Line], least: float) -> tuple[float, list[float]]:
    looks = lines[: max(1, min(3, int(BUDGET / (total.cost * LOOKS))))]  # along some, the values hardly change
    return max(size_of_steps(line, least) for line in looks)


def in_steps(subject: Subject, values: Sequence[Tensor], weights: Tensor) -> bool:
    """Whether the values come in steps around a point, as those of a solver that stops early do."""
    if repetitions(subject) < ITERATIONS:
        return False
    total, least = _summed(subject, values, subject.leaves, weights)
    lines = [functools.partial(_moved, total, direction) for direction in _anywhere(total)]
    return _largest_steps(total, lines, least)[0] > 0


def _over_steps(
    subject: Subject, grads: Sequence[Tensor | None], slots: Sequence[int], weights: Tensor
) -> Finding | None:
    """What is said of the gradient of values that come in steps, as those of a solver that stops early do.

    It is compared with the values over ways that are long compared with the steps. None for values that are smooth.
    """
    if (repeated := repetitions(subject)) < ITERATIONS:
        return None
    total, least = _summed(subject, subject.base, slots, weights)
    directions = list(anywhere := _anywhere(total))
    lines = [functools.partial(_moved, total, direction) for direction in directions]
    size, spacings = _largest_steps(total, lines, least)
    gradient = real(zeros_for_none(subject, grads, slots))
    if not size or (_differences_agree(total, gradient, directions) and not _steps_for_one(total, gradient, least)):
        return None
    if gradient.isfinite().all() and gradient.any():  # uphill, where a factor shows best
        directions.append(gradient * (total.unit.norm() / gradient.norm()))
        lines.append(functools.partial(_moved, total, directions[-1]))
    measured = [slope_over_steps(line, size, spacings) for line in lines]
    off = None
    for direction, (slope, error) in zip(directions, measured, strict=True):
        claimed = along(gradient, direction)
        if not abs(claimed - slope) <= error + 0.02 * abs(slope):
            off = claimed, slope
    told = [m for m in measured[: len(anywhere)] if math.isfinite(m[1])]
    usual = math.hypot(*(slope for slope, _ in told)) / math.sqrt(len(told) or 1)
    accuracy = 0.02 + max(error for _, error in told) / usual if usual else math.inf
    steps = f"the values come in steps of {size:.1g}"
    early = (
        f"Forward repeats the same operation {repeated} times and stops early, as bisection and fixed points with a "
        "loose tolerance do."
    )
    tighten = "tighten the tolerance of the solver to have more digits checked"
    if off:
        return finding(
            "error",
            f"{steps}, and over longer ways they change by {off[1]:.6g} where the gradient says {off[0]:.6g}",
            f"{early} The audit allows for the steps: the formula of the backward is not the derivative of the "
            "equation that forward solves.",
            f"Derive it again; {tighten}.",
        )
    if accuracy < 0.3:
        return finding(
            "info",
            f"{steps}, and over longer ways the gradient agrees with them",
            f"{early} The gradient was checked to a relative error of {accuracy:.1g}.",
            f"Nothing, if that accuracy suffices; otherwise {tighten}.",
        )
    return finding("info", f"{steps}, too large to check the gradient", early, f"{tighten[0].upper()}{tighten[1:]}.")


def _differences_agree(total: Derivative, gradient: Tensor, directions: Sequence[Tensor]) -> bool:
    """Whether differences over short ways, at which the values may not jump, agree with a gradient that is not zero."""
    claims = [along(gradient, d) for d in directions]
    most, rtol = max(map(abs, claims)), max(RTOL, 50 * total.eps**0.75)
    for direction, claimed in zip(directions, claims, strict=True):
        for h in total.steps()[1::2]:  # the shorter ones
            slope, off, noise = total.slope(direction, h)
            allowed = rtol * most + float(noise)
            if not max(abs(float(slope) - claimed), float(off)) <= allowed < 0.01 * most:
                return False
    return True


def _steps_for_one(total: Derivative, gradient: Tensor, least: float) -> bool:
    """Whether the values also come in steps if a single number moves, one of those that they depend on most.

    Where many points move, each of which comes into another cell of a grid now and then, there are many jumps as well.
    On a way of less than one, such a point meets one at most.
    """
    most = (gradient * total.unit).abs().topk(min(3, total.n)).indices
    ways = (torch.zeros_like(total.unit).index_fill(0, k, 1.0) for k in most)
    lines = [functools.partial(_moved, total, way) for way in ways]
    return any(jumps_often(line, least) or size_of_steps(line, least, SPACINGS[:-1])[0] for line in lines)


def _moved(total: Derivative, direction: Tensor, distance: float) -> Tensor:
    return total.at(distance * direction)


def _cause_of_wrong_gradient(
    subject: Subject, slot: int, missing: bool, recognized: str, single: Derivative
) -> tuple[str, str]:
    hidden = subject.slots[slot].hidden
    if missing and hidden:
        return (
            "A parameter or closure tensor that forward uses gets no gradient: autograd sees only what is passed to "
            "apply as a tensor.",
            "Pass it to apply as an argument of its own, and return its gradient.",
        )
    if missing and "[" in subject.slots[slot].name:
        return (
            "The tensor came inside of a list, tuple or dict: apply tracks only tensors that are arguments themselves.",
            "Unpack the list: MyFunction.apply(*tensors).",
        )
    if missing:
        return (
            "backward returns None for an input that the values depend on, or forward detaches it.",
            "Return its gradient.",
        )
    given = subject.expected[1][slot]
    if given is not None and _ignores_grad_output(subject, slot):
        itself = [subject.describe(k) for k, value in enumerate(subject.base) if same(value, given)]
        return (f"{IGNORED[0]} It is {itself[0]} itself.", NO_GRADIENT) if itself else IGNORED
    if subject.random and torch.equal(*(results(subject, offset, gradients=False) for offset in (0, 1))):
        return (
            "The gradient is random and the values are not: backward samples, or rounds at random.",
            "If its mean is meant to be the derivative, declare it with gradient='approximate', which compares the "
            "mean over many seeds with the values.",
        )
    if subject.random and _draws_in_backward(subject):
        return (
            "forward is random, and backward draws random numbers, too: others than forward did.",
            "Save what was drawn. Or save the state of the generator before forward draws, and restore it in backward.",
        )
    if slot in written_to_grad(subject):
        return WRITES_GRAD
    if (left_out := _left_out(subject, slot, single)) is not None:
        return (
            f"backward leaves out the gradient of output {left_out}, which depends on this input, too: no gradient "
            "comes back from it.",
            "Add what comes back from this output; or call ctx.mark_non_differentiable on it if no loss should use it.",
        )
    if _right_if_saved_early(subject, slot, single):
        return (
            "forward changes a tensor in place after save_for_backward, so backward gets the changed one. autograd "
            "does not notice: it takes the saved tensors over when forward has ended.",
            "Compute out of place after save_for_backward, or save a copy.",
        )
    if recognized == NEARLY:
        return (
            f"Compared with the right gradient, {recognized}: forward or backward is an approximation (an "
            "iteration that stops early, a series, a rational fit, a table, constants of few digits), or one of them "
            "has an eps that the other has not.",
            "Differentiate what forward computes; or declare gradient='approximate', which lets so much pass.",
        )
    if NOT_ZERO in recognized:
        return (
            f"Compared with the right gradient, {recognized}: the values do not move there. Backward lacks a mask or "
            "a clamp that forward has, or lets a gradient through on purpose, as a surrogate does.",
            "Return zero there. If it is on purpose, declare the function whose gradient it is with surrogate=, or "
            "gradient='custom'.",
        )
    if PASSED_ON in recognized and recognized.endswith("itself"):
        return (
            f"Compared with the right gradient, {recognized}: backward passes it on as it is, as a straight-through "
            "estimator does.",
            "If it is on purpose, declare the function whose gradient it is with surrogate=, such as the identity. "
            "Otherwise multiply it by the derivative of forward.",
        )
    if recognized:
        return f"Compared with the right gradient, {recognized}.", "Derive the formula again, and fix that term."
    if not single.complete:
        return NOT_EACH
    return (
        NO_PATTERN,
        "If the gradient is meant to be another than the derivative, declare it with surrogate=, "
        "gradient='approximate' or gradient='custom'. Otherwise derive it again, one output at a time.",
    )


def _left_out(subject: Subject, slot: int, single: Derivative) -> int | None:
    """The one output from which no gradient comes back, if a gradient is right for the others."""
    outputs, grads = subject.expected
    if len(subject.active) < 2:
        return None
    sizes = [real([outputs[i]]).numel() for i in subject.active]
    weights = output_weights(outputs, subject.active)
    ours = real(zeros_for_none(subject, grads, [slot]))
    for i, part in zip(subject.active, torch.arange(len(weights)).split(sizes), strict=True):
        others = weights.clone()
        others[part] = 0.0
        if single.compare(ours, others) is None:
            return i
    return None


def _right_if_saved_early(subject: Subject, slot: int, single: Derivative) -> bool:
    """Whether a wrong gradient is right if backward gets what forward saved as it was at that time."""
    outputs, _ = subject.expected
    try:
        with saving_copies(subject.classes):
            _, grads = subject.vjp()
    except (Exception, SystemExit):
        return False
    given = real(zeros_for_none(subject, grads, [slot]))
    return single.compare(given, output_weights(outputs, subject.active)) is None


NOT_EACH = (
    "The formula of the backward is not the derivative of the forward. Which entries are wrong was not looked at: the "
    "sample is too large, or the function too slow.",
    "Audit it on a smaller sample to see which entries are wrong and how. If the gradient is meant to be another than "
    "the derivative, declare it with surrogate=, gradient='approximate' or gradient='custom'.",
)
NO_GRADIENT = "Compute the gradient of this input from grad_output; return None only if forward does not depend on it."


def _ignores_grad_output(subject: Subject, slot: int) -> bool:
    """Whether backward returns the same for a larger grad_output, and for one with another sign, as a mask has not."""
    usual = subject.expected[1][slot]
    if usual is None or not usual.any():
        return False
    others = [subject.vjp(change=functools.partial(torch.mul, other=factor))[1][slot] for factor in (3.0, -0.7)]
    return all(grad is not None and torch.equal(grad, usual) for grad in others)


class _Differentiations(TorchFunctionMode):
    """Whether a derivative is asked for."""

    seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= func in (torch.autograd.grad, torch.autograd.backward, Tensor.backward)
        return func(*args, **(kwargs or {}))


def _differentiates_inside(subject: Subject) -> bool:
    """Whether backward asks for derivatives itself."""
    run, asked = subject.run(), _Differentiations()
    for node in own_nodes_of(run.outputs, subject.classes):  # not around the call of the audit, which asks for one, too
        node.register_prehook(lambda _: asked.__enter__() and None)
        node.register_hook(lambda *_: asked.__exit__(None, None, None))
    run.gradients()
    return asked.seen


def written_to_grad(subject: Subject) -> list[int]:
    """The inputs of which a backward sets ``.grad`` itself, while it runs and before the engine accumulates."""
    run, before = subject.run(), list[Tensor | None]()
    written: set[int] = set()
    plain = {s: leaf for s, leaf in enumerate(run.leaves) if leaf is not None and not subject.slots[s].hidden}

    def enter(_: Any) -> None:
        before[:] = [None if leaf.grad is None else leaf.grad.clone() for leaf in plain.values()]

    def leave(*_: Any) -> None:
        for (s, leaf), kept in zip(plain.items(), before, strict=True):
            if leaf.grad is not None and (kept is None or not same(kept, leaf.grad)):
                written.add(s)

    for node in own_nodes_of(run.outputs, subject.classes):
        node.register_prehook(enter)
        node.register_hook(leave)
    run.gradients()
    return sorted(written)


class _Draws(TorchDispatchMode):
    """The random tensors that operations return or write."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.drawn += [t.detach().clone() for t in tensors_in(result)]
        return result


def _draws_in_backward(subject: Subject) -> bool:
    """Whether backward draws other random numbers than forward: of its own, or from another state of the generator."""
    with _Draws() as forward:
        run = subject.run()
    with _Draws() as backward:
        run.gradients()
    if any(not any(same(t, other) for other in forward.drawn) for t in backward.drawn):
        return True
    return not torch.equal(*(_backward_from(subject, seed) for seed in (0, 1)))


def _backward_from(subject: Subject, seed: int) -> Tensor:
    """The gradient if the generators have another seed between forward and backward."""
    run = subject.run()
    subject.rewind(seed)
    return real([g for g in run.gradients() if g is not None])


DRAWS = 400
LONG_STEPS = 0.3, 0.1, 0.03, 0.01  # next to which the steps of a value that is rounded, or ranked, are short


def _draws_that_agree(subject: Subject) -> int:
    """Over how many draws a gradient that is wrong for each of them is right in the mean; 0 if it is not.

    A backward that draws on its own, as a dropout that is drawn again, is right in the mean for a linear loss alone.
    """
    slots = [s for s in subject.leaves if not subject.base[s].is_complex()]
    if not subject.random or subject.dtype is not torch.float64 or len(slots) < len(subject.leaves):
        return 0
    if torch.equal(*(results(subject, offset, gradients=False) for offset in (0, 1))) or _draws_in_backward(subject):
        return 0  # the values are not random, or the gradient is of other numbers than they are
    generator = torch.Generator().manual_seed(11)
    way = {s: torch.randn(subject.base[s].shape, generator=generator, dtype=torch.float64) for s in slots}

    def losses(k: int, step: float) -> Tensor:
        values = [v + step * way[s] if s in way else v for s, v in enumerate(subject.copies())]
        subject.rewind(k)
        with torch.no_grad():
            run = subject.run(values, subject.without_graph, rewind=False)
        outputs = [run.outputs[i] for i in subject.active]
        value, weights = real(outputs), real(weights_of(outputs))
        return torch.stack([weights @ value, weights @ value**2 / 2])

    slopes, gaps, start = [], [], time.process_time()
    for k in range(DRAWS):
        if time.process_time() - start > SECONDS:
            break
        subject.rewind(k)
        run = subject.run(rewind=False)
        outputs = [run.outputs[i] for i in subject.active]
        claimed = []
        for quadratic in (False, True):
            weights = [w * o.detach() if quadratic else w for w, o in zip(weights_of(outputs), outputs, strict=True)]
            grads = run.gradients(weights, retain_graph=True)
            claimed.append(sum(float((g * way[s]).sum()) for s in slots if (g := grads[s]) is not None))
        slopes.append((losses(k, 1e-5) - losses(k, -1e-5)) / 2e-5)
        gaps.append(torch.tensor(claimed, dtype=torch.float64) - slopes[-1])
    if len(gaps) < 64:
        return 0
    gap, slope = torch.stack(gaps), torch.stack(slopes)
    error = gap.std(0) / len(gaps) ** 0.5
    small = error < 0.1 * slope.square().mean(0).sqrt()
    return len(gaps) if bool((small & (gap.mean(0).abs() <= 3 * error)).all()) else 0


def _is_slope_of_the_mean(subject: Subject) -> tuple[int, float] | None:
    """Over how many draws the gradient is the slope of the mean, with which relative error; None if it is not.

    The values stand still for each draw, so that the mean is taken at points that are further apart.
    """
    slots = [s for s in subject.leaves if not subject.base[s].is_complex()]
    if not subject.random or subject.dtype is not torch.float64 or len(slots) < len(subject.leaves):
        return None
    generator = torch.Generator().manual_seed(11)
    way = {s: torch.randn(subject.base[s].shape, generator=generator, dtype=torch.float64) for s in slots}
    outputs = [subject.expected[0][i] for i in subject.active]
    weights = output_weights(subject.expected[0], subject.active)

    def loss(k: int, step: float) -> float:
        values = [v + step * way[s] if s in way else v for s, v in enumerate(subject.copies())]
        subject.rewind(k)
        with torch.no_grad():
            run = subject.run(values, rewind=False)
        return float(weights @ real([run.outputs[i] for i in subject.active]))

    slopes: list[list[float]] = []
    gaps: list[list[float]] = []
    start = time.process_time()
    with contextlib.suppress(Exception):  # outside of the domain
        while len(gaps) < DRAWS and time.process_time() - start < SECONDS:
            subject.rewind(k := len(gaps))
            grads = subject.run(rewind=False).gradients(weights_of(outputs))
            claimed = sum(float((g * way[s]).sum()) for s in slots if (g := grads[s]) is not None)
            slopes.append([(loss(k, h) - loss(k, -h)) / (2 * h) for h in LONG_STEPS])
            gaps.append([claimed - slope for slope in slopes[-1]])
    if len(gaps) < 64:
        return None
    slope, gap = (torch.tensor(each, dtype=torch.float64) for each in (slopes, gaps))
    size, spread, error = slope.mean(0).abs(), *(t.std(0) / len(gaps) ** 0.5 for t in (slope, gap))
    agrees = (spread < 0.1 * size) & (gap.mean(0).abs() <= 3 * error)
    return (len(gaps), float((error / size)[agrees].min())) if agrees.any() else None


def _as_declared(subject: Subject, outputs: Sequence[Tensor], grads: Sequence[Tensor | None]) -> Iterator[Finding]:
    _, expected = subject.vjp(function=subject.surrogate)
    weights = output_weights(outputs, subject.active)
    rtol = max(1e-7, 50 * torch.finfo(subject.dtype).eps)
    for slot in subject.leaves:
        ours, theirs = (zeros_for_none(subject, g, [slot])[0] for g in (grads, expected))
        if what := unlike_declared(subject, slot, subject.base, ours, theirs, weights, rtol):
            recognized = pattern(subject, slot, ours, theirs, outputs) or in_some(subject, slot, ours, theirs)
            yield finding(
                "error",
                f"the gradient of {subject.describe(slot)} is {what}, which the declared surrogate has",
                f"Compared with it, {recognized}." if recognized else "backward computes another function's gradient.",
                "Correct the backward, or declare the surrogate that it implements.",
            )


def _quality(subject: Subject) -> Iterator[Finding]:
    """Relative error, cosine similarity, bias and variance over seeds, judged by the tolerance."""
    tolerance = TOLERANCE if subject.tolerance is None else subject.tolerance
    slots = subject.leaves
    outputs, _ = subject.expected
    weights = output_weights(outputs, subject.active)
    seeds = 64 if subject.random else 1

    def value(values: list[Tensor]) -> Tensor:
        total = torch.zeros(())
        for k in range(seeds):
            subject.rewind(k)
            with torch.no_grad():
                run = subject.run(values, subject.without_graph, rewind=False)
            total = total + real([run.outputs[i] for i in subject.active])
        return total / seeds

    exact = Derivative(value, subject.base, slots, subject.coarsest).gradient(weights)
    samples = []
    start = time.process_time()
    for k in range(256):
        if k > 16 and time.process_time() - start > SECONDS:
            break
        subject.rewind(k)
        run = subject.run(rewind=False)
        samples.append(real(zeros_for_none(subject, run.gradients(), slots)))
        if k == 3 and all(torch.equal(s, samples[0]) for s in samples):
            break  # no randomness in it
    stacked = torch.stack(samples)
    norm = float(exact.norm()) or 1.0
    mean = stacked.mean(0)
    spread = float(stacked.var(0, unbiased=len(samples) > 1).sum().sqrt()) if len(samples) > 4 else 0.0
    bias, uncertainty = float((mean - exact).norm()) / norm, 3 * spread / len(samples) ** 0.5 / norm
    single = float((stacked - exact).norm(dim=1).mean()) / norm
    cosine = float(torch.nn.functional.cosine_similarity(mean, exact, dim=0))
    subject.measured = (
        f"approximate gradient over {len(samples)} seeds: relative error of a single gradient {single:.3g}, bias "
        f"{bias:.3g} (± {uncertainty:.2g}), standard deviation {spread / norm:.3g}, cosine "
        f"similarity of the mean {cosine:.4f}"
    )
    if not bias <= tolerance + uncertainty:
        ratio = float(mean @ exact) / norm**2
        yield finding(
            "error",
            f"the mean of {len(samples)} gradients is off by {bias:.3g} of the exact one's norm (cosine similarity "
            f"{cosine:.4f}, uncertainty {uncertainty:.2g}); the tolerance is {tolerance:g}",
            f"It is biased. Its component along the exact gradient is {ratio:.4g} times as long as it should be.",
            "Correct the estimator (a lost factor, a step that is too large), or state the tolerance that it has.",
        )


LOSS_SCALE = 65536.0  # where gradient scalers begin


@check(needs="first_order")
def linear_in_grad_output(subject: Subject) -> Iterator[Finding]:
    """The backward is linear in grad_output, and returns zero for zero.

    Every vector-Jacobian product is linear in grad_output. A backward that clips, thresholds or normalizes grad_output
    is therefore right only for some sizes of it. If grad_output is zero, the gradient must be zero and not NaN. The
    audit also splits grad_output into one entry and the other entries. The gradients for these two parts must add up to
    the gradient for all entries.
    """
    if not subject.derivative:
        return
    outputs, base = subject.expected
    for scale in (LOSS_SCALE, 1e-4, 1e-9, -1.0, 0.0):
        _, grads = subject.vjp(change=functools.partial(torch.mul, other=scale))
        for slot in subject.leaves:
            ours, expected = (zeros_for_none(subject, g, [slot])[0] for g in (grads, base))
            magnitudes = [float(g.abs().max()) for g in base if g is not None and g.numel()]
            rtol = 1e-7 if subject.dtype is torch.float64 else 1e-3
            largest = abs(scale) * max(
                1e-4 * max(magnitudes, default=0.0), rounding(outputs, subject.base[slot]) / rtol
            )
            if what := difference(ours, expected * scale, rtol, largest):
                name = f"{scale:g} times the grad_output" if scale else "a grad_output of zeros"
                if 0 < scale < 1 and (off := _stops_early(subject, slot, scale, base)):
                    yield finding(
                        "info" if off < ACCURATE else "warning",
                        f"for {name}, the gradient of {subject.describe(slot)} is off by {off:.1g} of its norm",
                        f"Backward repeats the same operation {repetitions(subject, backward=True)} times, until a "
                        "change is smaller than a fixed number. For a small grad_output, that is too early.",
                        "Compare the change with the size of grad_output: stop at a relative tolerance.",
                    )
                    return
                yield finding(
                    "error",
                    f"for {name}, the gradient of {subject.describe(slot)} is {what}",
                    "backward clips, normalizes or thresholds grad_output, divides by it, or solves with it up to an "
                    "absolute tolerance.",
                    "Multiply by grad_output and do nothing else to it; to clip on purpose, declare it as "
                    "gradient='custom'.",
                )
                return
    yield from (problems := list(_additive(subject, base)))
    if not problems:
        yield from _nan_comes_through(subject, base)


def adds_to_zero(subject: Subject) -> bool:
    """Whether gradients are not zero for a grad_output of zeros, by more than what rounding leaves of zero."""
    usual = max((float(g.abs().max()) for g in subject.expected[1] if g is not None and g.numel()), default=0.0)
    grads = subject.vjp(change=torch.zeros_like)[1]
    return any(g is not None and bool((g.abs() > subject.rounding * usual).any()) for g in grads)


def _first_alone(weights: Tensor) -> Tensor:
    result = torch.zeros_like(weights)
    result.view(-1)[:1] = weights.reshape(-1)[:1]
    return result


PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "that is zero but for one entry": _first_alone,
    "of ones": torch.ones_like,
}


def _additive(subject: Subject, base: Sequence[Tensor | None]) -> Iterator[Finding]:
    """Nothing, if a part of grad_output and what is left of it have gradients that add up to that of the whole."""
    if subject.random:
        return
    largest = max((float(g.abs().max()) for g in base if g is not None and g.numel()), default=0.0)
    for name, part in PARTS.items():
        (_, one), (_, rest) = (subject.vjp(change=change) for change in (part, lambda w, part=part: w - part(w)))
        for slot in subject.leaves:
            ours, others, whole = (zeros_for_none(subject, g, [slot])[0] for g in (one, rest, base))
            rtol = 1e-7 if subject.dtype is torch.float64 else 1e-3
            floor = rounding(subject.expected[0], subject.base[slot]) / rtol
            if what := difference(ours, whole - others, rtol, max(largest, floor)):
                yield finding(
                    "error",
                    f"for a grad_output {name}, the gradient of {subject.describe(slot)} is {what}, which is what the "
                    "remainder of grad_output leaves of the whole",
                    "backward looks at the entries of grad_output, as at those that are zero, or takes one for all.",
                    "Multiply by grad_output and do nothing else to it.",
                )
                return


def _nan_comes_through(subject: Subject, base: Sequence[Tensor | None]) -> Iterator[Finding]:
    """Nothing, if NaN in grad_output reaches every entry that depends on it."""
    try:
        _, grads = subject.vjp(change=lambda weights: torch.full_like(weights, torch.nan))
    except (Exception, SystemExit):
        return  # that cannot be overlooked
    for slot in subject.leaves:
        ours, usual = (zeros_for_none(subject, g, [slot])[0] for g in (grads, base))
        lost = ours.isfinite() & (usual.abs() > 1e-9 * usual.abs().max() if usual.numel() else usual.isfinite())
        if ours.shape == usual.shape and lost.any():
            yield finding(
                "error",
                f"for a grad_output of NaN, {int(lost.sum())} of {lost.numel()} entries of the gradient of "
                f"{subject.describe(slot)} are finite, {float(ours[lost][0].real):.6g} for example",
                "backward replaces NaN, as nan_to_num or a comparison does: a loss that has become NaN looks "
                "healthy, and a gradient scaler does not skip the step.",
                "Let NaN through; guard a division by its own condition and not by what comes out.",
            )
            return


def refuses_second_order(run: Run, leaves: Sequence[Tensor]) -> bool:
    """Whether ``once_differentiable`` stands in the way: it puts a node named Error into the new graph.

    The node raises only if the engine comes by; ``gradgradcheck`` sees no more than zeros.
    """
    active = [o for o in run.outputs if o.requires_grad]
    weights = [w.requires_grad_() for w in weights_of(active)]
    grads = torch.autograd.grad(active, leaves, weights, create_graph=True, allow_unused=True)
    return _refused_in([g for g in grads if g is not None])


def _refused_in(grads: Sequence[Tensor]) -> bool:
    return any(node.name().rpartition("::")[2] == "Error" for node in nodes_of(grads))


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where the numbers of a tensor are, and how they lie; a sparse one made from a dense one is another one."""
    consists_of = parts(tensor.detach())
    return tensor.layout, tensor.shape, *((t.data_ptr(), t.shape, t.stride()) for t in consists_of)


def _is_result(thing: Any, record: Record) -> bool:
    """Whether forward has made something that has no graph: no argument, and no output that is differentiable.

    A view that forward takes of an argument has no more graph than what it computes.
    """
    given = {
        _place(t)
        for call in record.forwards
        for t in (*call.inputs, *call.returned)
        if isinstance(t, Tensor) and not any(t is c for c in call.constant)
    }
    held = tensors_in([thing, getattr(thing, "__dict__", {})])
    return isinstance(thing, float) or any(is_differentiable(t) and _place(t) not in given for t in held)


def _taken_from_forward(subject: Subject, slots: Sequence[int], moved: int, claimed: Tensor) -> str | None:
    """What forward keeps that the backward takes for constant, in words, if that is why a second derivative is off.

    Along one direction of the input ``moved``, each thing that is kept is exchanged for what forward keeps nearby. By
    as much as this changes the gradients, what is ``claimed`` for their derivative is off. If all changes explain less
    than half of what is missing, the cause is another one.
    """
    generator = torch.Generator().manual_seed(11)
    base = subject.base[moved]
    direction = torch.randn(base.shape, generator=generator, dtype=torch.float64).to(base)
    step = torch.finfo(subject.coarsest).eps ** (1 / 3) * max(1.0, float(base.abs().max()))

    def weighted(kept: Kept, sign: int = 0) -> float:
        values = subject.copies()
        values[moved] = base + sign * step * direction
        grads = kept.run(values)
        chosen = [torch.zeros_like(subject.base[s]) if (g := grads[s]) is None else g for s in slots]
        return float(real(chosen) @ real(weights_of(chosen)))

    def spoils(place: Place) -> float:
        forth, back = (weighted(kept.exchanged(place)) for kept in (above, below))
        return (forth - back) / (2 * step)

    here, above, below = (Kept(subject, {}) for _ in range(3))
    try:
        weighted(here)
        true = (weighted(above, 1) - weighted(below, -1)) / (2 * step)
        effects = {place: spoils(place) for place, thing in here.things.items() if _is_result(thing, here.record)}
    except (Exception, SystemExit):
        return None  # what is kept is of another kind nearby, or cannot be exchanged
    missing = true - float(real([claimed]) @ real([direction]))
    if not effects or not abs(missing - sum(effects.values())) < 0.5 * abs(missing):
        return ""
    place = max(effects, key=lambda each: abs(effects[each]))
    thing = here.things[place]
    shape = f" of shape {list(thing.shape)}" if isinstance(thing, Tensor) else ""
    what = "a number" if isinstance(thing, float) else f"an intermediate result{shape}"
    return what if isinstance(place, int) else f"ctx.{place[1]}, {what}"


def _as_numbers(function: Callable[[Sequence[Tensor]], list[Tensor]], values: Sequence[Tensor]) -> Tensor:
    return real(function(values))


def _called_by(subject: Subject, grads: Sequence[Tensor]) -> list[type[torch.autograd.Function]]:
    """The custom functions that are called by the backward alone."""
    return [
        cls for cls in functions_of(grads) if cls not in subject.classes and cls.__module__.partition(".")[0] != "torch"
    ]


def _not_a_derivative(subject: Subject, classes: Sequence[type[torch.autograd.Function]]) -> str:
    """Which of some custom functions has a gradient that is not the derivative of its values."""
    with observing(classes, saved=False) as record:
        subject.run().gradients(create_graph=True)
    for call in record.forwards:
        places = [i for i, a in enumerate(call.inputs) if is_differentiable(a)]
        point = [call.inputs[i].detach().clone() for i in places]

        def outputs(values: Sequence[Tensor], call: Any = call, places: list[int] = places) -> list[Tensor]:
            args = list(call.inputs)
            for i, value in zip(places, values, strict=True):
                args[i] = value
            return [o for o in tensors_in(call.cls.apply(*args)) if is_differentiable(o)]

        try:
            leaves = [p.clone().requires_grad_() for p in point]
            made = outputs(leaves)
            grads = torch.autograd.grad(made, leaves, weights_of(made), allow_unused=True, materialize_grads=True)
            numeric = Derivative(functools.partial(_as_numbers, outputs), point, range(len(point)), subject.dtype)
        except (Exception, SystemExit):
            continue
        if numeric.compare(real(grads), real(weights_of(made))) is not None:
            return call.cls.__name__
    return ""


# Why a second derivative is wrong, and what to do.
CONSTANT = "The backward uses {}, which forward keeps: it depends on the inputs and has no graph back to them."
SILENT = "It is silently zero: the backward {}detaches a tensor, reads .data, works under no_grad or in NumPy."
APPLIED_TWICE = (
    "The backward uses an output. The derivative of this output is the backward itself, so a second derivative applies "
    "the surrogate a second time.",
    "Compute in the backward from the saved inputs what it takes from the output; or mark the backward with "
    "once_differentiable, which raises where grad_output requires grad.",
)
DETACHED = (
    "The backward uses a tensor that depends on the inputs but has no graph back to them: it {}detaches a part, reads "
    ".data, or works under no_grad on the way."
)
KEPT = "uses a result that forward keeps, "
UNRECORDED = (
    "It is silently zero, because autograd does not record this backward: it runs under no_grad, or detaches or leaves "
    "torch on the way to every result."
)
INSIDE = (
    "It is silently zero: the backward calls torch.autograd.grad, or backward(), which records nothing without "
    "create_graph=True.",
    "Pass create_graph=torch.is_grad_enabled() to that call, and do not detach what it differentiates; or mark the "
    "backward with once_differentiable, which raises where grad_output requires grad.",
)
RECORD = (
    "Remove no_grad and detach, and compute everything from inputs, outputs and grad_output; or mark the backward "
    "with once_differentiable, which raises where grad_output requires grad."
)
COMPUTED = (
    "Save inputs and outputs, and compute everything else from them in the backward; or mark the backward with "
    "once_differentiable, which raises where grad_output requires grad."
)
WITHIN = (
    "The backward calls {}, and the backward of that is not the derivative of its forward.",
    "Derive it again, by each input; torch.autograd.gradcheck on that function alone shows where it is off.",
)
TANGENT = (
    "The gradient of {} alone is not the derivative of its values, as one in a tangent space is not. At first order, "
    "the functions agree on that; at second order, a gradient of another kind arrives there.",
    "Mark the backwards with once_differentiable, which raises where grad_output requires grad; or return the "
    "derivative itself.",
)
NOT_A_NUMBER = (
    "The derivative of the backward is 0/0 or 0 · ∞ there, as that of a quotient, root or power at zero is, even "
    "where a mask or torch.where leaves the result out.",
    "Choose a safe argument before the division, root or power, and not the result behind it; or mark the backward "
    "with once_differentiable, which raises where grad_output requires grad.",
)

WRITES = (
    "Backward writes in place to a tensor that its own derivative needs. PyTorch notices that, and refuses the second "
    "derivative.",
    "Nothing, unless a second derivative is needed: then compute out of place in backward.",
)


@check(capability="second_order")
def second_order(subject: Subject) -> Iterator[Finding]:
    """The second derivative agrees with differences of the gradient, through input and grad_output.

    The second derivative is silently wrong if the backward detaches, leaves PyTorch, or uses a saved intermediate. With
    ``once_differentiable``, the function raises instead, which counts as a missing capability. Along one direction, the
    audit also checks the third derivative. The gradient of a surrogate has a derivative, too. If the gradient changes
    in steps, as that of a solver does, or if you declare it approximate or custom, the audit only checks that its
    derivative is not silently zero.
    """
    # Where buffers follow the parameters from call to call, their part is left out of derivatives on purpose.
    slots = [s for s in subject.leaves if not (subject.stateful and subject.slots[s].hidden)]
    if not slots:
        raise Refused("there is no input to differentiate twice")
    run = subject.run()
    try:
        if refuses_second_order(run, run.leaves_of(slots)):
            raise Refused(
                "the backward is marked once_differentiable; if the loss has other terms of the same input, torch does "
                "not raise, and the second derivative lacks the part of this function"
            )
    except Refused:
        raise
    except (Exception, SystemExit) as error:
        raise Refused(first_line(error)) from error
    if subject.rough and not subject.right:
        raise Unmeasured("the values come in steps")

    n = len(subject.slots)
    outputs, _ = subject.expected
    grad_outputs = weights_of([outputs[i] for i in subject.active])

    def gradient(values: Sequence[Tensor], graph: bool = False) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """First derivatives as a function of slots and grad_outputs."""
        run = subject.run(values[:n])
        weights = [w.detach().clone().requires_grad_(graph) for w in values[n:]]  # backward can write to them
        leaves = run.leaves_of(slots)
        active = [o for o in run.outputs if o.requires_grad]
        grads = torch.autograd.grad(active, leaves, weights, create_graph=graph, allow_unused=True)
        filled = [torch.zeros_like(subject.base[s]) if g is None else g for s, g in zip(slots, grads, strict=True)]
        return filled, leaves, weights

    grads, leaves, weights = gradient([*subject.copies(), *grad_outputs], graph=True)
    second = weights_of(grads)
    used = [g for g in grads if g.requires_grad]
    itself = bool(own_nodes_of(used, subject.classes))
    if not subject.right and itself:
        raise Unmeasured("the gradient is wrong, and its own gradient uses it: the backward uses the output")
    if not subject.right and any(hasattr(node, "_forward_cls") for node in nodes_of(used)):
        raise Unmeasured("the gradient is wrong, and the backward calls other custom functions")
    try:
        again = _again(grads, [*leaves, *weights])
    except (Exception, SystemExit) as error:
        written = "modified by an inplace operation" in str(error)  # by the first backward: nothing else ran
        raise Refused(first_line(error), WRITES if written else None) from error
    comparable = subject.derivative or subject.undeclared
    where = [*slots, *range(n, n + len(weights))]
    point = [*subject.base, *grad_outputs]
    stepped = False
    for k, (position, result) in enumerate(zip(where, again, strict=True)):
        if position >= n and not subject.right:
            raise Unmeasured("the gradient is wrong")
        numeric = Derivative(lambda v: real(gradient(v)[0]), point, [position], subject.coarsest)
        actual = torch.zeros_like(point[position]) if result is None else result
        floor = (subject.accuracy or 0.0) * float(actual.abs().max()) if actual.numel() else 0.0
        way = _in_steps(numeric, real(second)) if subject.rough else None
        if way is not None:
            stepped = True
            mismatch = None if torch.count_nonzero(actual) else _moves_over_steps(numeric, real(second), *way)
        elif comparable:
            mismatch = numeric.compare(real([actual]), real(second), subject.accuracy, floor)
        else:
            mismatch = _silently_zero(numeric, real([actual]), real(second), subject.gradient == "approximate")
        if mismatch is None:
            continue
        one = mismatch.index if way is None else None
        name = subject.describe(position, one) if position < n else f"grad_output {k - len(slots)}"
        if math.isnan(mismatch.actual):
            cause, fix = NOT_A_NUMBER
        else:
            kept = _taken_from_forward(subject, slots, position, actual) if position < n else ""
            silent = not bool(torch.count_nonzero(actual))
            if not used:
                cause, fix = INSIDE if _differentiates_inside(subject) else (UNRECORDED, RECORD)
            elif subject.undeclared and itself:
                cause, fix = APPLIED_TWICE
            elif not (kept or silent) and (name_of_one := _not_a_derivative(subject, _called_by(subject, grads))):
                cause, fix = WITHIN[0].format(name_of_one), WITHIN[1]
            elif (
                not (kept or silent)
                and len(subject.classes) > 1
                and (name_of_one := _not_a_derivative(subject, subject.classes))
            ):
                cause, fix = TANGENT[0].format(name_of_one), TANGENT[1]
            else:
                constant = (SILENT if silent else DETACHED).format(KEPT if kept is None else "")
                cause = CONSTANT.format(kept) if kept else constant
                fix = COMPUTED
        yield finding(
            "error" if subject.derivative else "warning",
            f"the second derivative with respect to {name} is {mismatch.actual:.6g}, but "
            f"{'along a random direction ' if one is None else ''}the gradient changes by {mismatch.expected:.6g}",
            cause,
            fix,
        )
        raise Wrong
    if not comparable:
        raise Refused(f"{subject.otherwise}, so the audit has no second derivative to compare with")
    if stepped:
        raise Unmeasured("the values come in steps, and the gradient does, too")
    if not subject.accuracy and subject.right and not subject.rough:
        # What a function among the arguments does at zeros is not the solver's to mend.
        for label, make in ZEROS.items() if not any(map(callable, subject.flat)) else ():
            there = [*(make(b) if s in slots else b.clone() for s, b in enumerate(subject.base)), *grad_outputs]
            if found := _not_a_number(subject, gradient, there, where, label):
                yield found
                raise Wrong
        yield from _at_one(subject, gradient, grad_outputs)
        yield from _third_order(subject)


ZEROS: dict[str, Callable[[Tensor], Tensor]] = {
    "all zeros": torch.zeros_like,
    "one zero": functools.partial(with_one, number=0, where=0.5),
}
LARGEST = 1e6  # times the gradient: a slope that is taken for finite
# Of slots and grad_outputs: the gradients, and the leaves and the weights of outputs that they are differentiated by.
Gradient = Callable[..., tuple[list[Tensor], list[Tensor], list[Tensor]]]


def _again(grads: Sequence[Tensor], wanted: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """The derivatives of weighted gradients; None where there is none."""
    pairs = [(g, w) for g, w in zip(grads, weights_of(grads), strict=True) if g.requires_grad]
    if not pairs:
        return [None] * len(wanted)
    return torch.autograd.grad([g for g, _ in pairs], wanted, [w for _, w in pairs], allow_unused=True)


def _not_a_number(
    subject: Subject, gradient: Gradient, point: list[Tensor], where: Sequence[int], label: str
) -> Finding | None:
    """A second derivative that is NaN at a point where the gradient is finite, and so are its differences."""
    try:
        grads, leaves, weights = gradient(point, graph=True)
        again = _again(grads, [*leaves, *weights])
    except (Exception, SystemExit):
        return None  # outside of the domain
    undefined = [(p, a) for p, a in zip(where, again, strict=True) if a is not None and a.isnan().any()]
    if not undefined or not real(grads).isfinite().all():
        return None
    position, result = undefined[0]
    numeric = Derivative(lambda v: real(gradient(v)[0]), point, [position], subject.coarsest)
    mismatch = numeric.compare(real([result]), real(weights_of(grads)))
    # Infinite slopes are no more useful than NaN.
    if mismatch is None or not abs(mismatch.expected) < LARGEST * (1 + float(real(grads).abs().max())):
        return None
    n = len(subject.slots)
    name = subject.describe(position) if position < n else f"grad_output {position - n}"
    return finding(
        "error",
        f"at {label}, the second derivative with respect to {name} is {mismatch.actual:.6g}, but the gradient changes "
        f"by {mismatch.expected:.6g}",
        *NOT_A_NUMBER,
    )


def _at_one(subject: Subject, gradient: Gradient, grad_outputs: Sequence[Tensor]) -> Iterator[Finding]:
    """Nothing, if the derivative by grad_output is the same for ones and for threes, as backward is linear in it."""
    if subject.dtype is not torch.float64 or subject.gradient != "exact" or subject.random:
        return

    def by_grad_output(number: float) -> list[Tensor]:
        point = [*subject.copies(), *(torch.full_like(g, number) for g in grad_outputs)]
        grads, _, weights = gradient(point, graph=True)
        again = _again(grads, weights)
        return [torch.zeros_like(w) if a is None else a for w, a in zip(weights, again, strict=True)]

    try:
        pairs = list(zip(by_grad_output(1.0), by_grad_output(3.0), strict=True))
    except (Exception, SystemExit):
        return  # refused
    for k, (ones, threes) in enumerate(pairs):
        if what := difference(ones, threes, RTOL):
            yield finding(
                "error",
                f"for a grad_output of ones, the derivative by grad_output {k} is {what}, which one of threes gives",
                "For a grad_output of exactly 1, backward takes a shortcut that leaves grad_output out, so autograd "
                "records nothing of it.",
                "Multiply by grad_output in any case; or take the shortcut only if grad_output does not require grad.",
            )
            return


def _silently_zero(numeric: Derivative, actual: Tensor, weights: Tensor, by_entry: bool) -> Mismatch | None:
    """A second derivative, or an entry of it, that is zero although the gradient changes by more than it may be off.

    A rule that is the derivative of nothing may have zeros by convention, as a gradient that belongs to the three
    angles of a quaternion has: there, an entry alone says nothing.
    """
    if actual.any() and not (by_entry and numeric.complete):
        return None
    claimed = numeric.gradient(weights).where(actual != 0, 0.0) if actual.any() else actual
    return numeric.compare(claimed, weights, 0.1, 1e-4 * float(weights.abs() @ numeric.center.abs()))


def _some_way(numeric: Derivative, weights: Tensor) -> Callable[[float], Tensor]:
    """A weighted gradient at a distance along one direction."""
    generator = torch.Generator().manual_seed(9)
    direction = torch.randn(numeric.n, generator=generator, dtype=torch.float64) * numeric.unit
    return lambda distance: (weights @ numeric.at(distance * direction)).reshape(1)


def _in_steps(numeric: Derivative, weights: Tensor) -> tuple[float, list[float]] | None:
    """How far a weighted gradient jumps, and over which distances; None if it is smooth."""
    if not numeric.n or not numeric.center.isfinite().all():
        return None
    if numeric.cost * LOOKS > BUDGET:
        raise Unmeasured("the values come in steps, and the gradient takes long")
    least = max(1e-9, 100 * numeric.eps) * float(weights.abs() @ numeric.center.abs())
    size, spacings = size_of_steps(_some_way(numeric, weights), least)
    return (size, spacings) if size else None


def _moves_over_steps(numeric: Derivative, weights: Tensor, size: float, spacings: Sequence[float]) -> Mismatch | None:
    """How a weighted gradient that comes in steps changes over longer ways; None if it does not."""
    slope, error = slope_over_steps(_some_way(numeric, weights), size, spacings)
    if not abs(slope) > 3 * error:
        return None
    return Mismatch(numeric.slots[0], 0, 0.0, slope, numeric.n, numeric.n)


def _along(
    subject: Subject, directions: list[Tensor | None], t: float, third: bool = False
) -> tuple[float, Tensor | None]:
    """The second derivative of the weighted outputs, a step along a direction, and the third if it is asked for."""
    step = torch.tensor(t, dtype=torch.float64, requires_grad=True)
    remaining = iter(directions)

    def moved(tensor: Tensor) -> Tensor:
        return tensor if (direction := next(remaining)) is None else tensor + step * direction

    run = subject.run(through=moved)
    active = [run.outputs[i] for i in subject.active]
    total = torch.stack([(o * w).sum() for o, w in zip(active, weights_of(active), strict=True)]).sum()
    (first,) = torch.autograd.grad(total, step, create_graph=True)
    # A weight that requires grad, or once_differentiable sees nothing that does and leaves no node behind.
    (second,) = torch.autograd.grad(first, step, torch.ones_like(first).requires_grad_(), create_graph=True)
    if third and _refused_in([second]):
        raise Refused("the second backward is marked once_differentiable")
    claimed = torch.autograd.grad(second, step, allow_unused=True)[0] if third else None
    return float(second.detach()), claimed


def _sizes(tensor: Tensor) -> Tensor:
    """How far each number may move: by its own size, zeros as the largest, and at most by 1."""
    sizes = tensor.abs()
    largest = sizes.max() if sizes.numel() and bool(sizes.any()) else 1.0
    return sizes.where(sizes != 0, largest).clamp(max=1.0)


def _third_order(subject: Subject) -> Iterator[Finding]:
    """Nothing, if along one direction the third derivative is what the second one says, or is refused."""
    plain = [slot for slot in subject.slots if not slot.hidden]
    if subject.dtype is not torch.float64 or subject.gradient != "exact" or subject.random or not subject.custom:
        return
    if any(subject.base[s].is_complex() for s in subject.leaves) or not any(slot.leaf for slot in plain):
        return
    if subject.domain or subject.recognized:
        return  # a straight line leaves it
    generator = torch.Generator().manual_seed(4)
    # A number that is small, as a distance between atoms in meters, moves by its own size.
    directions = [
        torch.randn(b.shape, generator=generator, dtype=torch.float64) * _sizes(b) if s.leaf else None
        for s, b in zip(subject.slots, subject.base, strict=True)
        if not s.hidden
    ]
    try:
        second, third = _along(subject, directions, 0.0, third=True)
        slopes = [
            (_along(subject, directions, h)[0] - _along(subject, directions, -h)[0]) / (2 * h)
            for h in (1e-3, 3e-4, 1e-4)
        ]
    except (Exception, SystemExit):
        return  # refused
    claimed, size = 0.0 if third is None else float(third), abs(second)
    spread = max(slopes) - min(slopes)
    if not math.isfinite(spread) or not math.isfinite(size) or spread > 1e-2 * (abs(slopes[-1]) + 1e-3 * size):
        return  # not smooth enough there to tell
    if abs(claimed - slopes[-1]) > 0.05 * abs(slopes[-1]) + 1e-3 * size + spread + 1e-9:
        yield finding(
            "error",
            f"the third derivative along a random direction is {claimed:.6g}, but the second one changes by "
            f"{slopes[-1]:.6g}",
            "The backward of the backward uses a tensor that depends on the inputs but has no graph back to them.",
            "Compute it from inputs and grad_output, or mark the second backward with once_differentiable, which "
            "raises where grad_output requires grad.",
        )


OTHER_RULE = (
    "The jvp static method does for this argument something else than backward: it misses another mode, another dim, "
    "or a factor.",
    "Treat each mode in jvp as forward does, or refuse those that it has no rule for.",
)


def _forward_mode_with_other_flags(subject: Subject, slots: Sequence[int]) -> Iterator[Finding]:
    """Nothing, if forward mode and backward give one slope with flags that the sample does not have, too."""
    generator = torch.Generator().manual_seed(1)
    directions = {s: _random_like(subject.base[s], generator) for s in slots}
    for name, other in other_flags(subject):
        try:
            with other:
                primal, tangents = _dual(subject, directions)
                grads = subject.vjp()[1]
        except (Exception, SystemExit):
            continue  # refused
        weights = weights_of(primal)
        terms = [real([w]) @ real([t]) for w, t in zip(weights, tangents, strict=True) if t is not None]
        back = [real([g]) @ real([directions[s]]) for s in slots if (g := grads[s]) is not None]
        ahead, backward = (float(sum(parts)) for parts in (terms, back))
        size = sum(abs(float(part)) for part in (*terms, *back))
        if math.isfinite(size) and abs(ahead - backward) > 1e-6 * size + 1e-9:
            yield finding(
                "error",
                f"with {name}, forward mode gives the slope {ahead:.6g} in a random direction, and backward "
                f"{backward:.6g}",
                *OTHER_RULE,
            )
            return


@check(capability="forward_mode")
def forward_mode(subject: Subject) -> Iterator[Finding]:
    """Forward-mode tangents agree with differences of the values.

    A static method ``jvp`` is a second derivation by hand, with mistakes of its own. No backward ever runs it. It must
    not change the tangents that it receives.
    """
    if not subject.derivative:
        raise Refused(f"{subject.otherwise}, so the audit has no tangent to compare with")
    if subject.rough:
        raise Unmeasured("the values come in steps")
    slots = [s for s in subject.leaves if not subject.slots[s].hidden]
    if not slots:
        raise Refused("there is no input to differentiate")
    generator = torch.Generator().manual_seed(1)
    rtol = subject.accuracy or 1e-5
    own = any(c.jvp is not torch.autograd.Function.jvp for c in subject.classes)
    for k, chosen in enumerate([*([s] for s in slots), slots]):
        directions = {s: _random_like(subject.base[s], generator) for s in chosen}
        given = {s: direction.clone() for s, direction in directions.items()}
        try:
            primal, tangents = _dual(subject, given)
        except (Exception, SystemExit) as error:
            if own and not isinstance(error, NotImplementedError) and k:
                cause, fix = explain(error)
                yield finding("error", f"forward mode raises for some inputs: {first_line(error)}", cause, fix)
                return
            raise Refused(first_line(error)) from error
        if changed := [s for s in chosen if own and not same(given[s], directions[s])]:
            yield finding(
                "error",
                f"jvp changes the tangent of {subject.describe(changed[0])} that it receives",
                "jvp works in place on a tangent, which belongs to the caller: another function of the same input gets "
                "the changed one.",
                "Compute out of place in jvp.",
            )
            raise Wrong
        actual = real([torch.zeros_like(p) if t is None else t for p, t in zip(primal, tangents, strict=True)])
        if subject.gradient == "surrogate":
            theirs = _dual(subject, directions, subject.surrogate)[1]
            expected = real([torch.zeros_like(p) if t is None else t for p, t in zip(primal, theirs, strict=True)])
            wrong = not torch.allclose(actual, expected, rtol=1e-6, atol=1e-8)
        else:
            flat = torch.zeros(sum(map(len, map(_as_real, (subject.base[s] for s in slots)))), dtype=torch.float64)
            numeric = Derivative(subject.value, subject.base, slots, subject.coarsest)
            flat = torch.cat(
                [
                    _as_real(directions[s]) if s in directions else _as_real(torch.zeros_like(subject.base[s]))
                    for s in slots
                ]
            )
            expected = numeric.slope(flat, numeric.steps()[0])[0]
            scale = float(expected.abs().max()) if expected.numel() else 0.0
            wrong = any(
                numeric.judge(float(actual[j]), flat, torch.eye(len(actual), dtype=torch.float64)[j], rtol, scale)
                is not None
                for j in (~torch.isclose(actual, expected, rtol=rtol, atol=1e-2 * rtol * scale))
                .nonzero()
                .flatten()[:64]
            )
        if not wrong:
            continue
        names = " and ".join(subject.describe(s) for s in chosen)
        if all(t is None for t in tangents) and not own:
            yield finding(
                "info",
                f"forward mode gives no tangent for {names}, and no error either: torch.func.jvp turns that into zeros",
                "Operators made by torch.library have no rule for forward mode, and torch does not complain.",
                "Do not use forward mode on it.",
            )
        else:
            worst = int(torch.nan_to_num((actual - expected).abs(), nan=torch.inf).argmax())
            yield finding(
                "error",
                f"for tangents of {names}, forward mode gives {float(actual[worst]):.6g} instead of "
                f"{float(expected[worst]):.6g} (element {worst} of the outputs)",
                "The jvp static method is not the derivative of forward: a tangent is left out, or a factor is wrong.",
                "Derive jvp anew: the sum over inputs of derivative times tangent, where a tangent may be None.",
            )
        raise Wrong
    by_hand = own and subject.gradient == "exact" and subject.dtype is torch.float64 and not subject.accuracy
    if by_hand and not (subject.random or subject.lossy or subject.domain or subject.recognized):
        for found in _forward_mode_with_other_flags(subject, slots):
            yield found
            raise Wrong


def _as_real(tensor: Tensor) -> Tensor:
    return real([tensor])


def _random_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype).to(tensor.device)


def _dual(
    subject: Subject, directions: dict[int, Tensor], function: Callable[..., Any] | None = None
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Outputs and tangents, by dual numbers."""
    with forward_ad.dual_level():
        values = [
            forward_ad.make_dual(v, directions[s]) if s in directions else v for s, v in enumerate(subject.copies())
        ]
        subject.rewind()
        if subject.nonleaf:
            values = [v.clone() if s in subject.leaves else v for s, v in enumerate(values)]
        raw = (subject.function if function is None else function)(*subject.arguments(values))
        outputs = tensors_in(raw)
        pairs = [forward_ad.unpack_dual(outputs[i]) for i in subject.active]
        return [p.primal.detach() for p in pairs], [None if p.tangent is None else p.tangent.detach() for p in pairs]


@check()
def reference(subject: Subject) -> Iterator[Finding]:
    """Values and gradients are equal to those of the given reference.

    Differences cannot show whether forward computes the right function. Only a second implementation can.
    """
    if subject.reference is None:
        return
    run = subject.run(function=subject.reference)
    outputs, grads = subject.expected
    for k, i in enumerate(subject.active):
        theirs = run.outputs[i] if i < len(run.outputs) else None
        what = "missing in the reference" if theirs is None else difference(outputs[i], theirs.detach(), 1e-9)
        if what:
            yield finding(
                "error",
                f"output {i} is {what}, which the reference gives",
                "The forward computes another function, or the same one less accurately.",
                "Correct the forward, or the reference.",
            )
            return
        del k
    if not subject.derivative:
        return
    expected = run.gradients()
    for slot in subject.leaves:
        ours, theirs = (zeros_for_none(subject, g, [slot])[0] for g in (grads, expected))
        if what := difference(ours, theirs, 1e-7):
            recognized = pattern(subject, slot, ours, theirs, outputs) or in_some(subject, slot, ours, theirs)
            yield finding(
                "error",
                f"the gradient of {subject.describe(slot)} is {what}, which the reference gives",
                f"Compared with it, {recognized}." if recognized else "The formula differs from that of the reference.",
                "Derive the formula again.",
            )
            return
