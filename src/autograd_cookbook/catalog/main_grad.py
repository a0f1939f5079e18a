"""The recipes of the page ``main_grad``: tools, since what they compute goes into a buffer and not to the caller."""

from autograd_cookbook.catalog._recipe import Recipe
from autograd_cookbook.recipes import main_grad

LINEAR_MAIN_GRAD = Recipe(
    name="linear_main_grad",
    function=main_grad.linear_main_grad,
    exports=("linear_main_grad",),
    promises=(),
)

MAIN_GRAD = Recipe(
    name="MainGrad",
    function=main_grad.MainGrad,
    exports=("MainGrad",),
    promises=(),
)
