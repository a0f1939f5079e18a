"""Values and gradients that stay finite and accurate."""

from autograd_cookbook.catalog.recipe import Recipe

RECIPES: tuple[Recipe, ...] = ()
