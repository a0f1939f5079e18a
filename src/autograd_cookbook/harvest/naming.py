"""Find the name of a function and the place of its definition."""

import inspect
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd import Function

GENERATED = "GeneratedBackwardFor_"  # torch.library's prefix for the Function of an operator


@dataclass(frozen=True, order=True)
class Place:
    """The name of a function, the absolute path of its file, and a line inside of its definition."""

    name: str
    file: str
    line: int


@dataclass(frozen=True)
class Operator:
    """An operator of torch.library with a formula for its gradient."""

    overload: Any

    @property
    def name(self) -> str:
        """The name in its definition: ``namespace::name``."""
        return str(self.overload.name())

    def call(self, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Return the operator and the arguments of a call, from the arguments of torch.library's Function."""
        *flat, last = args
        if hasattr(last, "input_spec"):  # the operator takes lists of tensors
            *flat, last = torch.utils._pytree.tree_unflatten(flat, last.input_spec)
        if last.keyword_only_args:
            keywords = last.keyword_only_args
            return _WithKeywords(self.overload, keywords), tuple(flat)
        return self.overload, tuple(flat)


class _WithKeywords:
    """An operator with its keyword-only arguments."""

    def __init__(self, overload: Any, keywords: dict[str, Any]) -> None:
        self.overload, self.keywords, self.__name__ = overload, dict(keywords), overload.name()

    def __call__(self, *args: Any) -> Any:
        return self.overload(*args, **self.keywords)


def is_foreign(cls: type) -> bool:
    """Whether a class is not part of torch."""
    return cls.__module__.partition(".")[0] not in ("torch", "functorch")


def operator_of(cls: type[Function]) -> Operator | None:
    """Return the operator for which torch.library made this Function, or None."""
    if not (cls.__module__.startswith("torch._library") and cls.__name__.startswith(GENERATED)):
        return None
    overload = _in_closure(cls.forward, "op")
    return Operator(overload) if overload is not None else None


def place_of_class(cls: type[Function]) -> Place:
    """Return the place where a Function is defined."""
    own = (getattr(m, "__func__", m) for m in vars(cls).values())
    code = next(
        (m.__code__ for m in map(inspect.unwrap, filter(callable, own)) if isinstance(m, types.FunctionType)), None
    )
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or (code.co_filename if code else "<unknown>")
    return Place(f"{cls.__module__}.{cls.__qualname__}", _absolute(file), code.co_firstlineno if code else 0)


def place_of_operator(operator: Operator, cls: type[Function]) -> Place:
    """Return the place where an operator is defined, or where its gradient is if no Python file defines it."""
    definition = torch._library.custom_ops.OPDEFS.get(operator.name.partition(".")[0])
    made = getattr(definition, "_init_fn", None) or getattr(_in_closure(cls.backward, "info"), "_backward_fn", None)
    code = getattr(inspect.unwrap(made), "__code__", None) if made else None
    file, line = (code.co_filename, code.co_firstlineno) if code else ("<unknown>", 0)
    return Place(operator.name, _absolute(file), line)


def _absolute(file: str) -> str:
    return file if file.startswith("<") else str(Path(file).resolve())


def shown(file: str) -> str:
    """Return a path in the form of the report: relative if it is inside of the current folder."""
    here = Path.cwd().resolve()
    return Path(file).relative_to(here).as_posix() if Path(file).is_relative_to(here) else file


def _in_closure(outer: Any, wanted: str) -> Any:
    """Return a variable from the closure of a function, or of a function that it wraps."""
    variables = inspect.getclosurevars(outer).nonlocals if isinstance(outer, types.FunctionType) else {}
    if wanted in variables:
        return variables[wanted]
    inner = next((v for name, v in variables.items() if name.startswith("orig_")), None)
    return _in_closure(inner, wanted) if inner else None
