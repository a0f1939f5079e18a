"""Functions whose verdict is known: broken ones, each with one real mistake, and right ones that look suspicious.

The audit is tested and measured against them. A broken one names the check that has to find it; the one that explains
a check on the site is ``shown``, and a right one that ``mends`` it stands beside it.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.autograd import Function


@dataclass(frozen=True)
class Specimen:
    """A function with its sample and its verdict.

    Args:
        thing: what was decorated: a Function class, a module class, or a callable.
        inputs: makes the arguments of a call.
        checks: names of the checks that may find the mistake, the best one first; empty for a right function.
        options: further arguments of the audit.
        shown: whether the site explains the first of ``checks`` with it.
        mends: name of the broken specimen that this right one is the mended version of.
        source: a public issue that it is modeled on, as "owner/repository#number".
    """

    thing: Any
    inputs: Callable[[], tuple[Any, ...]]
    checks: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    shown: bool = False
    mends: str | None = None
    source: str | None = None

    @property
    def name(self) -> str:
        """Its unique name."""
        return self.thing.__name__

    @property
    def why(self) -> str:
        """What is wrong with it, or why one might think so."""
        return inspect.cleandoc(self.thing.__doc__)

    @property
    def function(self) -> Callable[..., Any]:
        """What is given to the audit: a class's apply, a fresh module, or the callable itself."""
        if isinstance(self.thing, type):
            return self.thing.apply if issubclass(self.thing, Function) else self.thing()
        return self.thing


BROKEN: dict[str, Specimen] = {}
RIGHT: dict[str, Specimen] = {}


def broken(
    *checks: str, inputs: Callable[[], tuple[Any, ...]], shown: bool = False, source: str | None = None, **options: Any
) -> Callable[[Any], Any]:
    """Register a broken function, to be found by one of ``checks``; ``options`` go to the audit."""

    def register(thing: Any) -> Any:
        specimen = Specimen(thing, inputs, checks, options, shown=shown, source=source)
        assert checks, f"{specimen.name} names no check"
        assert specimen.name not in BROKEN | RIGHT, f"there is another specimen {specimen.name}"
        BROKEN[specimen.name] = specimen
        return thing

    return register


def right(
    *, inputs: Callable[[], tuple[Any, ...]], mends: str | None = None, source: str | None = None, **options: Any
) -> Callable[[Any], Any]:
    """Register a right function; ``options`` go to the audit."""

    def register(thing: Any) -> Any:
        specimen = Specimen(thing, inputs, options=options, mends=mends, source=source)
        assert specimen.name not in BROKEN | RIGHT, f"there is another specimen {specimen.name}"
        RIGHT[specimen.name] = specimen
        return thing

    return register


def load() -> None:
    """Import every module of the corpus, which fills ``BROKEN`` and ``RIGHT``."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
