"""What the audit finds in the corpus, beside torch's own checks, into ``results/findings.json``.

``python -m benchmarks.findings`` measures the whole corpus, for some minutes, and prints the tables of the page on what
the audit finds; ``python -m benchmarks.findings TanhEquilibrium`` measures this function again.
"""

import contextlib
import hashlib
import inspect
import json
import multiprocessing
import os
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarks.costs import store
from tests.alone import alone
from tests.audit import corpus
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from autograd_cookbook.audit import audit
from autograd_cookbook.audit.checks import all_checks
from autograd_cookbook.audit.checks.execution import BUILT_IN

RESULTS = Path(__file__).parent / "results" / "findings.json"
WORKERS = 2
TIMEOUT = 30.0  # for each tool on one function, and for each check of the audit


@dataclass(frozen=True)
class Row:
    """What each tool says of one function: "" if all is well, else the first line of the alarm.

    Args:
        name: of the specimen.
        module: of the corpus, in which it is.
        broken: whether it is.
        family: of the check that has to find the mistake; "" for a right function.
        gradcheck: with torch's defaults, on the sample.
        gradgradcheck: the same, run only where gradcheck is content.
        opcheck: of each operator of torch.library that it calls; None if there is none.
        audit: the checks that alarm.
        found: whether a check that the corpus names for this mistake is among them.
        second_order: whether it has a second derivative: the audit's "yes", "no" if it is refused, "wrong", or "".
        crash: what the audit itself raised, if it did.
        torch_seconds: of gradcheck and gradgradcheck.
        audit_seconds: of the audit, None if that included the compiler.
        digest: of its source, to see what was changed since.
    """

    name: str
    module: str
    broken: bool
    family: str
    gradcheck: str
    gradgradcheck: str
    opcheck: str | None
    audit: tuple[str, ...]
    found: bool
    second_order: str
    crash: str
    torch_seconds: float
    audit_seconds: float | None
    digest: str


def stored() -> tuple[list[Row], list[dict[str, Any]]]:
    """What was measured last, and the versions and machines it was measured with: one, unless in several runs."""
    known = json.loads(RESULTS.read_text()).values()
    places = [json.loads(place) for place in dict.fromkeys(json.dumps(row.pop("on")) for row in known)]
    return [Row(**row | {"audit": tuple(row["audit"])}) for row in known], places


def digest(specimen: corpus.Specimen) -> str:
    """Of what is registered, with its sample, and of the helpers that it calls."""
    source = inspect.getsource(specimen.thing) + specimen.code
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def run(names: Sequence[str]) -> list[Row]:
    """Measure the specimens of these names in worker processes: a row for each."""
    with _threads(1), _silent_warnings():
        _warm_up()
        with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork"), _be_quiet) as pool:
            return list(pool.map(_measured, names))


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
    """What the functions print is not shown, by a notebook neither, which does not go by file descriptors."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for as long as the process lives)


def _warm_up() -> None:
    """What is imported on first use is there before the processes are forked, or each would take the time again."""
    x = torch.rand(2, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sigmoid, (x,))
    gradgradcheck(torch.sigmoid, (x,))
    audit(torch.sigmoid, (x,), skip=["compile"], isolate=False)


def _measured(name: str) -> Row:
    specimen = (corpus.BROKEN | corpus.RIGHT)[name]
    # A fresh sample for each tool, since a broken function may write to it.
    first = _alone(lambda: _alarm(gradcheck, specimen))
    second = ("", 0.0) if first[0] else _alone(lambda: _alarm(gradgradcheck, specimen))
    operators, _ = _alone(lambda: _opcheck(specimen))
    compiles = "compile" in specimen.checks
    torch.manual_seed(0)
    function, sample = specimen.function, specimen.inputs()
    start = time.perf_counter()
    found, second_order, crash = (), "", ""
    try:
        report = audit(function, sample, skip=[] if compiles else ["compile"], timeout=TIMEOUT, **specimen.options)
        found = tuple(dict.fromkeys(f.check for f in report.of("error", "warning")))
        second_order = report.capabilities.get("second_order", "")
    except Exception as error:
        crash = _shown(error)
    seconds = time.perf_counter() - start
    return Row(
        name=name,
        module=specimen.thing.__module__.rpartition(".")[2],
        broken=bool(specimen.checks),
        family=all_checks()[specimen.checks[0]].family if specimen.checks else "",
        gradcheck=first[0],
        gradgradcheck=second[0],
        opcheck=operators,
        audit=found,
        found=not set(found).isdisjoint(specimen.checks),
        second_order=second_order,
        crash=crash,
        torch_seconds=first[1] + second[1],
        audit_seconds=None if compiles else seconds,
        digest=digest(specimen),
    )


def _alarm(tool: Callable[..., bool], specimen: corpus.Specimen) -> str:
    torch.manual_seed(0)
    return "" if tool(specimen.function, specimen.inputs()) else "returned False"


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


def _opcheck(specimen: corpus.Specimen) -> str | None:
    torch.manual_seed(0)
    with _Calls() as calls:
        try:
            specimen.function(*specimen.inputs())
        except Exception:
            if not calls.found:
                return None
    for operator, (args, kwargs) in calls.found.items():
        torch.library.opcheck(operator, args, kwargs)
    return "" if calls.found else None


def _shown(error: BaseException) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line}"


def _alone(work: Callable[[], str | None]) -> tuple[str | None, float]:
    """What a tool says, and its seconds, in a process of its own: it may hang, crash, or change torch for good."""

    def timed() -> tuple[str | None, float]:
        start = time.perf_counter()
        try:
            said = work()
        except Exception as error:
            said = _shown(error)
        return said, time.perf_counter() - start

    try:
        return alone(timed, TIMEOUT)
    except TimeoutError:
        return "does not come back", TIMEOUT
    except EOFError:
        return "the process dies", 0.0


# --- from rows to what is shown ---


def by_family(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each family, and for all of them: how many broken functions there are, and how many each tool finds.

    gradgradcheck counts with gradcheck, which runs before it; opcheck comes with the number that call an operator.
    """
    broken = [r for r in rows if r.broken]
    sizes = Counter(r.family for r in broken)
    table = [_counts(family, [r for r in broken if r.family == family]) for family, _ in sizes.most_common()]
    return [*table, _counts("all", broken)]


