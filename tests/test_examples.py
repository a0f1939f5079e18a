"""The scripts of the cookbook: complete, connected, and in agreement with the catalog."""

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from docs._ext import results
from docs._ext.pages import PLACES

from autograd_cookbook.catalog import RECIPES

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = {path.stem: path for path in sorted(EXAMPLES.glob("*/*.py"))}
TAGS = {
    *("first steps", "ctx", "needs_input_grad", "shapes", "stability", "gradient", "hooks", "memory", "speed"),
    *("black box", "approximate", "kernel", "distributed"),
}
# Tags that claim something measured: at least one recipe of the page must have it.
CAPABILITY_TAGS = {
    "second order": "second_order",
    "forward mode": "forward_mode",
    "compile": "compile",
    "checkpoint": "checkpoint",
}
each_script = pytest.mark.parametrize("page", SCRIPTS)


def tags_of(page: str) -> list[str]:
    (found,) = re.findall(r"^# sphinx_gallery_tags = (\[.*\])$", SCRIPTS[page].read_text(), flags=re.MULTILINE)
    return ast.literal_eval(found)


@each_script
def test_tags_are_from_the_vocabulary_and_true(page: str) -> None:
    recipes = [results.measured(r, "verified")["capabilities"] for r in RECIPES if r.page == page and r.calls]
    for tag in tags_of(page):
        assert tag in TAGS | set(CAPABILITY_TAGS), f"{page}: unknown tag {tag!r}"
        if tag in CAPABILITY_TAGS:
            assert any(recipe[CAPABILITY_TAGS[tag]] == "yes" for recipe in recipes), f"{page}: no recipe can {tag!r}"


@each_script
def test_sections_are_those_that_readers_expect(page: str) -> None:
    text = SCRIPTS[page].read_text()
    places = [text.find(f"# {title}\n") for title in ("When to use it", "The gradient", "The recipe", "See it work")]
    places += [text.find(f"# {title}\n") for title in ("The wrong version", "What it costs", "Neighbors")]
    assert -1 not in places, f"{page}: a section is missing"
    assert places == sorted(places), f"{page}: sections are not in order"


@each_script
def test_each_block_of_text_stands_alone(page: str) -> None:
    """A marker right below a comment is text of the block above, and so is the heading that follows it."""
    text = SCRIPTS[page].read_text()
    assert not re.search(r"^#.*\n# %%$", text, flags=re.MULTILINE), f"{page}: '# %%' without an empty line above"


@each_script
def test_settings_stand_among_the_imports(page: str) -> None:
    """Elsewhere they would leave an empty block of code on the page."""
    text = SCRIPTS[page].read_text()
    assert re.search(r'^"""\n\n# %%\n', text, flags=re.MULTILINE), f"{page}: something stands below the docstring"
    assert re.search(r"^# sphinx_gallery_thumbnail_number = \d\n\n(import|from) ", text, flags=re.MULTILINE)


@each_script
def test_costs_are_shown_where_there_are_any(page: str) -> None:
    costly = any(recipe.cost for recipe in RECIPES if recipe.page == page)
    _, _, text = SCRIPTS[page].read_text().partition("# What it costs\n")
    assert ("# .. costs::\n" in text) == costly, f"{page}: a table of costs is missing, or has nothing to show"


@each_script
def test_every_figure_says_what_it_shows(page: str) -> None:
    """Its title becomes the alternative text."""
    text = SCRIPTS[page].read_text()
    assert len(re.findall(r"suptitle\(|set_title\(|title=", text)) >= text.count("plt.show()") > 0


def test_the_headers_give_the_order_of_all_pages() -> None:
    assert set(PLACES) == set(SCRIPTS)
    assert {recipe.page for recipe in RECIPES} <= set(SCRIPTS)


MODULES = sorted({recipe.module for recipe in RECIPES})
PUBLIC = [
    (module, name)
    for module in MODULES
    for name, value in vars(import_module(module)).items()
    if getattr(value, "__module__", None) == module and not name.startswith("_") and callable(value)
]


def test_every_public_name_is_documented_and_on_a_page() -> None:
    """On a page: in the source of a recipe, which is shown whole, or used by a script."""
    scripts = "\n".join(path.read_text() for path in SCRIPTS.values())
    for module, name in PUBLIC:
        assert inspect.getdoc(getattr(import_module(module), name)), f"{module}.{name} has no docstring"
        shown = re.search(rf"^(class|def) {name}\b", sources_of(module), flags=re.MULTILINE)
        assert shown or re.search(rf"\b{name}\b", scripts), f"{module}.{name} is on no page"


@cache
def sources_of(module: str) -> str:
    return "\n".join(recipe.source for recipe in RECIPES if recipe.module == module)
