"""Write the report as one HTML file that needs no other file."""

import html
from collections.abc import Iterator
from pathlib import Path

from autograd_cookbook.auditing.report import MARKS, VERDICTS, not_covered
from autograd_cookbook.harvest.results import Found, FunctionResult, Harvest
from autograd_cookbook.harvest.terminal import headline

EXCERPT = 60  # the most lines of a function that are shown
STYLE = """
:root { color-scheme: light dark; --line: #8884; --error: #c62828; --warning: #a85d00; --info: #3367b5; }
@media (prefers-color-scheme: dark) { :root { --error: #ff8a80; --warning: #ffb74d; --info: #90b8f8; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: 4px; font-size: .85rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .3rem .6rem;
border-bottom: 1px solid var(--line); } section { border-top: 1px solid var(--line); margin-top: 2rem; }
h3.error { color: var(--error); } h3.warning { color: var(--warning); } h3.info { color: var(--info); }
code { overflow-wrap: anywhere; }
"""


def html_of(harvest: Harvest) -> str:
    """Return a page with a table of all functions, and a section for each function that was audited."""
    return "\n".join(_parts(harvest)) + "\n"


def _parts(harvest: Harvest) -> Iterator[str]:
    said = html.escape(headline(harvest))
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Audit of custom functions</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f"<h1>Audit of custom functions</h1>\n<p><strong>{said}</strong></p>"
    for problem in harvest.problems:
        yield f"<p>✗ {html.escape(problem)}</p>"
    yield "<table><thead><tr><th>function</th><th>place</th><th>calls</th><th>verdict</th></tr></thead><tbody>"
    for number, each in enumerate(harvest.functions):
        name = html.escape(each.name)
        link = f'<a href="#f{number}"><code>{name}</code></a>' if each.audited else f"<code>{name}</code>"
        place = f"<code>{html.escape(each.file)}:{each.line}</code>"
        yield f"<tr><td>{link}</td><td>{place}</td><td>{each.calls}</td><td>{_verdict(harvest, each)}</td></tr>"
    yield "</tbody></table>"
    for number, each in enumerate(harvest.functions):
        if each.audited:
            yield from _section(number, each, is_ok=not harvest.counting(each))
    yield "</body>\n</html>"


def _verdict(harvest: Harvest, each: FunctionResult) -> str:
    if not each.reached:
        return "not reached"
    if not each.audited:
        return f"not audited: {html.escape(each.not_audited)}"
    return "NOT ok" if harvest.counting(each) else "ok"


def _section(number: int, each: FunctionResult, *, is_ok: bool) -> Iterator[str]:
    yield f'<section id="f{number}">\n<h2><code>{html.escape(each.name)}</code></h2>'
    yield f"<p><code>{html.escape(each.file)}:{each.line}</code>, {each.audited} of {each.calls} calls audited in "
    yield f"{each.seconds:.1f} s</p>"
    for found in each.findings:
        yield from _finding(found)
    if not each.findings:
        yield "<p>Nothing was found.</p>"
    if is_ok and (limits := not_covered(each.capabilities)):
        yield f"<p>{html.escape(limits)}</p>"
    can = ", ".join(f"{VERDICTS[v]}&nbsp;{html.escape(name)}" for name, v in each.capabilities.items())
    yield f"<p>Capabilities (✓ yes, – no, ✗ wrong): {can}</p>"
    yield from (f"<p>Note: {html.escape(note)}</p>" for note in each.notes)
    if source := excerpt(each):
        yield f"<details><summary>Source</summary><pre>{html.escape(source)}</pre></details>"
    yield "</section>"


def _finding(found: Found) -> Iterator[str]:
    check = f"<code>{html.escape(found.check)}</code>"
    name = f'<a href="{html.escape(found.url)}">{check}</a>' if "://" in found.url else check
    yield f'<h3 class="{found.severity}">{MARKS[found.severity]} {found.severity}: {name}</h3>'
    yield f"<p>{html.escape(found.summary)}</p>"
    if found.accepted:
        yield f"<p><b>Accepted.</b> {html.escape(found.accepted)}</p>"
    yield f"<p><b>Cause.</b> {html.escape(found.cause)}</p>\n<p><b>Fix.</b> {html.escape(found.fix)}</p>"
    if found.program:
        yield f"<details><summary>Program that shows it</summary><pre>{html.escape(found.program)}</pre></details>"


def excerpt(each: FunctionResult) -> str:
    """Return the lines of a definition, up to the next line that is not indented more than the first line."""
    try:
        lines = Path(each.file).read_text(encoding="utf-8").splitlines()[each.line - 1 :]
    except (OSError, UnicodeDecodeError):
        return ""
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    end = len(lines)
    for number, line in enumerate(lines[1:], 1):
        if line.strip() and len(line) - len(line.lstrip()) <= indent and not lines[number - 1].lstrip().startswith("@"):
            end = number
            break
    return "\n".join(lines[: min(end, EXCERPT)]).rstrip()
