"""The recipes of the page ``selective_checkpointing``."""

from autograd_cookbook.catalog._recipe import Recipe
from autograd_cookbook.recipes import selective_checkpointing

SAVE_ONLY = Recipe(
    name="save_only",
    function=selective_checkpointing.save_only,
    exports=("save_only",),
)
