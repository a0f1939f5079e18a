"""A directive that shows in bars and tables what recipes cost; and a first line on pages of those that take long."""

import html

from docs._ext import results
from docs._ext.pages import PLACES
from docs._ext.recipe import note_catalog, row_of, visited
from docs._ext.trades import CLEAR_BYTES, FIRST, built_in, compiled, listed, number, trade, verdict
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from autograd_cookbook.catalog import RECIPES, Recipe

COLUMNS = {"saved": "bytes saved per {}", "peak": "peak bytes per {}", "time": "time (ours = 1)"}
USUAL = "element"  # the unit of a number of bytes, where no other is named
AHEAD = {
    "bytes": "saves the fewest bytes",
    "peak": "has the lowest peak",
    "time": "takes the least time",
    "range": "is right for some inputs for which the alternatives return NaN, infinity or an inaccurate number",
    "second order": "has a second derivative",
    "forward mode": "has forward mode",
    "gradient": "has another gradient, on purpose",
}
BETTER = {"saved": "saves fewer bytes", "peak": "has a lower peak", "time": "takes less time"}
BARS = {"saved": "bytes saved per {}", "time": "time (ours = 1)"}


def in_prose(name: str) -> str:
    """The name of a row as a sentence says it."""
    name, _, mode = name.partition(", ")
    return f"{mode} {name}".strip() + " solution" * (name == "built-in")


class Bars(nodes.General, nodes.Element):
    """A row for each way to compute it. Screen readers get the table that follows, with the same numbers."""


def visit_bars(translator: HTML5Translator, node: Bars) -> None:
    contenders = node["contenders"]
    labels = {column: label.format(node["unit"]) for column, label in BARS.items()}
    rows = []
    for name, measured in contenders.items():
        bars = []
        for column, label in labels.items():
            longest = max(ways[column] for ways in contenders.values())
            share = measured[column] / longest if longest else 0
            bars.append(
                f'<span class="cost-bar" title="{label}"><i style="width:{60 * share:.1f}%"></i> '
                f"{number(measured[column])}</span>"
            )
        rows.append(
            f'<div class="cost-row cost-{name.replace(",", "").replace(" ", "-")}">'
            f'<span class="cost-name">{html.escape(name)}</span>{"".join(bars)}</div>'
        )
    head = "".join(f"<span>{label}</span>" for label in labels.values())
    translator.body.append(
        f'<div class="cost-bars" aria-hidden="true"><div class="cost-row cost-head"><span></span>{head}</div>'
        f"{''.join(rows)}</div>"
    )


class Numbers(nodes.General, nodes.Element):
    """What is folded behind the bars: the table with all numbers."""


def visit_numbers(translator: HTML5Translator, node: Numbers) -> None:
    translator.body.append('<details class="cost-numbers"><summary>All numbers in a table</summary>')


def depart_numbers(translator: HTML5Translator, node: Numbers) -> None:
    translator.body.append("</details>")


