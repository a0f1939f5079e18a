"""Finds words that we do not write, and says what to write instead: ``python -m docs.prose``, part of ``nox -s lint``.

It reads the prose of the repository: pages, texts of the error index, docstrings and other strings of the package, and
the text between the cells of the cookbook's scripts. Code and comments are left alone. The words are in ``terms.toml``.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TERMS = Path(__file__).with_name("terms.toml")
PAGES = "docs/**/*.md", "docs/errors/entries/*.toml", "wild/*/judged.toml", "changes/*.md", "*.md"
CODE = "src/**/*.py", "examples/**/*.py", "docs/**/*.py"
GENERATED = "docs/cookbook/", "docs/reference/generated/"


@dataclass(frozen=True)
class Rule:
    """What not to write, and what to write instead."""

    say: str
    pattern: re.Pattern[str]


@cache
def rules() -> list[Rule]:
    """Every rule of terms.toml; an entry that excludes nothing is there for the glossary."""
    stored = tomllib.loads(TERMS.read_text(encoding="utf-8"))
    entries = [*stored["term"], *stored["word"]]
    return [
        Rule(entry["say"], re.compile("|".join(f"(?:{each})" for each in entry["not"]), re.IGNORECASE))
        for entry in entries
        if "not" in entry
    ]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are prose, with their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from _outside_of_code(text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from enumerate(_unquoted(node.value).splitlines(), node.lineno)
    if "examples" in path.parts:  # where comments at the margin are the page
        yield from ((number, line[2:]) for number, line in enumerate(text.splitlines(), 1) if line.startswith("# "))


def _outside_of_code(text: str) -> Iterator[tuple[int, str]]:
    """Of a page, what is in no fenced block of code and in no literal."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if fence := re.match(r"\s*[`~]{3,}(\{[\w-]+\})?", line):
            code = not code and fence[1] in (None, "{code-cell}", "{code-block}", "{file}") and line.strip("`~ ") != ""
            continue
        if not code:
            yield number, _unquoted(line)


def _unquoted(text: str) -> str:
    """Without literals: names are no words of ours."""
    return re.sub(r"``[^`]*``|`[^`\n]*`", "`", text)


def found(path: Path) -> Iterator[str]:
    """Every word of a file that we do not write, as a compiler would say it."""
    known = rules()
    for number, line in prose(path):
        for rule in known:
            for match in rule.pattern.finditer(line):
                place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
                yield f"{place}:{number}: {match[0].strip()!r}: write {rule.say}"


def files() -> list[Path]:
    """Every file with prose in it."""
    every = {path for pattern in (*PAGES, *CODE) for path in ROOT.glob(pattern)}
    return sorted(path for path in every if not path.relative_to(ROOT).as_posix().startswith(GENERATED))


def main() -> int:
    """Print what is found; the exit status is 1 if anything is."""
    lines = [line for path in files() for line in found(path)]
    print(*lines, sep="\n", end="\n" * bool(lines))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
