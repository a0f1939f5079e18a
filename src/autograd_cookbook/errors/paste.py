"""Split a pasted text into its messages, each with its role in the text, and the places in the program.

First, remove the characters that logs, notebooks, launchers and boxes put around a traceback. The patterns are in the
index, because the browser reads the same text with the same patterns.
"""

import itertools
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

# The roles of a message in a pasted text.
LAST, CAUSE, EARLIER, WARNING, PROSE = "last", "cause", "earlier", "warning", "prose"
LONGEST = 4000  # the most characters of one message that are read
LAST_OF = 200_000  # the number of characters at the end of a log that are read
MOST = 24  # the number of messages at the end of a text that are read
TERMINAL = 80  # characters in a line of most terminals
NARROWEST = 60  # characters in a line of the narrowest other terminals
BREAK = "-" * 8  # a line that ends a message
SPECIAL = frozenset("^$.|?*+()[]{}\\")  # the characters of a regular expression that are no literal ones
# The parts of a regular expression: literal characters, classes, quantifiers, the beginnings of groups.
PIECES = re.compile(
    r"[^\\\[\](){}|?*+.^$]+|\\(?:x..|u.{4}|.)|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|\((?:\?(?::|<?[=!]|<\w+>))?|.",
    re.DOTALL,
)


@dataclass(frozen=True)
class Frame:
    """A place in a program, with the code that the traceback shows there, and the lines around this code."""

    file: str
    line: int
    function: str
    code: str
    around: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: {self.code}"


@dataclass(frozen=True)
class Message:
    """A message that the reader can be asking about.

    Args:
        kind: the type of the exception or warning, without its module. Empty if the text has no type.
        text: the message without its type.
        part: its role: "last", "cause", "earlier", "warning" or "prose".
        place: the last place of the traceback before the message, if there is a traceback.
    """

    kind: str
    text: str
    part: str
    place: Frame | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.kind else self.text


@dataclass(frozen=True)
class Paste:
    """A text split into its parts, with the most likely message first.

    ``printed`` is the text as it was pasted: the marks of a launcher, such as ``[rank1]:``, show how it was run.
    """

    text: str
    messages: tuple[Message, ...]
    frames: tuple[Frame, ...]
    chained: bool
    printed: str


@cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern of the index, which names its groups as in JavaScript."""
    return re.compile(re.sub(r"\(\?<(?=[a-z])", "(?P<", pattern), flags | re.ASCII)


def matches(pattern: str, text: str) -> bool:
    """Whether a text has a match of a pattern.

    To compile a pattern takes longer than all the rest. Most texts lack the words without which there is no match.
    """
    needed = words_of(pattern)
    return (not needed or any(word in text for word in needed)) and compiled(pattern).search(text) is not None


@cache
def words_of(pattern: str) -> tuple[str, ...]:
    """Return literal parts of a pattern, one of which each match has; empty if there are no such parts.

    A text without any of these parts has no match.
    """
    outer: list[tuple[list[tuple[str, ...]], tuple[str, ...], bool]] = []  # the same of the groups around
    found: list[tuple[str, ...]] = []  # the parts of each alternative
    best: tuple[str, ...] = ()  # the longest parts of this alternative
    literal = ""
    pieces = [*PIECES.findall(pattern), "|", ""]
    for piece, following in itertools.pairwise(pieces):
        first = piece[0]
        if first not in SPECIAL or (first == "\\" and not piece[1].isalnum()):
            literal += piece[-1] if first == "\\" else piece
            continue
        if first in "?*{":
            literal = literal[:-1]  # the last letter need not be there
        best, literal = longer(best, (literal,)), ""
        if first == "(":
            outer.append((found, best, piece[-1] in "=!"))
            found, best = [], ()
        elif first == "|":
            found.append(best)
            best = ()
        elif first == ")":
            inner = every([*found, best])
            found, best, aside = outer.pop()
            if not aside and following[:1] not in ("?", "*", "{"):
                best = longer(best, inner)
    return every(found)


def every(alternatives: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the parts of all alternatives; empty if one of them has none."""
    return tuple(itertools.chain(*alternatives)) if all(alternatives) else ()