def by_others(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The same for each module of broken functions that others wrote, without knowing the checks."""
    modules = sorted({r.module for r in rows if r.module.startswith("blind_broken")})
    return [_counts(module, [r for r in rows if r.broken and r.module == module]) for module in modules]


def false_alarms(rows: Sequence[Row]) -> dict[str, Any]:
    """The same of the right functions, of which each alarm is false."""
    return _counts("right", [r for r in rows if not r.broken])


def _counts(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "name": name,
        "functions": len(rows),
        "gradcheck": sum(bool(r.gradcheck) for r in rows),
        "gradgradcheck": sum(bool(r.gradcheck or r.gradgradcheck) for r in rows),
        "opcheck": sum(bool(r.opcheck) for r in rows),
        "operators": sum(r.opcheck is not None for r in rows),
        "audit": sum(r.found if r.broken else bool(r.audit) for r in rows),
    }


def seconds(rows: Sequence[Row]) -> dict[str, float]:
    """Medians: of the audit's seconds, of those of gradcheck and gradgradcheck, and of the ratio of the two."""
    timed = [r for r in rows if r.audit_seconds is not None and not r.crash]
    return {
        "audit": statistics.median(r.audit_seconds for r in timed),
        "torch": statistics.median(r.torch_seconds for r in timed),
        "ratio": statistics.median(r.audit_seconds / r.torch_seconds for r in timed if r.torch_seconds),
    }


def failures(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Where the audit is wrong, by name: it misses a mistake, alarms without one, or raises."""
    return {
        "missed": [r.name for r in rows if r.broken and not r.found],
        "false alarms": [r.name for r in rows if not r.broken and r.audit],
        "crashes": [r.name for r in rows if r.crash],
    }


def main(names: list[str]) -> int:
    """Measure, store, print; the exit status is 1 if the audit is wrong anywhere."""
    corpus.load()
    order = list(corpus.BROKEN | corpus.RIGHT)
    if unknown := set(names) - set(order):
        raise SystemExit(f"no function of the corpus: {', '.join(sorted(unknown))}")
    rows = run(names or order)
    store({row.name: asdict(row) for row in rows}, RESULTS, order)
    print(f"{'':16}{'functions':>10}{'gradcheck':>10}{'+gradgrad':>10}{'opcheck':>10}{'audit':>7}")
    for line in (*by_family(rows), *by_others(rows), false_alarms(rows)):
        opcheck = f"{line['opcheck']}/{line['operators']}" if line["operators"] else "-"
        print(
            f"{line['name']:16}{line['functions']:>10}{line['gradcheck']:>10}{line['gradgradcheck']:>10}"
            f"{opcheck:>10}{line['audit']:>7}"
        )
    print("\nmedian seconds:", {name: round(value, 3) for name, value in seconds(rows).items()})
    for what, wrong in failures(rows).items():
        print(f"{what}: {', '.join(wrong) or 'none'}")
    return 1 if any(failures(rows).values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
