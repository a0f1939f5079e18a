"""Functions whose inputs are on several machines.

They are no functions of one process, so they have no samples here: ``tests/test_distributed.py`` runs them, and their
audit, in the ranks of process groups.
"""

from autograd_cookbook import distributed, ranks
from autograd_cookbook.catalog.recipe import Recipe

RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="run_ranks",
        page="08_distributed/data_parallel",
        topics=("G3",),
        function=ranks.run_ranks,
        exports=("run_ranks",),
    ),
    Recipe(
        name="all_gather",
        page="08_distributed/data_parallel",
        topics=("G3",),
        function=distributed.all_gather,
        exports=("all_gather", "reduce_scatter"),
    ),
    Recipe(
        name="copy_to_ranks",
        page="08_distributed/tensor_parallel",
        topics=("G3",),
        function=distributed.copy_to_ranks,
        exports=("copy_to_ranks", "reduce_from_ranks"),
    ),
    Recipe(
        name="gather_from_ranks",
        page="08_distributed/tensor_parallel",
        topics=("G3",),
        function=distributed.gather_from_ranks,
        exports=("gather_from_ranks", "scatter_to_ranks"),
    ),
    Recipe(
        name="column_parallel_linear",
        page="08_distributed/tensor_parallel",
        topics=("G3",),
        function=distributed.column_parallel_linear,
        exports=("column_parallel_linear", "row_parallel_linear"),
    ),
    Recipe(
        name="vocab_parallel_cross_entropy",
        page="08_distributed/tensor_parallel",
        topics=("G3",),
        function=distributed.vocab_parallel_cross_entropy,
        exports=("vocab_parallel_cross_entropy",),
    ),
)
