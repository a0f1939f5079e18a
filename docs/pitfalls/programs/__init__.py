"""The functions that the site shows for each check of the audit: a broken one, and the same function fixed.

There is a module for each family of checks. The tests audit these functions too, next to others that the site does
not show and that register in the same way.
"""

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


@dataclass(frozen=True)
class Specimen:
    """A function with its sample and its verdict.

    Args:
        thing: what was decorated: a Function class, a module class, or a callable.
        inputs: makes the arguments of a call.
        checks: names of the checks that may find the mistake, the best one first; empty for a right function.
        options: further arguments of the audit.
        fixes: name of the broken specimen that this right one is the fixed version of.
        source: a public issue that it is modeled on, as "owner/repository#number".
    """

    thing: Any
    inputs: Callable[[], tuple[Any, ...]]
    checks: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    fixes: str | None = None
    source: str | None = None

    @property
    def name(self) -> str:
        """Its unique name."""
        return self.thing.__name__

    @property
    def why(self) -> str:
        """What is wrong with it, or why a reader might think so."""
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
            if name in names - {"_"} and name.startswith("_") and getattr(helper, "__module__", None) == module.__name__
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
    registers = ("broken(", "fixes(", "right(")
    kept = [d.lineno for d in definition.decorator_list if not ast.unparse(d).startswith(registers)]
    if ast.get_docstring(definition):
        doc = definition.body[0]
        blank = not lines[doc.end_lineno].strip()
        del lines[doc.lineno - 1 : doc.end_lineno + blank]
    return "\n".join(lines[min([definition.lineno, *kept]) - 1 :]) + "\n"


# Those of the modules that have been imported.
BROKEN: dict[str, Specimen] = {}
RIGHT: dict[str, Specimen] = {}


def broken(
    *checks: str, inputs: Callable[[], tuple[Any, ...]], source: str | None = None, **options: Any
) -> Callable[[Any], Any]:
    """Register a broken function, to be found by one of ``checks``; ``options`` go to the audit."""
    assert checks, "a broken function names the checks that find it"
    return lambda thing: _register(Specimen(thing, inputs, checks, options, source=source), BROKEN)


def fixes(other: Any, *, inputs: Callable[[], tuple[Any, ...]] | None = None) -> Callable[[Any], Any]:
    """Register the fixed version of a broken function; the sample is the same unless given."""
    wrong = BROKEN[other.__name__]
    fixed = replace(wrong, checks=(), fixes=wrong.name, inputs=inputs or wrong.inputs)
    return lambda thing: _register(replace(fixed, thing=thing), RIGHT)


def right(*, inputs: Callable[[], tuple[Any, ...]], source: str | None = None, **options: Any) -> Callable[[Any], Any]:
    """Register a right function that is the fixed version of none; ``options`` go to the audit."""
    return lambda thing: _register(Specimen(thing, inputs, options=options, source=source), RIGHT)


def _register(specimen: Specimen, among: dict[str, Specimen]) -> Any:
    assert specimen.name not in BROKEN | RIGHT, f"there is another specimen {specimen.name}"
    among[specimen.name] = specimen
    return specimen.thing


def leaf(*shape: int) -> Tensor:
    """A sample: random numbers in float64 that require grad."""
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def load() -> None:
    """Import every module of this folder, which fills ``BROKEN`` and ``RIGHT``."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def shown_for(check: str) -> tuple[Specimen, Specimen]:
    """The broken function that the site shows for a check, and its fixed version.

    Raises:
        LookupError: if there is not exactly one such pair.
    """
    pairs = [(BROKEN[s.fixes], s) for s in RIGHT.values() if s.fixes and BROKEN[s.fixes].checks[0] == check]
    if len(pairs) != 1:
        raise LookupError(
            f"one broken and one fixed function are to show {check}, and docs/pitfalls/programs has "
            f"{[(broken.name, fixed.name) for broken, fixed in pairs]}"
        )
    return pairs[0]
