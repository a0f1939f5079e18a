"""The recipes of the page ``data_parallel``."""

from autograd_cookbook.catalog._recipe import Recipe
from autograd_cookbook.recipes import data_parallel

RUN_RANKS = Recipe(
    name="run_ranks",
    function=data_parallel.run_ranks,
    exports=("run_ranks",),
)


ALL_GATHER = Recipe(
    name="all_gather",
    function=data_parallel.all_gather,
    exports=("all_gather", "reduce_scatter"),
)
