"""The recipes of the page ``recompiling``."""

from autograd_cookbook.catalog._recipe import Recipe
from autograd_cookbook.recipes import recompiling

COMPILATIONS = Recipe(
    name="compilations",
    function=recompiling.compilations,
    exports=("compilations",),
)
