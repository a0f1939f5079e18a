"""The order of the search's hits: ``search.js``, the words of ``words.toml``, and the names of recipes and messages.

A hit says what it is: the script gets the purpose of each recipe and of each page of the cookbook.

Sphinx's index knows which page has a word, but not which section. A page of answers has sixty, so the script also gets
all words of each answer, and of the other sections of the guide the words that few of them have.
"""

import ast
import html
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs._ext.gallery_index import YOU
from docs._ext.glance import what
from docs._ext.pages import EXAMPLES, PLACES
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from autograd_cookbook.catalog import RECIPES
from autograd_cookbook.errors import entries

WORDS = Path(__file__).with_name("words.toml")
LENGTH = 100  # of a message: nobody types more, and the page that searches for more is that of the errors
TAG = re.compile(r"<[^>]*>")
SENTENCE = re.compile(r"(?<=[.:])\s+(?=[A-Z])")
WORD = re.compile(r"[^\W\d]\w{2,}")
ANSWERS = "guide/questions"  # pages of which each section is a hit of its own
FEW = 12  # sections that may share a word that tells them apart
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


def texts(section: nodes.section) -> Iterator[str]:
    """Prose of a section, without that of the sections in it."""
    for child in section.children:
        if not isinstance(child, (nodes.section, nodes.title)):
            yield from (each.astext() for each in child.findall(nodes.paragraph))


def answers(doctrees: dict[str, nodes.document]) -> dict[str, str]:
    """What each answer says, and what few other sections say, by their places."""
    said = {
        f"{name}#{section['ids'][0]}": {word.lower() for text in texts(section) for word in WORD.findall(text)}
        for name, doctree in doctrees.items()
        for section in doctree.findall(nodes.section)
    }
    sections = Counter(word for found in said.values() for word in found)
    return {
        place: " ".join(sorted(word for word in found if sections[word] <= FEW or place.startswith(ANSWERS)))
        for place, found in said.items()
    }


def of_guide(env: BuildEnvironment) -> dict[str, nodes.document]:
    """The pages of the guide, by their names."""
    return {name: env.get_doctree(name) for name in sorted(env.found_docs) if name.startswith("guide/")}


def for_browser(doctrees: dict[str, nodes.document]) -> str:
    data = {
        **words(),
        "answers": answers(doctrees),
        "messages": {entry.anchor: entry.message[:LENGTH] for entry in entries()},
        "recipes": {r.name: [f"cookbook/{PLACES[r.page]}", in_plain(what(r))] for r in RECIPES if r.page in PLACES},
        "purposes": {f"cookbook/{place}": purpose(page) for page, place in PLACES.items()},
    }
    return json.dumps(data).replace("</", "<\\/")


def attach(app: Sphinx, pagename: str, *_: object) -> None:
    if pagename == "search":
        # For search.js.
        app.add_js_file(None, body=for_browser(of_guide(app.env)), id="search-words", type="application/json")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", attach)
    return {"parallel_read_safe": True}
