"""The order of the search's hits: ``search.js``, the words of ``words.toml``, and the names of recipes and messages."""

import json
import tomllib
from pathlib import Path
from typing import Any

from docs._ext.pages import PLACES
from sphinx.application import Sphinx

from autograd_cookbook.catalog import RECIPES
from autograd_cookbook.errors import entries

WORDS = Path(__file__).with_name("words.toml")
LENGTH = 100  # of a message: nobody types more, and the page that searches for more is that of the errors


def words() -> dict[str, Any]:
    return tomllib.loads(WORDS.read_text())


def for_browser() -> str:
    messages = {entry.anchor: entry.message[:LENGTH] for entry in entries()}
    recipes = {recipe.name: f"cookbook/{PLACES[recipe.page]}" for recipe in RECIPES if recipe.page in PLACES}
    return json.dumps({**words(), "messages": messages, "recipes": recipes}).replace("</", "<\\/")


def attach(app: Sphinx, pagename: str, *_: object) -> None:
    if pagename == "search":
        app.add_js_file(None, body=for_browser(), id="search-words", type="application/json")  # for search.js


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", attach)
    return {"parallel_read_safe": True}
