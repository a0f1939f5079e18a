"""Directives that render the catalog: a recipe with its source and badges, and the capability matrix."""

import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from freshness import imports_of

from autograd_cookbook import catalog
from autograd_cookbook.catalog import BY_NAME, RECIPES, Recipe

MARKS = {"yes": "✓", "no": "–", "wrong": "✗"}
LABELS = {
    "first_order": "first order",
    "second_order": "second order",
    "forward_mode": "forward mode",
    "func_grad": "torch.func",
    "vmap": "vmap",
    "batched_grad": "batched grad",
    "compile": "compile",
    "checkpoint": "checkpoint",
    "non_contiguous": "any layout",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "complex128": "complex",
}


def api_link(recipe: Recipe, name: str) -> nodes.Node:
    """A reference to an exported name, resolved by Sphinx's Python domain."""
    target = f"{recipe.module}.{name}"
    link = addnodes.pending_xref(
        "",
        nodes.literal(name, name),
        refdomain="py",
        reftype="obj",
        reftarget=target,
        refexplicit=True,
        refwarn=True,
    )
    return link


class RecipeDirective(SphinxDirective):
    """``.. recipe:: name``: badges, the standalone source with its copy button, links to the reference."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in BY_NAME:
            raise self.error(f"no recipe {name!r} in the catalog; there are {', '.join(sorted(BY_NAME))}")
        recipe = BY_NAME[name]
        page = self.env.docname.removeprefix("cookbook/")
        if recipe.page != page:
            raise self.error(f"recipe {name!r} belongs to page {recipe.page!r} by the catalog, not to {page!r}")
        record = catalog.verified()
        self.env.note_dependency(str(catalog.VERIFIED))
        module = Path(sys.modules[recipe.module].__file__)
        for path in {module, *imports_of(module)}:
            self.env.note_dependency(str(path))

        badges = nodes.bullet_list(classes=["badges"])
        for capability, verdict in record["recipes"][name].items():
            text = f"{MARKS[verdict]} {LABELS[capability]}"
            badges += nodes.list_item("", nodes.paragraph("", text), classes=[f"badge-{verdict}"])
        source = nodes.literal_block(recipe.source, recipe.source, language="python")
        links = nodes.paragraph("", "", nodes.Text("Reference: "), classes=["recipe-links"])
        for i, export in enumerate(recipe.exports):
            links += [nodes.Text(", ")] * bool(i) + [api_link(recipe, export)]
        links += nodes.Text(f". Verified on torch {record['torch']}.")
        section = nodes.container("", badges, source, links, classes=["recipe"], ids=[f"recipe-{name}"])
        return [section]


class MatrixDirective(SphinxDirective):
    """``.. capability-matrix::``: every recipe against every capability, as last verified."""

    def run(self) -> list[nodes.Node]:
        record = catalog.verified()
        self.env.note_dependency(str(catalog.VERIFIED))
        group = nodes.tgroup(cols=1 + len(LABELS))
        group += [nodes.colspec(colwidth=1) for _ in range(1 + len(LABELS))]
        group += nodes.thead("", self._row([nodes.paragraph("", t) for t in ("recipe", *LABELS.values())]))
        body = nodes.tbody()
        for recipe in RECIPES:
            link = addnodes.pending_xref(
                "",
                nodes.Text(recipe.name),
                refdomain="std",
                reftype="doc",
                reftarget=f"/cookbook/{recipe.page}",
                refexplicit=True,
                refwarn=True,
                refdoc=self.env.docname,
            )
            verdicts = record["recipes"][recipe.name]
            cells = [nodes.paragraph("", "", link)]
            for capability in LABELS:
                verdict = verdicts[capability]
                mark = nodes.inline("", f"{MARKS[verdict]} {verdict}", classes=[f"badge-{verdict}"])
                cells.append(nodes.paragraph("", "", mark))
            body += self._row(cells)
        group += body
        return [nodes.table("", group, classes=["sortable", "capability-matrix"])]

    def _row(self, cells: list[nodes.Node]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("recipe", RecipeDirective)
    app.add_directive("capability-matrix", MatrixDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
