"""Custom gradients for PyTorch: recipes to learn, copy and verify.

Recipes live in :mod:`autograd_cookbook.recipes`, in one module for each page of the cookbook, and are imported from
there, for example ``from autograd_cookbook.recipes.template import linear``; :mod:`autograd_cookbook.catalog` lists all
of them. :func:`autograd_cookbook.audit` tells whether a function of your own is right.
"""

from typing import TYPE_CHECKING

__all__ = ["SITE", "__version__", "audit"]

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from autograd_cookbook.auditing import audit

    SITE: str  # the address of this version's documentation; empty if none is published
else:
    # Loaded on first use: the command line and pytest's start do not wait for torch.
    def __getattr__(name: str) -> object:
        if name == "audit":
            from autograd_cookbook.auditing import audit

            return audit
        if name == "SITE":
            from autograd_cookbook._site import site

            return site(__version__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
