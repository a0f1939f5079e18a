"""The audit: runs all checks on a function, each where it can do no harm, and reports."""

import contextlib
import faulthandler
import gc
import importlib
import math
import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, Literal

import torch
from torch import Tensor, nn

from autograd_cookbook.auditing import forking
from autograd_cookbook.auditing.arguments import FIRST, arguments, required, selected, subject_options
from autograd_cookbook.auditing.checks import Check, all_checks, finding
from autograd_cookbook.auditing.checks.execution import NoTensorError, prepare
from autograd_cookbook.auditing.checks.gradients import in_brief
from autograd_cookbook.auditing.checks.memory import saved_beyond_inputs
from autograd_cookbook.auditing.clock import BUDGET, TIMEOUT, Clock, OutOfTime
from autograd_cookbook.auditing.diagnose import (
    explain,
    first_line,
    known,
    raised_by_audit,
    refused_on_purpose,
    refuses_hooks,
)
from autograd_cookbook.auditing.observe import fewest_bits, same
from autograd_cookbook.auditing.programs import program_for, source_of
from autograd_cookbook.auditing.report import TASTE, Finding, Report
from autograd_cookbook.auditing.roots import LAST_DTYPE, merged
from autograd_cookbook.auditing.state import preserved
from autograd_cookbook.auditing.subject import Outcome, Refused, Subject, Unmeasured, Wrong, tensors_of
from autograd_cookbook.auditing.variation import deviation

# Families of checks that look at what the function itself does with the sample, or map it where no domain can go.
AS_GIVEN = ("execution", "memory", "modules", "transforms")
UNTIMED = (FIRST, "compile")  # without the one there is nothing to say; the time of the other is the compiler's
LOOK = 0.25  # seconds between two looks at the clock
HANGS = 3  # after so many cut-offs the remaining checks are not waited for
ORDER = {"error": 0, "warning": 1, "info": 2}

Progress = Callable[[str, int, int], None]
Event = tuple[Any, ...]


