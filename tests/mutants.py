"""The slips that ``nox -s mutation`` tries: every function that computes a gradient, with one thing changed.

A mutant is named by its function and its change, as ``GELUFunction.backward: 40 -> 41``. Where the function has that
change in several places, the expression around it tells them apart, as in ``NormFunction.backward:
output.masked_fill(is_zero, {1 -> 2})``; a number, as in ``x = {1 -> 2}, number 2``, is left for statements that are
equal. An edit of another statement can make a name too short at most, and then the session says so.
"""

import ast
import inspect
import json
import os
import pkgutil
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from torch.autograd import Function

from autograd_cookbook import recipes

PACKAGE = recipes.__name__
METHODS = ("backward", "jvp", "vmap")
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
}
FORGETTABLE = ("mT", "mH", "T", "H", "real")


@dataclass(frozen=True)
class Mutant:
    """One function of a recipe with one thing changed."""

    module: str
    function: str
    names: tuple[str, ...]  # its change in more and more of what is around it; the first is enough to tell it apart
    source: str

    def __str__(self) -> str:
        return f"{self.function}: {self.names[0]}"

    def is_called(self, name: str) -> bool:
        return name in [f"{self.function}: {own}" for own in self.names]

    def install(self) -> None:
        """Put the changed function in the place of the right one, wherever it is known."""
        install(self.module, self.function, self.source)

    def for_other_processes(self) -> str:
        return json.dumps([self.module, self.function, self.source])


def install_from_environment() -> None:
    """For processes that a test starts: they import the package afresh."""
    install(*json.loads(os.environ["MUTANT"]))


def install(module_name: str, function: str, source: str) -> None:
    module = import_module(f"{PACKAGE}.{module_name}")
    made: dict[str, Any] = {}
    exec(compile(source, f"<mutant of {function}>", "exec"), vars(module), made)
    owner, _, name = function.rpartition(".")
    if owner:
        setattr(getattr(module, owner), name, made[name])
        return
    right = getattr(module, name)
    for other in [m for n, m in sys.modules.items() if n.startswith(("autograd_cookbook", "tests"))]:
        for key, value in list(vars(other).items()):
            if value is right:
                setattr(other, key, made[name])


