"""Store what the installed torch does otherwise than the pinned one: ``nox -s versions`` runs this in each environment.

``python -m tests.versions`` audits every recipe, runs every program of the error index and every page and example with
what they assert, and measures the corpus of the audit. It writes a row of ``versions.json`` (see
``docs/_ext/versions.py``), prints what has changed in it, and exits with status 1 if something has. With ``TESTS.xml``,
which pytest has written of its run behind that, it adds the tests, and exits with status 1 if one of them failed.
"""

import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from docs._ext import files, findings, one_page, results, versions
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
from autograd_cookbook.catalog import BY_NAME, RECIPES
from autograd_cookbook.errors import entries
from tests import junit
from tests.auditing import corpus, measure
from tests.auditing.measure import WORKERS

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
            "recipes": otherwise(recipe, [recipe.name for recipe in RECIPES if recipe.calls]),
            "messages": otherwise(message, programs.load()),
            "corpus": dict(functions()),
            "statements": otherwise(statement, with_code()),
        }
        found = list(results.changes(before, row))
    print(f"\ntorch {release}:", *found or ["tests pass" if report else "as before"], sep="\n  ", flush=True)
    rows |= {release: row}
    text = results.text_of({release: rows[release] for release in sorted(rows, key=Version)})
    versions.STORED.write_text(text + "\n", encoding="utf-8")
    return 1 if found else 0


def otherwise(measure: Callable[[str], Row], names: Iterable[str]) -> Row:
    """What some of these names make otherwise here, measured side by side."""
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork")) as pool:
        return {name: now for found in pool.map(measure, names) for name, now in found.items()}


def recipe(name: str) -> Row:
    """What an audit says otherwise: capabilities, the bytes that are kept, and which checks ran or found something."""
    pinned = results.measured(BY_NAME[name], "verified")
    try:
        now = results.verify(BY_NAME[name])
    except AuditError as error:
        return {name: {"wrong": str(error)}}
    other = {key: now[key] for key in ("saved_bytes", "checks") if now[key] != pinned[key]}
    if [check for check, _ in now["findings"]] != [check for check, _ in pinned["findings"]]:
        other["findings"] = now["findings"]
    can = {key: verdict for key, verdict in now["capabilities"].items() if verdict != pinned["capabilities"][key]}
    if can:
        other["capabilities"] = can
    return {name: other} if other else {}


def message(name: str) -> Row:
    """What a program raises that the index does not have for this release: kind and message, or None for nothing."""
    stored = next(entry for entry in entries() if entry.name == name)
    raised = raised_by(programs.load()[name])
    now = raised and (raised["kind"], raised["message"])
    if now and wordings.known(stored, versions.running(), now):
        return {}
    return {name: now and list(now)}


def functions() -> Iterator[tuple[str, Any]]:
    """What the audit, gradcheck, gradgradcheck and opcheck make otherwise of the functions of the corpus."""
    corpus.load()
    stored = findings.stored()
    for name, row in measure.run([*BROKEN, *RIGHT]):
        pinned, now = asdict(stored[name]), asdict(row)
        other = {key: now[key] for key in now.keys() - PLACE if now[key] != pinned[key]}
        if other:
            yield name, dict(sorted(other.items()))


def with_code() -> Iterator[str]:
    """Pages that run cells, and examples."""
    for page in one_page.documents():
        path = one_page.DOCS / f"{page}.md"
        if path.exists() and "{code-cell}" in path.read_text(encoding="utf-8"):
            yield page
    for script in sorted(EXAMPLES.rglob("*.py")):
        yield f"examples/{script.relative_to(EXAMPLES)}"


def statement(name: str) -> Row:
    """What the code of a page or example raises here, an assertion among others."""
    script = EXAMPLES.parent / name
    if script.suffix == ".py":
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-W", "ignore", str(script)]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return {name: anywhere(done.stderr.strip().rpartition("\n")[2])} if done.returncode else {}
    path = one_page.DOCS / f"{name}.md"
    notebook = read_myst_markdown_notebook(files.expanded(path.read_text(encoding="utf-8")))
    try:
        NotebookClient(
            notebook, timeout=None, startup_timeout=3600, resources={"metadata": {"path": path.parent}}
        ).execute()
    except CellExecutionError as error:
        first, _, _ = f"{error.ename}: {error.evalue}".partition("\n")  # the rest may be the traces of all ranks
        return {name: anywhere(first)}
    return {}


def anywhere(text: str) -> str:
    """Without where the packages lie on this machine."""
    return text.replace(str(Path(torch.__file__).parents[1]), "site-packages")


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
