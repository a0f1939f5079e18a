"""The search: ``search.js`` and what it needs, which is the index of all sections and the words of ``words.toml``.

A hit says what it is: the script gets the purpose of each recipe and of each page of the cookbook. Sections are read
when their page is, and kept in the environment of the build.
"""

import ast
import html
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from docs._ext.gallery_index import YOU
from docs._ext.glance import what
from docs._ext.pages import EXAMPLES, PLACES
from docs._ext.search_index import Section, points, sections, stems
from docs.asked import asked
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from autograd_cookbook.catalog import RECIPES
from autograd_cookbook.errors import entries

WORDS = Path(__file__).with_name("words.toml")
ANSWERS = "guide/questions"  # pages of which each section is a hit of its own
LENGTH = 100  # of a message: nobody types more, and the page that searches for more is that of the errors
TAG = re.compile(r"<[^>]*>")
SENTENCE = re.compile(r"(?<=[.:])\s+(?=[A-Z])")
MARKUP = re.compile(r":\w+:`(?P<role>.+?)`|`{2}(?P<code>.+?)`{2}|\*(?P<word>.+?)\*")


def words() -> dict[str, Any]:
    return tomllib.loads(WORDS.read_text(encoding="utf-8"))


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


def named(found: Iterable[Section], given: Mapping[str, Any], messages: Mapping[str, str]) -> Iterator[Section]:
    """The sections with the names that people give them, and a section for each recipe."""
    phrases = asked()
    for each in found:
        names = [*given["sections"].get(f"{each.page}#{each.anchor}", []), messages.get(each.anchor, "")]
        names += given["pages"].get(each.page, []) if not each.anchor else []
        said = phrases.get(each.page, {}).get(each.anchor, [])
        yield replace(each, names="\n".join(names), asked="\n".join(said))
    for recipe in RECIPES:
        if recipe.page in PLACES:
            page = f"cookbook/{PLACES[recipe.page]}"
            yield Section(page, f"recipe-{recipe.name}", recipe.name, prose=in_plain(what(recipe)))


def for_browser(found: Iterable[Section]) -> str:
    given = words()
    messages = {entry.anchor: entry.message[:LENGTH] for entry in entries()}
    documents = list(named(found, given, messages))
    titles = {each.page: each.title for each in documents if not each.anchor}
    # The page of questions as a whole answers none.
    documents = [each for each in documents if each.anchor or not each.page.startswith(ANSWERS)]
    called: dict[str, list[str]] = {each.page: [] for each in documents}
    for each in documents:
        if not each.anchor or each.anchor.startswith("recipe-"):
            called[each.page].append(each.title)
    for page, names in called.items():  # a page that is built alone is the only one
        names += given["pages"].get(page, [])
    data = {
        "same": [[stems(name) for name in group] for group in given["same"]],
        "fillers": sorted({stem for word in given["fillers"] for stem in stems(word)}),
        "sections": [[each.page, each.anchor, each.title] for each in documents],
        "messages": messages,
        "words": points(documents),
        "called": {page: [sorted({*stems(name)}) for name in names] for page, names in called.items()},
        "titles": titles,
        "recipes": {recipe.name: in_plain(what(recipe)) for recipe in RECIPES},
        "purposes": {f"cookbook/{place}": purpose(page) for page, place in PLACES.items()},
    }
    return json.dumps(data, separators=(",", ":")).replace("</", "<\\/")


# --- what is kept of the pages between two builds ---


def kept(env: BuildEnvironment) -> dict[str, list[Section]]:
    """The sections by page."""
    if not hasattr(env, "searched"):
        env.searched = {}
    return env.searched


def read(app: Sphinx, doctree: nodes.document) -> None:
    kept(app.env)[app.env.docname] = list(sections(app.env.docname, doctree))


def purge(app: Sphinx, env: BuildEnvironment, page: str) -> None:
    kept(env).pop(page, None)


def merge(app: Sphinx, env: BuildEnvironment, pages: Iterable[str], other: BuildEnvironment) -> None:
    kept(env).update({page: kept(other)[page] for page in pages if page in kept(other)})


def attach(app: Sphinx, pagename: str, *_: object) -> None:
    if pagename == "search":
        found = (each for _, page in sorted(kept(app.env).items()) for each in page)
        # For search.js.
        app.add_js_file(None, body=for_browser(found), id="search-words", type="application/json")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", read)
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("html-page-context", attach)
    return {"parallel_read_safe": True, "env_version": 1}
