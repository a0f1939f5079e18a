"""The first screen of a cookbook page: copy, limits and cost of each recipe; long sections below are folded.

A page's title says its purpose, and its first paragraph. A card follows, made from the catalog and from stored results,
so that no example file has to say any of it.
"""

import html
import inspect
import re
from pathlib import Path

from docs._ext import results, trades
from docs._ext.freshness import code_is_as_before
from docs._ext.pages import PLACES
from docs._ext.recipe import (
    DDP,
    FOLDER,
    LESSON,
    MARKS,
    MEMORY,
    PAGE,
    badge,
    beyond,
    instead,
    limit,
    note_catalog,
    shown,
    take,
    visited,
)
from docs._ext.results import LABELS
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.writers.html5 import HTML5Translator

from autograd_cookbook.catalog import BY_NAME, RECIPES, Recipe

# Readers ask for these first; the others follow in the order of the matrix.
FIRST = ("compile", MEMORY, "vmap", "autocast", "second_order", "bfloat16", "float16", "float32", DDP)
NAMES = shown(LABELS)
ORDER = [*FIRST, *(name for name in NAMES if name not in FIRST)]
LEADS = {"wrong": "Wrong with", "no": "Does not offer", "unknown": "Not measured", "yes": "Safe with"}
UNAUDITED = (
    "The audit checks the derivatives of a function in one process. It does not cover this recipe, which is a tool "
    "without a derivative or needs several processes. The recipe has tests."
)
MANY = 3  # recipes on a page, from which on each has one line on a wide screen too, until a reader opens it
ANCHOR = "at-a-glance"
FOLDED = ("The gradient", "The recipe", "See it work", "The wrong version")
DEMONSTRATION = {
    "Download Jupyter notebook": "Download this demonstration as a notebook",
    "Download Python source code": "Download this demonstration as a script",
    "Download zipped": "Download this demonstration, both zipped",
}
ROLE = re.compile(r":\w+:`")
CODE = re.compile(r"``(.+?)``")
MATH = re.compile(r":math:`(.+?)`")
# What letters can show of a formula: names, and one letter above or below the line.
LETTERS = (
    (re.compile(r"\\(log|exp|sin|cos|min|max)(?![a-z]) ?"), r"\1 "),
    (re.compile(r"\\(alpha|beta|gamma|lambda|tau)(?![a-z])"), lambda match: html.unescape(f"&{match[1]};")),
    (re.compile(r" ?\^(\w)"), r"<sup>\1</sup>"),
    (re.compile(r" ?_(\w)"), r"<sub>\1</sub>"),
)


class Glance(nodes.General, nodes.Element):
    """The card of a page; it names its recipes."""


class Fold(nodes.section):
    """A section whose heading opens and closes it."""


def page_of(docname: str) -> str | None:
    """The page of the cookbook that a document is; None for any other document."""
    page = docname.rpartition("/")[2]
    return page if docname == f"cookbook/{PLACES.get(page)}" else None


def by_verdict(recipe: Recipe) -> dict[str, list[str]]:
    """The capabilities of a recipe by verdict, exceptions first, each in the order in which readers ask for them."""
    can = results.measured(recipe, "verified")["capabilities"]
    can = can | beyond(recipe, can)
    if can["compile"] != "yes":
        del can[MEMORY]  # that it does not compile says it
    return {verdict: [n for n in ORDER if can.get(n) == verdict] for verdict in LEADS if verdict in can.values()}


def chips(recipe: Recipe, names: list[str], verdict: str, builder: Builder) -> str:
    """A list of capabilities, each with its limit and a link to what was checked."""
    return "".join(
        f"<li><a {badge(name, verdict, builder)}>"
        f'<span aria-hidden="true">{MARKS[verdict]}</span> '
        f"{NAMES[name]}{', ' + html.escape(end) if end else ''}</a></li>"
        for name in names
        for end in [limit(recipe, name, verdict)]
    )


def facts(recipe: Recipe, builder: Builder) -> str:
    """What a recipe is not for, what it is safe with, what it costs, and what to use instead."""
    found = by_verdict(recipe) if recipe.calls else {}
    parts = [
        f'<div class="glance-{verdict}"><strong>{LEADS[verdict]}</strong>'
        f"<ul>{chips(recipe, names, verdict, builder)}</ul></div>"
        for verdict, names in found.items()
    ]
    if not recipe.calls:
        parts.append(f"<p>{UNAUDITED}</p>")
    if recipe.cost:
        said = trades.verdict(recipe, results.measured(recipe, "cost")["contenders"])
        parts.append(f'<p class="glance-cost"><strong>Cost</strong> {html.escape(said)}</p>')
    return "".join(parts)


def what(recipe: Recipe) -> str:
    """What a recipe does, which tells it from others of its page: of its docstring's first line what is prose."""
    line = html.escape((inspect.getdoc(recipe.function) or "").partition("\n")[0], quote=False)
    line = MATH.sub(in_letters, line)
    if role := ROLE.search(line):
        line = line[: max(line.rfind(mark, 0, role.start()) for mark in ".,:;") + 1].rstrip(".,:; ") + "."
    return CODE.sub(r"<code>\1</code>", line) if line != "." else ""


