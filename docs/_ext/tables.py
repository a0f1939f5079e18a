"""Directives that make tables of the catalog: what recipes cost, which topics they cover, where their pages are."""

import json
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from recipe import REPOSITORY, link, listed, note_catalog, row_of
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from autograd_cookbook import catalog
from autograd_cookbook.catalog import RECIPES, Recipe

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "costs.json"
COLUMNS = {"saved": "bytes saved", "peak": "bytes at the peak", "time": "time"}


class CostsDirective(SphinxDirective):
    """``.. costs::``: what the recipes of this page cost, beside what one would use in their place.

    ``.. costs:: all``: the recipes of all pages.
    """

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        everything = self.arguments == ["all"]
        page = self.env.docname.removeprefix("cookbook/")
        recipes = [r for r in RECIPES if r.cost and (everything or r.page == page)]
        record = json.loads(RESULTS.read_text())
        self.env.note_dependency(str(RESULTS))
        note_catalog(self.env)
        if unknown := [r.name for r in recipes if r.name not in record]:
            raise self.error(f"never measured: {', '.join(unknown)}; run nox -s bench")
        if not recipes:
            raise self.error(f"no recipe of page {page!r} has a cost in the catalog")
        group = nodes.tgroup(cols=5)
        group += [nodes.colspec(colwidth=1) for _ in range(5)]
        group += nodes.thead("", row_of(["", "", *COLUMNS.values()]))
        group += nodes.tbody("", *(row for r in recipes for row in self.rows(r, record[r.name]["contenders"])))
        place = "Measured on {device}, {threads} thread(s), torch {torch}, {date}".format(
            **record[recipes[0].name]["on"]
        )
        units = " and ".join(sorted({r.cost.unit for r in recipes}))
        said = (
            f"Bytes per {units}, in float32, beyond the arguments: saved for backward, exactly, and at the worst "
            f"moment of forward and backward. Time of both as a multiple of the recipe's; below 1 is faster. {place}."
        )
        verdicts = nodes.bullet_list(
            "", *(nodes.list_item("", self.verdict(r, record[r.name]["contenders"])) for r in recipes)
        )
        table = nodes.table("", group, classes=["costs"])
        return [table, verdicts, nodes.paragraph("", said, classes=["costs-note"])]

    def rows(self, recipe: Recipe, contenders: dict[str, dict[str, float]]) -> list[nodes.row]:
        label = nodes.literal(recipe.name, recipe.name)
        first = nodes.entry("", nodes.paragraph("", "", label), morerows=len(contenders))
        rows = []
        for name, measured in contenders.items():
            cells = [nodes.entry("", nodes.paragraph("", text)) for text in (name, *map(number, measured.values()))]
            rows.append(nodes.row("", *([first] if not rows else []), *cells, classes=["ours"] * (name == "ours")))
        return [*rows, row_of(["least possible", number(recipe.cost.minimum), "", ""])]

    def verdict(self, recipe: Recipe, contenders: dict[str, dict[str, float]]) -> nodes.paragraph:
        """Which columns it wins, by the catalog, and which it loses clearly, by what was measured."""
        wins, losses = recipe.cost.wins, []
        rivals = [name for name in contenders if name != "ours, compiled"]  # it is no rival of ours
        for column, label in COLUMNS.items():
            best = min(rivals, key=lambda name: contenders[name][column])
            if contenders[best][column] < 0.9 * contenders["ours"][column]:
                losses.append(f"{label} to the {best} ({number(contenders[best][column])})")
        instead = "what torch has" if recipe.cost.built_in else "the composition"
        text = f" wins {' and '.join(wins)}" if wins else f" wins nothing here: use {instead}"
        text += f"; it loses {' and '.join(losses)}." if losses else "."
        return nodes.paragraph("", "", nodes.literal(recipe.name, recipe.name), nodes.Text(text))


