"""Whatever a function does, the audit ends, says what happened, and leaves the caller as it was."""

import ctypes
import faulthandler
import math
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # the first audit imports it, which test_the_first_audit_of_a_process looks at
from torch import Tensor, nn

from autograd_cookbook.auditing import Report, audit, checks, clock, forking, runner
from autograd_cookbook.auditing.checks import Check, all_checks
from autograd_cookbook.auditing.subject import Subject
from autograd_cookbook.auditing.variation import Outcome, deviation

CHECKS = all_checks()
FEW = ("runs", "repeatable", "first_order", "without_grad", "global_settings", "vmap", "autocast")
slow = pytest.mark.slow("src/autograd_cookbook/auditing", "tests/auditing")
ISOLATE = pytest.mark.parametrize("isolate", [pytest.param(True, id="isolated"), pytest.param(False, id="in process")])
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="isolation needs fork")
pytestmark = on_linux


def leaf(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64).add(0.5).requires_grad_()


# --- the caller's state ---


def state() -> dict[str, Any]:
    """Every global thing that a function could disturb, in a form that can be compared."""
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": (torch.get_default_device(), torch.utils._device.CURRENT_DEVICE),
        "anomaly detection": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic, warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fill": torch.utils.deterministic.fill_uninitialized_memory,
        "threads": torch.get_num_threads(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "denormals": (torch.tensor(1e-310, dtype=torch.float64) * 1.0).item(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "multithreading": torch.autograd.is_multithreading_enabled()
        if hasattr(torch.autograd, "is_multithreading_enabled")
        else None,
        "filters": list(warnings.filters),
        "NumPy errors": np.geterr(),
        "torch random": torch.get_rng_state().tolist(),
        "Python random": random.getstate(),
        "NumPy random": str(np.random.get_state()),  # noqa: NPY002
        "stdout": (sys.stdout, sys.stderr),
        "directory": os.getcwd(),
        "recursion limit": sys.getrecursionlimit(),
    }


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """What one test leaves behind must not make the next one fail."""
    threads, dtype, filters = torch.get_num_threads(), torch.get_default_dtype(), list(warnings.filters)
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_anomaly_enabled(False)
    torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)
    torch.set_float32_matmul_precision("highest")
    warnings.filters[:] = filters
    np.seterr(all="warn")


def _filters() -> None:
    warnings.simplefilter("ignore", category=BytesWarning)


DISTURBANCES: dict[str, Callable[[], Any]] = {
    "grad mode": lambda: torch.set_grad_enabled(False),
    "default dtype": lambda: torch.set_default_dtype(torch.float16),
    "default device": lambda: torch.set_default_device("meta"),
    "anomaly detection": lambda: torch.set_anomaly_enabled(True),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "deterministic, warn only": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "denormals": lambda: torch.set_flush_denormal(True),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "filters": _filters,
    "NumPy errors": lambda: np.seterr(all="ignore"),
    "torch random": lambda: torch.manual_seed(99),
    "Python random": lambda: random.seed(99),
    "NumPy random": lambda: np.random.seed(99),  # noqa: NPY002
    "drawing": lambda: (torch.rand(3), random.random(), np.random.rand()),  # noqa: NPY002
}


class _Disturbs(torch.autograd.Function):
    """The identity, with something on the side: in forward or in backward."""

    @staticmethod
    def forward(ctx, x, before, after):
        ctx.after = after
        before()
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        ctx.after()
        return grad_output.clone(), None, None


def nothing() -> None:
    """No disturbance."""


@ISOLATE
@pytest.mark.parametrize("place", ["forward", "backward"])
@pytest.mark.parametrize("what", DISTURBANCES)
def test_global_state_is_as_before(what: str, place: str, isolate: bool) -> None:
    disturb = DISTURBANCES[what]
    x, pair = leaf(2, 3), (disturb, nothing) if place == "forward" else (nothing, disturb)
    before = state()
    audit(_Disturbs.apply, (x, *pair), only=FEW, isolate=isolate)
    after = state()
    assert [name for name in before if before[name] != after[name]] == []


