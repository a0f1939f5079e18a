"""Compare what the programs raise on the installed torch with the error index: ``python -m tests.errors``.

``--update`` writes the index anew. The exit status is 1 if a message has changed.
"""

import ast
import difflib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

import torch

from autograd_cookbook.errors import INDEX, Entry, words
from tests import errors
from tests.errors import Program


def entry_of(program: Program) -> Entry | None:
    """Run a program; None if it raises nothing."""
    raised = errors.run(program.source, program.warning)
    if raised is None:
        return None
    return Entry(
        name=program.name,
        group=program.group,
        title=program.title,
        kind=raised.kind,
        message=raised.message,
        words=" ".join(words(raised.message, names_in(program.source))),
        cause=program.cause,
        fix=program.fix,
        torch=torch.__version__.partition("+")[0],
    )


def names_in(source: str) -> set[str]:
    """What a program gives a name of its own: another reader's class is called otherwise."""
    tree = ast.parse(source)
    named = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    # A library's name, too: "mylib::scale".
    named |= {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "::" in node.value
        for part in node.value.partition("(")[0].split("::")
    }
    required = {"forward", "setup_context", "backward", "jvp", "vmap", "vjp"}  # called the same by everybody
    return {name for name in named if len(name) > 2 and name not in required}


def changes(stored: dict[str, dict[str, str]], now: dict[str, dict[str, str] | None]) -> Iterator[str]:
    """What the installed torch says otherwise than the index, one paragraph each."""
    for name in stored.keys() - now.keys():
        yield f"{name}: in the index, and there is no such program"
    for name, entry in now.items():
        if entry is None:
            yield f"{name}: raises nothing"
        elif name not in stored:
            yield f"{name}: not in the index"
        else:
            for field in entry.keys() - {"torch"}:
                if entry[field] != stored[name][field]:
                    lines = difflib.ndiff(stored[name][field].splitlines(), entry[field].splitlines())
                    yield "\n  ".join([f"{name}: another {field}", *(line for line in lines if line[0] in "+-")])


def main() -> int:
    """Print the changes, or write them down."""
    programs = errors.load()
    now = {name: (entry := entry_of(program)) and asdict(entry) for name, program in programs.items()}
    if "--update" in sys.argv[1:]:
        silent = [name for name, entry in now.items() if entry is None]
        if silent:
            print("raise nothing, so nothing is written:", *silent)
            return 1
        INDEX.write_text(json.dumps(list(now.values()), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{len(now)} messages of torch {torch.__version__} are in the index")
        return 0
    stored = {entry["name"]: entry for entry in json.loads(INDEX.read_text(encoding="utf-8"))}
    found = list(changes(stored, now))
    print(*found, f"torch {torch.__version__}: {len(now)} programs, {len(found)} changes", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
