"""Other dtypes than float64: kept, accurate, and without overflow on the way."""

import contextlib
import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.checks.gradients import ITERATIONS, Repetitions, repetitions
from autograd_cookbook.auditing.checks.layouts import ELEMENTS, accepted, resizings
from autograd_cookbook.auditing.diagnose import difference, first_line
from autograd_cookbook.auditing.numeric import largest_of
from autograd_cookbook.auditing.observe import fewest_bits
from autograd_cookbook.auditing.report import Finding, Severity
from autograd_cookbook.auditing.subject import Outcome, Refused, Subject, Unmeasured, is_differentiable, real

# Relative to the largest entry; gross errors are meant, not the last digits.
TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
SECONDS = 1.0  # for long samples
SMALLER = 8  # times, than the data, is an argument that is none
IN_FLOAT32 = "the function computes in float32 inside, so the audit has no digits of float64 to compare with"
# What can certainly be held.
LIMIT = {torch.float32: 1e30, torch.float16: 3e4, torch.bfloat16: 3e4}


def _in_both(subject: Subject, values: list[Tensor], dtype: torch.dtype) -> tuple[Outcome, Outcome]:
    """Outcome in a dtype, and in float64 on the same rounded numbers."""
    rounded = subject.converted(values, dtype)
    with subject.in_dtype(dtype):
        low = subject.vjp([r.clone() for r in rounded])
        low = ([o.clone() for o in low[0]], [None if g is None else g.clone() for g in low[1]])
    exact = [r.to(v.dtype) for r, v in zip(rounded, values, strict=True)]
    return low, subject.vjp(exact)


