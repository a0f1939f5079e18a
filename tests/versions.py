"""Store what the installed torch does otherwise than the pinned one: ``nox -s versions`` runs this in each environment.

``python -m tests.versions TESTS.xml``, with what pytest has written of its run, audits every recipe, runs every
program of the error index and measures the corpus of the audit. It writes a row of ``versions.json`` (see
``docs/_ext/versions.py``), prints what has changed in it, and exits with status 1 if something has, or a test failed.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from docs._ext import findings, results, versions
from docs._ext.results import Row
from docs.errors import programs, wordings
from docs.errors.programs.__main__ import raised_by
from docs.pitfalls.programs import BROKEN, RIGHT
from packaging.version import Version

from autograd_cookbook.auditing import AuditError
from autograd_cookbook.catalog import RECIPES
from autograd_cookbook.errors import entries
from tests.auditing import corpus, measure

# Of a row of the corpus, what depends on when and where it was measured.
PLACE = {"digest", "seconds", "on"}


def main(reports: Sequence[Path]) -> int:
    """Measure, print and store; without a report, the row has no tests."""
    release, before = versions.running(), dict(versions.stored())
    row = {
        "on": results.place(),
        "tests": tests(*reports) if reports else {},
        "recipes": dict(recipes()),
        "messages": dict(messages(release)),
        "corpus": dict(functions()),
    }
    found = list(results.changes(before.get(release, {}), row))
    print(f"\ntorch {release}:", *found or ["as before"], sep="\n  ")
    rows = before | {release: row}
    text = results.text_of({release: rows[release] for release in sorted(rows, key=Version)})
    versions.STORED.write_text(text + "\n", encoding="utf-8")
    return 1 if found or row["tests"].get("failed") else 0


def tests(report: Path) -> Row:
    """How many tests passed and were skipped, and the names of those that failed."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"passed": len(cases) - len(failed) - skipped, "skipped": skipped, "failed": failed}


def recipes() -> Iterator[tuple[str, Row]]:
    """What audits say otherwise: capabilities, the bytes that are kept, and which checks ran or found something."""
    for recipe in RECIPES:
        if not recipe.calls:
            continue
        pinned = results.measured(recipe, "verified")
        try:
            now = results.verify(recipe)
        except AuditError as error:
            yield recipe.name, {"wrong": str(error)}
            continue
        other = {key: now[key] for key in ("saved_bytes", "checks") if now[key] != pinned[key]}
        if [check for check, _ in now["findings"]] != [check for check, _ in pinned["findings"]]:
            other["findings"] = now["findings"]
        can = {
            name: verdict for name, verdict in now["capabilities"].items() if verdict != pinned["capabilities"][name]
        }
        if can:
            other["capabilities"] = can
        if other:
            yield recipe.name, other


def messages(release: str) -> Iterator[tuple[str, list[str] | None]]:
    """What the programs raise that the index does not have for this release: kind and message, or None for nothing."""
    stored = {entry.name: entry for entry in entries()}
    for name, program in programs.load().items():
        raised = raised_by(program)
        now = raised and (raised["kind"], raised["message"])
        if now is None or not wordings.known(stored[name], release, now):
            yield name, now and list(now)


def functions() -> Iterator[tuple[str, Any]]:
    """What the audit, gradcheck, gradgradcheck and opcheck make otherwise of the functions of the corpus."""
    corpus.load()
    stored = findings.stored()
    for name, row in measure.run([*BROKEN, *RIGHT]):
        pinned, now = asdict(stored[name]), asdict(row)
        other = {key: now[key] for key in now.keys() - PLACE if now[key] != pinned[key]}
        if other:
            yield name, dict(sorted(other.items()))


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
