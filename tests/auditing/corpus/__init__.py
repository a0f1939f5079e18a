"""Functions whose verdict is known: broken ones, each with one real mistake, and right ones that look suspicious.

The audit is tested and measured against them. Those that the site shows are in ``docs.pitfalls.programs``, and here are
those that nobody is shown, registered in the same way.
"""

import importlib
import pkgutil

from docs.pitfalls import programs


def load() -> None:
    """Import everything, which fills ``programs.BROKEN`` and ``programs.RIGHT``."""
    programs.load()
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
