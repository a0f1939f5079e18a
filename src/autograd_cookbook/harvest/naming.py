"""What a function is called and where it is written."""

import inspect
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd import Function

GENERATED = "GeneratedBackwardFor_"  # what torch.library calls the Function behind an operator


@dataclass(frozen=True, order=True)
class Place:
    """Name of a function, and a line inside of its definition, with the file, which is absolute if it is one."""

    name: str
    file: str
    line: int


@dataclass(frozen=True)
class Operator:
    """An operator of torch.library with a formula for its gradient."""

    overload: Any

    @property
    def name(self) -> str:
        """As it was defined: ``namespace::name``."""
        return str(self.overload.name())

    def call(self, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Out of what torch.library passes to its Function: the operator, and the arguments of the call."""
        *flat, last = args
        if hasattr(last, "input_spec"):  # it takes lists of tensors
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
    """Whether a class is someone's own, and not torch's."""
    return cls.__module__.partition(".")[0] not in ("torch", "functorch")


def operator_of(cls: type[Function]) -> Operator | None:
    """The operator for which torch.library made this Function."""
    if not (cls.__module__.startswith("torch._library") and cls.__name__.startswith(GENERATED)):
        return None
    overload = _in_closure(cls.forward, "op")
    return Operator(overload) if overload is not None else None


def place_of_class(cls: type[Function]) -> Place:
    """Where a Function is defined."""
    own = (getattr(m, "__func__", m) for m in vars(cls).values())
    code = next(
        (m.__code__ for m in map(inspect.unwrap, filter(callable, own)) if isinstance(m, types.FunctionType)), None
    )
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or (code.co_filename if code else "<unknown>")
    return Place(f"{cls.__module__}.{cls.__qualname__}", _absolute(file), code.co_firstlineno if code else 0)


def place_of_operator(operator: Operator, cls: type[Function]) -> Place:
    """Where an operator is defined; if that is in no Python file, where its gradient is."""
    definition = torch._library.custom_ops.OPDEFS.get(operator.name.partition(".")[0])
    made = getattr(definition, "_init_fn", None) or getattr(_in_closure(cls.backward, "info"), "_backward_fn", None)
    code = getattr(inspect.unwrap(made), "__code__", None) if made else None
    file, line = (code.co_filename, code.co_firstlineno) if code else ("<unknown>", 0)
    return Place(operator.name, _absolute(file), line)


def _absolute(file: str) -> str:
    return file if file.startswith("<") else str(Path(file).resolve())


def shown(file: str) -> str:
    """A path as it is reported: relative, if it is below the current folder."""
    here = Path.cwd().resolve()
    return Path(file).relative_to(here).as_posix() if Path(file).is_relative_to(here) else file


def _in_closure(outer: Any, wanted: str) -> Any:
    """A variable of the closure of a function, or of one that it wraps."""
    variables = inspect.getclosurevars(outer).nonlocals if isinstance(outer, types.FunctionType) else {}
    if wanted in variables:
        return variables[wanted]
    inner = next((v for name, v in variables.items() if name.startswith("orig_")), None)
    return _in_closure(inner, wanted) if inner else None
