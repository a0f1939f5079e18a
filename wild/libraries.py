"""The libraries, what the harvest found in each, and what a person says of every finding.

A folder of ``wild`` for each: ``use.py``, a program that uses the library; ``pyproject.toml``, with its pinned
``dependencies`` and what a maintainer would say of its functions; ``judged.toml``, the judgments; and ``found.json``,
which ``nox -s wild`` writes.
"""

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
# "pedantic": what is said is so, and the library's users will hardly ever meet it.
JUDGMENTS = "true", "pedantic", "false"

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Library:
    """One of them; its name is that of its folder, and of the distribution."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def table(self) -> dict[str, Any]:
        """What its pyproject.toml says."""
        return tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))

    @property
    def pins(self) -> list[str]:
        """Everything to install; the library itself comes first."""
        return self.table["project"]["dependencies"]

    @property
    def version(self) -> str:
        return self.pins[0].partition("==")[2]

    @property
    def package(self) -> str:
        """The package that it is imported as."""
        return self.table["tool"]["wild"]["package"]

    @property
    def found(self) -> dict[str, Any]:
        """What the last run stored."""
        return json.loads((self.folder / "found.json").read_text(encoding="utf-8"))

    @property
    def judged(self) -> dict[Key, dict[str, str]]:
        """The judgments, by what they are about."""
        path = self.folder / "judged.toml"
        listed = tomllib.loads(path.read_text(encoding="utf-8"))["findings"] if path.exists() else []
        return {key_of(each): each for each in listed}

    def store(self, found: dict[str, Any]) -> None:
        """Write what a run found."""
        (self.folder / "found.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def libraries(names: Iterable[str] = ()) -> list[Library]:
    """All of them, or some.

    Raises:
        LookupError: for a name that is none of theirs.
    """
    known = {path.parent.name: Library(path.parent) for path in sorted(FOLDER.glob("*/pyproject.toml"))}
    if unknown := [name for name in names if name not in known]:
        raise LookupError(f"no library {unknown[0]!r} in wild; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def key_of(finding: dict[str, Any]) -> Key:
    """What is judged: a check of a function, as bad as it is."""
    return finding["function"], finding["check"], finding["severity"]


def differences(library: Library) -> list[str]:
    """What was found and is not judged, and the other way round."""
    found = {key_of(finding) for finding in library.found["findings"]}
    judged = library.judged.keys()
    return [
        *(f"{library.name}: appeared, and is not judged: {' '.join(key)}" for key in sorted(found - judged)),
        *(f"{library.name}: is judged, and disappeared: {' '.join(key)}" for key in sorted(judged - found)),
    ]
