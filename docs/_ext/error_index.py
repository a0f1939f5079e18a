"""Directives for the error index: a section for each message, and the field to paste one into.

The programs are those of the tests, ``tests/errors``. They run while the page is read, and what they raise must be what
the index says that they do.
"""

import inspect
import json
from pathlib import Path

from docutils import nodes
from pitfalls import box, changed_lines, parsed
from recipe import link, to_check
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tests import errors
from tests.errors import Program

import autograd_cookbook.errors
from autograd_cookbook.errors import FRAME, HEADING, KNOWN, VARIABLE, Entry, entries

ROOT = Path(__file__).parents[2]
PAGE = "errors/index"


class ErrorsDirective(SphinxDirective):
    """``{errors} group``: a section for each message of a group, with what raises it and the mended program."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (group,) = self.arguments
        if group not in errors.GROUPS:
            raise self.error(f"no group {group!r}; there are {', '.join(errors.GROUPS)}")
        programs = [program for program in errors.load().values() if program.group == group]
        for path in (inspect.getfile(programs[0].function), errors.__file__, autograd_cookbook.errors.INDEX):
            self.env.note_dependency(str(path))
        self.env.note_dependency(str(ROOT / "constraints.txt"))
        stored = {entry.name: entry for entry in entries()}
        return [self.section(program, stored.get(program.name)) for program in programs]

    def section(self, program: Program, entry: Entry | None) -> nodes.section:
        raised = errors.run(program.source, program.warning)
        if raised is None or entry is None or (raised.kind, raised.message) != (entry.kind, entry.message):
            raise self.error(f"{program.name} raises {raised}, the index says {entry}: python -m tests.errors --update")
        section = nodes.section("", ids=[entry.anchor], names=[entry.anchor], classes=["error-entry"])
        self.state.document.note_explicit_target(section, section)
        section += nodes.title(program.title, program.title)
        message = f"{raised.kind}: {raised.message}".rstrip()
        section += box(nodes.literal_block(message, message, language="text"), classes=["error-message"])
        for text in (program.cause, program.fix):
            section += parsed(self, text)
        codes = program.source, program.mended_source if program.mended else ""
        section += self.program("broken", "✗ Raises it", codes[0], codes[1])
        if program.mended:
            if (left := errors.run(program.mended_source, program.warning)) is not None:
                raise self.error(f"the mended version of {program.name} raises {left}")
            section += self.program("mended", "✓ Mended", codes[1], codes[0])
        if program.see:
            links = [self.link(target) for target in program.see]
            between = [node for each in links for node in (nodes.Text(", "), each)][1:]
            section += nodes.paragraph("", "", nodes.Text("Read on: "), *between, nodes.Text("."))
        return section

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
    """``{error-search}``: the field, and the index for the script that searches it."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(autograd_cookbook.errors.INDEX))
        self.env.note_dependency(autograd_cookbook.errors.__file__)
        data = {
            "known": KNOWN,
            "variable": sorted(VARIABLE),
            "heading": HEADING.pattern,
            "frame": FRAME.pattern,
            "entries": [
                {"title": e.title, "url": f"{e.group}.html#{e.anchor}", "said": said(e), "words": e.words}
                for e in entries()
            ],
        }
        # No text of the index can end the element.
        content = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
        html = f"""
<form class="error-search" role="search" aria-label="Error messages">
<label for="error-text">The message, or the whole traceback</label>
<textarea id="error-text" rows="7" spellcheck="false" autocomplete="off"
 placeholder="RuntimeError: Function MyLayerBackward returned an invalid gradient at index 1 …"></textarea>
<noscript>The search needs JavaScript. All messages are listed below.</noscript>
<div class="error-found" aria-live="polite"></div>
</form>
<script type="application/json" id="error-index">{content}</script>
"""
        return [nodes.raw("", html, format="html")]


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
                    definition = nodes.definition("", nodes.paragraph("", "", quoted))
                    items += nodes.definition_list_item("", nodes.term("", "", term), definition)
            section += items
            sections.append(section)
        return sections


def add_script(app: Sphinx, pagename: str, *_: object) -> None:
    """The page with the field alone needs it."""
    if pagename == PAGE:
        app.add_js_file("errors.js", defer="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("errors", ErrorsDirective)
    app.add_directive("error-list", ErrorListDirective)
    app.add_directive("error-search", ErrorSearchDirective)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
