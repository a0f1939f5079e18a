"""The order of the search's hits: ``search.js`` and the words of ``words.toml``, on the page that shows them."""

import json
import tomllib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

WORDS = Path(__file__).with_name("words.toml")


def words() -> dict[str, Any]:
    return tomllib.loads(WORDS.read_text())


def attach(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    if pagename != "search":
        return
    # Both before the search starts: it waits for the document, as what is deferred does not.
    app.add_js_file(None, body=json.dumps(words()), id="search-words", type="application/json")
    app.add_js_file("search.js", loading_method="defer")


def check(app: Sphinx, env: Any) -> None:
    missing = words()["pages"].keys() - env.found_docs
    if missing:
        raise ExtensionError(f"{WORDS.name} names pages that do not exist: {sorted(missing)}")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", attach)
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