class CostsDirective(SphinxDirective):
    """``.. costs::``: what the recipes of this page cost, next to what you would use without them.

    ``.. costs:: all``: the recipes of all pages.
    """

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        everything = self.arguments == ["all"]
        page = self.env.docname.rpartition("/")[2]
        pages = PLACES if everything else [page]
        recipes = [r for page in pages for r in RECIPES if r.cost and r.page == page]
        note_catalog(self.env, "*" if everything else page)
        if not recipes:
            raise self.error(f"no recipe of page {page!r} has a cost in the catalog")
        try:
            record = {r.name: results.measured(r, "cost") for r in recipes}
        except results.NotMeasuredError as error:
            raise self.error(str(error)) from None
        group = nodes.tgroup(cols=5)
        group += [nodes.colspec(colwidth=1) for _ in range(5)]
        found = {r.cost.unit for r in recipes}
        unit = found.pop() if len(found) == 1 else USUAL
        group += nodes.thead("", row_of(["recipe", "way", *(label.format(unit) for label in COLUMNS.values())]))
        group += nodes.tbody("", *(row for r in recipes for row in self.rows(r, record[r.name]["contenders"], unit)))
        place = "{device}, {threads} thread(s), torch {torch}, {date}"
        places = " and ".join(dict.fromkeys(place.format(**row["on"]) for row in record.values()))
        units = " or ".join(sorted({r.cost.unit for r in recipes}))
        said = (
            f"Bytes are exact counts per {units} in float32, without the arguments. The saved bytes are what the graph "
            "keeps for backward, and the peak is the highest count during forward and backward. The time of forward "
            "and backward is divided by the recipe's time, and a number below 1 means faster than the recipe. "
            'The row "least possible" shows the bytes that every exact backward needs. '
            f"Measured on {places}."
        )
        verdicts = nodes.bullet_list(
            "", *(nodes.list_item("", self.verdict(r, record[r.name]["contenders"])) for r in recipes)
        )
        table = nodes.table("", group, classes=["costs"])
        note = nodes.paragraph("", said, classes=["costs-note"])
        if everything:  # a hundred charts would be longer than the table that they stand for
            return [table, verdicts, note]
        charts = [node for r in recipes for node in self.chart(r, record[r.name]["contenders"])]
        return [*charts, Numbers("", table, verdicts), note]

    def chart(self, recipe: Recipe, contenders: dict[str, dict[str, float]]) -> list[nodes.Node]:
        """The verdict on a recipe in a sentence, and the bars that show it."""
        label = nodes.literal(recipe.name, recipe.name)
        text = nodes.Text(f": {verdict(recipe, contenders)}")
        return [
            nodes.paragraph("", "", label, text, classes=["cost-verdict"]),
            Bars(contenders=contenders, unit=recipe.cost.unit),
        ]

    def rows(self, recipe: Recipe, contenders: dict[str, dict[str, float]], unit: str) -> list[nodes.row]:
        label = nodes.literal(recipe.name, recipe.name)
        first = nodes.entry("", nodes.paragraph("", "", label), morerows=len(contenders))
        if recipe.cost.unit != unit:
            first += nodes.paragraph("", f"bytes per {recipe.cost.unit}")
        rows = []
        for name, measured in contenders.items():
            cells = [nodes.entry("", nodes.paragraph("", text)) for text in (name, *map(number, measured.values()))]
            rows.append(nodes.row("", *([first] if not rows else []), *cells, classes=["ours"] * (name == "ours")))
        return [*rows, row_of(["least possible", number(recipe.cost.minimum), "", ""])]

    def verdict(self, recipe: Recipe, contenders: dict[str, dict[str, float]]) -> nodes.paragraph:
        """In what it is ahead, by the catalog, and where another way is clearly better, by what was measured."""
        better = {}
        rivals = [name for name in contenders if name != "ours, compiled"]  # it is no rival of ours
        for column, label in BETTER.items():
            best = min(rivals, key=lambda name: contenders[name][column])
            if contenders[best][column] < 0.9 * contenders["ours"][column]:
                better.setdefault(best, []).append(f"{label} ({number(contenders[best][column])})")
        if recipe.cost.wins:
            text = f" {listed([AHEAD[win] for win in recipe.cost.wins])}."
        else:
            text = " is not ahead of the alternatives in any column. "
            text += f"If the cost decides, use {self.instead(recipe, contenders)}."
        text += "".join(f" The {in_prose(best)} {listed(parts)}." for best, parts in better.items())
        return nodes.paragraph("", "", nodes.literal(recipe.name, recipe.name), nodes.Text(text))

    def instead(self, recipe: Recipe, contenders: dict[str, dict[str, float]]) -> str:
        """What to use where the recipe is not ahead: torch's function, or a composition that keeps as little."""
        if recipe.cost.built_in:
            return built_in(recipe)
        more = contenders["composition"]["saved"] > contenders["ours"]["saved"] * (1 + CLEAR_BYTES)
        return f"the {in_prose('composition, compiled' if more else 'composition')}"


class TradeTransform(SphinxTransform):
    """Tell what recipes cost, as measured: time, and bytes that the compiler keeps. It follows what they are for."""

    default_priority = 500

    def apply(self, **kwargs: object) -> None:
        """Insert a paragraph for each of them."""
        folder, _, page = self.env.docname.rpartition("/")
        if not folder.startswith("cookbook/") or page not in PLACES:
            return
        sections = [s for s in self.document.findall(nodes.section) if s[0].astext() == FIRST]
        first = 2  # after the title and the first paragraph, with the list that it may introduce
        first += bool(sections) and len(sections[0]) > first and isinstance(sections[0][first], nodes.bullet_list)
        for recipe in reversed([r for r in RECIPES if r.page == page and r.cost] if sections else []):
            contenders = results.measured(recipe, "cost")["contenders"]
            for text in (compiled(recipe, contenders), trade(recipe, contenders)):
                if text:
                    label = nodes.literal(recipe.name, recipe.name)
                    sections[0].insert(first, nodes.paragraph("", "", label, nodes.Text(text)))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Bars, html=(visit_bars, visited))
    app.add_node(Numbers, html=(visit_numbers, depart_numbers))
    app.add_directive("costs", CostsDirective)
    app.add_transform(TradeTransform)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
