"""Directives that render the checks of the audit, each with a function that it finds and the fixed one.

The functions are in ``docs/pitfalls/programs``. What the audit says of them is not kept anywhere: it is asked while the
page is read.
"""

import difflib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from docs._ext.recipe import link, to_check
from docs._ext.verdicts import GROUPS, Pitfall, pitfalls_of
from docs.pitfalls import programs
from docs.pitfalls.programs import Specimen
from docutils import nodes
from docutils.parsers.rst import Parser
from docutils.utils import new_document
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from torch import Tensor

from autograd_cookbook import auditing, errors
from autograd_cookbook.auditing import Report, audit
from autograd_cookbook.auditing.checks import FAMILIES, Check, all_checks
from autograd_cookbook.auditing.report import MARKS, Finding

ROOT = Path(__file__).parents[2]

CHECKS = all_checks()
PAGES = ROOT / "docs" / "pitfalls"


# --- A specimen ---


def changed_lines(code: str, other: str) -> list[int]:
    """The lines, counted from one, that the other does not have."""
    matcher = difflib.SequenceMatcher(None, code.splitlines(), other.splitlines(), autojunk=False)
    return [
        line
        for tag, start, end, _, _ in matcher.get_opcodes()
        if tag != "equal"
        for line in range(start + 1, end + 1)
        if code.splitlines()[line - 1].strip()
    ]


def audited(specimen: Specimen, check: str) -> tuple[Report, str]:
    """What the audit says, and in words what it was given."""
    torch.manual_seed(0)
    inputs = specimen.inputs()
    report = audit(specimen.function, inputs, only=[check], **specimen.options)
    given = [*map(described, inputs), *(f"{k}={described(v)}" for k, v in specimen.options.items())]
    return report, ", ".join(given)


def described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
    return getattr(value, "__name__", None) or repr(value)


# --- Nodes ---


def box(*children: nodes.Node, classes: Iterable[str]) -> nodes.container:
    """A division of the page; words from code keep their straight quotes."""
    return nodes.container("", *children, is_div=True, classes=list(classes), support_smartquotes=False)


def terminal(text: str, kind: str) -> nodes.container:
    """Printed text, an entry for each line, that wraps where the screen ends."""
    return box(*(nodes.paragraph("", line) for line in text.splitlines()), classes=["terminal", f"terminal-{kind}"])


def unwrapped(finding: Finding) -> str:
    """A finding as it is printed, but for the breaks of its lines, and for its address: it is here."""
    heading = f"{MARKS[finding.severity]} {finding.severity}: {finding.check}"
    return "\n".join([heading, finding.summary, f"cause: {finding.cause}", f"fix: {finding.fix}"])


def parsed(directive: SphinxDirective, text: str) -> list[nodes.Node]:
    """Docstrings are reStructuredText, whatever the page is written in."""
    document = new_document(directive.get_location(), directive.state.document.settings)
    document.reporter = directive.state.document.reporter
    Parser().parse(text, document)
    return document.children


def to_page(stem: str, docname: str) -> nodes.Node:
    title = next(line for line in (PAGES / f"{stem}.md").read_text().splitlines() if line.startswith("# "))
    return link(f"/pitfalls/{stem}", nodes.inline("", title.removeprefix("# ")), "std", "doc", docname)


def to_pitfall(pitfall: Pitfall, docname: str) -> nodes.Node:
    return link(pitfall.label, nodes.inline(pitfall.title, pitfall.title), "std", "ref", docname)


def met_as(check: str) -> list[Pitfall]:
    """The pitfalls whose sections link a check."""
    return [p for group in GROUPS for p in pitfalls_of(PAGES / f"{group}.md") if check in p.checks]


def listing(
    kind: str, label: str, specimen: Specimen, code: str, marked: list[int], printed: list[nodes.Node]
) -> nodes.container:
    """A function with what is to say about it, its marked lines, and what was printed."""
    caption = nodes.paragraph("", "", nodes.strong(label, label), nodes.Text(". "))
    # Written as comments are, in no markup: |x| is an absolute value there.
    for i, piece in enumerate(re.split(r"``(.+?)``", specimen.why)):
        caption += nodes.literal(piece, piece) if i % 2 else nodes.Text(piece)
    if specimen.source and kind == "broken":
        repository, _, number = specimen.source.partition("#")
        address = f"https://github.com/{repository}/issues/{number}"
        issue = nodes.reference(specimen.source, specimen.source, refuri=address)
        caption += [nodes.Text(" Modeled on "), issue, nodes.Text(".")]
    block = nodes.literal_block(code, code, language="python", highlight_args={"hl_lines": marked})
    return box(caption, block, *printed, classes=["specimen", f"specimen-{kind}"])


def dependencies(family: str) -> set[Path]:
    """What a page is made of: when one of these has changed, it is read again."""
    shown = {Path(programs.__file__), PAGES / "programs" / f"{family}.py", ROOT / "constraints.txt"}
    said = {*Path(auditing.__file__).parent.rglob("*.py"), *Path(errors.__file__).parent.glob("*.*")}
    return shown | said | {PAGES / f"{group}.md" for group in GROUPS}


