"""Find every custom Function and operator in Python sources, without importing them: ``functions PATH…``."""

import argparse
import ast
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from autograd_cookbook.cli import PROGRAM, UsageError

DESCRIPTION = """\
List every autograd.Function and every operator of torch.library in Python
sources, without importing the sources."""
EPILOG = f"""\
examples:
  {PROGRAM} functions src
  {PROGRAM} functions src --reached report.json

exit status:
  0  success
  1  --reached is given, and a function was not reached
  2  the arguments are wrong
"""
NOT_SOURCES = {"build", "dist", "node_modules", "site-packages", "__pycache__"}


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a folder with sources")
    parser.add_argument(
        "--reached", metavar="REPORT.json", help="mark the functions that are reached in this report of harvest"
    )


def run(options: argparse.Namespace) -> int:
    """Print the list; return the exit status."""
    for path in options.paths:
        if not Path(path).exists():
            raise UsageError(f"no file or folder {path!r}")
    found = list(functions_in(options.paths))
    reached = _reached(options.reached) if options.reached else None
    for file, line, name in found:
        mark = "" if reached is None else "✓ " if is_reached(file, name, reached) else "– "
        print(f"{mark}{file}:{line}  {name}")
    count = f"{len(found)} function{'' if len(found) == 1 else 's'}"
    if reached is None:
        print(count)
        return 0
    hit = sum(is_reached(file, name, reached) for file, _, name in found)
    print(f"{count}, {hit} reached")
    return 0 if hit == len(found) else 1


def _reached(report: str) -> set[tuple[str, str]]:
    try:
        listed = json.loads(Path(report).read_text(encoding="utf-8"))["functions"]
        return {(f["file"], f["name"]) for f in listed if f["reached"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--reached {report!r}: not a report of a harvest in JSON ({error})") from None


def is_reached(file: str, name: str, reached: Iterable[tuple[str, str]]) -> bool:
    """Whether a function of the sources was reached. ``reached`` has file and full name of each reached function."""
    file = str(Path(file).resolve())
    return any(
        (full == name if "::" in name else full == name or full.endswith(f".{name}"))
        and ("::" in name or str(Path(where).resolve()) == file)
        for where, full in reached
    )


def functions_in(paths: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and name of each function, in order. Skip files that are not valid Python."""
    texts = {}
    for file in sorted({file for path in paths for file in _files(Path(path))}):
        text = file.read_text(encoding="utf-8", errors="replace")
        if "Function" in text or "torch.library" in text or "custom_op" in text:
            try:
                texts[file] = ast.parse(text)
            except (SyntaxError, ValueError):
                continue
    classes = {file: list(_classes(tree, "")) for file, tree in texts.items()}
    functions = _subclasses(texts, classes)
    for file, tree in texts.items():
        found = [(node.lineno, name) for name, node in classes[file] if (file, name) in functions]
        found += _operators(tree)
        for line, name in sorted(set(found)):
            yield file.as_posix(), line, name


def line_of_class(file: str, name: str, line: int) -> int:
    """Return the first line of the class with this name, or ``line`` if there is none.

    If several classes have this name, take the one that contains ``line``.
    """
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return line
    named = [node for qualified, node in _classes(tree, "") if name.endswith(f".{qualified}")]
    around = [node for node in named if node.lineno <= line <= (node.end_lineno or 0)]
    return max((node.lineno for node in around or named), default=line)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for child in sorted(path.iterdir()):
        if child.is_dir():
            environment = (child / "pyvenv.cfg").exists()
            if not (child.name.startswith(".") or child.name in NOT_SOURCES or environment or child.is_symlink()):
                yield from _files(child)
        elif child.suffix == ".py":
            yield child


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield each class with its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name, child
            yield from _classes(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _classes(child, f"{prefix}{child.name}.<locals>.")
        else:
            yield from _classes(child, prefix)


def _dotted(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _names(tree: ast.AST) -> dict[str, str]:
    """Return the full name for each name that a file imports or assigns."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module or ''}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            names |= {node.targets[0].id: dotted} if (dotted := _dotted(node.value)) else {}
    return names


def _resolved(dotted: str, names: dict[str, str]) -> str:
    for _ in range(8):  # a name can stand for another name, even in a loop
        head, dot, rest = dotted.partition(".")
        if head not in names or names[head].partition(".")[0] == head:
            break
        dotted = names[head] + dot + rest
    return dotted


def _subclasses(
    trees: dict[Path, ast.Module], classes: dict[Path, list[tuple[str, ast.ClassDef]]]
) -> set[tuple[Path, str]]:
    """Return the classes that inherit from autograd.Function, directly or through other classes of the files."""
    names = {file: _names(tree) for file, tree in trees.items()}
    found: set[tuple[Path, str]] = set()
    while True:
        known = {(file, name.rpartition(".")[2]) for file, name in found}
        elsewhere = {(file.stem if file.stem != "__init__" else file.parent.name, name) for file, name in known}
        more = set()
        for file, listed in classes.items():
            for name, node in listed:
                bases = [_resolved(_dotted(base), names[file]) for base in node.bases]
                for base in bases:
                    *owner, last = base.split(".")
                    module = owner[-1] if owner else ""
                    imported = owner and ((module, last) in elsewhere)
                    own = not owner and (file, last) in known
                    if own or imported or base.endswith(("autograd.Function", "autograd.function.Function")):
                        more.add((file, name))
        if more <= found:
            return found
        found |= more


def _operators(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the operators for which a file registers a gradient, if the file has their names as text."""
    definitions: dict[str, tuple[int, str]] = {}
    registered: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                call = decorator if isinstance(decorator, ast.Call) else None
                last = _dotted(call.func).rpartition(".")[2] if call else ""
                if call and last in ("custom_op", "triton_op") and (name := _literal(call)):
                    definitions[node.name] = definitions[name] = (node.lineno, name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            # f = custom_op("ns::name", ...)(function)
            inner = node.value.func if isinstance(node.value.func, ast.Call) else node.value
            target = node.targets[0]
            if _dotted(inner.func).rpartition(".")[2] in ("custom_op", "triton_op") and (name := _literal(inner)):
                definitions[_dotted(target)] = definitions[name] = (node.lineno, name)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            owner, _, last = _dotted(node.func).rpartition(".")
            if last == "register_autograd":
                argument = node.args[0] if node.args else None
                named = (
                    _literal(node) or (owner if owner in definitions else "") or (_dotted(argument) if argument else "")
                )
                if not named:
                    continue
                registered.setdefault(named, node.lineno)
    for key, line in registered.items():
        if key in definitions:
            yield definitions[key]
        elif "::" in key:
            yield line, key
    # A decorator can also register a gradient: @op.register_autograd, found as an attribute.
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                owner, _, last = _dotted(decorator).rpartition(".")
                if last == "register_autograd" and owner in definitions:
                    yield definitions[owner]


def _literal(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
