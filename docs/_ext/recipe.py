"""Directives that render the catalog: a recipe with its source and badges, and the capability matrix."""

import html
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from freshness import imports_of
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from autograd_cookbook import catalog
from autograd_cookbook.audit.checks import Check, all_checks
from autograd_cookbook.catalog import BY_NAME, RECIPES

REPOSITORY = "https://github.com/autograd-cookbook/autograd-cookbook/blob/main/src/"
# A mark and a word for each verdict: nobody has to tell colors apart.
MARKS = {"yes": "✓", "no": "–", "wrong": "✗"}
GROUPS = {
    "derivatives": {"first_order": "first order", "second_order": "second order", "forward_mode": "forward mode"},
    "transforms": {
        "func_grad": "torch.func",
        "vmap": "vmap",
        "batched_grad": "batched grad",
        "compile": "compile",
        "checkpoint": "checkpoint",
        "saved_tensor_hooks": "saved-tensor hooks",
    },
    "data": {
        "non_contiguous": "any layout",
        "empty": "empty",
        "float32": "float32",
        "float16": "float16",
        "bfloat16": "bfloat16",
        "autocast": "autocast",
        "complex128": "complex",
    },
}
LABELS = {name: label for group in GROUPS.values() for name, label in group.items()}
PAGE = "capabilities"


CHECKS: dict[str, list[Check]] = {}
for _check in all_checks().values():
    CHECKS.setdefault(_check.capability or "", []).append(_check)


def anchor(capability: str) -> str:
    return "capability-" + capability.replace("_", "-")


def purpose(capability: str) -> str:
    """What the checks behind a capability say of themselves."""
    return " ".join(check.purpose.replace("``", "") for check in CHECKS[capability])


class Badges(nodes.General, nodes.Element):
    """A row of verdicts, each a link to what was checked."""


def visit_badges(translator: HTML5Translator, node: Badges) -> None:
    page = translator.builder.get_relative_uri(translator.builder.current_docname, PAGE)
    parts = []
    for group, members in GROUPS.items():
        items = "".join(
            f'<li><a class="badge-{verdict}" href="{page}#{anchor(name)}" title="{html.escape(purpose(name))}">'
            f'<span aria-hidden="true">{MARKS[verdict]}</span> {label}<span class="visually-hidden">: {verdict}</span>'
            "</a></li>"
            for name, label in members.items()
            for verdict in [node["verdicts"][name]]
        )
        parts.append(f'<ul aria-label="{group}">{items}</ul>')
    translator.body.append(f'<div class="badges">{"".join(parts)}</div>')


def depart_badges(translator: HTML5Translator, node: Badges) -> None:
    pass


class Folded(nodes.General, nodes.Element):
    """Details that one opens."""


def visit_folded(translator: HTML5Translator, node: Folded) -> None:
    classes = " ".join(node["classes"])
    translator.body.append(f'<details class="{classes}"><summary>{html.escape(node["summary"])}</summary>')


def depart_folded(translator: HTML5Translator, node: Folded) -> None:
    translator.body.append("</details>")


def link(target: str, label: nodes.Node | None, domain: str, role: str, docname: str) -> nodes.Node:
    """A link with a label, or with the title of what it leads to."""
    options = {"refdomain": domain, "reftype": role, "refexplicit": label is not None, "refdoc": docname}
    return addnodes.pending_xref("", label or nodes.inline(), reftarget=target, refwarn=True, **options)


def to_check(name: str, docname: str) -> nodes.Node:
    """A link to the section on a check of the audit."""
    return link(f"check-{name.replace('_', '-')}", nodes.literal("", name), "std", "ref", docname)


def note_catalog(env: BuildEnvironment) -> None:
    """Pages made from the catalog are made again when it, or what was verified, has changed."""
    for path in Path(catalog.__file__).parent.glob("*.*"):
        env.note_dependency(str(path))


def listed(items: list[nodes.Node]) -> list[nodes.Node]:
    """With commas between."""
    return [node for item in items for node in (nodes.Text(", "), item)][1:]


