"""Functions whose verdict is known: broken ones, each with one real mistake, and right ones that look suspicious.

The audit is tested and measured against them. A broken one names the check that has to find it; the one that explains
a check on the site is ``shown``, and a right one that ``mends`` it stands beside it.
"""

import ast
import importlib
import inspect
import pkgutil
import textwrap
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
    def code(self) -> str:
        """Its source as a reader would write it: without decorator and docstring, with the helpers that it calls."""
        module = inspect.getmodule(self.thing)
        source = textwrap.dedent(inspect.getsource(self.thing))
        names = {node.id for node in ast.walk(ast.parse(source).body[0]) if isinstance(node, ast.Name)}
        helpers = [
            helper
            for name, helper in vars(module).items()
            if name in names and name.startswith("_") and getattr(helper, "__module__", None) == module.__name__
        ]
        return "\n\n".join(map(_bare, [*helpers, self.thing]))

    @property
    def function(self) -> Callable[..., Any]:
        """What is given to the audit: a class's apply, a fresh module, or the callable itself."""
        if isinstance(self.thing, type):
            return self.thing.apply if issubclass(self.thing, Function) else self.thing()
        return self.thing


def _bare(thing: Any) -> str:
    """The source of a class or function without docstring, and without the decorator that registers it."""
    lines = textwrap.dedent(inspect.getsource(thing)).splitlines()
    (definition,) = ast.parse("\n".join(lines)).body
    kept = [d.lineno for d in definition.decorator_list if not ast.unparse(d).startswith(("broken(", "right("))]
    if ast.get_docstring(definition):
        doc = definition.body[0]
        blank = not lines[doc.end_lineno].strip()
        del lines[doc.lineno - 1 : doc.end_lineno + blank]
    return "\n".join(lines[min([definition.lineno, *kept]) - 1 :]) + "\n"


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


def shown_for(check: str) -> tuple[Specimen, Specimen]:
    """The broken function that the site shows for a check, and its mended version."""
    (broken,) = (s for s in BROKEN.values() if s.shown and s.checks[0] == check)
    (mended,) = (s for s in RIGHT.values() if s.mends == broken.name)
    return broken, mended
