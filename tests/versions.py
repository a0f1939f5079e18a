"""Store what the installed torch does otherwise than the pinned one: ``nox -s versions`` runs this in each environment.

``python -m tests.versions`` audits every recipe, runs every program of the error index and every page and example with
what they assert, and measures the corpus of the audit. It writes a row of ``versions.json`` (see
``docs/_ext/versions.py``), prints what has changed in it, and exits with status 1 if something has. With ``TESTS.xml``,
which pytest has written of its run behind that, it adds the tests, and exits with status 1 if one of them failed.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from docs._ext import findings, one_page, results, versions
from docs._ext.pages import EXAMPLES
from docs._ext.results import Row
from docs.errors import programs, wordings
from docs.errors.programs.__main__ import raised_by
from docs.pitfalls.programs import BROKEN, RIGHT
from myst_nb.core.read import read_myst_markdown_notebook
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from packaging.version import Version

from autograd_cookbook.auditing import AuditError
from autograd_cookbook.catalog import RECIPES
from autograd_cookbook.errors import entries
from tests import junit
from tests.auditing import corpus, measure

# Of a row of the corpus, what depends on when and where it was measured.
PLACE = {"digest", "seconds", "on"}


def main(report: Path | None = None) -> int:
    """Measure, print and store; or store what pytest has reported."""
    release, rows = versions.running(), dict(versions.stored())
    before = rows.get(release, {})
    if report:
        row = before | {"tests": junit.counted(report)}
        found = [f"{name} fails" for name in row["tests"]["failed"]]
    else:
        row = {
            "on": results.place(),
            "tests": before.get("tests", {}),
            "recipes": dict(recipes()),
            "messages": dict(messages(release)),
            "corpus": dict(functions()),
            "statements": dict(statements()),
        }
        found = list(results.changes(before, row))
    print(f"\ntorch {release}:", *found or ["tests pass" if report else "as before"], sep="\n  ", flush=True)
    rows |= {release: row}
    text = results.text_of({release: rows[release] for release in sorted(rows, key=Version)})
    versions.STORED.write_text(text + "\n", encoding="utf-8")
    return 1 if found else 0


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


def statements() -> Iterator[tuple[str, str]]:
    """Pages and examples whose code raises here, an assertion among others, with what it raises."""
    for page in one_page.documents():
        path = one_page.DOCS / f"{page}.md"
        notebook = read_myst_markdown_notebook(path.read_text(encoding="utf-8")) if path.exists() else None
        if notebook and any(cell.cell_type == "code" for cell in notebook.cells):
            try:
                NotebookClient(notebook, timeout=None, resources={"metadata": {"path": path.parent}}).execute()
            except CellExecutionError as error:
                yield page, anywhere(f"{error.ename}: {error.evalue}")
    for script in sorted(EXAMPLES.rglob("*.py")):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", str(script)], cwd=folder, capture_output=True, text=True, check=False
            )
        if done.returncode:
            yield f"examples/{script.relative_to(EXAMPLES)}", anywhere(done.stderr.strip().rpartition("\n")[2])


def anywhere(text: str) -> str:
    """Without where the packages lie on this machine."""
    return text.replace(str(Path(torch.__file__).parents[1]), "site-packages")


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
