"""The recipes of the page ``export``."""

from autograd_cookbook.catalog._recipe import Recipe
from autograd_cookbook.recipes import export

EXPORT_WITH_GRADIENTS = Recipe(
    name="export_with_gradients",
    function=export.export_with_gradients,
    exports=("export_with_gradients",),
)
