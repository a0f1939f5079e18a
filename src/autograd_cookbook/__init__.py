"""Custom gradients for PyTorch: recipes to learn, copy and verify.

Recipes live in one module per pattern and are imported from there, for example
``from autograd_cookbook.linear import linear``; :mod:`autograd_cookbook.catalog` lists all of them.
"""

__version__ = "0.1.0"
