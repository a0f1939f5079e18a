"""Directives for the error index: a section for each message, and the field to paste one into.

The programs run while the page is read, and what they raise must be what the index says that they do.
"""

import hashlib
import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docs._ext.pitfalls import box, changed_lines, parsed
from docs._ext.recipe import link, to_check
from docs.errors import programs as errors
from docs.errors.programs import Program
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import autograd_cookbook.errors
from autograd_cookbook.errors import ISSUES, Entry, advice, entries, entry_of, in_case, matcher
from autograd_cookbook.errors.topics import said as said_by

ROOT = Path(__file__).parents[2]
PAGE = "errors/index"
# Next to Sphinx's index of words and like it a script: a page that is opened as a file may not fetch, but load one.
DATA = "error-index.js"
SHOWN = 24, 16  # lines of a long message, from its start and from its end


class ErrorsDirective(SphinxDirective):
    """``{errors} group``: a section for each message of a group, with what raises it and the fixed program.

    ``{errors} group name``: for that message alone.
    """

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        group, *only = self.arguments
        if group not in errors.GROUPS:
            raise self.error(f"no group {group!r}; there are {', '.join(errors.GROUPS)}")
        known = errors.load()
        self.env.note_dependency(errors.__file__)
        self.env.note_dependency(str(autograd_cookbook.errors.INDEX))
        self.env.note_dependency(str(ROOT / "constraints.txt"))
        for path in {inspect.getfile(program.function) for program in known.values() if program.group == group}:
            self.env.note_dependency(path)
        found = [entry for entry in entries() if entry.group == group and entry.name in (only or [entry.name])]
        wanted = [p.name for p in known.values() if p.group == group and p.name in (only or [p.name])]
        if missing := set(wanted) - {entry.name for entry in found}:
            raise self.error(f"not in the index: {', '.join(sorted(missing))}; run nox -s refresh")
        self.told: set[str] = set()  # of cases: entries with one message share them
        return [self.section(entry, known.get(entry.name)) for entry in found]

    def section(self, entry: Entry, program: Program | None) -> nodes.section:
        section = nodes.section("", ids=[entry.anchor], names=[entry.anchor], classes=["error-entry"])
        section["support_smartquotes"] = False  # some texts contain options such as --no-half, which readers copy
        self.state.document.note_explicit_target(section, section)
        section += nodes.title(entry.title, entry.title)
        section += self.message(f"{entry.kind}: {entry.message}".rstrip())
        for label, text in (
            ("How to tell:", entry.tell),
            ("Ignore it:", entry.harmless),
            ("As the user of it:", entry.borrowed),
            ("Change:", entry.change),
        ):
            if text:
                section += parsed(self, f"**{label}** {text}")
        for text in (entry.cause, entry.fix):
            section += parsed(self, text)
        for case in entry.cases:
            if case.tell in self.told:
                continue
            self.told.add(case.tell)
            known = ("", entry.change, entry.cause, entry.fix)
            own = [text for text in (case.change, case.cause, case.fix) if text not in known]
            section += parsed(self, " ".join(["**Special case:**", case.tell, *own, "(Not run here.)"]))
        if program is not None:
            section += self.programs(program, entry)
        elif entry.source:
            text = f"Seen in {release(entry.torch)}; not run here. "
            source = nodes.reference("", "Source", refuri=entry.source)
            section += nodes.paragraph("", "", nodes.Text(text), source, nodes.Text("."))
        for former in entry.former:
            said = f"{release(former.torch)} said"
            folded = nodes.admonition("", nodes.title(said, said), classes=["error-former"], collapsible="closed")
            folded += self.message(f"{former.kind or entry.kind}: {former.message}".rstrip())
            section += folded
        see = entry.see or (program.see if program else ())
        if see:
            links = [self.link(target) for target in see]
            between = [node for each in links for node in (nodes.Text(", "), each)][1:]
            section += nodes.paragraph("", "", nodes.Text("Read on: "), *between, nodes.Text("."))
        return section

    def message(self, text: str) -> nodes.container:
        """What torch says. Some messages print whole matrices: of these, the start and the end are enough."""
        lines = text.splitlines()
        if len(lines) > sum(SHOWN):
            text = "\n".join([*lines[: SHOWN[0]], "…", *lines[-SHOWN[1] :]])
        return box(nodes.literal_block(text, text, language="text"), classes=["error-message"])

    def programs(self, program: Program, entry: Entry) -> list[nodes.Node]:
        """The program and the fixed one, both run."""
        raised = errors.run(program.source, program.warning)
        if raised is None or (raised.kind, raised.message) != (entry.kind, entry.message):
            # The other messages of the page stay: what is missing then is what is wrong.
            text = f"{program.name} raises {raised}, the index says {entry}: python -m docs.errors.programs --update"
            return [self.reporter.error(text, line=self.lineno)]
        codes = program.source, program.fixed_source if program.fixed else ""
        shown = [self.program("broken", "✗ Raises it", codes[0], codes[1])]
        if program.fixed:
            if (left := errors.run(program.fixed_source, program.warning)) is not None:
                return [self.reporter.error(f"the fixed version of {program.name} raises {left}", line=self.lineno)]
            shown.append(self.program("fixed", "✓ Fixed", codes[1], codes[0]))
        return shown

    def program(self, kind: str, label: str, code: str, other: str) -> nodes.container:
        marked = changed_lines(code, other) if other else []
        block = nodes.literal_block(code, code, language="python", highlight_args={"hl_lines": marked})
        caption = nodes.paragraph("", "", nodes.strong(label, label))
        return box(caption, block, classes=["specimen", f"specimen-{kind}"])

    def link(self, target: str) -> nodes.Node:
        """To a page, by its title, or to a check of the audit."""
        prefix, _, name = target.rpartition(":")
        if prefix == "check":
            return to_check(name, self.env.docname)
        return link(f"/{target}", None, "std", "doc", self.env.docname)


