"""``python -m autograd_cookbook explain < traceback.txt``."""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from autograd_cookbook import SITE
from autograd_cookbook.cli import UsageError
from autograd_cookbook.errors import ISSUES, PROGRAMS, Entry, Explanation, explain, storing

DESCRIPTION = """\
Explain an error message or a warning of PyTorch about gradients. In a text with
several messages, it explains the last one."""
EPILOG = """\
examples:
  python train.py 2>&1 | python -m autograd_cookbook explain
  python -m autograd_cookbook explain traceback.txt --code train.py
  python -m autograd_cookbook explain \\
      "element 0 of tensors does not require grad"
  python -m autograd_cookbook explain --json < traceback.txt

exit status:
  0  the message is in the index, certainly or probably
  1  the message is not in the index
  2  the arguments are wrong, or a file cannot be read
"""
WIDTH = 100
IN_WORDS = "In words"  # the kind of an entry without a message
VERDICTS = {
    "yes": "This is it",
    "maybe": "Probably this",
    "several": "Several causes are possible. Which is yours?",
    "worded": "Probably one of these",
    "no": "This message is not in the index.",
    "unsure": "No entry of the index is a sure answer to this text.",
}


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a text file with the message, or the message itself; default and -: standard input",
    )
    parser.add_argument(
        "--code", metavar="FILE.py", help="your program; the answer then quotes the lines that cause the message"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(options: argparse.Namespace) -> int:
    """Print the explanation; return the exit status."""
    code = None if options.code is None else Path(options.code)
    try:
        if options.file in (None, "-"):
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
    """Return the text of the file with this name. If there is no such file, return an argument that is a sentence.

    A sentence has spaces, or letters of a script that is written without them.
    """
    try:
        return Path(argument).read_text(encoding="utf-8", errors="replace")
    except OSError:  # the system also raises for a text that is too long for a name
        if any(each.isspace() or each >= "\u3040" for each in argument.strip()):
            return argument
        raise


def as_json(found: Explanation) -> dict[str, object]:
    """Return the answer in a form for programs, with all the advice of the answer for people."""

    def plain(entry: Entry) -> dict[str, object]:
        told = {"name": entry.name, "title": entry.title, "tell": entry.tell, "harmless": entry.harmless}
        return {**told, "cause": entry.cause, "fix": entry.remedy, "url": entry.url}

    entries = [{**plain(entry), "others": [plain(case) for case in entry.others]} for entry in found.entries]
    return {"known": found.known, "entries": entries, "general": found.note or found.general}


def told(found: Explanation, code: Path | None = None) -> Iterator[str]:
    """Yield the answer in lines of 100 characters."""
    from autograd_cookbook.errors import quoting

    own = [f"  your line: {line}" for line in quoting.lines(found, code)]
    first = next(iter(found.message.splitlines()), "")
    said = [f"  {textwrap.shorten(first, WIDTH - 2, placeholder=' …')}"] if first else []
    asked = found.note or (found.known == "maybe" and found.entries[0].tell and f"How to tell: {found.entries[0].tell}")
    noted = ["", *wrapped(asked)] if asked and (found.note or len(found.entries) == 1) else []
    if found.known == "no":
        symptoms = found.entries and all(entry.kind == IN_WORDS for entry in found.entries)
        yield from [VERDICTS["unsure" if symptoms else "no"], *said, *own, "", *wrapped(found.general)]
        if found.entries:
            yield from ["", "The closest entries, which may be about something else:"]
            yield from (line for entry in found.entries for line in (f"- {entry.title}", *compared(entry)))
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
            *(["", *wrapped(found.general, "Otherwise: ")] if asked and not found.note and found.general else []),
        ]
        yield from programs(found.entries[0])
    else:
        yield from [VERDICTS["worded"] if found.worded else VERDICTS["several"], *said, *own, *noted]
        for number, entry in enumerate(found.entries, 1):
            yield from ["", f"{number}. {entry.title}"]
            if entry.tell:
                yield from wrapped(entry.tell, "   How to tell: ")
            yield from (f"   {line}".rstrip() for line in [*explained(entry), *others(entry)])
        yield from programs(found.entries[0])


def compared(entry: Entry) -> Iterator[str]:
    """Yield how the reader recognizes an entry that is perhaps not the answer, and what to change if it is."""
    if entry.kind == IN_WORDS:
        yield from wrapped(entry.tell, "  Only if: ")
        yield from wrapped(entry.advice[0], "  Then:    ")
    yield from page(entry, "  ")


def explained(entry: Entry) -> Iterator[str]:
    """Yield what to change, why, and where to read more."""
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
    """Yield the other possible causes of the message, if the text does not show which one it is."""
    if entry.others:
        yield "Or is it this?"
    for case in entry.others:
        yield from wrapped(f"{case.tell} {case.advice[0]}", "  - ")


def page(entry: Entry, label: str) -> Iterator[str]:
    """Yield the line with the address of the entry's section, if a site is published."""
    if SITE:
        yield f"{label}{entry.url}"


def programs(entry: Entry) -> Iterator[str]:
    """Yield the program that raises the message, and the fixed program. A variant of an entry has no such programs."""
    if entry.special:
        return
    broken, fixed = storing.read(PROGRAMS).get(entry.name, ("", ""))
    for title, source in (("A program that raises it:", broken), ("The same program, fixed:", fixed)):
        if source:
            yield from ["", title, "", textwrap.indent(source.rstrip(), "    ")]


def wrapped(text: str, label: str = "") -> list[str]:
    """Return the lines of a paragraph, with a label in front."""
    plain = text.replace("``", "`")
    # Do not break code at its hyphens, because the reader copies it.
    wrapper = textwrap.TextWrapper(WIDTH, label, " " * len(label), break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(plain)


def report(found: Explanation) -> str:
    """Return the address of a form for a new entry, with the message filled in."""
    from urllib.parse import quote

    said = quote(textwrap.shorten(found.message or "Unknown message", 120, placeholder=" …"))
    return f"{ISSUES}?template=unknown-message.yml&title={said}&message={said}"