class CompiledCostsDirective(SphinxDirective):
    """``.. compiled-costs::``: for how many recipes compiled code is ahead of hand-written code, and of which."""

    PAIRS = (
        ("composition, compiled", "ours"),
        ("ours, compiled", "ours"),
        ("ours, compiled", "composition, compiled"),
    )
    # As in the verdicts: bytes are exact, times are not.
    FACTORS: ClassVar = {"time": 0.9, "saved": 0.99}

    def run(self) -> list[nodes.Node]:
        record = {name: row["contenders"] for name, row in json.loads(RESULTS.read_text()).items()}
        self.env.note_dependency(str(RESULTS))
        heads = ["", "recipes", "faster", "alike", "slower", "fewer bytes saved", "as many", "more"]
        group = nodes.tgroup(cols=len(heads))
        group += [nodes.colspec(colwidth=1) for _ in heads]
        group += nodes.thead("", row_of(heads))
        group += nodes.tbody("", *(row_of(self.cells(record, *pair)) for pair in self.PAIRS))
        missing = [name for name, contenders in record.items() if "ours, compiled" not in contenders]
        said = nodes.paragraph("", "Torch does not compile whole, or Inductor fails at: ")
        said += listed([nodes.literal(name, name) for name in missing])
        return [nodes.table("", group), said]

    def cells(self, record: dict[str, dict[str, dict[str, float]]], first: str, second: str) -> list[str]:
        both = [contenders for contenders in record.values() if first in contenders and second in contenders]
        counts = []
        for column, factor in self.FACTORS.items():
            less = sum(c[first][column] < factor * c[second][column] for c in both)
            more = sum(c[second][column] < factor * c[first][column] for c in both)
            counts += [less, len(both) - less - more, more]
        return [f"{first}, beside {second}", str(len(both)), *map(str, counts)]


class PagesDirective(SphinxDirective):
    """``.. pages::``: the pages of each section in a line, in the order of the catalog."""

    def run(self) -> list[nodes.Node]:
        note_catalog(self.env)
        sections: dict[str, list[str]] = {}
        for page in dict.fromkeys(recipe.page for recipe in RECIPES):
            sections.setdefault(page.partition("/")[0], []).append(page)
        items = nodes.bullet_list()
        for section, pages in sections.items():
            title = section.partition("_")[2].replace("_", " ").capitalize()
            items += nodes.list_item("", nodes.paragraph("", "", nodes.strong(title, title), nodes.Text(": ")))
            items[-1][0] += listed([to_page(page, self.env.docname) for page in pages])
        return [items]


class CoverageDirective(SphinxDirective):
    """``.. coverage::``: every topic with the pages, the recipes and the tests that cover it, from the catalog."""

    def run(self) -> list[nodes.Node]:
        note_catalog(self.env)
        group = nodes.tgroup(cols=4)
        group += [nodes.colspec(colwidth=1) for _ in range(4)]
        group += nodes.thead("", row_of(["topic", "page", "recipes", "tests"]))
        group += nodes.tbody("", *(self.row(topic, title) for topic, title in catalog.TOPICS.items()))
        return [nodes.table("", group, classes=["sortable"])]

    def row(self, topic: str, title: str) -> nodes.row:
        recipes = [recipe for recipe in RECIPES if topic in recipe.topics]
        pages = [to_page(page, self.env.docname) for page in dict.fromkeys(recipe.page for recipe in recipes)]
        modules = dict.fromkeys(r.module.removeprefix("autograd_cookbook.").partition(".")[0] for r in recipes)
        files = [f"tests/test_{module}.py" for module in modules]
        tests = [nodes.reference(file, file, refuri=REPOSITORY.replace("src/", file)) for file in files]
        calls = nodes.Text(f"{sum(len(recipe.calls) for recipe in recipes)} audited calls")
        cells = (
            [nodes.Text(f"{topic}. {title}")],
            listed(pages),
            [nodes.Text(", ".join(recipe.name for recipe in recipes))],
            listed([calls, *tests]),
        )
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in cells))


def to_page(page: str, docname: str) -> nodes.Node:
    """A link to a page of the cookbook, by its short name."""
    label = nodes.inline("", page.partition("/")[2].replace("_", " "))
    return link(f"/cookbook/{page}", label, "std", "doc", docname)


def number(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.4f}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("compiled-costs", CompiledCostsDirective)
    app.add_directive("costs", CostsDirective)
    app.add_directive("coverage", CoverageDirective)
    app.add_directive("pages", PagesDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