class ErrorSearchDirective(SphinxDirective):
    """``{error-search}``: the field. The script that searches the index loads it when the field is used."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(autograd_cookbook.errors.INDEX))
        self.env.note_dependency(autograd_cookbook.errors.__file__)
        html = f"""
<form class="error-search" role="search" aria-label="Error messages" data-index="{DATA}?v={version(script())}">
<label for="error-text">The message, or the whole traceback</label>
<textarea id="error-text" rows="7" spellcheck="false" autocomplete="off"
 placeholder="RuntimeError: Function MyLayerBackward returned an invalid gradient at index 1 …"></textarea>
<noscript>The search needs JavaScript. All messages are listed below.</noscript>
<div class="error-found" aria-live="polite"></div>
</form>
"""
        return [nodes.raw("", html, format="html")]


def release(text: str) -> str:
    """Name the releases of an entry: "torch 2.0 to 2.5", or "Lightning 1.2" for those of a library."""
    if text in ("all", "any"):
        return "all releases of torch"
    if re.match(r"(?:all|any|on|with)\b", text):
        return f"torch, {text}"
    return f"torch {text}" if re.match(r"\d|before\b", text) else text


def for_browser() -> dict[str, object]:
    """The index as errors.js interprets it: what is matched, and what is shown."""
    reader = matcher()
    kept = (
        "group",
        "wordings",
        "needs",
        "favors",
        "against",
        "shown_by",
        "prior",
        "proven",
        "common",
        "announces",
        "title",
        "cause",
        "tell",
        "harmless",
        "signs",
        "ways",
        "clues",
        "borrowed",
        "about",
    )
    found = []
    for stored, entry in zip(reader.entries, entries(), strict=True):
        shown = {"url": f"{entry.group}.html#{entry.anchor}", "said": said_by(stored), **advised(stored)}
        if cases := [advised(in_case(stored, i)) | case for i, case in enumerate(stored.get("cases", ()))]:
            shown["cases"] = [{name: told for name, told in case.items() if name != "fix"} for case in cases]
        found.append({name: stored[name] for name in kept if name in stored} | shown)
    derivatives = {"have": sorted(reader.formulas), "lack": sorted(reader.lacking)}
    return {
        "rules": reader.rules,
        "nodes": sorted(reader.nodes),
        "derivatives": derivatives,
        "entries": found,
        "questions": [question(each) for each in reader.answers[len(reader.entries) :]],
        "issues": ISSUES,
    }


def question(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What a question of the guide shows, and its address from a page of the errors."""
    entry = entry_of(stored)
    shown = {"title": entry.title, "said": "", "cause": "", "wordings": []}
    shown |= {name: stored[name] for name in ("about", "asked")}
    return {**shown, "url": f"../{stored['page']}.html#{entry.anchor}", **advised(stored)}


def advised(stored: Mapping[str, Any]) -> dict[str, str]:
    """What an entry has changed first, and what else."""
    change, more = advice(stored.get("change", ""), stored["fix"])
    return {"change": change, "more": more}


def script() -> str:
    """The index as a file that a page loads on demand."""
    return f"window.errorIndex = {json.dumps(for_browser(), ensure_ascii=False, separators=(',', ':'))};\n"


def version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def said(entry: Entry) -> str:
    """The first line of a message, for lists."""
    first = (entry.message.strip().splitlines() or [""])[0]
    return f"{entry.kind}: {first if len(first) <= 160 else first[:159] + '…'}"


class ErrorListDirective(SphinxDirective):
    """``{error-list}``: all messages, by group."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(autograd_cookbook.errors.INDEX))
        sections = []
        for group, title in errors.GROUPS.items():
            name = f"errors-{group}"
            section = nodes.section("", nodes.title(title, title), ids=[name], names=[name])
            self.state.document.note_explicit_target(section, section)
            items = nodes.definition_list(classes=["check-index"])
            for entry in entries():
                if entry.group == group:
                    term = link(entry.anchor, nodes.inline("", entry.title), "std", "ref", self.env.docname)
                    quoted = nodes.literal(said(entry), said(entry))
                    # Without a paragraph around it: with more than a thousand of them, the page would be slow.
                    items += nodes.definition_list_item("", nodes.term("", "", term), nodes.definition("", quoted))
            section += items
            sections.append(section)
        return sections


def add_script(app: Sphinx, pagename: str, *_: object) -> None:
    """The page with the field alone needs it."""
    if pagename == PAGE:
        app.add_js_file("errors.js", defer="defer")


def write_index(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html" and PAGE in app.env.found_docs:
        Path(app.outdir, DATA).write_text(script(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("errors", ErrorsDirective)
    app.add_directive("error-list", ErrorListDirective)
    app.add_directive("error-search", ErrorSearchDirective)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
