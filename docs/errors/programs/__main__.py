"""Compare what the programs raise on the installed torch with the error index: ``python -m docs.errors.programs``.

``--update`` writes the index anew, or with names behind it only the entries of these programs, and drops those that
have no program any more. The exit status is 1 if a message has changed.
"""

import difflib
import sys
from collections.abc import Iterator, Mapping

import torch
from docs.errors import build, programs
from docs.errors.programs import Program

from autograd_cookbook.errors import INDEX, storing


def raised_by(program: Program) -> dict[str, str] | None:
    """Run a program; None if it raises nothing."""
    raised = programs.run(program.source, program.warning)
    if raised is None:
        return None
    version = torch.__version__.partition("+")[0]
    return {"name": program.name, "kind": raised.kind, "message": raised.message, "torch": version}


def changes(stored: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str] | None]) -> Iterator[str]:
    """What the installed torch says otherwise than the index, one paragraph each."""
    for name, entry in now.items():
        if entry is None:
            yield f"{name}: raises nothing"
        elif name not in stored:
            yield f"{name}: not in the index"
        else:
            for field in ("kind", "message"):
                if entry[field] != stored[name][field]:
                    lines = difflib.ndiff(stored[name][field].splitlines(), entry[field].splitlines())
                    yield "\n  ".join([f"{name}: another {field}", *(line for line in lines if line[0] in "+-")])


def main(arguments: list[str]) -> int:
    """Print the changes, or write them down."""
    known = programs.load()
    names = [name for name in arguments if name != "--update"]
    stored = {entry["name"]: entry for entry in storing.read(INDEX)["entries"]}
    chosen = [program for name, program in known.items() if name in names or not names]
    now = {program.name: raised_by(program) for program in chosen}
    of_programs = {name: entry for name, entry in stored.items() if name in now}
    found = list(changes(of_programs, now))
    if "--update" in arguments:
        if silent := [name for name, entry in now.items() if entry is None]:
            print("raise nothing, so nothing is written:", *silent)
            return 1
        raised = {name: {f: entry[f] for f in build.RAISED} for name, entry in stored.items() if name in known}
        raised |= {name: entry for name, entry in now.items() if entry}
        count = build.write(raised[name] for name in known if name in raised)
        print(*found, f"{len(now)} messages of torch {torch.__version__} are written; the index has {count}", sep="\n")
        return 0
    print(*found, f"torch {torch.__version__}: {len(now)} programs, {len(found)} changes", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
