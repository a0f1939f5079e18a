"""Custom gradients for PyTorch: recipes to learn, copy and verify.

Each page of the cookbook has a module in :mod:`autograd_cookbook.recipes`. Import a recipe from this module, for
example with ``from autograd_cookbook.recipes.template import linear``. :mod:`autograd_cookbook.catalog` lists all
recipes. :func:`autograd_cookbook.audit` verifies a function of your own.
"""

from typing import TYPE_CHECKING

__all__ = ["SITE", "__version__", "audit"]

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from autograd_cookbook.auditing import audit

    SITE: str  # the address of this version's documentation, or empty if none is published
else:
    # Import on first use, so that the command line and pytest start without torch.
    def __getattr__(name: str) -> object:
        if name == "audit":
            from autograd_cookbook.auditing import audit

            return audit
        if name == "SITE":
            from autograd_cookbook._site import site

            return site(__version__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
