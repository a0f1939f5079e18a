"""The list of all recipes: how to call a recipe, what to compare it with, and which capabilities it must keep.

The tests, the badges, the capability matrix, the tables of costs, the benchmarks and the copy button all read this
list. Each module of this folder has the recipes of one page of the cookbook. The list contains every
:class:`~autograd_cookbook.catalog.Recipe` that a module defines, so to add a page, you only add a file.
"""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from autograd_cookbook.catalog._recipe import Cost, Limit, Recipe, Sample

__all__ = ["BY_NAME", "RECIPES", "Cost", "Limit", "Recipe", "Sample"]


def _recipes() -> Iterator[Recipe]:
    """Yield the recipes page by page, in the order of their definitions."""
    for page in pkgutil.iter_modules(__path__):
        if not page.name.startswith("_"):
            module = import_module(f"{__name__}.{page.name}")
            yield from (value for value in vars(module).values() if isinstance(value, Recipe))


RECIPES: tuple[Recipe, ...] = tuple(_recipes())
BY_NAME: dict[str, Recipe] = {recipe.name: recipe for recipe in RECIPES}
