"""The order of the search's hits: ``search.js``, the words of ``words.toml``, and the names of recipes and messages.

A hit says what it is: the script gets the purpose of each recipe and of each page of the cookbook.
"""

import ast
import html
import json
import re
import tomllib
from pathlib import Path
from typing import Any

from docs._ext.gallery_index import YOU
from docs._ext.glance import what
from docs._ext.pages import EXAMPLES, PLACES
from sphinx.application import Sphinx

from autograd_cookbook.catalog import RECIPES
from autograd_cookbook.errors import entries

WORDS = Path(__file__).with_name("words.toml")
LENGTH = 100  # of a message: nobody types more, and the page that searches for more is that of the errors
TAG = re.compile(r"<[^>]*>")
SENTENCE = re.compile(r"(?<=[.:])\s+(?=[A-Z])")
MARKUP = re.compile(r":\w+:`(?P<role>.+?)`|`{2}(?P<code>.+?)`{2}|\*(?P<word>.+?)\*")


def words() -> dict[str, Any]:
    return tomllib.loads(WORDS.read_text())


def in_plain(text: str) -> str:
    """A line of HTML as text."""
    return html.unescape(TAG.sub("", text))


def purpose(page: str) -> str:
    """What a page of the cookbook is for: the first sentence below its title."""
    script = EXAMPLES / f"{PLACES[page]}.py"
    first = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n\n")[1]
    said = SENTENCE.split(" ".join(first.split()).removeprefix(YOU))[0]
    said = MARKUP.sub(lambda match: match[match.lastgroup].replace("\\", ""), said)
    return said[:1].upper() + said[1:]


def for_browser() -> str:
    data = {
        **words(),
        "messages": {entry.anchor: entry.message[:LENGTH] for entry in entries()},
        "recipes": {r.name: [f"cookbook/{PLACES[r.page]}", in_plain(what(r))] for r in RECIPES if r.page in PLACES},
        "purposes": {f"cookbook/{place}": purpose(page) for page, place in PLACES.items()},
    }
    return json.dumps(data).replace("</", "<\\/")


def attach(app: Sphinx, pagename: str, *_: object) -> None:
    if pagename == "search":
        app.add_js_file(None, body=for_browser(), id="search-words", type="application/json")  # for search.js


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", attach)
    return {"parallel_read_safe": True}
