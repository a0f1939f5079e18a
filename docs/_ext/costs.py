"""A directive that makes tables of what recipes cost; and a first line on the pages of those that take long."""

from docs._ext import results
from docs._ext.pages import PLACES
from docs._ext.recipe import note_catalog, row_of
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

from autograd_cookbook.catalog import RECIPES, Recipe

SLOW = 1.5  # times the composition's time, from which on the page says it first
LITTLE = 0.05  # bytes that a recipe may keep more when it is compiled, before the page says so
FIRST = "When to use it"  # the section that does
REASONS = {
    "range": "is finite or accurate where that is not",
    "second order": "has a second derivative",
    "forward mode": "has forward mode",
    "gradient": "has another gradient, on purpose",
}
COLUMNS = {"saved": "bytes saved", "peak": "bytes at the peak", "time": "time"}


class CostsDirective(SphinxDirective):
    """``.. costs::``: what the recipes of this page cost, beside what one would use in their place.

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
        group += nodes.thead("", row_of(["", "", *COLUMNS.values()]))
        group += nodes.tbody("", *(row for r in recipes for row in self.rows(r, record[r.name]["contenders"])))
        place = "{device}, {threads} thread(s), torch {torch}, {date}"
        places = " and ".join(dict.fromkeys(place.format(**row["on"]) for row in record.values()))
        units = " and ".join(sorted({r.cost.unit for r in recipes}))
        said = (
            f"Bytes per {units}, in float32, beyond the arguments: saved for backward, exactly, and at the worst "
            "moment of forward and backward. Time of both as a multiple of the recipe's; below 1 is faster. "
            f"Measured on {places}."
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


class TradeTransform(SphinxTransform):
    """Begin a page with what its recipes cost, as measured: time, and bytes that the compiler keeps."""

    default_priority = 500

    def apply(self, **kwargs: object) -> None:
        """Insert a paragraph for each of them."""
        folder, _, page = self.env.docname.rpartition("/")
        if not folder.startswith("cookbook/") or page not in PLACES:
            return
        sections = [s for s in self.document.findall(nodes.section) if s[0].astext() == FIRST]
        for recipe in reversed([r for r in RECIPES if r.page == page and r.cost] if sections else []):
            contenders = results.measured(recipe, "cost")["contenders"]
            for text in (compiled(recipe, contenders), trade(recipe, contenders)):
                if text:
                    label = nodes.literal(recipe.name, recipe.name)
                    sections[0].insert(1, nodes.paragraph("", "", label, nodes.Text(text)))


def trade(recipe: Recipe, contenders: dict[str, dict[str, float]]) -> str | None:
    """What follows the name of a recipe that takes clearly longer than its composition; None for another one."""
    ours, theirs = contenders["ours"], contenders.get("composition")
    if theirs is None or theirs["time"] * SLOW >= 1:
        return None
    gains = [
        f"{verb} {number(ours[column])} bytes per {recipe.cost.unit} instead of {number(theirs[column])}"
        for column, verb in (("saved", "keeps"), ("peak", "peaks at"))
        if ours[column] < 0.95 * theirs[column]
    ]
    gains += [reason for win, reason in REASONS.items() if win in recipe.cost.wins]
    text = f" takes {number(1 / theirs['time'])} times as long as the composition"
    return f"{text}, and gains nothing for it." if not gains else f"{text}. In return it {listed(gains)}."


def compiled(recipe: Recipe, contenders: dict[str, dict[str, float]]) -> str | None:
    """What follows the name of a recipe that keeps more when it is compiled; None for another one."""
    ours, whole = contenders["ours"]["saved"], contenders.get("ours, compiled", {}).get("saved")
    if whole is None or whole < ours + LITTLE:
        return None
    text = f" keeps {number(whole)} bytes per {recipe.cost.unit} when it is compiled, and {number(ours)} in eager mode."
    theirs = contenders.get("composition, compiled")
    return text + (f" The compiled composition keeps {number(theirs['saved'])}." if theirs else "")


def listed(parts: list[str]) -> str:
    """A, B and C."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)


def number(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.4f}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("costs", CostsDirective)
    app.add_transform(TradeTransform)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
