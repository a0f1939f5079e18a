"""The verdict on every function of the corpus is the known one, and every finding that can be printed is printed."""

import ast
import dataclasses
import importlib
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from docs._ext import findings, versions
from docs.pitfalls.programs import BROKEN, RIGHT, Specimen

from autograd_cookbook.auditing import Finding, Report, audit, checks
from autograd_cookbook.auditing.checks import FAMILIES, all_checks
from autograd_cookbook.auditing.report import TASTE
from tests.auditing import corpus, measure

corpus.load()
CHECKS = all_checks()
slow = pytest.mark.slow("src/autograd_cookbook/auditing", "tests/auditing", "docs/pitfalls/programs")
FIXED = {specimen.fixes for specimen in RIGHT.values()}


def audited(specimen: Specimen, **options: Any) -> Report:
    """The audit of a specimen with its own options, on a sample that is the same each time."""
    torch.manual_seed(0)
    return audit(specimen.function, specimen.inputs(), **specimen.options | options)


def module_of(specimen: Specimen) -> str:
    """The family, or the domain, that a specimen is filed under."""
    return specimen.thing.__module__.rpartition(".")[2]


def parametrized(specimens: dict[str, Specimen]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("specimen", [pytest.param(s, id=name) for name, s in specimens.items()])


def reads_well(report: Report) -> None:
    """All findings are whole sentences without markup or leftovers of code, and lead to the section on their check."""
    for found in report.findings:
        # What an exception says is quoted as it is.
        own, quoted, _ = re.split(r"\b(\w+(?:Error|Exception|Exit|SymNode)\b)|$", found.summary, maxsplit=1)
        cause = found.cause.partition("The code, or an operation in it, raises ")[0] or "quoted"
        for text in (own + (quoted or ""), cause, found.fix):
            assert text
            assert text == text.strip()
            assert not re.search(r"%|``|\{|\}|<\w|0x[0-9a-f]{6}|  |''|\bnan of\b|=true\b|=false\b", text), text
        assert "None" not in re.sub(r"missing \(None\)|in_dims=\([^)]*\)", "", own), own
        assert quoted or not found.summary.endswith((".", ":", ";", ",")), found.summary
        assert found.cause.endswith("."), found.cause
        assert found.fix.endswith("."), found.fix
        assert found.url == CHECKS[found.check].url
        assert str(found) in str(report)


# --- verdicts ---


@slow
@parametrized(BROKEN)
def test_what_is_broken_is_caught_by_the_check_that_it_names(specimen: Specimen) -> None:
    """By that check alone; the page on what the audit finds has all of them."""
    expected = list(specimen.checks[:1] if specimen.name in FIXED else specimen.checks)
    report = audited(specimen, only=expected)
    caught = bool(set(expected) & set(report.seen))
    assert caught != judged_otherwise(specimen), f"{specimen.why}\n\n{report}"
    assert report.ok != caught or {f.check for f in report.findings} <= set(TASTE)
    reads_well(report)


@slow
@parametrized(RIGHT)
def test_what_is_right_is_let_pass(specimen: Specimen) -> None:
    """Here and now; what nox -s refresh measured for the same code is compared in every run."""
    # As users run it, but for the check that takes longest, unless it may be what takes the function for wrong.
    report = audited(specimen, skip=[] if module_of(specimen) == "transforms" else ["compile"])
    assert report.ok != judged_otherwise(specimen), f"{specimen.why}\n\n{report}"
    reads_well(report)


def judged_otherwise(specimen: Specimen) -> bool:
    """Whether the audit is known to be wrong about a function on this release of torch, and right on the pinned one."""
    return "wrong" in (versions.differences("corpus", specimen.name) or {})


def test_the_stored_findings_are_those_of_the_corpus_as_it_is() -> None:
    """Which the site shows next to what torch's own checks find."""
    rows = findings.stored()
    assert not (names := measure.stale(rows)), f"run nox -s refresh, which measures {', '.join(names)}"
    assert not rows.keys() - (BROKEN | RIGHT).keys(), "run nox -s refresh, which removes these"
    assert not {name: row.wrong for name, row in rows.items() if row.wrong}


def test_what_the_audit_saw_first_is_recorded_for_each_set() -> None:
    handed_in = [name for s in findings.first_sight() for name in s["functions"]]
    in_domains = {name for name, s in (BROKEN | RIGHT).items() if ".domains." in s.thing.__module__}
    assert len(set(handed_in)) == len(handed_in)
    assert set(handed_in) <= in_domains  # others were written to show a mechanism that was known
    assert all(0 < s["judged_right"] <= len(s["functions"]) for s in findings.first_sight())


def test_there_are_many_of_both_kinds() -> None:
    assert len(BROKEN) >= 80
    assert len(RIGHT) >= 60


def test_specimens_name_checks_that_there_are() -> None:
    for name, specimen in (BROKEN | RIGHT).items():
        assert specimen.why, name
        assert set(specimen.checks) <= set(CHECKS), name
        assert specimen.source is None or re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", specimen.source), name


# --- findings ---


@dataclasses.dataclass(frozen=True)
class Placed(Finding):
    """A finding that knows which line made it, and tells even out of another process."""

    line: int = 0


def lines_of_findings(family: str) -> dict[int, int]:
    """Where the checks of a family call finding(): first and last line of each call."""
    tree = ast.parse(Path(family_module(family).__file__).read_text(encoding="utf-8"))
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
    return {call.lineno: call.end_lineno for call in calls if call.func.id == "finding"}


def family_module(family: str) -> Any:
    return importlib.import_module(f"{checks.__name__}.{family}")


@pytest.fixture
def placed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A family whose findings are all of the class Placed."""

    def finding(*args: Any) -> Placed:
        return Placed(**vars(checks.finding(*args)), line=sys._getframe(1).f_lineno)

    monkeypatch.setattr(family_module(request.param), "finding", finding)
    return request.param


# An info is no verdict on a function: the right functions that show some, with the check.
QUIET = {
    "isru_without_forward_mode": "forward_mode",
    "spread_by_bisection": "first_order",
    "spread_by_few_halvings": "first_order",
    "FlowByTheAdjointEquation": "first_order",
    "RotatesPoints": "first_order",
    "JittersInThePlane": "first_order",
    "RoundsAtRandom": "first_order",
    "FixedPointToFifteenPlaces": "linear_in_grad_output",
    "snake_checkpointed_by_reentry": "grad_attribute",
    "RoundedStraightThrough": "compile",
}


def specimens_for(family: str) -> Iterator[tuple[Specimen, list[str]]]:
    """Those that may have findings of a family, with the checks to run; the most likely ones first."""
    for name, check in QUIET.items():
        if CHECKS[check].family == family:
            yield RIGHT[name], [check]
    everything = sorted(BROKEN.values(), key=lambda s: module_of(s) != family)
    for specimen in everything:
        if names := [c for c in specimen.checks if CHECKS[c].family == family]:
            yield specimen, names


@slow
@pytest.mark.parametrize("placed", FAMILIES, indirect=True)
def test_every_finding_has_been_seen_printed(placed: str) -> None:
    left = lines_of_findings(placed)
    assert left
    for specimen, names in specimens_for(placed):
        for found in itertools.chain.from_iterable(audited(specimen, only=[name]).findings for name in names):
            if isinstance(found, Placed):
                left = {first: last for first, last in left.items() if not first <= found.line <= last}
        if not left:
            return
    source = Path(family_module(placed).__file__).read_text(encoding="utf-8").splitlines()
    pytest.fail("no specimen shows:\n" + "\n".join("\n".join(source[a - 1 : b]) for a, b in left.items()))
