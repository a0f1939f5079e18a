"""The source of a recipe as one file that does not import this package.

A recipe can use helpers of its own module and of other modules. :func:`standalone` collects all definitions that its
names refer to, and the imports of these definitions. So you can paste the result into an empty file. Only one word
differs: the type of ``ctx`` becomes ``Any``, because torch has no type for it.
"""

import ast
import doctest
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class _Import:
    """One name that a module imports: ``from module import original as name``."""

    module: str
    original: str | None
    name: str

    def __str__(self) -> str:
        if self.original is None:
            return f"import {self.module}" + (f" as {self.name}" if self.name != self.module else "")
        return f"from {self.module} import {self.original}" + (f" as {self.name}" if self.name != self.original else "")


CONTEXT = _Import(f"{PACKAGE}.recipes._context", "Context", "Context")


class _Module:
    """The top level of one source file: where each name comes from, and the text that defines it."""

    def __init__(self, name: str) -> None:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"no source file for module {name!r}")
        self.name = name
        self.lines = Path(spec.origin).read_text().splitlines()
        self.imports: dict[str, _Import] = {}
        self.definitions: dict[str, ast.stmt] = {}
        self.calls: dict[str, list[ast.stmt]] = {}
        for node in ast.parse("\n".join(self.lines)).body:
            match node:
                case ast.Import():
                    for alias in node.names:
                        bound = alias.asname or alias.name.partition(".")[0]
                        self.imports[bound] = _Import(alias.name, None, alias.asname or alias.name)
                case ast.ImportFrom():
                    for alias in node.names:
                        bound = alias.asname or alias.name
                        self.imports[bound] = _Import(node.module or "", alias.name, bound)
                # As in @operator.register_fake.
                case ast.FunctionDef(decorator_list=[ast.Attribute(value=ast.Name(id=called))]):
                    self.calls.setdefault(called, []).append(node)
                case ast.FunctionDef() | ast.ClassDef():
                    self.definitions[node.name] = node
                case ast.Expr(value=ast.Call(func=ast.Name(id=called) | ast.Attribute(value=ast.Name(id=called)))):
                    self.calls.setdefault(called, []).append(node)
                case ast.Try():  # an import that can fail
                    aliases = [leaf for leaf in ast.walk(node) if isinstance(leaf, ast.alias)]
                    self.definitions |= {alias.asname or alias.name.partition(".")[0]: node for alias in aliases}
                case ast.Assign() | ast.AnnAssign():
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    for target in targets:
                        for leaf in ast.walk(target):
                            if isinstance(leaf, ast.Name):
                                self.definitions[leaf.id] = node

    def text(self, node: ast.stmt) -> str:
        """Return the lines of a definition, with its decorators and the comment right above it."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        while first > 1 and self.lines[first - 2].startswith("#"):
            first -= 1
        if isinstance(node, ast.Assign) and "__file__" in _names(node):
            return self._value_of(node)
        return "\n".join(self.lines[first - 1 : node.end_lineno]).replace("ctx: Context", "ctx: Any")

    def _value_of(self, node: ast.Assign) -> str:
        """Return an assignment that reads files, with the contents of these files, so that the copy needs no files."""
        (target,) = map(ast.unparse, node.targets)
        texts = getattr(importlib.import_module(self.name), target)
        # Raw and triple-quoted, so that the text reads as it does in its own file.
        entries = [f'    {name!r}: r"""{text}""",' for name, text in texts.items()]
        return "\n".join([f"{target} = {{", *entries, "}"])


@cache
def _read(module: str) -> _Module:
    return _Module(module)


def _names(node: ast.stmt) -> set[str]:
    """Return every name that a definition reads, in its code and in the doctests of its docstrings."""
    names: set[str] = set()
    for leaf in ast.walk(node):
        if isinstance(leaf, ast.Name):
            names.add(leaf.id)
        elif isinstance(leaf, ast.ClassDef | ast.FunctionDef):
            examples = doctest.DocTestParser().get_examples(ast.get_docstring(leaf) or "")
            inner = [node for example in examples for node in ast.walk(ast.parse(example.source))]
            imported = {node.asname or node.name for node in inner if isinstance(node, ast.alias)}
            names |= {node.id for node in inner if isinstance(node, ast.Name)} - imported
    return names


def standalone(module: str, names: Iterable[str]) -> str:
    """Return Python source that defines ``names`` of ``module`` and does not import this package.

    Args:
        module: the dotted name of a module of this package.
        names: the names that the source must define. All definitions that they refer to are included.

    Raises:
        NameError: if the module does not define one of the names.
    """
    modules: dict[str, _Module] = {}
    chosen: dict[str, set[ast.stmt]] = {}  # dependencies first, as they must be defined first
    imports: set[_Import] = set()

    def collect(module_name: str, wanted: Iterable[str], strict: bool = False) -> None:
        source = modules.setdefault(module_name, _read(module_name))
        for name in wanted:
            if (node := source.definitions.get(name)) is not None:
                nodes = chosen.setdefault(module_name, set())
                if node not in nodes:
                    nodes.add(node)
                    collect(module_name, sorted(_names(node)))
                    # Calls at import, such as registrations, must also run in the copied file.
                    for call in source.calls.get(name, ()):
                        nodes.add(call)
                        collect(module_name, sorted(_names(call)))
            elif (found := source.imports.get(name)) is not None:
                if found == CONTEXT:
                    imports.add(_Import("typing", "Any", "Any"))
                elif found.module.partition(".")[0] == PACKAGE and found.original is not None:
                    collect(found.module, [found.original], strict=True)
                else:
                    imports.add(found)
            elif strict:
                raise NameError(f"{module_name} does not define {name!r}")

    collect(module, names, strict=True)
    order = _dependencies_first(chosen, modules)
    body = [modules[name].text(node) for name in order for node in sorted(chosen[name], key=lambda node: node.lineno)]
    return "\n\n\n".join(["\n".join(_sorted_imports(imports)), *body]) + "\n"


def _dependencies_first(chosen: dict[str, set[ast.stmt]], modules: dict[str, _Module]) -> list[str]:
    order: list[str] = []

    def visit(name: str) -> None:
        for found in modules[name].imports.values():
            if found.module in chosen and found.module not in order and found.module != name:
                visit(found.module)
        if name not in order:
            order.append(name)

    for name in sorted(chosen):
        visit(name)
    return order


def _sorted_imports(imports: set[_Import]) -> list[str]:
    """Return the imports in the order of ruff's isort: standard library first, torch after a blank line."""
    lines: list[str] = []
    standard = {i for i in imports if i.module.partition(".")[0] in sys.stdlib_module_names}
    for group in (standard, imports - standard):
        plain = sorted(str(i) for i in group if i.original is None)
        grouped: dict[str, list[str]] = {}
        for i in sorted((i for i in group if i.original is not None), key=lambda i: (i.module, i.name)):
            grouped.setdefault(i.module, []).append(str(i).partition(" import ")[2])
        block = plain + [f"from {module} import {', '.join(names)}" for module, names in grouped.items()]
        if block and lines:
            lines.append("")
        lines += block
    return lines
