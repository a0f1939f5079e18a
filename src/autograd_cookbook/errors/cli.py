"""``python -m autograd_cookbook explain < traceback.txt``."""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from autograd_cookbook import SITE
from autograd_cookbook.cli import UsageError
from autograd_cookbook.errors import ISSUES, PROGRAMS, Entry, Explanation, explain

DESCRIPTION = "Explain an error message or a warning of PyTorch around gradients: the last one in a text."
EPILOG = """\
examples:
  python train.py 2>&1 | python -m autograd_cookbook explain
  python -m autograd_cookbook explain traceback.txt --code train.py
  python -m autograd_cookbook explain "element 0 of tensors does not require grad"
  python -m autograd_cookbook explain --json < traceback.txt

exit status: 0 if the message is known, surely or probably; 1 if not; 2 if the command cannot be understood.
"""
WIDTH = 100
VERDICTS = {
    "yes": "This is it",
    "maybe": "Probably this",
    "several": "Several causes have this message. Which is yours?",
    "worded": "Probably one of these",
    "no": "This message is not in the index.",
}


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what arguments there are."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a text with the message, or the message itself; default: the standard input",
    )
    parser.add_argument("--code", metavar="FILE.py", help="your program, to quote the lines that the message is about")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(options: argparse.Namespace) -> int:
    """Print the explanation; return the exit status."""
    code = None if options.code is None else Path(options.code)
    try:
        if options.file is None:
            if sys.stdin.isatty():
                print("Paste the message, then press Ctrl-D.", file=sys.stderr)
            text = sys.stdin.buffer.read().decode(errors="replace")
        else:
            text = given(options.file)
        found = explain(text)
        answer = (
            json.dumps(as_json(found), indent=2, ensure_ascii=False) if options.json else "\n".join(told(found, code))
        )
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    print(answer)
    return 1 if found.known == "no" else 0


def given(argument: str) -> str:
    """What the file of this name has; a text with blanks that is no file's name is the message itself."""
    try:
        return Path(argument).read_text(encoding="utf-8", errors="replace")
    except OSError:  # a long text is no name that the system takes
        if any(each.isspace() for each in argument.strip()):
            return argument
        raise


def as_json(found: Explanation) -> dict[str, object]:
    """The answer for a program."""
    fields = ("name", "title", "cause", "fix", "url")
    entries = [{field: getattr(entry, field) for field in fields} for entry in found.entries]
    return {"known": found.known, "entries": entries, "general": found.note or found.general}


def told(found: Explanation, code: Path | None = None) -> Iterator[str]:
    """The answer in lines of 100 characters."""
    from autograd_cookbook.errors import quoting

    own = [f"  your line: {line}" for line in quoting.lines(found, code)]
    first = next(iter(found.message.splitlines()), "")
    said = [f"  {textwrap.shorten(first, WIDTH - 2, placeholder=' …')}"] if first else []
    asked = found.note or (found.known == "maybe" and found.entries[0].tell and f"It is if: {found.entries[0].tell}")
    noted = ["", *wrapped(asked)] if asked and (found.note or len(found.entries) == 1) else []
    if found.known == "no":
        yield from [VERDICTS["no"], *said, *own, "", *wrapped(found.general)]
        if found.entries:
            yield from ["", "The closest entries, which may be about something else:"]
            yield from (line for entry in found.entries for line in (f"- {entry.title}", *page(entry, "  ")))
        if SITE:
            yield from ["", f"All messages: {SITE}errors/index.html"]
        yield from ["", "If it is about gradients, report it, so that it gets an entry:", report(found)]
    elif len(found.entries) == 1:
        yield from [
            f"{VERDICTS[found.known]}: {found.entries[0].title}",
            *said,
            *own,
            *noted,
            "",
            *explained(found.entries[0]),
            *others(found.entries[0]),
        ]
        yield from programs(found.entries[0])
    else:
        yield from [VERDICTS["worded"] if found.worded else VERDICTS["several"], *said, *own, *noted]
        for number, entry in enumerate(found.entries, 1):
            yield from ["", f"{number}. {entry.title}"]
            if entry.tell:
                yield from wrapped(entry.tell, "   This is your case if: ")
            yield from (f"   {line}".rstrip() for line in [*explained(entry), *others(entry)])
        yield from programs(found.entries[0])


def explained(entry: Entry) -> Iterator[str]:
    """What to change, why, and where to read on."""
    change, rest = entry.advice
    if entry.harmless:
        yield from wrapped(entry.harmless, "Ignore it: ")
    yield from wrapped(change, "Change: ")
    yield from wrapped(entry.cause, "Why:    ")
    if rest:
        yield from wrapped(rest, "More:   ")
    if entry.source:
        yield f"Seen in {entry.source}; not run here."
    elif entry.special:
        yield "What is said of this case was not run here."
    yield from page(entry, "Page:   ")


def others(entry: Entry) -> Iterator[str]:
    """What else the message may come from, if nothing in the text tells."""
    if entry.others:
        yield "Or is it this?"
    for case in entry.others:
        yield from wrapped(f"{case.tell} {case.advice[0]}", "  - ")


def page(entry: Entry, label: str) -> Iterator[str]:
    """The line with the address of its section, if a site is published."""
    if SITE:
        yield f"{label}{entry.url}"


def programs(entry: Entry) -> Iterator[str]:
    """The program that raises it, and the fixed one; a case of the entry has another fix than they show."""
    if entry.special:
        return
    broken, fixed = json.loads(PROGRAMS.read_text(encoding="utf-8")).get(entry.name, ("", ""))
    for title, source in (("A program that raises it:", broken), ("The same program, fixed:", fixed)):
        if source:
            yield from ["", title, "", textwrap.indent(source.rstrip(), "    ")]


def wrapped(text: str, label: str = "") -> list[str]:
    """A paragraph, with a label in front."""
    plain = text.replace("``", "`")
    # Code is not broken at its hyphens: it would not run.
    wrapper = textwrap.TextWrapper(WIDTH, label, " " * len(label), break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(plain)


def report(found: Explanation) -> str:
    """The address of a form for a new entry, with the message filled in."""
    said = quote(textwrap.shorten(found.message or "Unknown message", 120, placeholder=" …"))
    return f"{ISSUES}?template=unknown-message.yml&title={said}&message={said}"
