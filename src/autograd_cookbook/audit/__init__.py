"""The audit: hand it any custom function, learn what is wrong and how to mend it. It knows torch, and no recipe.

The module is callable, so that ``from autograd_cookbook import audit`` is all that one needs.
"""

import sys
import types
from typing import Any

from autograd_cookbook.audit.arguments import capability_names
from autograd_cookbook.audit.memory import held_bytes, peak_bytes, saved_bytes
from autograd_cookbook.audit.report import AuditError, Finding, Report
from autograd_cookbook.audit.runner import audit

__all__ = [
    "AuditError",
    "Finding",
    "Report",
    "audit",
    "capability_names",
    "held_bytes",
    "peak_bytes",
    "saved_bytes",
]


class _CallableModule(types.ModuleType):
    """A module that is called like the function of its name."""

    def __call__(self, *args: Any, **options: Any) -> Report:
        return audit(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
