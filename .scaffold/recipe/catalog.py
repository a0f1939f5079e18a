"""The recipes of the page ``newname``."""

import torch

from autograd_cookbook.catalog._recipe import Recipe
from autograd_cookbook.catalog._samples import unary
from autograd_cookbook.recipes import newname

# WRITE(newname): samples, the typical one first, then the edge cases (_samples.py has
# some); the nearest built-in as reference; what it promises; what its cost is compared
# with. _recipe.py describes the fields.
NEWNAME = Recipe(
    name="newname",
    function=newname.newname,
    exports=("newname",),
    samples=unary,
    reference=torch.square,
)
