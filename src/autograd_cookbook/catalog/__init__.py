"""Every recipe once: how to call it, what to compare it with, and what it promises.

The tests, the badges, the capability matrix, the tables of costs and of topics, the benchmarks and the copy button
all read this list. To add a recipe, add its function to a module, one
:class:`~autograd_cookbook.catalog.recipe.Recipe` to a section here, and one script to ``examples/``.
"""

import json
from pathlib import Path
from typing import Any

from autograd_cookbook.catalog import (
    beyond_autograd,
    changing_the_gradient,
    compilation,
    distributed,
    first_steps,
    higher_order,
    memory,
    stability,
)
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.topics import TOPICS

__all__ = ["BY_NAME", "RECIPES", "TOPICS", "VERIFIED", "Cost", "Recipe", "Sample", "verified"]

SECTIONS = (
    first_steps,
    changing_the_gradient,
    stability,
    memory,
    higher_order,
    beyond_autograd,
    compilation,
    distributed,
)
RECIPES: tuple[Recipe, ...] = tuple(recipe for section in SECTIONS for recipe in section.RECIPES)
BY_NAME: dict[str, Recipe] = {recipe.name: recipe for recipe in RECIPES}
VERIFIED = Path(__file__).with_name("verified.json")


def verified() -> dict[str, Any]:
    """The audit of every recipe's typical sample as last run, and the torch version that it was run on."""
    return json.loads(VERIFIED.read_text())
