"""What the audit and torch's own checks make of the corpus, into ``benchmarks/results/findings.json``.

``python -m tests.auditing.measure`` measures the functions that are new, that have changed, or that were measured with
another torch or by another audit, and prints what came out otherwise; ``python -m tests.auditing.measure
TanhEquilibrium`` measures this one again. All of them take some minutes.
"""

import contextlib
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any

import torch
from docs._ext import digests, findings
from docs._ext.alone import alone
from docs._ext.findings import Row
from docs._ext.results import place
from docs.pitfalls.programs import BROKEN, RIGHT, Specimen
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from autograd_cookbook.auditing import audit
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.auditing.checks.execution import BUILT_IN
from autograd_cookbook.catalog._source import standalone
from tests.auditing import corpus

WORKERS = 2
EMPTY = {
    *(torch.ops.aten.empty.memory_format, torch.ops.aten.empty_like.default, torch.ops.aten.empty_strided.default),
    *(torch.ops.aten.new_empty.default, torch.ops.aten.new_empty_strided.default),
}
TIMEOUT = 30.0  # for each tool on one function, and for each call of the audit


def digest(specimen: Specimen) -> str:
    """Of a function with its sample and all that these use, and of torch."""
    return digests.program(standalone(specimen.thing.__module__, [specimen.name]), specimen.why)


# --- Measurements ---


def run(names: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Measure the functions of these names in worker processes."""
    if not names:
        return
    with _threads(1), _silent_warnings():
        _warm_up()
        with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork"), _be_quiet) as pool:
            yield from zip(names, pool.map(_measured, names), strict=True)


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    """Processes that are forked have none of the threads that their parent has."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _silent_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _be_quiet() -> None:
    """What the functions print is not shown."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for as long as the process lives)


def _warm_up() -> None:
    """What is imported on first use is there before the processes are forked, or each would take the time again."""
    x = torch.rand(2, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sigmoid, (x,))
    gradgradcheck(torch.sigmoid, (x,))
    audit(torch.sigmoid, (x,), skip=["compile"], isolate=False)


def _measured(name: str) -> Row:
    specimen = (BROKEN | RIGHT)[name]
    # A fresh sample for each tool, since a broken function may write to it.
    first, first_seconds = _alone(lambda: _alarms(gradcheck, specimen))
    second, second_seconds = (False, 0.0) if first else _alone(lambda: _alarms(gradgradcheck, specimen))
    operators, _ = _alone(lambda: _opcheck(specimen))
    compiles = "compile" in specimen.checks
    torch.manual_seed(0)
    function, sample = specimen.function, specimen.inputs()
    start = time.perf_counter()
    wrong, refused = "", False
    try:
        report = audit(
            function, sample, skip=[] if compiles else ["compile"], timeout=TIMEOUT, budget=None, **specimen.options
        )
        found = report.seen
        if set(found).isdisjoint(specimen.checks) if specimen.checks else not report.ok:
            wrong = f"finds {', '.join(found) or 'nothing'}"
        refused = report.capabilities.get("second_order") == "no"
    except Exception as error:
        wrong = f"raises {type(error).__name__}: {error}"
    seconds = time.perf_counter() - start
    return Row(
        digest=digest(specimen),
        seconds=(round(first_seconds + second_seconds, 4), None if compiles else round(seconds, 3)),
        family=all_checks()[specimen.checks[0]].family if specimen.checks else "",
        gradcheck=first,
        gradgradcheck=second,
        opcheck=operators,
        wrong=wrong,
        excuse=_excuse(specimen, refused and second) if (first or second) and not specimen.checks else "",
        on=place() | {"audit": digests.audit()},
    )


def _excuse(specimen: Specimen, refused: bool) -> str:
    if {"gradient", "surrogate"} & specimen.options.keys():
        return "declared"
    return "refused" if refused else specimen.why


def _alarms(tool: Callable[..., bool], specimen: Specimen) -> bool:
    torch.manual_seed(0)
    # What a function reads that it has not written is what was freed last, another number in each run. Zeros, which
    # new pages of memory hold, make the verdict the same in all of them.
    with _Zeros() if "unwritten_memory" in specimen.checks else contextlib.nullcontext():
        return not tool(specimen.function, specimen.inputs())


class _Zeros(TorchDispatchMode):
    """Memory that torch does not write holds zeros."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result.zero_() if func in EMPTY else result


class _Calls(TorchDispatchMode):
    """The operators that are not torch's own, each with copies of the arguments of its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Any, tuple[Any, Any]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace not in BUILT_IN and func not in self.found:
            self.found[func] = tree_map(_fresh, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _fresh(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.is_floating_point() or value.is_complex())


def _opcheck(specimen: Specimen) -> bool | None:
    """Whether opcheck alarms; None if the function calls no operator."""
    torch.manual_seed(0)
    with _Calls() as calls, contextlib.suppress(Exception):
        specimen.function(*specimen.inputs())
    if not calls.found:
        return None
    for operator, (args, kwargs) in calls.found.items():
        torch.library.opcheck(operator, args, kwargs)
    return False


def _alone(work: Callable[[], bool | None]) -> tuple[bool | None, float]:
    """What a tool says, and its seconds, in a process of its own: it may hang, crash, or change torch for good."""

    def timed() -> tuple[bool | None, float]:
        start = time.perf_counter()
        try:
            alarm = work()
        except Exception:
            alarm = True
        return alarm, time.perf_counter() - start

    try:
        return alone(timed, TIMEOUT)
    except TimeoutError:
        return True, TIMEOUT
    except EOFError:
        return True, 0.0


# --- Renewal ---


def stale(rows: Mapping[str, Row]) -> list[str]:
    """The names of the functions that were never measured as they are, by the audit as it is."""
    now = {name: (digest(specimen), digests.audit()) for name, specimen in (BROKEN | RIGHT).items()}
    measured = {name: (row.digest, row.on.get("audit")) for name, row in rows.items()}
    return [name for name, digests_now in now.items() if measured.get(name) != digests_now]


def main(names: list[str]) -> int:
    """Measure, store each row at once, print what has changed; the exit status is 1 if the audit is wrong anywhere."""
    corpus.load()
    known = findings.stored()
    order = [*BROKEN, *RIGHT]
    if unknown := set(names) - set(order):
        raise SystemExit(f"no function of the corpus: {', '.join(sorted(unknown))}")
    rows = {name: known[name] for name in order if name in known}
    if gone := known.keys() - rows.keys():
        print(f"gone: {', '.join(sorted(gone))}")
        findings.store(rows)
    for name, row in run(names or stale(rows)):
        print(f"{name}: {'; '.join(_changes(known.get(name), row)) or 'as before'}", flush=True)
        rows[name] = row
        findings.store({each: rows[each] for each in order if each in rows})
    wrong = [f"{name}: the audit is wrong, it {row.wrong}" for name, row in rows.items() if row.wrong]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


def _changes(old: Row | None, new: Row) -> Iterator[str]:
    """What came out otherwise, but for the times."""
    if old is None:
        yield "measured for the first time"
        return
    before, after = asdict(old), asdict(new)
    for key in before.keys() - {"digest", "on", "seconds"}:
        if before[key] != after[key]:
            yield f"{key} was {before[key]!r}, is {after[key]!r}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
