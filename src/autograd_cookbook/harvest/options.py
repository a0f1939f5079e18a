"""Read a project's options for its functions from ``[tool.autograd_cookbook]`` in its pyproject.toml."""

import fnmatch
import importlib
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograd_cookbook.auditing import audit
from autograd_cookbook.auditing.arguments import GRADIENTS
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.cli import instead
from autograd_cookbook.policy import FAIL_ON, level

TABLE = "tool.autograd_cookbook"


class OptionsError(Exception):
    """The table has a wrong value. The message says where, and what was expected."""


@dataclass(frozen=True)
class FunctionOptions:
    """The options for one function."""

    audit: dict[str, Any] = field(default_factory=dict)
    inputs: str = ""
    accept: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """The options of a project.

    Args:
        functions: the options for each function, by its full name, or by a pattern for full names, as in a shell.
        sources: the folders in which the harvest searches for functions.
        fail_on: the mildest severity of a finding that makes a harvest fail.
    """

    functions: dict[str, FunctionOptions] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    fail_on: str = FAIL_ON

    def of(self, name: str) -> FunctionOptions:
        """Return the options for a function. Its own table overrides a pattern, and a long pattern a short pattern."""
        whole = FunctionOptions()
        for key in sorted(
            (key for key in self.functions if matches(name, key)), key=lambda key: (key == name, len(key))
        ):
            said = self.functions[key]
            whole = FunctionOptions(whole.audit | said.audit, said.inputs or whole.inputs, whole.accept | said.accept)
        return whole


def matches(name: str, key: str) -> bool:
    """Whether the table under this key is for a function."""
    return name == key or (is_pattern(key) and fnmatch.fnmatchcase(name, key))


def is_pattern(key: str) -> bool:
    """Whether a key of the table stands for several functions."""
    return "*" in key or "?" in key


def options_of(root: Path) -> Options:
    """Read the table of a project.

    Raises:
        OptionsError: if a key is unknown, or a value has another type than expected.
    """
    path = root / "pyproject.toml"
    if not path.is_file():
        return Options()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("autograd_cookbook", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionsError(f"{path}: {error}") from None
    _expect(TABLE, table, dict, "a table")
    _known(TABLE, table, ("functions", "sources", "fail_on"))
    functions = _expect(f"{TABLE}.functions", table.get("functions", {}), dict, "a table for each function")
    default = ["src"] if (root / "src").is_dir() else ["."]
    sources = _expect(f"{TABLE}.sources", table.get("sources", default), list, "a list of folders")
    for source in sources:
        if not isinstance(source, str) or not (root / source).exists():
            raise OptionsError(f"{TABLE}.sources: no folder {source!r} in {root}")
    read = {name: _function(name, entry) for name, entry in functions.items()}
    try:
        fail_on = level(table.get("fail_on", FAIL_ON))
    except ValueError as error:
        raise OptionsError(f"{TABLE}: {error}") from None
    return Options(read, tuple(str(root / source) for source in sources), fail_on)


def _function(name: str, entry: Any) -> FunctionOptions:
    where = f'{TABLE}.functions."{name}"'
    _expect(where, entry, dict, "a table")
    _known(where, entry, ("gradient", "surrogate", "tolerance", "domain", "skip", "inputs", "accept"))
    options = {key: entry[key] for key in ("gradient", "tolerance", "skip") if key in entry}
    if "gradient" in entry and entry["gradient"] not in GRADIENTS:
        raise OptionsError(f"{where}.gradient: expected one of {', '.join(GRADIENTS)}, got {entry['gradient']!r}")
    if "tolerance" in entry:
        _expect(f"{where}.tolerance", entry["tolerance"], (int, float), "a number")
    for check in _expect(f"{where}.skip", entry.get("skip", []), list, "a list of checks"):
        _known(f"{where}.skip", [check], tuple(all_checks()), "check")
    for key in ("surrogate", "domain"):
        if key in entry:
            if key not in inspect.signature(audit).parameters:
                raise OptionsError(f"{where}.{key}: this version of the audit has no such option")
            options[key] = _reference(f"{where}.{key}", entry[key])
    inputs = _reference(f"{where}.inputs", entry["inputs"]) if "inputs" in entry else ""
    accept = _expect(f"{where}.accept", entry.get("accept", {}), dict, "a table of checks and reasons")
    _known(f"{where}.accept", accept, tuple(all_checks()), "check")
    for check, reason in accept.items():
        if not (isinstance(reason, str) and reason.strip()):
            raise OptionsError(f"{where}.accept.{check}: expected a reason, got {reason!r}")
    return FunctionOptions(options, inputs, accept)


def _expect(where: str, value: Any, kind: Any, expected: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise OptionsError(f"{where}: expected {expected}, got {value!r}")
    return value


def _known(where: str, given: Any, known: tuple[str, ...], what: str = "key") -> None:
    for name in given:
        if name not in known:
            raise OptionsError(f"{where}: unknown {what} {name!r}{instead(str(name), known)}")


def _reference(where: str, value: Any) -> str:
    module, colon, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not (colon and all(map(str.isidentifier, [*module.split("."), *name.split(".")]))):
        raise OptionsError(f'{where}: expected "package.module:name", got {value!r}')
    return str(value)


def resolved(reference: str) -> Callable[..., Any]:
    """Return the object that ``package.module:name`` stands for.

    Raises:
        OptionsError: if there is no such object, or it cannot be called.
    """
    module, _, name = reference.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise OptionsError(f"{reference!r} in {TABLE}: {error}") from None
    if not callable(value):
        raise OptionsError(f"{reference!r} in {TABLE}: expected a callable, got {type(value).__name__}")
    if isinstance(value, type) and hasattr(value, "apply"):
        return value.apply
    return value