def row_of(texts: list[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", text)) for text in texts))


class RecipeDirective(SphinxDirective):
    """``.. recipe:: name``: badges, the standalone source with its copy button, links to the reference."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name, page = self.arguments[0], self.env.docname.removeprefix("cookbook/")
        if name not in BY_NAME:
            raise self.error(f"no recipe {name!r} in the catalog; there are {', '.join(sorted(BY_NAME))}")
        recipe = BY_NAME[name]
        if recipe.page != page:
            raise self.error(f"recipe {name!r} belongs to page {recipe.page!r} by the catalog, not to {page!r}")
        module = Path(sys.modules[recipe.module].__file__)
        note_catalog(self.env)
        for path in (module, *imports_of(module)):
            self.env.note_dependency(str(path))

        box = nodes.container(classes=["recipe"], ids=[f"recipe-{name}"], names=[])
        box += nodes.paragraph("", "", nodes.strong(name, name), classes=["recipe-name"])
        record = catalog.verified()
        if recipe.calls:
            if name not in record["recipes"]:
                raise self.error(f"recipe {name!r} has never been verified: run nox -s gradcheck -- --update-verified")
            box += Badges(verdicts=record["recipes"][name]["capabilities"])
        box += nodes.literal_block(recipe.source, recipe.source, language="python", classes=["recipe-source"])
        links = nodes.paragraph("", "", nodes.Text("Reference: "), classes=["recipe-links"])
        labels = [nodes.literal(export, export) for export in recipe.exports]
        links += listed(
            [link(n, label, "py", "obj", self.env.docname) for n, label in zip(recipe.names, labels, strict=True)]
        )
        path = module.relative_to(Path(catalog.__file__).parents[1])
        links += [nodes.Text(". Source: "), nodes.reference(path.name, path.name, refuri=REPOSITORY + path.as_posix())]
        links += nodes.Text(".")
        box += links
        if recipe.calls:
            box += self.report(record["recipes"][name], record["torch"])
        return [box]

    def report(self, audit: dict[str, Any], torch: str) -> nodes.Node:
        """What the audit says, folded up: its verdict in a line, and inside what the recipe lacks, and why."""
        lacks = [f for f in audit["findings"] if f["severity"] == "info"]
        said = f"{len(audit['checks'])} checks on torch {torch}, no error, no warning"
        if audit["saved_bytes"] is not None:
            said += f"; it keeps {audit['saved_bytes']} bytes beyond its inputs on the typical sample"
        box = Folded(summary=f"Audit: ok. {said}.", classes=["recipe-audit"])
        if not lacks:
            box += nodes.paragraph("", "There is nothing that it cannot do.")
        items = nodes.definition_list()
        for f in lacks:
            term = nodes.term("", "", to_check(f["check"], self.env.docname))
            items += nodes.definition_list_item("", term, nodes.definition("", nodes.paragraph("", f["summary"])))
        box += [items] if lacks else []
        box += [nodes.paragraph("", note) for note in audit["notes"]]
        return box


class MatrixDirective(SphinxDirective):
    """``.. capability-matrix::``: every recipe against every capability, as last verified."""

    def run(self) -> list[nodes.Node]:
        record = catalog.verified()
        note_catalog(self.env)
        group = nodes.tgroup(cols=1 + len(LABELS))
        group += [nodes.colspec(colwidth=1) for _ in range(1 + len(LABELS))]
        group += nodes.thead("", row_of(["recipe", *LABELS.values()]))
        body = nodes.tbody()
        for recipe in RECIPES:
            if recipe.calls:
                label = nodes.inline(recipe.name, recipe.name)
                cells = [
                    nodes.paragraph("", "", link(f"/cookbook/{recipe.page}", label, "std", "doc", self.env.docname))
                ]
                for capability in LABELS:
                    verdict = record["recipes"][recipe.name]["capabilities"][capability]
                    text = f"{MARKS[verdict]} {verdict}"
                    cells.append(nodes.paragraph("", "", nodes.inline(text, text, classes=[f"badge-{verdict}"])))
                body += nodes.row("", *(nodes.entry("", cell) for cell in cells))
        group += body
        return [nodes.table("", group, classes=["sortable", "capability-matrix"])]


class PurposesDirective(SphinxDirective):
    """``.. capability-list::``: what is checked for each capability, from the docstrings of the checks."""

    def check(self, check: Check) -> nodes.Node:
        target = to_check(check.name, self.env.docname)
        return nodes.paragraph("", "", target, nodes.Text(f": {check.purpose.replace('``', '')}"))

    def run(self) -> list[nodes.Node]:
        entries = nodes.definition_list()
        for name, label in LABELS.items():
            entries += nodes.definition_list_item(
                "",
                nodes.term("", "", nodes.Text(label), ids=[anchor(name)]),
                nodes.definition("", *(self.check(check) for check in CHECKS[name])),
            )
        return [entries]


def count_recipes(app: Sphinx, docname: str, source: list[str]) -> None:
    """Numbers in prose come from the catalog."""
    source[0] = source[0].replace("|recipes|", str(len(RECIPES))).replace("|torch|", catalog.verified()["torch"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Badges, html=(visit_badges, depart_badges))
    app.add_node(Folded, html=(visit_folded, depart_folded))
    app.add_directive("recipe", RecipeDirective)
    app.add_directive("capability-matrix", MatrixDirective)
    app.add_directive("capability-list", PurposesDirective)
    app.connect("source-read", count_recipes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