@dataclass(frozen=True)
class _Task:
    """Everything that a process needs to run checks."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    options: dict[str, Any]
    checks: tuple[Check, ...]
    clock: Clock


@dataclass
class _Outcome:
    """What has come back so far."""

    findings: list[Finding] = field(default_factory=list)
    verdicts: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    saved_bytes: int | None = None
    stopped: bool = False


def audit(
    fn: Callable[..., Any],
    inputs: Sequence[Any] | Tensor,
    *,
    reference: Callable[..., Any] | None = None,
    gradient: Literal["exact", "surrogate", "approximate", "custom"] | None = None,
    surrogate: Callable[..., Any] | None = None,
    tolerance: float | None = None,
    domain: Callable[..., Sequence[Any]] | Literal["any"] | None = None,
    require: Sequence[str] = (),
    skip: Sequence[str] = (),
    only: Sequence[str] = (),
    seed: int = 0,
    device: torch.device | str | None = None,
    timeout: float = TIMEOUT,
    budget: float | None = BUDGET,
    isolate: bool | None = None,
    progress: Progress | None = None,
) -> Report:
    """Find out what is wrong with a differentiable function, and how to fix it.

    Args:
        fn: ``MyFunction.apply``, a callable around one, a module, or an operator of ``torch.library``.
        inputs: the arguments of one typical call; small, with random values, at least one floating tensor that
            requires grad. float32 is promoted to float64 (in a copy, and the report says so).
        reference: the same function, written with PyTorch's differentiable operations. It takes the same arguments as
            ``fn``. The audit compares values and gradients with it.
        gradient: what backward returns. "exact" (the default): the derivative of forward. "surrogate": the derivative
            of ``surrogate``. "approximate": an estimate, whose mean error must stay below ``tolerance``. "custom": no
            derivative, for example a clipped or projected gradient. The audit then does not judge the values.
        surrogate: the function whose derivative backward returns. It takes the same arguments as ``fn``.
        tolerance: the largest relative error of the mean of an approximate gradient, 0.05 by default.
        domain: a differentiable function that takes the same arguments as ``fn`` and returns them as valid arguments:
            for example, it normalizes, symmetrizes or sorts them. The audit passes all its inputs through this
            function, and differentiates only in directions that stay valid. If you pass no domain, the audit checks
            whether the sample is symmetric, orthonormal, sorted, one-hot, normalized or padded with zeros. If so, it
            keeps this property in every input, and a note in the report names the property. If your function accepts
            all numbers, pass "any".
        require: capabilities that must be "yes"; one that is not becomes an error.
        skip: names of checks to leave out.
        only: names of the only checks to run.
        seed: what the global random generators are set to before each call.
        device: where to move the inputs; the module or closure must be there already.
        timeout: the most seconds for one call. The audit reports a call that takes longer, and runs the next check.
            The limit is longer on a busy machine, and six times as long for the compiler.
        budget: seconds for all checks together, except for ``compile``; None for no limit. The checks run in the
            order of danger. A check that did not fit is listed in the notes as not measured.
        isolate: whether the checks run in a forked process, so that they can neither crash nor change your process.
            By default they do on Linux, if all tensors are on the CPU and a forked process can run backward. It cannot
            if your process sees a GPU and has already run a backward. In your own process, a crash ends your program,
            and the audit can interrupt a check that hangs only in the main thread, while Python code runs.
        progress: called with the name of the check that starts, its number, and how many there are.

    Returns:
        The report; ``report.ok`` is False if any finding is an error or a warning.

    Raises:
        TypeError: if ``fn`` is not callable, or returns no tensor; if the inputs hold no floating tensor that
            requires grad.
        ValueError: for an unknown option, check or capability.

    >>> import torch
    >>> from autograd_cookbook import audit
    >>> x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    >>> report = audit(torch.sigmoid, (x,), skip=["compile"])
    >>> report.ok, report.capabilities["second_order"], report.saved_bytes
    (True, 'yes', 96)
    """
    checks = selected(only, skip)
    args = arguments(fn, inputs)
    options = subject_options(reference, gradient, surrogate, tolerance, seed, device, domain)
    require = required(require, checks)
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
    if budget is not None and not (isinstance(budget, int | float) and budget > 0):
        raise ValueError(f"budget must be a positive number of seconds or None, got {budget!r}")
    on_cpu = all(t.device.type == "cpu" for t in args if isinstance(t, Tensor)) and device in (None, "cpu")
    if isolate is None:
        isolate = on_cpu and forking.can_fork()
    elif isolate and not forking.can_fork():
        raise ValueError(_why_not())
    with preserved():  # the import changes the filters of warnings
        importlib.import_module("torch._dynamo")  # most checks come to need it: once here, and not again in each child
    outcome = _Outcome()
    asked = tuple(c.name for c in checks if c.capability in require)  # they are measured in any case
    clock = Clock(timeout, budget, (*UNTIMED, *asked))
    perform = _isolated if isolate else _in_process
    # Where progress is interrupted, the process that is at work ends now, and not when the exception is let go.
    with contextlib.closing(
        perform(_Task(fn, args, options | {"beat": clock.beat, "isolated": isolate}, checks, clock))
    ) as events:
        _collect(events, checks, outcome, progress)
    if outcome.late:
        late = ", ".join(c.name for c in checks if c.name in outcome.late)
        outcome.notes.append(f"not measured within the budget of {budget:g} s: {late}")
    return _report(fn, outcome, checks, require)


def _why_not() -> str:
    if not forking.CAN_FORK:
        return f"isolate=True needs a system that can fork, got {sys.platform}"
    return (
        "isolate=True needs a process whose forks can run backward, and those of this one cannot: CUDA is in use, or "
        "the autograd engine has started its threads for devices; audit before the first backward, in a new process"
    )


# --- running checks: a stream of events, from this process or from another ---


def _perform(task: _Task, names: Sequence[str], found: dict[str, list[Finding]]) -> Iterator[Event]:
    """Run some of the checks here, behind those of which ``found`` says what they found.

    What is yielded can be sent to another process.
    """
    with preserved(), torch.inference_mode(False), torch.enable_grad():
        warnings.simplefilter("ignore")
        yield ("start", FIRST)
        start = time.perf_counter()
        saved = None
        with preserved():
            subject, problem, notes = _prepared(task)
            if problem is None:
                with contextlib.suppress(Exception):
                    saved = saved_beyond_inputs(subject)
        yield ("facts", notes, saved, subject.custom)
        if problem is not None:
            named = replace(problem, check=FIRST, url=all_checks()[FIRST].url)
            yield ("done", FIRST, [named], None, time.perf_counter() - start)
            yield ("stop",)
            return
        subject.right = not any(f.severity == "error" for f in found.get("first_order", ()))
        early: dict[str, tuple[list[Finding], str | None]] = {}
        given = subject
        if subject.gradient == "exact":
            # Where digits are lost on the way, differences in float64 see nothing but that.
            for check in (c for c in task.checks if c.name in ("output_dtype", "digits") and c.name in names):
                if not (check.needs in early and _alarms(early[check.needs][0])):
                    with preserved():
                        subject.along_domain = True
                        early[check.name] = _checked(check, subject)
            if _alarms(early.get("digits", ([], None))[0]):
                with preserved():
                    subject = _in_single(task, subject)
                given = subject if subject.carried else given  # which share parameters, of one dtype at a time
        elif subject.dtype is torch.float64:
            with preserved(), contextlib.suppress(Exception):
                if fewest_bits(subject.vjp) == 32:
                    subject.inside = torch.float32  # rounding is that of float32
        chosen = [check.name for check in task.checks]
        for check in task.checks:
            if check.name not in names or (check.needs and _alarms(found.get(check.needs, []))):
                continue
            if not task.clock.allows(check.name):
                yield ("late", check.name)
                continue
            if check.needs in chosen and check.needs not in found:  # it was cut off: what stands in for it is quick
                yield ("start", check.needs)
                start = time.perf_counter()
                brief = replace(all_checks()[check.needs], function=in_brief)
                found[check.needs], verdict = [], None
                with preserved(), contextlib.suppress(OutOfTime):
                    found[check.needs], verdict = _checked(brief, subject)
                if found[check.needs]:
                    yield ("done", check.needs, found[check.needs], verdict, time.perf_counter() - start)
                else:
                    yield ("late", check.needs)
                if _alarms(found[check.needs]):
                    continue
            if check.name != FIRST:
                yield ("start", check.name)
                start = time.perf_counter()
            subject.along_domain = check.family not in AS_GIVEN
            with preserved():
                # Dtypes are judged as they were given.
                judged = given if check.name == "returned" else subject
                in_other_dtypes = check.family == "precision" and check.name not in early
                try:
                    usual = judged.expected if in_other_dtypes else None
                    found[check.name], verdict = early.get(check.name) or _checked(check, judged)
                    left = _left_behind(check, judged, usual) if usual else []
                except OutOfTime:
                    yield ("late", check.name)
                    continue
            if not any(f.cause == LAST_DTYPE[0] for each in found.values() for f in each):
                found[check.name] += left
            yield ("done", check.name, found[check.name], verdict, time.perf_counter() - start)
            if left:
                behind = chosen[chosen.index(check.name) + 1 :]
                yield ("changed", [name for name in names if name in behind])
                return
            if check.name == "repeatable" and any(f.severity == "error" for f in found[check.name]):
                yield ("stop",)
                return
        notes = [*subject.notes, *([subject.measured] if subject.measured else [])]
        yield ("facts", notes, None, subject.custom)


def _alarms(findings: Sequence[Finding]) -> bool:
    return any(f.severity != "info" for f in findings)


def _prepared(task: _Task) -> tuple[Subject, Finding | None, list[str]]:
    subject = Subject(task.function, task.inputs, **task.options)
    problem = prepare(subject)
    within = [
        f"{subject.slots[s].name} is {domain.name} in the sample: so it is in every input that the audit makes"
        for s, domain in subject.recognized.items()
    ]
    low = sorted(str(d).removeprefix("torch.") for d in subject.given - {torch.float64})
    if not low:
        return subject, problem, within
    notes = [*within, f"the sample was in {', '.join(low)}: it was promoted to float64, in a copy"]
    if problem is None or "float32" not in low:
        return subject, problem, notes
    subject.reset_buffers()  # what the first attempt left in objects is in float64
    for given in subject.given:
        subject.cast_carried(torch.float64, given)
    single = Subject(task.function, task.inputs, **task.options, dtype=torch.float32)
    if (again := prepare(single)) is None:
        notes = [*within, f"in float64, {problem.summary}: audited in float32, with wider tolerances"]
    return single, again, notes


def _in_single(task: _Task, subject: Subject) -> Subject:
    """The subject in float32, if it runs there; as it is otherwise."""
    subject.reset_buffers()
    subject.cast_carried(subject.dtype, torch.float32)
    single = Subject(task.function, task.inputs, **task.options, dtype=torch.float32)
    if prepare(single) is None:
        single.lossy = True
        return single
    subject.reset_buffers()  # what the attempt left in objects is in float32
    subject.cast_carried(torch.float32, subject.dtype)
    return subject


def _checked(check: Check, subject: Subject) -> tuple[list[Finding], str | None]:
    """Findings of one check, and the verdict on its capability."""
    found: list[Finding] = []
    verdict = "yes"
    subject.rewind()
    try:
        if subject.sparse and check.family == "transforms":
            raise Unmeasured("the audit makes sparse arguments of their values, which not all transforms support")
        for each in check.function(subject):
            found += [each]  # one by one: what was found before an exception counts
    except Wrong:
        verdict = "wrong"
    except Refused as refusal:
        verdict = "no"
        if check.capability != "module_copies":
            found.append(finding("info", f"no {check.capability}: {refusal}", *_why(refusal)))
    except Unmeasured as reason:
        subject.notes.append(f"not measured, because {reason}: {check.name}")
        return found, None
    except NoTensorError:
        raise
    except (Exception, SystemExit) as error:
        if raised_by_audit(error) or refuses_hooks(str(error)):
            subject.notes.append(f"not measured, because the audit cannot: {check.name} ({first_line(error)})")
            return [], "no" if check.capability else None
        if isinstance(error, ValueError | TypeError) and refused_on_purpose(error):
            subject.notes.append(
                f"not measured, because the function refuses what is tried: {check.name} ({first_line(error)})"
            )
            return found, None
        verdict = "wrong"
        found.append(finding("error", f"the function raises in this check: {first_line(error)}", *explain(error)))
    if blamed := [f for f in found if f.severity != "info" and refuses_hooks(f.summary)]:
        found = [f for f in found if f not in blamed]  # torch declines what the audit does around the call
        subject.notes.append(f"not measured, because torch.func refuses the hooks of the audit: {check.name}")
        verdict = "no"
    if any(f.severity == "error" for f in found):
        verdict = "wrong"
    named = [_with_evidence(replace(f, check=check.name, url=check.url), subject, subject.isolated) for f in found]
    return named, verdict if check.capability else None


def _left_behind(check: Check, subject: Subject, usual: Outcome) -> list[Finding]:
    """Whether calls in other dtypes have changed what the usual call returns."""
    # It is the very same call, which amplifies no rounding.
    if subject.random or (found := deviation(subject, subject.vjp, usual, subject.rounding)) is None:
        return []
    changed = finding("error", f"after calls in other dtypes, {found.text}", *LAST_DTYPE)
    return [_with_evidence(replace(changed, check=check.name, url=check.url), subject, subject.isolated)]


def _with_evidence(found: Finding, subject: Subject, try_out: bool) -> Finding:
    """The finding with the lines that it is about, and a program that shows it."""
    if found.severity == "info" and found.check not in TASTE:
        return found
    given = {"gradient": subject.gradient, "surrogate": subject.surrogate, "reference": subject.reference}
    options = {k: v for k, v in given.items() if v not in (None, "exact")} | ({"domain": 0} if subject.domain else {})
    function, flat = subject.function, subject.flat
    writable = all(isinstance(v, str) for v in options.values())
    program = program_for(function, flat, subject.spec, found.check, options, try_out) if writable else ""
    return replace(found, source=source_of(function, subject.classes, found.check, found.summary), program=program)


def _why(refusal: Refused) -> tuple[str, str]:
    cause = "The function or torch declines, with an exception."
    if not refusal.__cause__:
        cause = "The check has nothing to compare or to try on this function, for the reason above."
    return refusal.advice or known(refusal.__cause__ or refusal) or (cause, "Nothing, unless it is needed.")


def _in_process(task: _Task) -> Generator[Event]:
    """Without isolation; a hang is interrupted where Python gets to run."""
    kept = [
        (t, t.data, t.detach().clone(), t.requires_grad, t.grad if t.is_leaf else None)
        for t in tensors_of(task.function, task.inputs)
    ]

    clock = task.clock

    def look(*_: Any) -> None:
        match clock.verdict():
            case "hangs":
                clock.beat()  # what follows is the audit's own work: to explain this error
                raise TimeoutError(f"cut off after {clock.timeout:g} s")
            case "slow":
                raise OutOfTime

    can_interrupt = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGALRM, look) if can_interrupt else None
    try:
        for event in _perform(task, [c.name for c in task.checks], {}):
            _keep_time(clock, event)
            if can_interrupt:
                often = min(LOOK, clock.timeout) if event[0] == "start" else 0
                signal.setitimer(signal.ITIMER_REAL, often, often)
            if event[0] == "changed":
                reason = "calls in other dtypes have changed the function, and isolate=False"
                yield ("facts", [f"not measured, because {reason}: {', '.join(event[1])}"], None, True)
            else:
                yield event
    finally:
        if can_interrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        for tensor, data, contents, requires_grad, grad in kept:
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                tensor.data = data
                if not same(tensor, contents):
                    tensor.copy_(contents)
            if tensor.is_leaf and not tensor.is_inference():
                tensor.requires_grad_(requires_grad)
                tensor.grad = grad


def _keep_time(clock: Clock, event: Event) -> None:
    if event[0] == "start":
        clock.start(event[1])
    elif event[0] in ("done", "late"):
        clock.stop()


def _isolated(task: _Task) -> Generator[Event]:
    """In forked processes: when one hangs or dies, another goes on behind the check that it was at."""
    context = multiprocessing.get_context("fork")
    remaining = [c.name for c in task.checks]
    found: dict[str, list[Finding]] = {}
    hangs, custom, clock = 0, True, task.clock
    while remaining:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(task, remaining, found, theirs), daemon=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of threads; the child uses one
            process.start()
        theirs.close()
        current, problem, fault, changed = FIRST, None, None, False
        clock.watch(process.pid or 0)
        clock.start(FIRST)
        try:
            while True:
                if not ours.poll(min(LOOK, clock.timeout)):
                    if (verdict := clock.verdict()) == "hangs":
                        problem = f"it does not come back: cut off after {clock.timeout:g} s"
                        clock.excuse()
                        hangs += 1
                    if verdict:
                        break
                    continue
                try:
                    event = ours.recv()
                except EOFError:
                    process.join()
                    problem = f"the process dies ({_exit(process.exitcode)})"
                    break
                if event[0] == "start":
                    current = event[1]
                if event[0] == "facts":
                    custom = event[3]
                if changed := event[0] == "changed":
                    break  # another process has the function as it was
                if event[0] == "end":
                    return
                if event[0] == "fault":
                    fault = event[1]
                    break
                _keep_time(clock, event)
                yield event
                if event[0] == "done":
                    found[event[1]] = event[2]
                if event[0] in ("done", "late"):
                    remaining = [n for n in remaining if n != event[1]]
        finally:
            if process.is_alive():
                process.kill()
            process.join()
            ours.close()
        if current not in (FIRST, *remaining):  # what stands in for a check that is too slow does not come twice
            found.setdefault(current, [])
        if changed:
            continue
        if fault is not None and current == FIRST:
            raise RuntimeError(f"the audit itself failed, which is a fault of the audit; please report it: {fault}")
        check = next(c for c in task.checks if c.name == current)
        if fault is not None:
            reason = f"the audit itself failed: {current} ({fault})"
        elif problem is not None and check.alters_saved:
            reason = f"{problem} when the audit changes its saved tensors: {current}"
        else:
            reason = ""
        if reason or problem is None:
            clock.stop()
            yield ("facts", [f"not measured, because {reason}"], None, custom) if reason else ("late", current)
            remaining = [n for n in remaining if n != current]
            continue
        cause = (
            "An endless loop, a deadlock, or far too much work."
            if "back" in problem
            else ("Memory is written to or read where it must not be, or the code leaves the process.")
        )
        cut_off = finding(
            "error" if custom else "info",
            f"during this check ({check.purpose.rstrip('.').replace('``', '')}), {problem}",
            cause,
            "Run the call of this check alone, with only= and isolate=False.",
        )
        cut_off = replace(cut_off, check=current, url=check.url)
        found[current] = [cut_off]
        yield (
            "done",
            current,
            [cut_off],
            "wrong" if check.capability else None,
            clock.timeout if "back" in problem else 0.0,
        )
        remaining = remaining[remaining.index(current) + 1 :] if current in remaining else remaining[1:]
        if current == FIRST:
            yield ("stop",)
            return
        if hangs >= HANGS and remaining:
            yield (
                "facts",
                [f"after {hangs} checks that hung, these were not run: {', '.join(remaining)}"],
                None,
                custom,
            )
            return


def _exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"


def _child(task: _Task, names: list[str], found: dict[str, list[Finding]], connection: Connection) -> None:
    """The life of a forked process: no threads, no output, and nothing that outlives it."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(null, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (pytest and notebooks have put others there)
    faulthandler.disable()  # a crash is reported
    task.clock.watch(os.getpid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)  # the threads of the parent are not here
    gc.freeze()  # what the parent made is no garbage of ours: collections are quick
    try:
        for event in _perform(task, names, found):
            connection.send(event)
        connection.send(("end",))
    except NoTensorError as error:
        connection.send(("invalid", str(error)))
    except Exception as error:  # of the audit's own: the function's are findings already
        connection.send(("fault", first_line(error)))
    os._exit(0)


