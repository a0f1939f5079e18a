"""The recipes of the page ``graph_breaks``."""

from autograd_cookbook.catalog._recipe import Recipe
from autograd_cookbook.recipes import graph_breaks

GRAPH_BREAKS = Recipe(
    name="graph_breaks",
    function=graph_breaks.graph_breaks,
    exports=("graph_breaks",),
)
