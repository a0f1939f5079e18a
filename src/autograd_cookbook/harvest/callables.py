"""Callable arguments: find out whether they use a tensor, and make the same callable with other tensors."""

import copy
import functools
import types
from collections.abc import Container
from typing import Any

from torch import Tensor, nn

DEPTH = 8  # of the search; a closure over an object with a list of modules has a depth of 6


def users(args: tuple[Any, ...], tensors: Container[int]) -> list[int]:
    """Return the positions of callable arguments that use one of the tensors, but not of modules.

    ``tensors`` has the ids of the tensors.
    """
    return [i for i, arg in enumerate(args) if callable(arg) and not isinstance(arg, nn.Module) and uses(arg, tensors)]


def uses(value: Any, tensors: Container[int], depth: int = DEPTH) -> bool:
    """Whether a value is one of the tensors, or has one in its closure, its globals, its attributes or its items."""
    seen, level = {id(value)}, [value]
    # Search level by level, and each value once, because objects that refer to each other have too many paths.
    for _ in range(depth + 1):
        if any(id(part) in tensors for part in level):
            return True
        reached = {id(part): part for whole in level for part in _parts(whole)}
        level = [part for key, part in reached.items() if key not in seen]
        seen.update(reached)
    return False


def with_others(value: Any, twins: dict[int, Any], depth: int = DEPTH) -> Any:
    """Return the same value with other tensors. ``twins`` maps the id of an old tensor to the new tensor.

    Parts that use none of the old tensors are shared.
    """
    if id(value) in twins:
        return twins[id(value)]
    if not uses(value, twins, depth):
        return value

    def other(part: Any) -> Any:
        return with_others(part, twins, depth - 1)

    if isinstance(value, types.FunctionType):
        cells = tuple(types.CellType() for _ in value.__closure__ or ())
        read = _globals(value)
        names = dict(value.__globals__) if read else value.__globals__
        twin: Any = types.FunctionType(value.__code__, names, value.__name__, value.__defaults__, cells)
        twin.__kwdefaults__, twin.__qualname__ = value.__kwdefaults__, value.__qualname__
        twins[id(value)] = twin  # it can refer to itself
        for cell, old in zip(cells, value.__closure__ or (), strict=True):
            if not _is_empty(old):
                cell.cell_contents = other(old.cell_contents)
        names.update(_items(read, other))
        return twin
    if isinstance(value, types.MethodType):
        return types.MethodType(value.__func__, other(value.__self__))
    if isinstance(value, functools.partial):
        return functools.partial(other(value.func), *map(other, value.args), **_items(value.keywords, other))
    twin = twins[id(value)] = copy.copy(value)
    if isinstance(value, dict):
        twin.update(_items(value, other))
    elif isinstance(value, list):
        twin[:] = map(other, value)
    elif isinstance(value, tuple):
        twin = twins[id(value)] = (
            type(value)._make(map(other, value)) if hasattr(value, "_make") else type(value)(map(other, value))
        )
    else:
        vars(twin).update(_items(vars(value), other))
    return twin


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """Return the global variables that a function reads: tensors, modules, and functions of the same file."""
    codes, read = [function.__code__], {}
    for code in codes:
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        for name in code.co_names:
            part = function.__globals__.get(name)
            near = isinstance(part, types.FunctionType) and part.__globals__ is function.__globals__
            if near or isinstance(part, Tensor | nn.Module):
                read[name] = part
    return read


def _items(value: dict[Any, Any], other: Any) -> dict[Any, Any]:
    return {key: other(part) for key, part in value.items()}


def _parts(value: Any) -> list[Any]:
    """Return the parts of a value, if the value can be made again with other parts."""
    if isinstance(value, Tensor | type | types.ModuleType):
        return []
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if not _is_empty(cell)]
        return [*cells, *_globals(value).values()]
    if isinstance(value, types.MethodType):
        return [value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    attributes = getattr(value, "__dict__", None)
    return list(attributes.values()) if isinstance(attributes, dict) else []


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is cell  # only to read it
    except ValueError:
        return True