@ISOLATE
def test_settings_of_the_caller_are_kept_too(isolate: bool) -> None:
    """The caller's own settings are not those of a fresh process."""
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True, warn_only=True)
    np.seterr(all="raise")
    warnings.simplefilter("error")
    torch.manual_seed(123)
    before = state()
    assert audit(torch.sigmoid, (leaf(2, 3),), skip=["compile"], isolate=isolate).ok is True
    torch.manual_seed(123)  # the sample drew from it
    after = state()
    assert [name for name in before if before[name] != after[name]] == []


@ISOLATE
def test_the_random_state_goes_on_as_if_there_had_been_no_audit(isolate: bool) -> None:
    x = leaf(4, 3)
    torch.manual_seed(3)
    expected = torch.rand(5)
    torch.manual_seed(3)
    audit(lambda x: nn.functional.dropout(x), (x,), only=FEW, isolate=isolate)
    assert torch.equal(torch.rand(5), expected)


@ISOLATE
def test_a_generator_among_the_arguments_is_as_before(isolate: bool) -> None:
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    noisy = lambda x, g: x * torch.rand(x.shape, generator=g, dtype=x.dtype)  # noqa: E731
    audit(noisy, (leaf(4, 3), generator), only=FEW, isolate=isolate)
    assert torch.equal(generator.get_state(), before)


# --- the caller's tensors ---


def contents(tensor: Tensor) -> tuple[Any, ...]:
    grad = None if tensor.grad is None else tensor.grad.tolist()
    return (tensor.tolist(), grad, id(tensor.grad), tensor.requires_grad, tensor.dtype, tensor.data_ptr(), tensor.shape)


def _write(tensor: Tensor) -> None:
    tensor.data.mul_(3.0)


def _fill_grad(tensor: Tensor) -> None:
    tensor.grad = torch.full_like(tensor, 7.0)


def _freeze(tensor: Tensor) -> None:
    if tensor.is_leaf:
        tensor.requires_grad_(False)


def _resize(tensor: Tensor) -> None:
    tensor.data = tensor.data.new_zeros(1)


MISDEEDS = {"writes": _write, "fills .grad": _fill_grad, "freezes": _freeze, "replaces .data": _resize}


@ISOLATE
@pytest.mark.parametrize("given_grad", [True, False], ids=["with .grad", "without .grad"])
@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_arguments_are_as_before(misdeed: str, given_grad: bool, isolate: bool) -> None:
    act = MISDEEDS[misdeed]
    x, y = leaf(2, 3), torch.ones(3, dtype=torch.float64)
    x.grad = torch.ones_like(x) if given_grad else None
    before, versions = (contents(x), contents(y)), (x._version, y._version)

    def disturbing(x: Tensor, y: Tensor) -> Tensor:
        result = (x * y).clone()
        act(x)
        act(y)
        return result

    audit(disturbing, (x, y), only=FEW, isolate=isolate)
    assert (contents(x), contents(y)) == before
    assert (x._version, y._version) == versions


@ISOLATE
@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_what_a_closure_holds_is_as_before(misdeed: str, isolate: bool) -> None:
    act = MISDEEDS[misdeed]
    x, weight, buffer = leaf(2, 3), leaf(3), torch.ones(3, dtype=torch.float64)
    weight.grad = torch.ones_like(weight)
    before = contents(weight), contents(buffer)

    def disturbing(x: Tensor) -> Tensor:
        result = (x * weight * buffer).clone()
        act(weight)
        act(buffer)
        return result

    # With a weight of another size, torch.func.vmap ends the process.
    audit(disturbing, (x,), only=FEW, skip=["vmap"], isolate=isolate)
    assert (contents(weight), contents(buffer)) == before


