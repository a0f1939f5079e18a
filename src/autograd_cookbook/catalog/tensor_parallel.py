"""The recipes of the page ``tensor_parallel``."""

from autograd_cookbook.catalog._recipe import Recipe
from autograd_cookbook.recipes import tensor_parallel

COPY_TO_RANKS = Recipe(
    name="copy_to_ranks",
    function=tensor_parallel.copy_to_ranks,
    exports=("copy_to_ranks", "reduce_from_ranks"),
)


GATHER_FROM_RANKS = Recipe(
    name="gather_from_ranks",
    function=tensor_parallel.gather_from_ranks,
    exports=("gather_from_ranks", "scatter_to_ranks"),
)


COLUMN_PARALLEL_LINEAR = Recipe(
    name="column_parallel_linear",
    function=tensor_parallel.column_parallel_linear,
    exports=("column_parallel_linear", "row_parallel_linear"),
)


VOCAB_PARALLEL_CROSS_ENTROPY = Recipe(
    name="vocab_parallel_cross_entropy",
    function=tensor_parallel.vocab_parallel_cross_entropy,
    exports=("vocab_parallel_cross_entropy",),
)