# --- What can be changed ----------------------------------------------------------------------------------------------


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Every way to get this one expression wrong."""
    match node:
        case ast.BinOp(left, op, right):
            yield left
            yield right
            if type(op) in OPERATORS:
                yield ast.BinOp(left, OPERATORS[type(op)](), right)
            if isinstance(op, ast.Sub | ast.Div | ast.Pow | ast.MatMult):
                yield ast.BinOp(right, op, left)
        case ast.UnaryOp(ast.USub() | ast.Invert(), operand):
            yield operand
        case ast.Compare(left, [op], [right]) if type(op) in OPERATORS:
            yield ast.Compare(left, [OPERATORS[type(op)]()], [right])
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
            if value:
                yield ast.UnaryOp(ast.USub(), ast.Constant(value))
        case ast.Call(ast.Attribute(receiver, _), [], []):
            yield receiver
        case ast.Attribute(receiver, name) if name in FORGETTABLE:
            yield receiver


def mutants_of(module: str, function: str, code: ast.FunctionDef) -> Iterator[Mutant]:
    """All mutants of one function; annotations, defaults and docstrings are no arithmetic."""
    for node in ast.walk(code):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    nodes = list(ast.walk(code))
    around = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
    # Defaults and messages are no arithmetic, and zip's strict=True only guards what it is told.
    spared = [code.args, *(n for n in nodes if isinstance(n, ast.Raise))]
    spared += [n for n in nodes if isinstance(n, ast.keyword) and n.arg == "strict"]
    outside = {id(leaf) for node in spared for leaf in ast.walk(node)}
    # Counted from the end an index or a dimension is mostly the same one; another one is tried in any case.
    holders = [n.slice if isinstance(n, ast.Subscript) else n for n in nodes if isinstance(n, ast.Subscript | ast.Call)]
    held = [part for n in holders for part in (n.args if isinstance(n, ast.Call) else [n])]
    places = {id(leaf) for part in held for leaf in (part, *getattr(part, "elts", [])) if is_index(leaf)}
    found: dict[str, tuple[ast.AST, list[str]]] = {}  # of two changes that come to the same only one is tried
    for node in nodes:
        for change in changes(node) if id(node) not in outside else ():
            if isinstance(change, ast.UnaryOp) and (id(node) in places or isinstance(around[id(node)], ast.UnaryOp)):
                continue  # of -1 the sign is dropped as a change of its own
            with put_in_place_of(node, change, around[id(node)]):
                source = ast.unparse(code)
            if source not in found:
                label = f"{ast.unparse(node)} -> {ast.unparse(change)}"
                found[source] = node, [label, *in_context(label, node, around)]
    in_order = sorted(found, key=lambda source: (found[source][0].lineno, found[source][0].col_offset))
    for source, names in zip(in_order, told_apart([found[source][1] for source in in_order]), strict=True):
        yield Mutant(module, function, names, source)


def is_index(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


@contextmanager
def put_in_place_of(node: ast.AST, other: ast.AST, parent: ast.AST) -> Iterator[None]:
    """Change one node of a tree for a while."""
    for name, value in ast.iter_fields(parent):
        if value is node:
            setattr(parent, name, other)
            yield
            setattr(parent, name, node)
        elif isinstance(value, list) and any(entry is node for entry in value):
            index = next(i for i, entry in enumerate(value) if entry is node)
            value[index] = other
            yield
            value[index] = node


def in_context(label: str, node: ast.AST, around: dict[int, ast.AST]) -> Iterator[str]:
    """A change within each expression around it, from the inmost one to the first line of the statement."""
    with put_in_place_of(node, ast.Name("CHANGED"), around[id(node)]):
        while not isinstance(node, ast.stmt):
            node = around[id(node)]
            is_method = isinstance(node, ast.Attribute) and isinstance(around[id(node)], ast.Call)
            if isinstance(node, ast.expr | ast.stmt) and not is_method:
                yield ast.unparse(node).partition("\n")[0].replace("CHANGED", f"{{{label}}}")


def told_apart(changes: list[list[str]]) -> Iterator[tuple[str, ...]]:
    """Of the names of each change those that no other change has; if there is none, its last one with a number."""
    known = Counter(name for names in changes for name in set(names))
    numbers: Counter[str] = Counter()
    for names in changes:
        numbers[names[-1]] += 1
        own = tuple(name for name in names if known[name] == 1)
        yield own or (f"{names[-1]}, number {numbers[names[-1]]}",)


# --- Where ----------------------------------------------------------------------------------------------------------


@cache
def all_mutants() -> tuple[Mutant, ...]:
    """Of all pages; a helper that several backwards call counts once."""
    modules = sorted(module.name for module in pkgutil.iter_modules(recipes.__path__))
    functions = {(m, f): code for module in modules for m, f, code in functions_of(module)}
    return tuple(mutant for (m, f), code in functions.items() for mutant in mutants_of(m, f, code))


def functions_of(module: str) -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """The backward functions of a module, and what they call: (module, name, code)."""
    found = import_module(f"{PACKAGE}.{module}")
    for name, owner in vars(found).items():
        if inspect.isclass(owner) and issubclass(owner, Function) and owner.__module__ == found.__name__:
            for method in METHODS:
                if method in vars(owner):
                    code = parsed(getattr(owner, method))
                    yield module, f"{name}.{method}", code
                    yield from helpers_of(found, code, {name})


def helpers_of(module: Any, code: ast.FunctionDef, seen: set[str]) -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """Functions of recipes that a function calls by name, and what these call."""
    names = [leaf for leaf in ast.walk(code) if isinstance(leaf, ast.Name)]
    called = {leaf.id for leaf in names} - {leaf.id for leaf in names if isinstance(leaf.ctx, ast.Store)}
    for name in sorted(called):
        helper = vars(module).get(name)
        own = isinstance(helper, FunctionType) and helper.__module__.startswith(f"{PACKAGE}.")
        if own and name not in seen:
            seen.add(name)
            inner = parsed(helper)
            yield helper.__module__.removeprefix(f"{PACKAGE}."), helper.__name__, inner
            yield from helpers_of(import_module(helper.__module__), inner, seen)


def parsed(function: Callable[..., Any]) -> ast.FunctionDef:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]


@cache
def pages_of(module: str) -> frozenset[str]:
    """Whose tests belong to a module: a page's own, and to a helper those of all pages that import it."""
    if not module.startswith("_"):
        return frozenset({module})
    importing = re.compile(rf"^from {PACKAGE}\.{module}\b", re.M)
    users = [path.stem for path in Path(recipes.__path__[0]).glob("*.py") if importing.search(path.read_text())]
    return frozenset({module.removeprefix("_")}).union(*map(pages_of, users))


def named(name: str, page: str) -> list[Mutant]:
    """The mutants that a name means in the tests of a page: one, or it is an old name, or says too little."""
    return [mutant for mutant in all_mutants() if page in pages_of(mutant.module) and mutant.is_called(name)]