@ISOLATE
@pytest.mark.parametrize("sample", ["float32", "float64", "float64, no grad"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_module_is_as_before(sample: str, dtype: torch.dtype, isolate: bool) -> None:
    """Its parameters and buffers have their dtype, gradient and numbers, whatever the dtype of the sample is."""
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(dtype)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = [contents(t) for t in (*module.parameters(), *module.buffers())]
    x = torch.randn(4, 3, dtype=getattr(torch, sample[:7]), requires_grad="no grad" not in sample)
    audit(module, (x,), only=("runs", "first_order", "float16", "module_copies"), isolate=isolate)
    assert [contents(t) for t in (*module.parameters(), *module.buffers())] == before
    assert module.training


@ISOLATE
def test_a_graph_behind_the_sample_is_not_touched(isolate: bool) -> None:
    """The inputs may be results of something: nothing flows back into it."""
    source = leaf(2, 3)
    x = source.sin()
    audit(torch.sigmoid, (x,), only=FEW, isolate=isolate)
    assert source.grad is None
    x.sum().backward()
    assert torch.equal(source.grad, source.cos())


# --- the caller's modes ---


@ISOLATE
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_mode_of_the_caller_is_no_matter(mode: Callable[[], Any], isolate: bool) -> None:
    """Evaluation code runs under no_grad; a function is not wrong because it is audited there."""
    x = leaf(2, 3)
    with mode():
        report = audit(torch.sigmoid, (x,), only=(*FEW, "second_order"), isolate=isolate)
    assert report.ok, str(report)
    assert report.capabilities["second_order"] == "yes"


@ISOLATE
def test_autocast_of_the_caller_is_no_matter(isolate: bool) -> None:
    x, w = leaf(2, 3), leaf(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        report = audit(torch.mm, (x, w), only=FEW, isolate=isolate)
    assert report.ok, str(report)


@ISOLATE
def test_inference_tensors_are_a_sample_like_any_other(isolate: bool) -> None:
    with torch.inference_mode():
        x = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    assert audit(torch.sigmoid, (x,), only=FEW, isolate=isolate).ok
    assert x.is_inference()


# --- functions that crash, exit and hang ---


class _Situations(torch.autograd.Function):
    """Right, but for a grad_output that is not contiguous: there something terrible happens."""

    @staticmethod
    def forward(ctx, x, terrible):
        ctx.terrible = terrible
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        if not grad_output.is_contiguous():
            ctx.terrible()
        return grad_output.clone(), None


def spin() -> None:
    while True:
        pass


def deep() -> None:
    deep()


def raise_keyboard_interrupt() -> None:
    raise KeyboardInterrupt


def loud_exit() -> None:
    sys.exit("told you so")


BEFORE = ("runs", "first_order", "subsets")
BEHIND = ("unwritten_memory", "without_grad", "global_settings", "tensors_on_ctx")
AROUND = (*BEFORE, "grad_output_layouts", *BEHIND)


def terrible(action: Callable[[], Any], **options: Any) -> Report:
    return audit(_Situations.apply, (leaf(2, 3), action), only=AROUND, **{"timeout": 1.0} | options)


def others_ran(report: Report) -> None:
    """One finding of that check, an error; and the checks after it have run and are content."""
    assert [f.check for f in report.findings] == ["grad_output_layouts"]
    assert report.findings[0].severity == "error"
    assert set(report.checks) == set(AROUND)
    assert report.capabilities["non_contiguous"] == "wrong"
    assert report.capabilities["first_order"] == "yes"
    assert report.saved_bytes == 0


@pytest.mark.parametrize(
    ("action", "words"),
    [
        pytest.param(lambda: os._exit(0), "exit status 0", id="exit 0"),
        pytest.param(lambda: os._exit(3), "exit status 3", id="exit 3"),
        pytest.param(lambda: ctypes.string_at(0), "SIGSEGV", id="segmentation fault"),
        pytest.param(lambda: os.abort(), "SIGABRT", id="abort"),
        pytest.param(lambda: os.kill(os.getpid(), 9), "SIGKILL", id="killed"),
    ],
)
def test_a_function_that_dies_in_one_situation(action: Callable[[], Any], words: str) -> None:
    report = terrible(action)
    others_ran(report)
    assert f"the process dies ({'' if 'exit' in words else 'killed by '}{words})" in report.findings[0].summary


@pytest.mark.parametrize(
    "action", [pytest.param(lambda: time.sleep(600), id="sleep", marks=slow), pytest.param(spin, id="loop")]
)
@ISOLATE
def test_a_function_that_hangs_in_one_situation(action: Callable[[], Any], isolate: bool) -> None:
    report = terrible(action, isolate=isolate)
    others_ran(report)
    assert "cut off after 1 s" in report.findings[0].summary


def test_a_hang_is_explained_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer that has cut off the function goes on, and must not cut off the audit's own work on that error."""

    def slowly(error: BaseException) -> tuple[str, str]:
        time.sleep(3 * runner.LOOK)
        return "a cause", "a fix"

    monkeypatch.setattr(runner, "explain", slowly)
    others_ran(terrible(lambda: time.sleep(600), isolate=False))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        pytest.param(loud_exit, "SystemExit: told you so", id="SystemExit"),
        pytest.param(deep, "RecursionError", id="recursion"),
        pytest.param(lambda: [][1], "IndexError: list index out of range", id="IndexError"),
        pytest.param(lambda: torch.ones(2) @ torch.ones(3), "inconsistent tensor size", id="torch"),
    ],
)
@ISOLATE
def test_a_function_that_raises_in_one_situation(action: Callable[[], Any], words: str, isolate: bool) -> None:
    report = terrible(action, isolate=isolate)
    others_ran(report)
    assert words in report.findings[0].summary


def test_control_c_of_the_user_is_not_swallowed_in_process() -> None:
    with pytest.raises(KeyboardInterrupt):
        terrible(raise_keyboard_interrupt, isolate=False)


def test_a_function_that_hangs_everywhere_is_given_up() -> None:
    report = audit(lambda x: (time.sleep(600), x)[1], (leaf(2),), timeout=0.5)
    assert [f.check for f in report.findings] == ["runs"]
    assert "does not come back: cut off after 0.5 s" in report.findings[0].summary
    assert set(report.capabilities.values()) == {"no"}
    assert "the audit stopped there" in report.notes[-1]


def test_after_three_hangs_the_rest_is_not_waited_for() -> None:
    low = ("float32", "float16", "bfloat16")
    report = audit(
        lambda x: x.clone() if x.dtype is torch.float64 else spin(),
        (leaf(2, 3),),
        only=("runs", *low, "output_dtype", "autocast"),
        timeout=0.5,
    )
    (hung,) = report.findings
    assert "cut off after 0.5 s" in hung.summary
    assert (hung.check, *hung.also) == low
    assert len(low) == runner.HANGS
    assert report.notes[-1] == "after 3 checks that hung, these were not run: output_dtype, autocast"
    assert report.capabilities == dict.fromkeys(low, "wrong")


def test_a_fault_of_the_audit_is_no_finding_and_the_other_checks_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = runner._checked

    def faulty(check: Check, subject: Subject) -> Any:
        if check.name == "float16":
            raise ZeroDivisionError("a fault")
        return checked(check, subject)

    monkeypatch.setattr(runner, "_checked", faulty)
    report = audit(torch.sin, (leaf(2),), only=("runs", "float16", "bfloat16"))
    assert not report.findings
    assert report.notes[-1] == "not measured, because the audit itself failed: float16 (ZeroDivisionError: a fault)"
    assert report.capabilities == {"bfloat16": "yes"}


class SquaredWrongly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 3 * x.square()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return torch.full_like(grad_output, 3.0)


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * grad_output


def _without_time(subject: Subject) -> Iterator[checks.Finding]:
    raise clock.OutOfTime
    yield


def _dies(subject: Subject) -> Iterator[checks.Finding]:
    os._exit(3)
    yield


@ISOLATE
def test_a_first_derivative_that_takes_too_long_is_compared_along_directions(
    isolate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(checks._REGISTRY, "first_order", replace(CHECKS["first_order"], function=_without_time))
    options = {"only": ["first_order", "sizes", "special_points"], "isolate": isolate}
    report = audit(SquaredWrongly.apply, (leaf(4),), **options)
    (found,) = report.findings
    assert (found.check, found.severity) == ("first_order", "error")
    assert found.summary.startswith("on the sample, the gradient gives the slope")
    assert "too slow" in found.cause
    assert not any("first_order" in note for note in report.notes)
    right = audit(Cubed.apply, (leaf(4),), **options)
    assert right.ok
    assert {"sizes", "special_points"} <= {*right.checks}
    assert any("not measured within" in note and "first_order" in note for note in right.notes)
    surrogate = audit(PassesThrough.apply, (leaf(4),), **options)
    assert "looks like a surrogate" in surrogate.findings[0].summary


def test_a_process_that_starts_again_knows_that_the_gradient_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checks._REGISTRY, "given_layout", replace(CHECKS["given_layout"], function=_dies))
    report = audit(SquaredWrongly.apply, (leaf(4),), only=["first_order", "given_layout", "sizes"], isolate=True)
    assert [f.check for f in report.findings] == ["first_order", "given_layout"]


class KeepsItsConstantInTheLastDtype(torch.autograd.Function):
    table = torch.tensor(0.1, dtype=torch.float64)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        KeepsItsConstantInTheLastDtype.table = KeepsItsConstantInTheLastDtype.table.to(x.dtype)
        ctx.factor = KeepsItsConstantInTheLastDtype.table
        return ctx.factor * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return ctx.factor * grad_output


@ISOLATE
def test_what_calls_in_other_dtypes_leave_behind_is_not_blamed_on_later_checks(isolate: bool) -> None:
    KeepsItsConstantInTheLastDtype.table = torch.tensor(0.1, dtype=torch.float64)
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    report = audit(KeepsItsConstantInTheLastDtype.apply, (x,), skip=["compile", "tensors_on_ctx"], isolate=isolate)
    errors = [f for f in report.findings if f.severity == "error"]
    assert [f.check for f in errors] == ["float32"], report
    assert "after calls in other dtypes" in errors[0].summary
    assert ("saved_tensor_hooks" in report.checks) == isolate
    assert isolate or any("saved_tensor_hooks" in note for note in report.notes)


class PassesThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output


def _timed(monkeypatch: pytest.MonkeyPatch, *, waiting: float | None, load: float = 0.0) -> clock.Clock:
    """A clock 30 s into a check, of which the process has waited this share for a processor."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        clock, "waited_for_a_processor", lambda process: None if waiting is None else waiting * (now[0] - 100.0)
    )
    monkeypatch.setattr(os, "getloadavg", lambda: (2 * load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    timed = clock.Clock(timeout=10.0, budget=15.0)
    timed.start("first_order")
    now[0] += 30.0
    return timed


def test_a_check_may_take_as_much_longer_as_it_waits_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = _timed(monkeypatch, waiting=0.9)
    assert timed.verdict() is None
    timed.stop()
    assert timed.spent == pytest.approx(3.0)


def test_a_check_that_sleeps_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _timed(monkeypatch, waiting=0.0).verdict() == "hangs"


@pytest.mark.parametrize("waiting", [None, 0.0], ids=["the system does not tell", "it waits for something else"])
@pytest.mark.parametrize(("load", "verdict"), [(0.1, "hangs"), (1.0, "hangs"), (8.0, None)])
def test_limits_grow_with_the_load(
    load: float, verdict: str | None, waiting: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _timed(monkeypatch, waiting=waiting, load=load).verdict() == verdict


def test_a_process_that_has_ended_keeps_its_time() -> None:
    timed = clock.Clock(timeout=1.0, budget=None)
    timed.watch(2**22 + 1)  # there is no such process
    timed.start("first_order")
    timed.stop()
    assert 0 <= timed.spent < 1e6


def test_a_beat_is_seen_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is seen while it is written must not look like one from long ago: that is a hang to the audit."""
    monkeypatch.setattr(clock, "waited_for_a_processor", lambda process: 0.0)
    timed = clock.Clock(timeout=60.0, budget=None)
    timed.start("first_order")
    if not (child := os.fork()):
        for _ in range(1_000_000):
            timed.beat()
        os._exit(0)
    verdicts = set()
    while not os.waitpid(child, os.WNOHANG)[0]:
        verdicts |= {timed.verdict() for _ in range(1000)}
    assert verdicts == {None}


def _slow(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.02)
    return x.sin()


@ISOLATE
def test_what_does_not_fit_into_the_budget_is_not_measured_and_no_error(isolate: bool) -> None:
    report = audit(_slow, (leaf(2, 3),), budget=1.0, skip=["compile"], isolate=isolate)
    assert report.ok, report
    (note,) = (note for note in report.notes if note.startswith("not measured within the budget of 1 s: "))
    late = set(note.partition(": ")[2].split(", "))
    assert late
    assert not late & set(report.checks)
    assert report.checks[0] == "runs"  # without which nothing else is known


def test_the_budget_is_a_positive_number() -> None:
    with pytest.raises(ValueError, match="budget must be a positive number of seconds or None, got 0"):
        audit(torch.sin, (leaf(2),), budget=0)


def test_dying_in_the_first_call_is_one_finding() -> None:
    report = audit(lambda x: os._exit(1), (leaf(2),))
    assert [(f.check, f.severity) for f in report.findings] == [("runs", "error")]
    assert "exit status 1" in report.findings[0].summary


# --- checks that fail ---


@pytest.fixture
def broken_check(monkeypatch: pytest.MonkeyPatch) -> str:
    """Puts a check into the audit that itself has a mistake."""

    def faulty(subject: Any) -> Iterator[Any]:
        """It divides by zero."""
        yield checks.finding("warning", "seen before the crash", "A cause.", "A fix.")
        raise ZeroDivisionError("in the check")

    monkeypatch.setitem(checks._REGISTRY, "faulty", Check("faulty", "effects", faulty, capability="faultless"))
    return "faulty"


@ISOLATE
def test_a_check_that_crashes_is_a_finding_and_keeps_what_it_had_found(broken_check: str, isolate: bool) -> None:
    report = audit(torch.sigmoid, (leaf(2),), only=[broken_check, "vmap"], isolate=isolate)
    assert [(f.severity, f.check) for f in report.findings] == [("error", "faulty"), ("warning", "faulty")]
    assert "ZeroDivisionError: in the check" in report.findings[0].summary
    assert report.capabilities == {"faultless": "wrong", "vmap": "yes"}
    assert report.findings[0].url == checks.url_of("faulty", "effects")


# --- output ---


class _Prints(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print("printed by forward")
        os.write(1, b"written by forward\n")
        os.write(2, b"complained by forward\n")
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        print("printed by backward", file=sys.stderr, flush=True)
        return grad_output


def test_what_an_isolated_function_prints_is_not_seen(capfd: pytest.CaptureFixture[str]) -> None:
    """Under pytest and in notebooks sys.stdout is no file descriptor 1."""
    print("waiting in the buffer", end="")
    audit(_Prints.apply, (leaf(2),), only=FEW)
    sys.stdout.flush()
    assert capfd.readouterr() == ("waiting in the buffer", "")


SCRIPT = """
import os, warnings
import torch
from autograd_cookbook import audit

def loud(x):
    print("printed by the function", flush=True)
    os.write(1, b"written by the function")
    return 2 * x

def state():
    return (list(warnings.filters), torch.get_rng_state().tolist(), torch.get_default_dtype(), torch.get_num_threads())

print("from the caller", end="")
x = torch.ones(2, dtype=torch.float64, requires_grad=True)
before = state()
audit(loud, (x,), only=["first_order", "vmap"])
print([a == b for a, b in zip(before, state())])
"""


def test_the_first_audit_of_a_process() -> None:
    """It imports what a later one finds imported, and that is all that it does."""
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("from the caller[True, True, True, True]\n", "")


def test_a_crash_that_was_reported_is_not_shown_as_one_of_the_caller(tmp_path: Path) -> None:
    """pytest has each crash written to the terminal; one in a process of the audit is none of the test run."""
    enabled = faulthandler.is_enabled()
    with (tmp_path / "faults").open("w") as file:
        faulthandler.enable(file)
        try:
            terrible(lambda: ctypes.string_at(0))
        finally:
            faulthandler.disable()
            if enabled:
                faulthandler.enable(sys.__stderr__)
    assert (tmp_path / "faults").read_text() == ""


def test_warnings_of_the_function_are_not_shown(recwarn: pytest.WarningsRecorder) -> None:
    for isolate in (True, False):
        audit(lambda x: (warnings.warn("loud", stacklevel=1), x * 2)[1], (leaf(2),), only=FEW, isolate=isolate)
    assert not recwarn.list


# --- which checks run, and who is told ---


@ISOLATE
def test_progress_is_told_each_check_when_it_starts(isolate: bool) -> None:
    told: list[tuple[str, int, int]] = []
    report = audit(torch.sigmoid, (leaf(2),), only=FEW, isolate=isolate, progress=lambda *now: told.append(now))
    assert tuple(name for name, _, _ in told) == report.checks == tuple(n for n in CHECKS if n in FEW)
    assert [number for _, number, _ in told] == list(range(1, len(FEW) + 1))
    assert {total for _, _, total in told} == {len(FEW)}


def test_an_exception_of_progress_ends_the_audit_and_its_process() -> None:
    def stop(name: str, number: int, total: int) -> None:
        raise InterruptedError(name)

    with pytest.raises(InterruptedError, match="runs"):
        audit(torch.sigmoid, (leaf(2),), only=FEW, progress=stop)


def test_only_and_skip() -> None:
    x = leaf(2)
    assert audit(torch.sin, (x,), only=["vmap"]).checks == ("runs", "vmap")
    assert audit(torch.sin, (x,), only=["vmap", "runs"], skip=["vmap"]).checks == ("runs",)
    skipped = [name for name in CHECKS if name not in ("runs", "vmap")]
    assert audit(torch.sin, (x,), skip=skipped).checks == ("runs", "vmap")


def test_a_check_that_needs_another_is_left_out_if_that_one_alarms() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    needing = [c.name for c in CHECKS.values() if c.needs == "first_order"]
    assert needing
    assert audit(Wrong.apply, (leaf(2),), only=["first_order", *needing]).checks == ("runs", "first_order")


def children() -> set[str]:
    """The processes that this one has started and not waited for."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_no_process_is_left_over() -> None:
    """Neither zombies nor pipes, also after a hang."""
    before = set(os.listdir("/proc/self/fd")), children()
    terrible(spin)
    assert (set(os.listdir("/proc/self/fd")), children()) == before


def test_no_process_is_left_over_where_progress_is_interrupted() -> None:
    """Control-C may come while a line is printed, and whoever catches it may keep the exception."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = children()
    with pytest.raises(KeyboardInterrupt) as kept:
        audit(lambda x: spin(), (leaf(2),), progress=interrupt)
    assert children() == before, kept


def test_isolation_where_nothing_can_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "CAN_FORK", False)
    assert audit(torch.sin, (leaf(2),), only=["runs"]).ok
    with pytest.raises(ValueError, match="isolate=True needs a system that can fork"):
        audit(torch.sin, (leaf(2),), isolate=True)


def test_isolation_where_a_fork_cannot_run_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    home, backward = os.getpid(), torch.Tensor.backward

    def refuses_in_a_fork(*args: Any, **kwargs: Any) -> None:
        if os.getpid() != home:
            raise RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing.")
        backward(*args, **kwargs)

    assert forking.can_fork()
    monkeypatch.setattr(torch.Tensor, "backward", refuses_in_a_fork)
    assert not forking.can_fork()
    assert audit(torch.sin, (leaf(2),), only=["runs"]).ok
    with pytest.raises(ValueError, match="isolate=True needs a process whose forks can run backward"):
        audit(torch.sin, (leaf(2),), isolate=True)


@slow
def test_an_audit_after_compiled_code_finds_nothing_that_is_not_there() -> None:
    """Of CUDA builds on a machine without a GPU, the engine starts threads in a first backward that is compiled."""
    program = """\
import torch
from autograd_cookbook import audit
x = torch.ones(3, requires_grad=True)
torch.compile(lambda x: x.sin().sum(), backend="aot_eager")(x).backward()
assert audit(torch.sin, (x,), only=["runs", "first_order"]).ok
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_forked_process_that_does_not_come_back_is_ended() -> None:
    assert forking.status_of(lambda: 3, patience=60.0) == 3
    assert forking.status_of(lambda: 1 // 0, patience=60.0) == 1
    before = children()
    assert forking.status_of(lambda: time.sleep(3600) or 0, patience=0.1) is None
    assert children() == before


def test_what_an_exception_has_gone_through_is_left() -> None:
    """In torch 2.12.1, checkpoint leaves its hooks on saved tensors when its variables go, and not before."""
    left = []

    def entered() -> Iterator[None]:
        try:
            yield
        finally:
            left.append(True)

    def outcome() -> Outcome:
        inside = entered()
        next(inside)
        raise ValueError("while it is inside")

    subject = Subject(torch.exp, [leaf(2)])
    found = deviation(subject, outcome, subject.expected)
    assert found is not None
    assert isinstance(found.error, ValueError)
    assert left, "a finding keeps alive what its exception has gone through"


class _Declines(torch.autograd.Function):
    """Torch declines hooks on saved tensors where torch.func is at work, on some releases; here it always does."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.cos()


def _unhooked(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.graph.disable_saved_tensors_hooks("torch.func transforms don't yet support saved tensor hooks"):
        return _Declines.apply(x)


def test_hooks_of_the_audit_are_no_finding() -> None:
    hooked = ["saved_tensor_hooks", "saved_copies", "unused_saved", "vmap", "batched_grad", "checkpoint"]
    report = audit(_unhooked, (leaf(2, 3),), only=hooked)
    assert report.ok, report
    assert any("saved_copies" in note for note in report.notes)


# --- what the audit itself changes ---


class TrustsWhatItSaved(torch.autograd.Function):
    """As a library in C that reads where its saved tensor points to: other contents end the process."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if not all(-1000 <= v <= 1000 for v in x.numpy().ravel()):
            ctypes.string_at(0)
        return grad_output * 2


@ISOLATE
def test_what_dies_of_a_changed_saved_tensor_is_not_to_blame(isolate: bool) -> None:
    work = lambda: report_is_clean(isolate)  # noqa: E731
    assert forking.status_of(work, 60.0) == 0  # or this process would end


def report_is_clean(isolate: bool) -> int:
    faulthandler.disable()
    report = audit(TrustsWhatItSaved.apply, (leaf(3),), only=["unused_saved", "saved_copies"], isolate=isolate)
    told = [n for n in report.notes if n.startswith("not measured") and n.endswith("unused_saved")]
    return int(bool(report.findings) or len(told) != 1)


class SavesInVain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = math.prod([1.0, 2.0])
        return torch.einsum("i,j->i", x, torch.ones(1, dtype=x.dtype)) * ctx.scale

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad_output.mul(ctx.scale).reshape(x.shape) * float(len([*x.shape]))


@ISOLATE
def test_what_stays_within_torch_has_its_saved_tensors_changed_in_any_process(isolate: bool) -> None:
    report = audit(SavesInVain.apply, (leaf(3),), only=["unused_saved"], isolate=isolate)
    assert [f.check for f in report.findings] == ["unused_saved"], report.notes