class ChecksDirective(SphinxDirective):
    """``{checks} family``: a section for each check, with a broken function, what is found, and the fixed one."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (family,) = self.arguments
        if family not in FAMILIES:
            raise self.error(f"no family {family!r}; there are {', '.join(FAMILIES)}")
        programs.load()
        for path in dependencies(family):
            self.env.note_dependency(str(path))
        return [self.section(check) for check in CHECKS.values() if check.family == family]

    def section(self, check: Check) -> nodes.section:
        try:
            broken, fixed = programs.shown_for(check.name)
        except LookupError as error:
            raise self.error(str(error)) from None
        anchor = check.url.partition("#")[2]
        section = nodes.section("", ids=[anchor], names=[f"check-{anchor}"], classes=["pitfall"])
        self.state.document.note_explicit_target(section, section)
        section += nodes.title("", "", nodes.literal(check.name, check.name))
        purpose, _, rest = check.explanation.partition("\n")
        for paragraph in parsed(self, purpose):
            paragraph["classes"].append("pitfall-purpose")
            section += paragraph
        section += parsed(self, rest)
        section += self.standing(check)
        section += self.backlinks(check)

        codes = broken.code, fixed.code
        # Names apart: what differs is what was fixed.
        plain = [c.replace(s.name, "_") for c, s in zip(codes, (broken, fixed), strict=True)]
        report, given = audited(broken, check.name)
        if not any(finding.check == check.name for finding in report.findings):
            raise self.error(f"{check.name} does not find what is wrong with {broken.name}: {report}")
        found = nodes.paragraph("", "The audit of a call with ", nodes.literal(given, given), nodes.Text(" finds:"))
        printed = [terminal(unwrapped(finding), finding.severity) for finding in report.findings]
        section += listing("broken", "✗ Broken", broken, codes[0], changed_lines(*plain), [found, *printed])

        report, _ = audited(fixed, check.name)
        if not report.ok:
            raise self.error(f"{fixed.name} is not fixed: {report}")
        printed = [terminal(f"✓ {report.headline}", "ok")]
        section += listing("fixed", "✓ Fixed", fixed, codes[1], changed_lines(*plain[::-1]), printed)
        return section

    def standing(self, check: Check) -> Iterator[nodes.Node]:
        """How a report lists the verdict, where there is more to say than that it is a finding."""
        sentence = nodes.paragraph(classes=["pitfall-listing"])
        if check.capability:
            capability = nodes.literal(check.capability, check.capability)
            sentence += [nodes.Text("A report lists this check as the capability "), capability, nodes.Text(". ")]
        if check.needs:
            needed = to_check(check.needs, self.env.docname)
            sentence += [nodes.Text("The audit skips this check if "), needed, nodes.Text(" has found something.")]
        if sentence.children:
            yield sentence

    def backlinks(self, check: Check) -> Iterator[nodes.Node]:
        """The programs in which a reader meets it."""
        if met := met_as(check.name):
            links = [to_pitfall(pitfall, self.env.docname) for pitfall in met]
            parts = [node for each in links for node in (nodes.Text("; "), each)][1:]
            yield nodes.paragraph("", "", nodes.Text("See also: "), *parts, nodes.Text("."), classes=["pitfall-met"])


class CheckIndexDirective(SphinxDirective):
    """``{check-index}``: all checks, by family."""

    def run(self) -> list[nodes.Node]:
        return [self.section(family) for family in FAMILIES]

    def section(self, family: str) -> nodes.section:
        self.env.note_dependency(str(PAGES / f"{family}.md"))
        title = nodes.title("", "", to_page(family, self.env.docname))
        section = nodes.section("", title, ids=[f"family-{family}"], names=[f"family-{family}"])
        self.state.document.note_explicit_target(section, section)
        entries = nodes.definition_list(classes=["check-index"])
        for check in CHECKS.values():
            if check.family == family:
                self.env.note_dependency(inspect.getfile(check.function))
                term = to_check(check.name, self.env.docname)
                definition = nodes.definition("", *parsed(self, check.purpose))
                entries += nodes.definition_list_item("", nodes.term("", "", term), definition)
        section += entries
        return section


class PitfallIndexDirective(SphinxDirective):
    """``{pitfall-index}``: the pages by what a reader meets, with their sections."""

    def run(self) -> list[nodes.Node]:
        return [self.section(group) for group in GROUPS]

    def section(self, group: str) -> nodes.section:
        page = PAGES / f"{group}.md"
        self.env.note_dependency(str(page))
        title = nodes.title("", "", to_page(group, self.env.docname))
        section = nodes.section("", title, ids=[f"group-{group}".replace("_", "-")])
        entries = nodes.bullet_list(classes=["pitfall-index"])
        for pitfall in pitfalls_of(page):
            entries += nodes.list_item("", nodes.paragraph("", "", to_pitfall(pitfall, self.env.docname)))
        section += entries
        return section


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("checks", ChecksDirective)
    app.add_directive("check-index", CheckIndexDirective)
    app.add_directive("pitfall-index", PitfallIndexDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
