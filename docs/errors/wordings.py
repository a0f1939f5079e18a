"""What other releases of torch say, for ``nox -s wordings``: each runs the programs of the error index.

``export FILE`` writes the programs as text, with the pinned torch. ``run FILE OUT`` runs them with whatever torch is
installed. ``merge OUT…`` compares what the releases said, and writes down every wording that is not today's.
"""

import json
import re
import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autograd_cookbook.errors import Entry

WORDINGS = Path(__file__).with_name("wordings.json")
# A program may fail in an old release for another reason: it uses what is not there yet. Then the kind of exception
# is another one, or nearly no word of the message is the same.
ALIKE = 0.45


def export(target: Path) -> None:
    """The programs that the index is made of, each as a file of its own."""
    from docs.errors import programs

    found = {program.name: [program.source, program.warning] for program in programs.load().values()}
    target.write_text(json.dumps(found))


def run(programs: Path, target: Path) -> None:
    """What each program raises with the installed torch; what hangs or ends its process says nothing."""
    import torch
    from docs.errors.programs import run

    said: dict[str, Any] = {}
    for name, (source, warning) in json.loads(programs.read_text()).items():
        try:
            raised = run(source, warning)
        except (RuntimeError, TimeoutError) as error:
            print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        if raised is not None:
            said[name] = [raised.kind, raised.message]
    target.write_text(json.dumps({"torch": torch.__version__.partition("+")[0], "said": said}))


def merge(outputs: Sequence[Path]) -> tuple[dict[str, list[dict[str, str]]], list[str]]:
    """Every wording that is not today's, with the releases that have it; and what was left out as another failure."""
    from autograd_cookbook.errors import entries

    releases = sorted((json.loads(path.read_text()) for path in outputs), key=lambda each: version(each["torch"]))
    found: dict[str, list[dict[str, str]]] = {}
    left_out: list[str] = []
    for entry in entries():
        spans: list[dict[str, Any]] = []
        for release in releases:
            if entry.name not in release["said"]:
                continue
            kind, message = release["said"][entry.name]
            if spans and (kind, message) == (spans[-1]["kind"], spans[-1]["message"]):
                spans[-1]["to"] = release["torch"]
            else:
                spans.append({"kind": kind, "message": message, "from": release["torch"], "to": release["torch"]})
        for span in spans:
            if alike((span["kind"], span["message"]), (entry.kind, entry.message)):
                continue
            if not same_failure(entry.kind, entry.message, span["kind"], span["message"]):
                left_out.append(f"{entry.name}, torch {span['from']}: {span['kind']}: {span['message'][:100]!r}")
                continue
            row = {"torch": " to ".join(dict.fromkeys(map(minor, (span["from"], span["to"])))), **span}
            found.setdefault(entry.name, []).append({key: row[key] for key in ("torch", "kind", "message")})
    return found, left_out


def same_failure(kind: str, message: str, other_kind: str, other: str) -> bool:
    """Whether two releases tell of the same mistake."""
    words = [re.findall(r"\w+", text.lower()) for text in (message, other)]
    alike = SequenceMatcher(None, *words, autojunk=False).ratio()
    return alike >= (ALIKE if kind == other_kind else (1 + ALIKE) / 2)


def known(entry: "Entry", release: str, said: tuple[str, str]) -> bool:
    """Whether an entry's exception, as a release raised it, is the one of today or another that was seen there."""
    here = version(minor(release))
    rows = [(entry.kind, entry.message)]
    for former in entry.former:
        first, *last = map(version, former.torch.split(" to "))
        if first <= here <= (last or [first])[0]:
            rows.append((former.kind or entry.kind, former.message))
    return any(alike(said, row) for row in rows)


def alike(said: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two releases say the same, but for numbers and spaces."""
    return (said[0], plain(said[1])) == (other[0], plain(other[1]))


def plain(message: str) -> str:
    """Without numbers and spaces, in which releases differ for no reason of theirs."""
    return re.sub(r"\d+|\s+", "", message)


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def minor(text: str) -> str:
    return ".".join(text.split(".")[:2])


def main() -> None:
    """Do what the first word says."""
    command, *files = sys.argv[1:]
    paths = [Path(file) for file in files]
    if command == "export":
        export(*paths)
    elif command == "run":
        run(*paths)
    elif command == "merge":
        found, left_out = merge(paths)
        WORDINGS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(*left_out, sep="\n")
        print(
            f"{sum(map(len, found.values()))} other wordings of {len(found)} entries; {len(left_out)} failures left out"
        )
    else:
        sys.exit(f"expected export, run or merge, got {command!r}")


if __name__ == "__main__":
    main()
