"""What a reader pastes, taken apart: the messages in it, each with its part, and the places in the program.

Logs, notebooks, launchers and boxes put signs around a traceback; they are removed first. The patterns are those of the
index, because the browser reads the same text with the same patterns.
"""

import itertools
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

# What a message is in the paste.
LAST, CAUSE, EARLIER, WARNING, PROSE = "last", "cause", "earlier", "warning", "prose"
LONGEST = 4000  # characters of one message that are read
LAST_OF = 200_000  # characters of a log that are read, the last ones
MOST = 24  # messages of one paste that are read, the last ones
TERMINAL = 80  # characters in a line of most terminals
NARROWEST = 60  # of other terminals
BREAK = "-" * 8  # one of the lines behind which no message goes on


@dataclass(frozen=True)
class Frame:
    """A place in a program, with the code that the traceback shows there, and the lines around that."""

    file: str
    line: int
    function: str
    code: str
    around: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: {self.code}"


@dataclass(frozen=True)
class Message:
    """One candidate for what the reader asks about.

    Args:
        kind: the type of the exception or warning, without its module; empty where the paste has none.
        text: what it says.
        part: "last", "cause", "earlier", "warning" or "prose".
        place: the last place of the traceback that it ends, if it ends one.
    """

    kind: str
    text: str
    part: str
    place: Frame | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.kind else self.text


@dataclass(frozen=True)
class Paste:
    """A text taken apart, the likeliest message first."""

    text: str
    messages: tuple[Message, ...]
    frames: tuple[Frame, ...]
    chained: bool


@cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern of the index; its groups are named as in JavaScript."""
    return re.compile(re.sub(r"\(\?<(?=[a-z])", "(?P<", pattern), flags | re.ASCII)


def cleaned(text: str, rules: dict[str, Any]) -> str:
    """Without colors, entities, and what logs and boxes put around each line."""
    for pattern, instead in rules["clean"]:
        text = compiled(pattern).sub(instead, text)
    prefix = compiled(f"(?:{'|'.join(rules['prefixes'])})+")
    suffix, record = compiled(rules["suffix"]), compiled(rules["record"])
    lines: list[str] = []
    within = True  # a record of the log, or nothing has been said yet
    for line in unwrapped(text.split("\n"), compiled(rules["wrapped"])):
        # What a log says next is no part of a message that came without its prefix.
        if (begins := record.match(line) is not None) and not within:
            lines.append(BREAK)
        within = begins or (within and not line.strip())
        lines.append(suffix.sub("", prefix.sub("", line, count=1) if prefix.match(line) else line))
    return "\n".join(lines)


def unwrapped(lines: list[str], goes_on: re.Pattern[str]) -> list[str]:
    """Without the ends of lines that a terminal has put at its width, even within a word."""
    found = lines[:1]
    width = TERMINAL
    for before, line in itertools.pairwise(lines):
        more = goes_on.match(line) is not None
        if more and NARROWEST <= len(before) == len(line):
            width = len(line)
        elif not more or len(before) != width:
            width = TERMINAL
        if more and len(before) == width:
            found[-1] += line
        else:
            found.append(line)
    return found


def split(text: str, rules: dict[str, Any]) -> Paste:
    """Take a text apart."""
    text = cleaned(text[-LAST_OF:], rules)
    frames, blocks = _blocks(text.split("\n"), rules)
    found: list[Message] = []
    prose: list[str] = []
    for lines, chained, place in blocks:
        _messages("\n".join(lines).strip(), chained, place, rules, found, prose)
    if frames and (said := compiled(rules["raises"]).search(frames[-1].code)):
        # The message may be cut off, and the code that raises it is there.
        found.append(Message(said["kind"] or "AssertionError", said["text"], CAUSE))
    last = max((i for i, message in enumerate(found) if message.part == LAST), default=-1)
    for i, message in enumerate(found):
        place = message.place or (frames[-1] if frames and i == last else None)
        if place and not message.text and place.code.startswith("assert "):
            # An assertion without a message says only what it asserts.
            found[i] = replace(message, text=place.code.removeprefix("assert "))
    for i, message in enumerate(found):
        if message.part == LAST and i != last:
            found[i] = replace(message, part=EARLIER)
    # A chain is read from its end; what the reader wrote around it comes last.
    ordered = found[::-1][:MOST] + [Message("", part, PROSE) for part in prose[:MOST]]
    return Paste(text, tuple(ordered), tuple(frames), compiled(rules["chained"]).search(text) is not None)


def _blocks(lines: list[str], rules: dict[str, Any]) -> tuple[list[Frame], list[tuple[list[str], bool, Frame | None]]]:
    """The frames, and the lines between them: whether a chained exception follows, and which frame is in front."""
    patterns = [compiled(pattern) for pattern in rules["frames"]]
    listing, pointer, arrow = (compiled(rules[name]) for name in ("listing", "pointer", "arrow"))
    stops, heading = compiled(rules["stops"]), compiled(rules["heading"])
    frames: list[Frame] = []
    blocks: list[tuple[list[str], bool, Frame | None]] = [([], False, None)]
    at = lambda i: next((m for p in patterns if (m := p.match(lines[i]))), None)  # noqa: E731
    i = 0
    while i < len(lines):
        match = at(i)
        if match is None:
            if stops.match(lines[i]):
                blocks[-1] = (blocks[-1][0], "The above exception was" in lines[i], blocks[-1][2])
                blocks.append(([], False, None))
            elif not listing.match(lines[i]):
                blocks[-1][0].append(lines[i])
            i += 1
            continue
        depth = indentation(lines[i])
        shown: list[str] = []
        i += 1
        while i < len(lines) and not at(i) and not stops.match(lines[i]):
            line = lines[i]
            # Code stands deeper than its place; where the paste has lost that, it is the one line below.
            shallow = line.strip() and not listing.match(line) and indentation(line) <= depth
            if shallow and (heading.search(line) or any(each.strip() for each in shown)):
                break
            shown.append(line)
            i += 1
        marked = [line for line in shown if pointer.match(line)] or [line for line in shown if line.strip()]
        groups = match.groupdict()
        frames.append(
            Frame(
                (groups.get("file") or "").strip(),
                int(groups.get("line") or 0),
                (groups.get("function") or "").strip(),
                arrow.sub("", marked[0]).strip() if marked else "",
                "\n".join(shown),
            )
        )
        blocks.append(([], False, frames[-1]))
    return frames, blocks


def indentation(line: str) -> int:
    """How many blanks a line begins with."""
    return len(line) - len(line.lstrip())


def _messages(
    block: str, chained: bool, place: Frame | None, rules: dict[str, Any], found: list[Message], prose: list[str]
) -> None:
    """Append what a block says."""
    if not block:
        return
    headings = list(compiled(rules["heading"], re.MULTILINE).finditer(block))
    if not headings:
        headings = list(compiled(rules["bare"], re.MULTILINE).finditer(block))
    warning = compiled(rules["warning"])
    for match in headings:
        kind = match["kind"].rpartition(".")[2]
        part = WARNING if warning.search(kind) else CAUSE if chained else LAST
        # A heading within a message is one of its own, and still part of the outer one.
        own = place if match is headings[0] else None
        found.append(Message(kind, block[match.end() : match.end() + LONGEST].strip(), part, own))
    before = block[: headings[0].start()].strip() if headings else block
    parts = re.split(r"\n\s*\n", before)
    prose.extend(part for each in ([before] if parts[1:] else []) + parts if len(part := each.strip()[:LONGEST]) > 3)
