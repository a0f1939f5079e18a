"""The reference shows each docstring as it was meant: no text is taken for a type, no field is cut."""

import ast
import re
from pathlib import Path

import pytest
from sphinx.ext import napoleon

pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[2] / "src" / "autograd_cookbook"
SOURCES = sorted(ROOT.rglob("*.py"))


def misread(text: str) -> list[str]:
    """What a docstring returns, where the reference shows its first words as a type, or as a term to define."""
    return re.findall(
        r"^:rtype: .*|^:returns:\n\n( +)\S.*\n\1 +\S.*", str(napoleon.GoogleDocstring(text)), re.MULTILINE
    )


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_is_returned_is_one_paragraph_of_text(source: Path) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if isinstance(node, documented))
    assert not [line for node in nodes for line in misread(ast.get_docstring(node) or "")]


@pytest.mark.parametrize("text", ["With ``k = 1``: a tensor.", "A tensor. Its entries\n        are real."])
def test_both_mistakes_are_found(text: str) -> None:
    assert misread(f"Double.\n\nReturns:\n    {text}\n")
    assert not misread("Double.\n\nReturns:\n    A tensor,\n    with real entries.\n")