def in_letters(formula: re.Match[str]) -> str:
    """A formula without a typesetter; one that needs it stays a role."""
    text = formula[1]
    for pattern, letters in LETTERS:
        text = pattern.sub(letters, text)
    return formula[0] if re.search(r"[\\{}^]", text) else f"<i>{text.strip()}</i>"


def summary(recipe: Recipe) -> str:
    """One line of a recipe until it is opened: its exceptions, and how much it is safe with."""
    if not recipe.calls:
        return "Not audited"
    found = by_verdict(recipe)
    lacks = [f"{LEADS[v].lower()} {', '.join(NAMES[n] for n in found[v])}" for v in ("wrong", "no") if v in found]
    safe = len(found.get("yes", ()))
    text = "; ".join([*lacks, f"safe with {safe} {'others' if lacks else 'capabilities'}"])
    return text[0].upper() + text[1:]


def visit_glance(translator: HTML5Translator, node: Glance) -> None:
    builder = translator.builder
    parts = []
    few = len(node["recipes"]) < MANY
    for name in node["recipes"]:
        recipe = BY_NAME[name]
        warning = None if recipe.page == LESSON else instead(recipe)
        body = f"<details><summary>{summary(recipe)}</summary>{facts(recipe, builder)}</details>"
        if len(node["recipes"]) > 1 and (said := what(recipe)):
            body = f'<p class="glance-what">{said}</p>{body}'
        if warning:
            body += f'<p class="glance-instead">{warning}</p>'
        parts.append(
            f'<div class="glance-recipe"><div class="glance-head"><a href="#recipe-{name}"><code>{name}</code></a>'
            f"{take(name, builder)}</div>{body}</div>"
        )
    name = f"<code>{node['recipes'][0]}</code>" if len(node["recipes"]) == 1 else "a recipe"
    translator.body.append(
        f'<div class="glance{" glance-few" * few}" id="{ANCHOR}" role="group" aria-label="At a glance">'
        f'{"".join(parts)}</div><a class="to-glance" href="#{ANCHOR}" hidden>Copy {name} ↑</a>'
    )


def visit_fold(translator: HTML5Translator, node: Fold) -> None:
    translator.visit_section(node)
    translator.body.append('<details class="fold"><summary>')


def depart_fold(translator: HTML5Translator, node: Fold) -> None:
    translator.body.append("</details>")
    translator.depart_section(node)


class GlanceTransform(SphinxTransform):
    """Put the card after the title and the first paragraph, and say what the gallery's downloads are."""

    default_priority = 500

    def apply(self, **kwargs: object) -> None:
        """Change the pages of the cookbook, and no others."""
        page = page_of(self.env.docname)
        if page is None:
            return
        for link in self.document.findall(nodes.literal):
            before, _, file = link.astext().partition(": ")
            if before in DEMONSTRATION:
                link[:] = [nodes.Text(f"{DEMONSTRATION[before]}: {file}")]
        names = [recipe.name for recipe in RECIPES if recipe.page == page]
        section = next(iter(self.document.findall(nodes.section)), None)
        if section is None or not names:
            return
        note_catalog(self.env, page)
        first = next((i for i, child in enumerate(section) if isinstance(child, nodes.paragraph)), 0)
        section.insert(first + 1, Glance(recipes=names))


class FoldTransform(SphinxPostTransform):
    """Fold derivation, source and evidence. When it runs, the contents in the sidebar know the sections already."""

    default_priority = 900
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        """Fold the sections of a page that are named so."""
        if page_of(self.env.docname) in (None, LESSON):
            return
        for section in list(self.document.findall(nodes.section)):
            if section[0].astext() in FOLDED:
                title, *rest = section.children
                end = nodes.raw("", "</summary>", format="html")
                section.replace_self(Fold("", title, end, *rest, **section.attributes))


def write_files(app: Sphinx, error: Exception | None) -> None:
    """Write the file of each recipe, the same that the copy button yields, where the card leads."""
    if error or app.builder.format != "html" or code_is_as_before(app):
        return
    folder = Path(app.outdir, FOLDER)
    folder.mkdir(exist_ok=True)
    for recipe in RECIPES:
        if f"cookbook/{PLACES.get(recipe.page)}" in app.env.found_docs:
            path = folder / f"{recipe.name}.py"
            if not path.exists() or path.read_text(encoding="utf-8") != recipe.source:
                path.write_text(recipe.source, encoding="utf-8")


def add_files(app: Sphinx, pagename: str, *_: object) -> None:
    """Only pages that use them load the style and the script."""
    if page_of(pagename) or pagename == PAGE:
        app.add_css_file("glance.css")
        app.add_js_file("glance.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Glance, html=(visit_glance, visited))
    app.add_node(Fold, html=(visit_fold, depart_fold))
    app.add_transform(GlanceTransform)
    app.add_post_transform(FoldTransform)
    app.connect("html-page-context", add_files)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