def _dtype(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")

    def holds(subject: Subject) -> Iterator[Finding]:
        if subject.dtype is not torch.float64 and dtype is not subject.dtype:
            raise Refused(IN_FLOAT32 if subject.lossy else "the function takes float32 alone")
        if dtype is torch.bfloat16 and any(v.is_complex() for v in subject.base):
            raise Refused("torch has no complex numbers of bfloat16")
        try:
            low, exact = _in_both(subject, subject.copies(), dtype)
        except (Exception, SystemExit) as error:
            raise Refused(first_line(error)) from error
        yield from _kept(subject, low, dtype, name)
        if subject.random:
            return  # another dtype draws other random numbers
        yield from (problems := list(_accurate(subject, low, exact, dtype, name)))
        if not problems:
            yield from _at_length(subject, dtype, name)

    holds.__name__ = name
    holds.__qualname__ = name
    check(capability=name)(holds)
    holds.__doc__ = f"""In {name}, the function keeps the dtype, and agrees with float64 up to the rounding of {name}.

    The check compares with float64 on the same rounded inputs, for the sample and for a long one. There, a sum that is
    accumulated in low precision shows, and so does an intermediate that overflows."""


def _kept(subject: Subject, low: Outcome, dtype: torch.dtype, name: str) -> Iterator[Finding]:
    largest = max((subject.base[s].numel() for s in subject.leaves), default=0)
    for i in subject.active:
        output = low[0][i]
        if output.dtype.to_real() is dtype or not is_differentiable(output):
            continue
        narrower = torch.finfo(output.dtype).eps > torch.finfo(dtype).eps
        elementwise = output.numel() >= largest
        severity: Severity = "error" if narrower else "warning" if elementwise and subject.custom else "info"
        yield finding(
            severity,
            f"for {name} inputs, output {i} is {output.dtype}",
            "A buffer was created without dtype=, or a cast inside of forward is not undone.",
            "Create buffers with dtype=input.dtype, and cast the result back.",
        )
        return


def _named(subject: Subject, outcome: Outcome) -> dict[str, Tensor]:
    """Outputs and gradients by what they are called."""
    named = {f"output {i}": outcome[0][i] for i in subject.active}
    return named | {
        f"the gradient of {subject.describe(s)}": g for s in subject.leaves if (g := outcome[1][s]) is not None
    }


def _unseen(subject: Subject, values: Sequence[Tensor], exact: Outcome, dtype: torch.dtype) -> dict[str, float]:
    """Gradients below these are lost in the rounding of the outputs, as that of a saturated sigmoid is."""
    rounding = 100 * torch.finfo(dtype).eps * largest_of(exact[0][i] for i in subject.active)
    return {
        f"the gradient of {subject.describe(s)}": rounding / max(1.0, largest_of([values[s]])) for s in subject.leaves
    }


def _conditioning(subject: Subject, values: Sequence[Tensor], exact: Outcome, dtype: torch.dtype) -> dict[str, float]:
    """How far the results move, relative to their norm, if the inputs are off by rounding: so far may any method be.

    Both ways: on one of them, a number may pass a threshold.
    """
    eps, wanted = torch.finfo(dtype).eps, _named(subject, exact)
    moves = dict.fromkeys(wanted, 0.0)
    ones = [torch.ones_like(v) for v in values]
    mixed = [torch.sin(torch.arange(v.numel())).reshape(v.shape).to(v) for v in values]
    apart = [one * (-1) ** k for k, one in enumerate(ones)]
    ways = itertools.product((mixed, ones, apart) if len(values) > 1 else (mixed, ones), (eps, -eps), (False,))
    # What is solved can be worse conditioned than what it was made of: powers of the nodes of a polynomial, for one.
    for errors, size, inside in (*ways, (mixed, 0.0, True)):
        pairs = zip(values, errors, strict=True)
        moved = [v * (1 + size * error) if is_differentiable(v) else v.clone() for v, error in pairs]
        try:
            with _Rounded(eps) if inside else contextlib.nullcontext():
                results = _named(subject, subject.vjp(moved))
        except (Exception, SystemExit):
            return dict.fromkeys(wanted, math.inf)  # at the edge of the domain
        for label, e in wanted.items():
            if label in results and results[label].shape == e.shape:
                moves[label] = max(moves[label], _off(results[label], e))
    return moves


class _Rounded(TorchDispatchMode):
    """Has each matrix that is solved or taken apart off by rounding."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "linalg" in func.overloadpacket.__name__:
            args = [self.rounded(a) if is_differentiable(a) and a.dim() > 1 else a for a in args]
        return func(*args, **(kwargs or {}))

    def rounded(self, matrix: Tensor) -> Tensor:
        waves = torch.sin(torch.arange(matrix.numel())).reshape(matrix.shape)
        return matrix * (1 + self.eps * waves.to(matrix))


def _off(actual: Tensor, exact: Tensor) -> float:
    """Distance relative to the norm of what is exact."""
    a, e = real([actual]), real([exact])
    return float((a - e).norm() / (e.norm() + 1e-300))


def _accurate(subject: Subject, low: Outcome, exact: Outcome, dtype: torch.dtype, name: str) -> Iterator[Finding]:
    moves, unseen = _conditioning(subject, subject.base, exact, dtype), _unseen(subject, subject.base, exact, dtype)
    found, wanted = _named(subject, low), _named(subject, exact)
    for label in [name for name in found if math.isfinite(moves.get(name, math.inf))]:
        to_be_had = wanted[label].abs() <= torch.finfo(dtype).max
        a, e = (t.where(to_be_had, 0) for t in (found[label], wanted[label]))
        tolerance = TOLERANCES[dtype] + 30 * moves[label]
        if what := difference(a.to(e.dtype), e, tolerance, unseen.get(label, 0.0) / tolerance):
            sizes, exact_sizes = a.to(e.dtype).abs(), e.abs()
            if label.startswith("output") and not difference(sizes, exact_sizes, tolerance):
                return  # other signs, as eigenvectors may have: what follows from them is no other than it should be
            ordered, exact_ordered = (t.flatten().sort().values for t in (sizes, exact_sizes))
            if label.startswith("output") and not difference(ordered, exact_ordered, tolerance):
                raise Unmeasured(f"the results come in another order in {name}, as eigenvalues may")
            reason = _overflow(subject, subject.copies(), dtype) or LOST
            threshold = _by_threshold(subject, subject.copies(), dtype, label, a)
            yield finding(
                "error" if subject.custom and not threshold else "info",
                f"in {name}, {label} is {what}, which float64 gives on the same numbers",
                *(THRESHOLD if threshold else reason),
            )
            return


# What goes wrong in a narrow dtype, and what to do.
POLE = (
    "{} is infinite at one number, and its argument is rounded to that number: in float16, 1 - 1e-5 is 1 and 1e-8 is "
    "0.",
    "Use a form that needs no number next to the pole, or clamp with a bound that the dtype has, such as "
    "1 - torch.finfo(dtype).eps.",
)
POLE_IN_BACKWARD = "Nothing in forward is infinite, but in the backward " + POLE[0], POLE[1]
OVERFLOW = (
    "An intermediate result overflows, as exp(12) or the square of 256 do in float16, and exp(89) in float32 and "
    "bfloat16.",
    "Subtract the maximum before exponentials, scale before squares, or compute that part in float32.",
)
OVERFLOW_IN_BACKWARD = (
    "In the backward, {} overflows, and nothing in forward does.",
    "Compute that part of the backward in float32, too.",
)
OVERFLOW_IN_FLOAT32 = (
    "In the backward, {} overflows, in float32 as well, and nothing in forward does.",
    "Write the formula of the backward without it: from what forward returns, or with a bounded function such as tanh "
    "or sigmoid.",
)
UNDEFINED = (
    "No operation gives infinity first: zero is divided by zero, or memory is read that was never written.",
    "Guard the division; fill what torch.empty or empty_like gives before it is read.",
)
LOST = (
    "Digits are lost: a difference of large numbers, a sum in low precision, or a cast on the way.",
    "Compute that part in float32, or rearrange the formula.",
)
CANCELLED = (
    "Digits cancel, as in 1 - exp(-x) or in a difference of two large numbers.",
    "Use a form without the difference, such as expm1 and log1p.",
)
CANCELLED_NEXT_TO_LARGE = (
    CANCELLED[0],
    "Subtract first, and square or multiply what is left: (x - x.mean()).square().mean().",
)
SUMMED = (
    "The sample is long. Either a sum is accumulated in the narrow dtype: once it is 256 times (bfloat16) or 2048 "
    "times (float16) as large as its terms, adding one more changes nothing. Or a constant that depends on the length, "
    "such as the angles of a transform, is computed in the narrow dtype.",
    "Accumulate in float32 (sum(dtype=torch.float32)), compute such a constant in float64, and cast the result.",
)
THRESHOLD = (
    "A threshold from torch.finfo, which depends on the dtype, takes effect: float64 with the threshold of this dtype "
    "gives the same.",
    "Nothing, if that is meant; otherwise set the threshold relative to the size of the numbers.",
)


def _at_length(subject: Subject, dtype: torch.dtype, name: str) -> Iterator[Finding]:
    """Numbers up to 20, whose exponentials overflow, and rows of 3000, whose sums stop growing in low precision.

    In float32, numbers up to 120, whose exponentials overflow, and numbers that are large next to their differences.

    Of numbers above 256, whose squares no float16 holds, only the backward is judged: it must not overflow where
    forward does not.
    """
    if not subject.custom:
        return
    wide = dtype is torch.float32 and repetitions(subject) < ITERATIONS  # a solver need not converge for any numbers
    changes = WIDE | LARGE if wide else LARGE
    variants = [("the sample" + label, subject.copies(), change) for label, change in changes.items()]
    variants += [
        (f"3000 as {where}{label}", values, change)
        for where, values in resizings(subject, 3000)
        for label, change in LONG.items()
    ]
    data = _data(subject)
    # A width or a temperature for each group of the data is not as large as they may be.
    most = max((subject.base[s].numel() for s in data), default=0)
    main = [s for s in data if SMALLER * subject.base[s].numel() >= most]
    start = time.process_time()
    for where, values, change in variants:
        if time.process_time() - start > SECONDS:
            break
        moved = data if change in LONG.values() else main
        if "added" in where:
            moved = _moved_together(subject, main, change)
        changed = [change(v) if s in moved else v.clone() for s, v in enumerate(values)]
        outputs = accepted(subject, [v.clone() for v in changed])
        if outputs is None or sum(o.numel() for o in outputs) > ELEMENTS:
            continue
        try:
            low, exact = _in_both(subject, changed, dtype)
        except (Exception, SystemExit):
            continue
        judge = _lost if "300 to" in where else _gross
        problems = list(judge(subject, changed, low, exact, dtype, name, where))
        if problems and change not in LONG.values() and is_guarded(subject, changed):
            problems = [replace(p, severity="info") for p in problems]  # beyond the edge of a domain
        yield from problems
        if problems:
            return


def _data(subject: Subject) -> list[int]:
    """Which arguments are numbers of any size.

    No constants, single settings such as a temperature, masks or spikes, and no matrices that have a size of their own.
    """
    plain = [s for s in subject.leaves if not subject.slots[s].hidden and s not in subject.recognized]
    many = [s for s in plain if subject.base[s].numel() > 1] or plain
    return [s for s in many if not bool(((subject.base[s] == 0) | (subject.base[s] == 1)).all())]


def _moved_together(subject: Subject, slots: list[int], change: Callable[[Tensor], Tensor]) -> list[int]:
    """To which arguments a large number is added: the first, and others of as many dims, if it matters for the first.

    Two clouds of points lie far out together. But the weights next to an input that is normalized do not.
    """
    alike = [s for s in slots if subject.base[s].dim() == subject.base[slots[0]].dim()]
    if len(alike) < 2:
        return alike
    alone = [change(v) if s == slots[0] else v.clone() for s, v in enumerate(subject.base)]
    try:
        matters = difference(subject.value(alone), subject.value(subject.copies()), 1e-3) is not None
    except (Exception, SystemExit):
        matters = True
    return alike if matters else alike[:1]


def _up_to(size: float) -> Callable[[Tensor], Tensor]:
    """Numbers up to this size to both sides, where the tensor has both signs: an exponential overflows at one."""

    def change(tensor: Tensor) -> Tensor:
        sides = [tensor] if tensor.is_complex() else [tensor.clamp(min=0), tensor.clamp(max=0)]
        largest = [float(side.abs().max()) if side.numel() else 0.0 for side in sides]
        scaled = [side * (size / most if most else 1.0) for side, most in zip(sides, largest, strict=True)]
        return torch.stack(scaled).sum(0)

    return change


def _above_256(tensor: Tensor) -> Tensor:
    return tensor.sgn() * 300 + _up_to(50.0)(tensor)


LONG: dict[str, Callable[[Tensor], Tensor]] = {"": torch.clone, " and positive numbers": torch.abs}
# What float32 holds, and formulas for smaller numbers do not: an exponential, the square of a mean.
WIDE = {
    " and 10000 added": lambda tensor: tensor + 1e4,
    " and numbers up to 120": _up_to(120.0),
    " and numbers below 2e-8": _up_to(2e-8),
}
LARGE = LONG | {" and numbers up to 20": _up_to(20.0), " and numbers of 300 to 350": _above_256}


GROSSLY = 10.0  # times the norm, where functions saturate and what is left of their gradients is small


def _gross(
    subject: Subject, values: list[Tensor], low: Outcome, exact: Outcome, dtype: torch.dtype, name: str, where: str
) -> Iterator[Finding]:
    """Results that are not finite, or off by far more than the dtype is coarse."""
    found = _named(subject, low)
    for label, e in _named(subject, exact).items():
        if label not in found or not e.isfinite().all() or (e.numel() and float(e.abs().max()) > LIMIT[dtype]):
            return  # not to be had in this dtype
        off = _off(found[label], e)
        finite = bool(found[label].isfinite().all())
        if not finite:
            kind = "NaN" if found[label].isnan().any() else "infinite"
            what = f"{kind} where float64 gives {float(e.abs().max()):.4g} at most"
        elif float(real([e]).norm()) > 1e-3 and off > (GROSSLY if "up to" in where else 0.25):
            largest = float((found[label] - e).abs().max())
            if largest < _unseen(subject, values, exact, dtype).get(label, 0.0):
                continue
            if off < 30 * _conditioning(subject, values, exact, dtype)[label]:
                continue  # so ill-conditioned that nothing better can be had
            if _off(found[label].abs(), e.abs()) < 1e-2:
                return  # other signs, as eigenvectors may have: what follows from them is no other than it should be
            what = f"off by {off:.2g} of its norm"
        else:
            continue
        threshold = _by_threshold(subject, values, dtype, label, found[label])
        reason = _overflow(subject, values, dtype)
        if "added" in where and (reason is None or any(each.pole for each in _infinities(subject, values, dtype))):
            reason = CANCELLED_NEXT_TO_LARGE  # a difference that vanishes, of which the formula takes a root or divides
        reason = reason or (
            UNDEFINED
            if not finite
            else CANCELLED
            if "below" in where
            else SUMMED
            if max(v.numel() for v in values) > 256
            else LOST
        )
        yield finding(
            "info" if threshold else "error",
            f"in {name}, with {where}, {label} is {what}",
            *(THRESHOLD if threshold else reason),
        )
        return


def _lost(
    subject: Subject, values: list[Tensor], low: Outcome, exact: Outcome, dtype: torch.dtype, name: str, where: str
) -> Iterator[Finding]:
    """Where the outputs are right, a gradient that is not even roughly so."""
    found = _named(subject, low)
    for label, e in _named(subject, exact).items():
        if label not in found:
            continue
        if label.startswith("output"):
            if difference(found[label].to(e.dtype), e, TOLERANCES[dtype]):
                return
            continue
        largest = float(e.abs().max()) if e.numel() else 0.0
        off = _off(found[label], e)
        if not 1e-3 < largest < LIMIT[dtype] or off < 0.5:
            continue
        forward, backward = _infinities(subject, values, dtype)
        if backward.first and not forward.first:
            if backward.pole:
                advice = POLE_IN_BACKWARD
            elif dtype is not torch.float32 and _infinities(subject, values, torch.float32)[1].first:
                advice = OVERFLOW_IN_FLOAT32
            else:
                advice = OVERFLOW_IN_BACKWARD
            yield finding(
                "error",
                f"in {name}, with {where}, the outputs are right, but {label} is "
                f"{f'off by {off:.2g} of its norm' if math.isfinite(off) else 'not finite'}",
                *_filled(advice, backward.first),
            )
            return


CLAMPS = ("clamp", "clamp_min", "clamp_max")
LOGARITHMS = ("log", "log2", "log10", "log1p", "logit", "atanh", "digamma")  # of no finite number do they overflow
QUOTIENTS = {"div": 1, "reciprocal": 0, "rsqrt": 0}  # and which argument they divide by


class _Infinities(TorchDispatchMode):
    """Notes the operations that make infinity of finite numbers, and whether they do so at a pole: log(0), 1/0."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.made: dict[tuple[str, int], bool] = {}  # by operation and the number of its call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [t.isinf() for t in tree_leaves((args, kwargs)) if is_differentiable(t)]  # before it is written to
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        self.calls[name] += 1
        if "empty" not in name and _made_infinite(result, given):
            divisor = args[QUOTIENTS[name]] if name in QUOTIENTS else None
            self.made[name, self.calls[name]] = name in LOGARITHMS or _is_zero(divisor)
        return result

    def __sub__(self, usual: "_Infinities") -> "_Infinities":
        """Without those that are infinite in the usual dtype, too, as the logarithm of a probability of zero is."""
        left = _Infinities()
        left.made = {call: pole for call, pole in self.made.items() if call not in usual.made}
        return left

    @property
    def first(self) -> str:
        """The operation that makes the first infinity, if one does."""
        return next(iter(self.made), ("", 0))[0]

    @property
    def pole(self) -> bool:
        """Whether the first infinity is at a pole."""
        return next(iter(self.made.values()), False)


def _is_zero(divisor: Any) -> bool:
    return bool((divisor == 0).any()) if isinstance(divisor, Tensor) else isinstance(divisor, float) and divisor == 0


def _made_infinite(result: Any, given: Sequence[Tensor]) -> bool:
    """Whether something is infinite in a place where no argument is: the exponential of minus infinity is zero."""
    for made in (t.isinf() for t in tree_leaves(result) if is_differentiable(t)):
        for infinite in given:
            by_place = infinite.dim() <= made.dim() and all(
                n in (1, m) for n, m in zip(infinite.shape[::-1], made.shape[::-1], strict=False)
            )
            made = made & ~(infinite if by_place else infinite.any())
        if made.any():
            return True
    return False


def _infinities(subject: Subject, values: list[Tensor], dtype: torch.dtype) -> tuple[_Infinities, _Infinities]:
    """What becomes infinite in forward, and in backward, in this dtype and not in the usual one."""

    def seen(dtype: torch.dtype) -> tuple[_Infinities, _Infinities]:
        with subject.in_dtype(dtype):
            with _Infinities() as forward:
                run = subject.run(subject.converted(values, dtype))
            with _Infinities() as backward:
                run.gradients()
        return forward, backward

    forward, backward = (here - usual for here, usual in zip(seen(dtype), seen(subject.dtype), strict=True))
    return forward, backward


def passes_a_pole(subject: Subject, values: list[Tensor]) -> bool:
    """Whether forward takes the logarithm of zero or divides by it on the way."""
    with _Infinities() as seen, torch.no_grad():
        subject.run([v.clone() for v in values], subject.without_graph)
    return seen.pole


def decomposes(subject: Subject, values: list[Tensor]) -> bool:
    """Whether forward takes a matrix apart, by SVD, QR or eigenvectors: of a degenerate one, in any of many ways."""
    with Repetitions() as seen, torch.no_grad():
        subject.run([v.clone() for v in values], subject.without_graph)
    names = {operation.overloadpacket.__name__ for operation, *_ in seen.counts}
    return any("svd" in name or "_eig" in name or "_qr" in name for name in names)


class _Guards(TorchDispatchMode):
    """Notes whether a clamp changes something: any, or one whose bound is near a whole number, as 1 - 1e-5 is."""

    def __init__(self, near: bool) -> None:
        super().__init__()
        self.near, self.acts = near, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        bounds = [b for b in (*args[1:], *kwargs.values()) if isinstance(b, float) and math.isfinite(b)]
        near = not self.near or any(0 < abs(b - round(b)) < 1e-3 for b in bounds)
        guards = func.overloadpacket.__name__.rstrip("_") in CLAMPS and near
        before = args[0].clone() if guards else None
        result = func(*args, **kwargs)
        self.acts |= before is not None and not torch.equal(before, result)
        return result


def is_guarded(subject: Subject, values: list[Tensor]) -> bool:
    """Whether forward clamps something with such a bound, and clamps nothing so on the sample."""

    def guards(values: list[Tensor]) -> bool:
        with torch.no_grad(), _Guards(near=True) as seen:
            subject.run(values, subject.without_graph)
        return seen.acts

    return guards([v.clone() for v in values]) and not guards(subject.copies())


def clamps_in_backward(subject: Subject, values: list[Tensor]) -> bool:
    """Whether backward alone clamps something, and nothing on the sample."""

    def clamps(values: list[Tensor]) -> bool:
        with _Guards(near=False) as forward:
            run = subject.run(values)
        with _Guards(near=False) as backward:
            run.gradients()
        return backward.acts and not forward.acts

    return clamps([v.clone() for v in values]) and not clamps(subject.copies())


def _overflow(subject: Subject, values: list[Tensor], dtype: torch.dtype) -> tuple[str, str] | None:
    """What becomes infinite in this dtype alone, and what to do; None where nothing does."""
    for found in _infinities(subject, values, dtype):
        if found.first:
            return _filled(POLE if found.pole else OVERFLOW, found.first)
    return None


def _filled(texts: tuple[str, str], operation: str) -> tuple[str, str]:
    return texts[0].format(operation), texts[1]


def _by_threshold(subject: Subject, values: list[Tensor], dtype: torch.dtype, label: str, low: Tensor) -> bool:
    """Whether float64 gives the same as a narrow dtype, if its thresholds are those of that dtype."""
    if not low.isfinite().all():
        return False
    finfo = torch.finfo
    rounded = [r.to(v.dtype) for r, v in zip(subject.converted(values, dtype), values, strict=True)]
    try:
        torch.finfo = lambda *_: finfo(dtype)  # type: ignore[misc, assignment]  # put back below
        outcome = subject.run(rounded).outcome()
    except (Exception, SystemExit):
        return False
    finally:
        torch.finfo = finfo  # type: ignore[misc]
    result = _named(subject, outcome).get(label)
    return result is not None and difference(low.to(result.dtype), result, TOLERANCES[dtype]) is None


for _each in TOLERANCES:
    _dtype(_each)


@check()
def output_dtype(subject: Subject) -> Iterator[Finding]:
    """In float64, the output is float64.

    A function that always computes in float32 drops nine digits of a float64 input, and gradcheck hardly notices.
    """
    outputs, _ = subject.expected
    for i in subject.active:
        if torch.finfo(outputs[i].dtype).eps > torch.finfo(subject.dtype).eps:
            yield finding(
                "error",
                f"for {subject.dtype} inputs, output {i} is {outputs[i].dtype}",
                "A cast (.float(), .half()) or a buffer without dtype= inside of forward.",
                "Cast the result back with .to(input.dtype).",
            )
            return


@check(needs="first_order")
def digits(subject: Subject) -> Iterator[Finding]:
    """Values and gradients of float64 inputs have the digits of float64.

    A cast to float32 inside of the function loses nine of sixteen digits, although the dtypes at both ends look right.
    The check moves the inputs by a billionth. Numbers with all digits move along smoothly, and numbers with fewer
    digits stay or jump.
    """
    if subject.dtype is not torch.float64 or subject.gradient == "approximate":
        return

    def everything(values: list[Tensor]) -> dict[str, Tensor]:
        return {name: real([t]) for name, t in _named(subject, subject.vjp(values)).items()}

    center, unseen = everything(subject.copies()), _unseen(subject, subject.base, subject.expected, subject.dtype)
    # An ill-conditioned solve amplifies the rounding of float64, which a cast to float32 swallows.
    eps = torch.finfo(subject.dtype).eps
    rounded = [everything(subject.copies(functools.partial(torch.mul, other=1 + e))) for e in (eps, -eps)]
    suspects = set(center)
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        directions = {
            s: torch.randn(subject.base[s].shape, generator=generator, dtype=torch.float64) * subject.base[s].abs()
            for s in subject.leaves
        }
        slopes = []
        for h in (1e-4, 1e-5, 1e-9):
            moved = [v + h * directions[s].to(v) if s in directions else v for s, v in enumerate(subject.copies())]
            slopes.append({name: (v - center[name]) / h for name, v in everything(moved).items()})
        for name in list(suspects):
            rough, coarse, fine = (slope[name] for slope in slopes)
            # What is smooth, and moves by far more than rounding in float64 does.
            clear = ((rough - coarse).abs() < 0.1 * coarse.abs()) & (coarse.abs() > 1e-5 * center[name].abs())
            clear &= coarse.abs() * 1e-9 > unseen.get(name, 0.0)
            for near in rounded:
                clear &= coarse.abs() * 1e-9 > (near[name] - center[name]).abs()
            off = ((fine - coarse).abs() / coarse.abs())[clear]
            if not off.numel() or float(off.median()) < 0.5:
                suspects.remove(name)
    for name in center:
        if name in suspects:
            bits = fewest_bits(lambda: subject.run().gradients())
            if bits == 8:  # values that move in steps: the first derivative is told so
                subject.inside = torch.float32
                return
            early = bits == 64 and repetitions(subject) >= ITERATIONS
            yield finding(
                "info" if early else "error",
                f"{name} does not move when the inputs move by a billionth, or jumps: it has the digits of float32",
                *(EARLY if early else CAST),
            )
            return


EARLY = (
    "The iteration in forward stops so early that its result comes in steps.",
    "Nothing, if that accuracy suffices; otherwise tighten the tolerance of the iteration.",
)
CAST = (
    "A cast (.float(), torch.float32, a NumPy float32 array) on the way, undone at the end.",
    "Compute in the dtype of the inputs; raise low precision with torch.promote_types(dtype, torch.float32).",
)


@check(capability="autocast")
def autocast(subject: Subject) -> Iterator[Finding]:
    """Under autocast to bfloat16, value and gradient stay the same, up to rounding.

    Autocast is on inside of forward. Inside of backward it is off, unless ``torch.amp.custom_bwd`` says otherwise.
    Saved float32 tensors then meet bfloat16 gradients.
    """
    if subject.dtype is not torch.float64:
        raise Refused(IN_FLOAT32 if subject.lossy else "the function takes float32 alone")
    exact = subject.vjp(subject.converted(subject.copies(), subject.dtype))
    try:
        with subject.in_dtype(torch.float32):
            without = subject.vjp(subject.converted(subject.copies(), torch.float32))
            plain = {name: t.detach().clone() for name, t in _named(subject, without).items()}
            with torch.autocast("cpu", dtype=torch.bfloat16):
                run = subject.run(subject.converted(subject.copies(), torch.float32))
            found = {name: t.detach().clone() for name, t in _named(subject, run.outcome()).items()}
    except (Exception, SystemExit) as error:
        raise Refused(first_line(error)) from error
    if subject.random:
        return
    unseen, wanted = _unseen(subject, subject.base, exact, torch.bfloat16), _named(subject, exact)
    for label in [name for name in found if name in wanted]:
        a, e = found[label], wanted[label]
        if label in plain and not difference(a.to(e.dtype), plain[label].to(e.dtype), 1e-3):
            continue  # it is float32 that makes the difference, as at the border of a domain
        if what := difference(a.to(e.dtype), e, 0.15, unseen.get(label, 0.0) / 0.15):
            another = _few_differ(a.to(e.dtype), e) and _chooses(subject)
            yield finding(
                "error" if subject.custom and not another else "info",
                f"under autocast, {label} is {what}, which it is without",
                *(ANOTHER_CHOICE if another else IN_FORWARD if label.startswith("output") else IN_BACKWARD),
            )
            return


IN_FORWARD = (
    "Part of the forward runs in bfloat16 under autocast, and loses too many digits there.",
    "Decorate forward with torch.amp.custom_fwd(device_type=..., cast_inputs=torch.float32), and backward with "
    "torch.amp.custom_bwd: then autocast is off inside of both.",
)
IN_BACKWARD = (
    "Part of the computation runs in bfloat16 in forward and not in backward, or loses too many digits there.",
    "Decorate forward with torch.amp.custom_fwd and backward with torch.amp.custom_bwd.",
)
ANOTHER_CHOICE = (
    "Forward chooses, as argmin or a comparison does, and where two candidates are nearly equal, bfloat16 chooses "
    "another one than float32.",
    "Nothing, if one is as good as the other; otherwise torch.amp.custom_fwd with cast_inputs=torch.float32.",
)
CHOICES = frozenset(
    ["argmin", "argmax", "min", "max", "sort", "topk", "kthvalue", "round", "floor", "ceil", "trunc", "sign", "where"]
) | {"bucketize", "searchsorted", "multinomial", "lt", "le", "gt", "ge"}
FEW = 0.1  # of the entries


class _Choices(TorchDispatchMode):
    """Notes whether an operation chooses among candidates: then the smallest error may choose another one."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= func.overloadpacket.__name__.rstrip("_") in CHOICES
        return func(*args, **(kwargs or {}))


def _chooses(subject: Subject) -> bool:
    with _Choices() as choices:
        subject.run()
    return choices.seen


def _few_differ(a: Tensor, e: Tensor) -> bool:
    return float((~torch.isclose(a, e, rtol=0.15, atol=0.15 * float(e.abs().max()))).double().mean()) < FEW
