"""Quote the reader's own lines that a message is about, from the traceback or from a file of the reader."""

import ast
import linecache
import re
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

from autograd_cookbook.errors import Explanation
from autograd_cookbook.errors.paste import Frame

MOST = 3  # the most lines in a quotation


def lines(found: Explanation, code: Path | None = None) -> list[str]:
    """Return the lines, each with its place in front: ``train.py:12: loss.backward()``.

    Args:
        found: the explanation of the message.
        code: a file of the reader, for a message without a traceback, or with a traceback of another machine.

    Raises:
        OSError: if ``code`` cannot be read.
        ValueError: if ``code`` is not a text file.
    """
    source = None if code is None else code.read_text(encoding="utf-8")
    if source is not None and code is not None:
        numbers = list(_in_source(found, source, code.name))[:MOST]
        rows = source.splitlines()
        if numbers:
            return [f"{code}:{number}: {rows[number - 1].strip()}" for number in numbers if number <= len(rows)]
    if found.place is None:
        return []
    shown = found.place.code or linecache.getline(found.place.file, found.place.line).strip()
    where = f"{found.place.file}:{found.place.line}" if found.place.line else found.place.file
    return [f"{where}: {shown}"] if shown else [where]


def _in_source(found: Explanation, source: str, name: str) -> Iterator[int]:
    place = found.place
    if place is not None and PureWindowsPath(place.file).name == name:
        yield _number(place, source)
        return
    yield from _methods(found, source)
    if found.known != "no" and (pattern := found.entries[0].line):
        yield from (n for n, row in enumerate(source.splitlines(), 1) if re.search(pattern, row))


def _number(place: Frame, source: str) -> int:
    """Return the present number of the line of a frame, because the reader can have edited the file."""
    same = [n for n, row in enumerate(source.splitlines(), 1) if place.code and row.strip() == place.code]
    return min(same, key=lambda n: abs(n - place.line), default=place.line)


def _methods(found: Explanation, source: str) -> Iterator[int]:
    """Yield the lines of the backward and of its return statements, for a node of a Function in the file."""
    classes = {node.partition("Backward")[0] for node in found.values.get("node", ())}
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for defined in ast.walk(tree):
        if isinstance(defined, ast.ClassDef) and defined.name in classes:
            for method in defined.body:
                if isinstance(method, ast.FunctionDef) and method.name in ("backward", "vjp"):
                    yield method.lineno
                    yield from (each.lineno for each in ast.walk(method) if isinstance(each, ast.Return))
