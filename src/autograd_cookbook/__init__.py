"""Custom gradients for PyTorch: recipes to learn, copy and verify.

Recipes live in one module per pattern and are imported from there, for example
``from autograd_cookbook.linear import linear``; :mod:`autograd_cookbook.catalog` lists all of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # At run time the module itself is what one calls; a type checker is told of the function.
    from autograd_cookbook.audit import audit as audit

__version__ = "0.1.0"
SITE = "https://autograd-cookbook.github.io/autograd-cookbook/"
