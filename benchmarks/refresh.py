"""Measure again what is stored and stale: ``nox -s refresh``, which is ``python -m benchmarks.refresh``.

A result is stale if the code that it depends on has changed, which its digest tells. This is so for what the audits of
the recipes say, what the recipes cost and what checking them costs; for the messages of the error index; and for what
the audit finds in the corpus. With names of recipes, pages, errors or functions of the corpus, the results of these are
measured again, stale or not. Each result is stored at once, so that a run that is interrupted loses nothing.

Without names, it ends with the costs that moved against the history (see ``docs/_ext/history.py``).
"""

import difflib
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import cache

from benchmarks import checking, costs
from docs._ext import digests, history, results, versions
from docs._ext.results import Kind, Row
from docs.errors import build, programs

from autograd_cookbook.auditing import AuditError
from autograd_cookbook.catalog import BY_NAME, RECIPES, Recipe

MEASURES: dict[Kind, Callable[[Recipe], Row]] = {
    "verified": results.verify,
    "cost": lambda recipe: {"contenders": costs.measure(recipe)},
    "checking": checking.measure,
}
MESSAGES = results.RESULTS / "messages.json"
CORPUS = results.RESULTS / "findings.json"
# Programs of their own, which take names, store what they measure, and print what has changed.
UPDATE_MESSAGES = (sys.executable, "-m", "docs.errors.programs", "--update")
MEASURE_CORPUS = (sys.executable, "-m", "tests.auditing.measure")
AT_ONCE = 40  # programs, after which their messages are stored


def main(names: list[str]) -> int:
    """Measure what is named, or else what is stale; the exit status is 1 if something cannot be measured."""
    recipes, errors, functions = named(names) if names else stale()
    if (installed := versions.running()) != (pinned := digests.torch()):
        raise SystemExit(f"torch {installed} is installed, and constraints.txt pins {pinned}: nothing is stored")
    if recipes or errors:
        print(f"to measure: {len(recipes)} results of recipes, {len(errors)} messages", flush=True)
    failed = []
    for recipe, kind in recipes:
        if recipe.name not in failed and not renew(recipe, kind):  # what is wrong need not be timed
            failed.append(recipe.name)
    failed += renew_messages(errors)
    if compiled := build.renew():  # the texts of entries, and the rules by which a paste is read
        print("the error index is compiled again")
    corpus_before = CORPUS.read_bytes()
    if functions or not names:
        # Without names, it finds out by itself which functions have changed.
        failed += ["the corpus"] if subprocess.run([*MEASURE_CORPUS, *functions], check=False).returncode else []
    forgotten = 0 if names else forget_gone()
    if not (recipes or errors or compiled or functions or forgotten) and CORPUS.read_bytes() == corpus_before:
        print("nothing of this is measured" if names else "nothing is stale")
    if not names:
        print(*history.moved_since(), sep="\n")
    if failed:
        print("\nnot measured:", ", ".join(failed))
    return 1 if failed else 0


Chosen = tuple[list[tuple[Recipe, Kind]], list[str], list[str]]


def stale() -> Chosen:
    """Recipes with what is stale of them, and errors."""
    stored, now = results.read(MESSAGES), message_digests()
    recipes = [(recipe, kind) for recipe in RECIPES for kind in results.stale(recipe)]
    return recipes, [name for name in now | stored if now.get(name) != stored.get(name)], []


def named(names: Iterable[str]) -> Chosen:
    """What has these names: a recipe with all that is measured of it, or those of a page; an error; a function."""
    recipes, errors, functions = [], [], []
    corpus = results.read(CORPUS)["functions"]
    for name in names:
        if mine := [r for r in RECIPES if r.name == name] or [r for r in RECIPES if r.page == name]:
            recipes += [(r, kind) for r in mine for kind in results.due(r)]
        elif name in message_digests():
            errors.append(name)
        elif name in build.written():
            continue  # an entry without a program: there is nothing to run
        elif name in corpus:
            functions.append(name)
        else:
            known = {*BY_NAME, *(r.page for r in RECIPES), *message_digests(), *corpus}
            like = " or ".join(difflib.get_close_matches(name, sorted(known), 4))
            raise SystemExit(
                f"no recipe, page, error or function of the corpus is called {name!r}"
                + (f"; did you mean {like}?" if like else "")
            )
    return recipes, errors, functions


@cache
def message_digests() -> dict[str, str]:
    """Of each program of the error index."""
    return {name: digests.program(program.source, program.warning) for name, program in programs.load().items()}


def renew_messages(names: list[str]) -> list[str]:
    """Have these programs run and the index written; what failed."""
    failed = []
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        if subprocess.run([*UPDATE_MESSAGES, *some], check=False).returncode:
            failed += some
            continue
        now = message_digests()
        stored = results.read(MESSAGES) | {name: now.get(name) for name in some}
        MESSAGES.write_text(results.text_of({name: stored[name] for name in now if name in stored}) + "\n")
    return failed


def forget_gone() -> int:
    """Drop what is stored of recipes that are gone; how many."""
    left = results.gone()
    for page, names in left.items():
        print(f"{page}: {', '.join(names)} forgotten, no such recipe is on this page")
        results.forget_gone(page)
    return sum(map(len, left.values()))


def renew(recipe: Recipe, kind: Kind) -> bool:
    """Measure and store a result, and print what has changed; False if it cannot be measured."""
    try:
        before: Row | None = results.measured(recipe, kind)
    except results.NotMeasuredError:
        before = None
    try:
        row = MEASURES[kind](recipe)
    except Exception as error:  # the others are measured all the same
        said = str(error) if isinstance(error, AuditError) else traceback.format_exc()
        print(f"{recipe.name}, {kind}: not measured", said, sep="\n", flush=True)
        return False
    results.store(recipe, kind, row)
    found = ["measured for the first time"] if before is None else list(results.changes(before, row)) or ["as before"]
    print(f"{recipe.name}, {kind}:", *found, sep="\n  ", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
