"""The copied source is complete, minimal, and the very text of the module."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from autograd_cookbook.catalog import RECIPES, Recipe
from autograd_cookbook.catalog._source import standalone
from autograd_cookbook.recipes import template


@pytest.mark.parametrize("recipe", [pytest.param(r, id=r.name) for r in RECIPES])
def test_it_defines_its_exports_and_imports_nothing_of_the_package(recipe: Recipe) -> None:
    tree = ast.parse(recipe.source)
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert set(recipe.exports) <= defined
    assert "autograd_cookbook" not in {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }


@pytest.mark.parametrize("recipe", [pytest.param(r, id=r.name) for r in RECIPES])
def test_it_says_where_it_is_from_and_under_which_license(recipe: Recipe) -> None:
    name, license_, empty, *_ = recipe.source.splitlines()
    holder = re.search("^Copyright .*$", (Path(__file__).parents[1] / "LICENSE").read_text(), re.MULTILINE)[0]
    assert name == f"# {recipe.name}: a recipe of the Autograd Cookbook."
    assert license_ == f"# {holder}. SPDX-License-Identifier: BSD-3-Clause"
    assert not empty


def test_it_is_the_text_of_the_module() -> None:
    assert inspect.getsource(template.relu) in standalone("autograd_cookbook.recipes.template", ["relu"])


def test_it_takes_nothing_that_is_not_needed() -> None:
    assert "Sigmoid" not in standalone("autograd_cookbook.recipes.template", ["relu"])


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(NameError, match="'relux'"):
        standalone("autograd_cookbook.recipes.template", ["relux"])