# --- from events to a report ---


def _collect(events: Iterator[Event], checks: Sequence[Check], outcome: _Outcome, progress: Progress | None) -> None:
    numbers = {c.name: i for i, c in enumerate(checks, 1)}
    capability = {c.name: c.capability for c in checks}
    try:
        for event in events:
            match event:
                case ("start", name):
                    if progress:
                        progress(name, numbers[name], len(checks))
                case ("facts", notes, saved, _):
                    outcome.notes += [n for n in notes if n not in outcome.notes]
                    outcome.saved_bytes = saved if saved is not None else outcome.saved_bytes
                case ("done", name, findings, verdict, seconds):
                    outcome.findings += findings
                    outcome.late = [n for n in outcome.late if n != name]
                    outcome.seconds[name] = round(seconds, 4)
                    if (listed := capability[name]) is not None and verdict is not None:
                        outcome.verdicts.setdefault(listed, []).append(verdict)
                case ("late", name):
                    outcome.late.append(name)
                case ("invalid", message):
                    raise TypeError(message)
                case ("stop",):
                    outcome.stopped = True
    except NoTensorError as error:
        raise TypeError(str(error)) from None


def _report(fn: Callable[..., Any], outcome: _Outcome, checks: Sequence[Check], require: Sequence[str]) -> Report:
    capabilities = {}
    module = isinstance(fn, nn.Module)
    for name in dict.fromkeys(c.capability for c in checks if c.capability):
        verdicts = outcome.verdicts.get(name)
        if name == "module_copies" and not module:
            continue
        if verdicts is None and not outcome.stopped:
            continue  # not run
        verdicts = verdicts or ["no"]
        capabilities[name] = "wrong" if "wrong" in verdicts else "no" if "no" in verdicts else "yes"
    findings = merged(outcome.findings)
    by_capability = {c.capability: c for c in checks if c.capability}
    for name in require:
        if capabilities.get(name) != "yes":
            check = by_capability[name]
            why = next((f.summary for f in findings if f.check == check.name), "it was not measured")
            required = finding("error", f"{name} is required, and is {capabilities.get(name, 'unknown')!r}: {why}",
                               "require= asks for this capability.", "Provide it, or do not require it.")  # fmt: skip
            findings.append(replace(required, check=check.name, url=check.url))
    findings.sort(key=lambda f: ORDER[f.severity])
    if outcome.stopped:
        outcome.notes.append("the audit stopped there: nothing else can be said before that is fixed")
    return Report(
        subject=name_of(fn),
        findings=tuple(findings),
        capabilities=capabilities,
        saved_bytes=outcome.saved_bytes,
        checks=tuple(outcome.seconds),
        seconds=outcome.seconds,
        notes=tuple(_together(outcome.notes)),
        versions={"torch": torch.__version__, "python": platform.python_version()},
    )


def _together(notes: Sequence[str]) -> list[str]:
    """Checks that were not measured for the same reason, in one note."""
    reasons: dict[str, list[str]] = {}
    for note in notes:
        reason, _, name = note.rpartition(": ")
        key, names = (
            (reason, [name]) if note.startswith("not measured, because") and name in all_checks() else (note, [])
        )
        reasons.setdefault(key, []).extend(names)
    return [f"{reason}: {', '.join(names)}" if names else reason for reason, names in reasons.items()]


def name_of(fn: Callable[..., Any]) -> str:
    """What people call the function."""
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type):
        return owner.__qualname__
    if isinstance(fn, nn.Module):
        return type(fn).__qualname__
    if not isinstance(fn, types.FunctionType):
        return str(getattr(fn, "__name__", None) or getattr(fn, "_name", None) or type(fn).__qualname__)
    return fn.__qualname__
