"""Print the report on a terminal."""

import textwrap
from collections.abc import Iterator

from autograd_cookbook.auditing.report import MARKS, not_covered
from autograd_cookbook.harvest.results import Found, FunctionResult, Harvest

WIDTH = 110


def lines_of(harvest: Harvest) -> Iterator[str]:
    """Yield the report line by line, grouped by function. Functions with findings that count come first."""
    audited = [f for f in harvest.functions if f.audited]
    for each in sorted(audited, key=lambda f: (not harvest.counting(f), f.name)):
        yield from _function(each, is_ok=not harvest.counting(each))
    if failed := [f for f in harvest.functions if f.reached and not f.audited]:
        yield "not audited"
        for each in failed:
            yield from _wrapped(f"{each.file}:{each.line} {each.name}: ", each.not_audited, 2)
        yield ""
    if missed := [f for f in harvest.functions if not f.reached]:
        yield "not reached: no call of these was seen"
        yield from (f"  {each.file}:{each.line} {each.name}" for each in missed)
        yield ""
    for problem in harvest.problems:
        yield from _wrapped("✗ ", problem, 0)
    yield headline(harvest)


def headline(harvest: Harvest) -> str:
    """Return the verdict in one line."""
    functions = harvest.functions
    findings = [f for each in functions for f in each.findings]
    counts = [(s, sum(f.severity == s and not f.accepted for f in findings)) for s in ("error", "warning")]
    found = [f"{n} {s if n == 1 else s + 's'}" for s, n in counts if n]
    found += [f"{n} accepted"] if (n := sum(bool(f.accepted) and f.severity != "info" for f in findings)) else []
    found += [f"{n} problem{'s'[: n > 1]} with the configuration"] if (n := len(harvest.problems)) else []
    audited = sum(bool(f.audited) for f in functions)
    reached = sum(f.reached for f in functions)
    verdict = "NOT ok" if not harvest.ok else "ok" if audited or not functions else "nothing audited"
    return (
        f"{verdict}: {audited} of {len(functions)} "
        f"custom function{'' if len(functions) == 1 else 's'} audited, {reached} reached"
        f"{': ' + ', '.join(found) if found else ''} (torch {harvest.torch})"
    )


def _function(each: FunctionResult, *, is_ok: bool) -> Iterator[str]:
    verdict = "ok" if is_ok else "NOT ok"
    calls = f"{each.calls} call{'' if each.calls == 1 else 's'}"
    yield f"{each.file}:{each.line} {each.name}: {verdict} ({each.audited} of {calls} audited in {each.seconds:.1f} s)"
    quiet = []
    for found in each.findings:
        if found.severity == "info" and not found.summary.startswith("looks like "):
            quiet.append(found.check)
        else:
            yield from _finding(found)
    if quiet:
        yield from _wrapped(f"  {MARKS['info']} info: ", ", ".join(dict.fromkeys(quiet)), 0)
    if is_ok and (limits := not_covered(each.capabilities)):
        yield from _wrapped("  ", limits, 0)
    for note in each.notes:
        if not note.startswith("the sample was in"):
            yield from _wrapped("  note: ", note, 0)
    yield ""


def _finding(found: Found) -> Iterator[str]:
    yield f"  {MARKS[found.severity]} {found.severity}: {found.check}{' (accepted)' if found.accepted else ''}"
    if found.accepted:
        yield from _wrapped("accepted: ", found.accepted, 6)
        return
    for label, text in (("", found.summary), ("cause: ", found.cause), ("fix: ", found.fix)):
        yield from _wrapped(label, text, 6)
    if "://" in found.url:
        yield f"      see: {found.url}"


def _wrapped(label: str, text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        label + text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + min(len(label), 12)),
        break_long_words=False,
        break_on_hyphens=False,
    )
