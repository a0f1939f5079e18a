"""What a stored measurement depends on, as a digest that changes with the code and not with the way it is written.

Comments, docstrings, annotations and the layout of lines do not count, and neither does code that a recipe does not
use: a digest is made of syntax trees, of the recipe's entry in the catalog and of all that this names.
"""

import ast
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import autograd_cookbook
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.catalog import Recipe
from autograd_cookbook.catalog._source import standalone

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
AUDITING = Path(autograd_cookbook.__file__).parent / "auditing"
CATALOG, RECIPES = "autograd_cookbook.catalog", "autograd_cookbook.recipes"
# What a recipe's entry says that decides what is measured.
AUDITED = ("function", "samples", "reference", "gradient", "tolerance", "promises")
COMPARED = ("function", "cost")
# In the audit, what only prints.
PRINTING = ("cli.py", "report.py")
ANNOTATIONS = {"annotation", "returns", "type_comment", "type_params", "type_ignores"}
FOR_ANNOTATIONS = {"typing", "collections.abc"}


def verified(recipe: Recipe) -> str:
    """What its audit depends on: recipe, samples and reference, the audit itself, and torch."""
    return digest(_entry(recipe, AUDITED), audit(), torch())


def cost(recipe: Recipe) -> str:
    """What its bytes and times depend on: recipe, contenders, how they are measured, and torch."""
    return digest(_entry(recipe, COMPARED), files(BENCHMARKS / "costs.py", AUDITING / "memory.py"), torch())


def checking(recipe: Recipe) -> str:
    """What the times of checking it depend on. Of the audit only its checks: a change in one hardly takes time."""
    return digest(_entry(recipe, AUDITED), files(BENCHMARKS / "checking.py"), list(all_checks()), torch())


BY_KIND = {"verified": verified, "cost": cost, "checking": checking}


def program(source: str, *texts: Any) -> str:
    """What a program makes torch say depends on its source, and on torch; with it, texts of its own are stored."""
    return digest(tree(source), texts, torch())


def digest(*values: Any) -> str:
    """Twelve characters for what JSON can hold."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]


@cache
def audit() -> str:
    """All that decides what the audit says."""
    return files(*(path for path in AUDITING.rglob("*.py") if path.name not in PRINTING))


@cache
def torch() -> str:
    """The version of torch with which everything is measured: the pinned one."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return re.findall(r"^torch==(\S+)$", pins, re.MULTILINE)[0]


@cache
def files(*paths: Path) -> str:
    """The code of some files, and their names."""
    return digest([[path.name, tree(path.read_text(encoding="utf-8"))] for path in sorted(paths)])


def tree(source: str) -> Any:
    """The syntax of a source in lists and strings, alike in all versions of Python."""
    return _lists(ast.parse(source))


def _lists(node: Any) -> Any:
    if isinstance(node, list):
        return [_lists(each) for each in node if not _says_nothing(each)]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 ends some with an empty string
        node.values = [each for each in node.values if getattr(each, "value", None) != ""]
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in ANNOTATIONS)
    # Newer versions have more fields, which are empty.
    return [type(node).__name__, *([name, _lists(value)] for name, value in fields if value not in (None, []))]


def _says_nothing(node: Any) -> bool:
    """Whether it is a docstring, or an import that only annotations use."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.ImportFrom(module=module):
            return module in FOR_ANNOTATIONS
    return False


def _entry(recipe: Recipe, arguments: Iterable[str]) -> Any:
    """Some arguments of a recipe's entry in the catalog, and everything of this package that they name."""
    module = f"{CATALOG}.{recipe.page}"
    entries = (getattr(node, "value", None) for node in _top_level(module)[0].values())
    (keywords,) = (
        entry.keywords
        for entry in entries
        if isinstance(entry, ast.Call) and any(_is_name(k, recipe.name) for k in entry.keywords)
    )
    found = {k.arg: _lists(k.value) for k in keywords if k.arg in arguments}
    pending = [name for k in keywords if k.arg in arguments for name in _named(module, k.value)]
    while pending:
        where, name = pending.pop()
        if f"{where}.{name}" in found:
            continue
        if where.startswith(RECIPES):
            found[f"{where}.{name}"] = _alone(where, name)
        else:
            definition = _top_level(where)[0][name]
            found[f"{where}.{name}"] = _lists(definition)
            pending += _named(where, definition)
    return sorted(found.items())


@cache
def _alone(module: str, name: str) -> str:
    """The code that a reader copies for one name of a recipe's module."""
    return digest(tree(standalone(module, [name])))


def _is_name(keyword: ast.keyword, name: str) -> bool:
    return keyword.arg == "name" and isinstance(keyword.value, ast.Constant) and keyword.value.value == name


def _named(module: str, node: ast.AST) -> Iterator[tuple[str, str]]:
    """What a piece of the catalog names of this package, by module: but what an entry is in itself."""
    definitions, imports = _top_level(module)
    for leaf in ast.walk(node):
        match leaf:
            case ast.Name(id=name) if name in definitions:
                yield module, name
            case ast.Name(id=name) if imports.get(name, "").startswith((f"{CATALOG}._samples", f"{RECIPES}.")):
                where, _, original = imports[name].rpartition(".")
                if where != RECIPES:
                    yield where, original
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if imports.get(name, "").startswith(RECIPES):
                yield imports[name], attribute


@cache
def _top_level(module: str) -> tuple[dict[str, ast.stmt], dict[str, str]]:
    """What a module defines, and the dotted names of what it imports by ``from``."""
    definitions: dict[str, ast.stmt] = {}
    imports: dict[str, str] = {}
    spec = importlib.util.find_spec(module)
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                definitions[name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                definitions[name] = node
            case ast.ImportFrom():
                imports |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return definitions, imports