def longer(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return those parts that say more: whose shortest is longer."""
    return second if min(map(len, second), default=0) > min(map(len, first), default=0) else first


def cleaned(text: str, rules: dict[str, Any]) -> str:
    """Remove colors, entities, and the characters that logs and boxes put around each line."""
    for pattern, instead in rules["clean"]:
        if matches(pattern, text):
            text = compiled(pattern).sub(instead, text)
    prefix = compiled(f"(?:{'|'.join(rules['prefixes'])})+")
    suffix, record = compiled(rules["suffix"]), compiled(rules["record"])
    lines: list[str] = []
    within = True  # inside of a log record, or before the first one
    for line in unwrapped(text.split("\n"), compiled(rules["wrapped"])):
        # The next log record is not part of a message without the log's prefix.
        if (begins := record.match(line) is not None) and not within:
            lines.append(BREAK)
        within = begins or (within and not line.strip())
        lines.append(suffix.sub("", prefix.sub("", line, count=1) if prefix.match(line) else line))
    return "\n".join(lines)


def unwrapped(lines: list[str], goes_on: re.Pattern[str]) -> list[str]:
    """Join lines that a terminal has broken at its width, even inside of a word."""
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
    """Split a text into its messages and frames."""
    printed = text[-LAST_OF:]
    text = cleaned(printed, rules)
    frames, blocks = _blocks(text.split("\n"), rules)
    found: list[Message] = []
    prose: list[str] = []
    for lines, chained, place in blocks:
        _messages("\n".join(lines).strip(), chained, place, rules, found, prose)
    if frames and (said := compiled(rules["raises"]).search(frames[-1].code)):
        # The message can be cut off, although the text has the code that raises it.
        found.append(Message(said["kind"] or "AssertionError", said["text"], CAUSE))
    last = max((i for i, message in enumerate(found) if message.part == LAST), default=-1)
    for i, message in enumerate(found):
        place = message.place or (frames[-1] if frames and i == last else None)
        if place and not message.text and place.code.startswith("assert "):
            # For an assertion without a message, use the asserted condition as the message.
            found[i] = replace(message, text=place.code.removeprefix("assert "))
    for i, message in enumerate(found):
        if message.part == LAST and i != last:
            found[i] = replace(message, part=EARLIER)
    # Read a chain of exceptions from its end. The reader's own words come last.
    ordered = found[::-1][:MOST] + [Message("", part, PROSE) for part in prose[:MOST]]
    chained = compiled(rules["chained"]).search(text) is not None
    return Paste(text, tuple(ordered), tuple(frames), chained, printed)


def _blocks(lines: list[str], rules: dict[str, Any]) -> tuple[list[Frame], list[tuple[list[str], bool, Frame | None]]]:
    """Return the frames, and the blocks of lines between them.

    Each block says whether a chained exception follows, and which frame is before the block.
    """
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
            # Code is indented more than the line of its place. If the text has lost this indentation, the code is the
            # next line.
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
    """Return the number of spaces at the start of a line."""
    return len(line) - len(line.lstrip())


def _messages(
    block: str, chained: bool, place: Frame | None, rules: dict[str, Any], found: list[Message], prose: list[str]
) -> None:
    """Append the messages of a block."""
    if not block:
        return
    headings = list(compiled(rules["heading"], re.MULTILINE).finditer(block))
    if not headings:
        headings = list(compiled(rules["bare"], re.MULTILINE).finditer(block))
    warning = compiled(rules["warning"])
    told = [block[: headings[0].start()] if headings else block]
    for match in headings:
        text = block[match.end() :]
        # In a sentence, the words after the quotation mark are the reader's own.
        quoted = compiled(rules["quoted"].get(match[0][0], "(?!)")).match(text)
        if quoted and quoted[0]:
            told += [text[quoted.end() + 1 :]] if match is headings[-1] else []
            text = quoted[0]
        kind = match["kind"].rpartition(".")[2]
        part = WARNING if warning.search(kind) else CAUSE if chained else LAST
        # A heading inside of a message starts another message, and is also part of the outer message.
        own = place if match is headings[0] else None
        found.append(Message(kind, text[:LONGEST].strip(), part, own))
    for each in told:
        whole = each.strip()
        parts = re.split(r"\n\s*\n", whole)
        prose.extend(row for one in ([whole] if parts[1:] else []) + parts if len(row := one.strip()[:LONGEST]) > 3)
