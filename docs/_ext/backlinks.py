"""Links back: from the reference to the page that teaches a name, and from any page to the file to edit."""

from pathlib import Path
from typing import Any

from docs._ext.pages import PLACES
from sphinx.application import Sphinx

from autograd_cookbook.catalog import RECIPES

ROOT = Path(__file__).parents[2]
PAGES = {name: PLACES[recipe.page] for recipe in RECIPES if recipe.page in PLACES for name in recipe.names}


def append_page(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    if name in PAGES:
        lines += ["", f".. seealso:: :doc:`/cookbook/{PAGES[name]}` shows it at work."]


def edit_path(file_name: str) -> str:
    """The file in the repository that a page is made from."""
    if file_name == "cookbook/index.rst":
        return "examples/GALLERY_HEADER.rst"
    if file_name.startswith("cookbook/"):
        section = file_name.removeprefix("cookbook/").removesuffix(".rst")
        return f"examples/{section.removesuffix('/index')}" + (
            "/GALLERY_HEADER.rst" if section.endswith("index") else ".py"
        )
    if file_name.startswith("reference/generated/"):
        module = Path("src", *file_name.removeprefix("reference/generated/").removesuffix(".rst").split("."))
        return f"{module}/__init__.py" if (ROOT / module).is_dir() else f"{module}.py"
    return f"docs/{file_name}"


def add_edit_path(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    context["edit_path"] = edit_path


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", append_page)
    app.connect("html-page-context", add_edit_path)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
