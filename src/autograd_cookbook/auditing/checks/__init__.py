"""What an audit looks at: one small function for each thing, in a file for each family.

A check takes the :class:`~autograd_cookbook.auditing.subject.Subject` and yields what it finds. Its docstring says
in one line what for; the site shows the remaining docstring next to a bad and a good example.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autograd_cookbook import SITE
from autograd_cookbook.auditing.report import Finding, Severity
from autograd_cookbook.auditing.subject import Subject

# In the order in which they run: what others depend on comes first, then those whose findings cost most.
FAMILIES = (
    "execution",
    "gradients",
    "contract",
    "effects",
    "layouts",
    "points",
    "precision",
    "modules",
    "memory",
    "transforms",
)


@dataclass(frozen=True)
class Check:
    """A check with its name, family and purpose.

    ``capability`` is what its outcome is listed as in a report, ``needs`` a check that must have found nothing: where
    the gradient is wrong anyway, it says nothing that it is wrong for large tensors, too. Where a check
    ``alters_saved`` tensors, which no caller does, a function that dies of it or hangs is not to blame.
    """

    name: str
    family: str
    function: Callable[[Subject], Iterator[Finding]]
    capability: str | None = None
    needs: str | None = None
    alters_saved: bool = False

    @property
    def purpose(self) -> str:
        """The first line of the docstring."""
        return self.explanation.partition("\n")[0]

    @property
    def explanation(self) -> str:
        """The docstring."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def url(self) -> str:
        """The section of the site that explains it."""
        return url_of(self.name, self.family)


def url_of(name: str, family: str) -> str:
    """Address of the section on a check."""
    return f"{SITE}pitfalls/{family}.html#{name.replace('_', '-')}"


_REGISTRY: dict[str, Check] = {}


def check(
    capability: str | None = None, needs: str | None = None, alters_saved: bool = False
) -> Callable[[Callable[[Subject], Iterator[Finding]]], Callable[[Subject], Iterator[Finding]]]:
    """Register a generator of findings as a check, under its own name."""

    def register(function: Callable[[Subject], Iterator[Finding]]) -> Callable[[Subject], Iterator[Finding]]:
        family = function.__module__.rpartition(".")[2]
        _REGISTRY[function.__name__] = Check(function.__name__, family, function, capability, needs, alters_saved)
        return function

    return register


def finding(severity: Severity, summary: str, cause: str, fix: str) -> Finding:
    """A finding of the check that is running: its name and url are filled in by the audit."""
    return Finding("", severity, summary, cause, fix, "")


def all_checks() -> dict[str, Check]:
    """Every check by name, in the order in which they run."""
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")
    return {c.name: c for family in FAMILIES for c in _REGISTRY.values() if c.family == family}
