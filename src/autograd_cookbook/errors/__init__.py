"""The error index: what PyTorch says around custom gradients, why, and what to do, found by pasting the message.

Most entries were really raised, by a program that the site shows. ``index.json`` has the entries and the rules by which
a pasted text is read; the site's search interprets the same file.

>>> found = explain("TypeError: save_for_backward can only save variables, but argument 3 is of type str")
>>> found.known
'yes'
>>> print(found.entries[0].title)
save_for_backward was given a number
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autograd_cookbook import SITE
from autograd_cookbook.errors.answering import Known, answer
from autograd_cookbook.errors.matching import Matcher
from autograd_cookbook.errors.paste import Frame

__all__ = ["Entry", "Explanation", "Former", "entries", "explain"]

# Where a message that is not in the index is reported.
ISSUES = "https://github.com/autograd-cookbook/autograd-cookbook/issues/new"
INDEX = Path(__file__).with_name("index.json")
OTHERS = 4  # other causes that the reader is asked about
# For each entry that has one, the program that raises it and the fixed one.
PROGRAMS = Path(__file__).with_name("programs.json")


@dataclass(frozen=True)
class Former:
    """What another release of torch said instead."""

    torch: str
    message: str
    kind: str = ""


@dataclass(frozen=True)
class Entry:
    """One message, with its explanation.

    Args:
        name: unique; the anchor of its section on the site.
        group: the page that it is on.
        title: what happened, in plain words.
        kind: the type of the exception or warning.
        message: as the newest torch raised it.
        cause: why PyTorch says this.
        fix: what to do.
        torch: the version that said so.
        change: the one thing to change in the reader's code; by default how the fix begins.
        line: how the lines of code look that it is about, as a regular expression; empty where the traceback says it.
        harmless: when the message can be ignored; empty where it cannot.
        tell: what is so in the reader's program if it is this one, and not another with the same message.
        borrowed: what to do for one who uses the Function, or whatever it is about, and has not written it.
        source: where it was seen, if no program raises it here.
        see: pages that explain more, if no program has them.
        former: what other releases said.
        cases: the entry as it is where a text shows more than its message: another cause, or that the fix was tried.
        special: whether this is one of them, so that the program of the entry does not show its fix.
        asked: whether it is one of them that a text need not show, so that the reader is asked.
    """

    name: str
    group: str
    title: str
    kind: str
    message: str
    cause: str
    fix: str
    torch: str
    change: str = ""
    line: str = ""
    harmless: str = ""
    tell: str = ""
    borrowed: str = ""
    source: str = ""
    see: tuple[str, ...] = ()
    former: tuple[Former, ...] = ()
    cases: tuple["Entry", ...] = ()
    special: bool = False
    asked: bool = False

    @property
    def others(self) -> tuple["Entry", ...]:
        """The cases that a text need not show. They have the same message, so the reader is asked."""
        return tuple(case for case in self.cases if case.asked)[:OTHERS]

    @property
    def url(self) -> str:
        """The section that shows the program, broken and fixed; relative if no site is published."""
        return f"{SITE}errors/{self.group}.html#{self.anchor}"

    @property
    def advice(self) -> tuple[str, str]:
        """The one thing to change, and what else the fix says."""
        return advice(self.change, self.fix)

    @property
    def anchor(self) -> str:
        """Where that section is on its page."""
        return f"error-{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Explanation:
    """What a pasted text is taken for.

    Args:
        known: "yes" if it is the first entry, "maybe" if it is one of them, "no" if these are merely the nearest.
        entries: the best first, at most three, with the reader's own nodes and operators in their texts.
        general: which part of PyTorch raised it, and what to try first; or that it is about something else.
        message: what was explained, or could not be, with its type.
        values: what the first entry's variables are in the message: ``{"node": ["MulBackward0"]}``.
        place: the last line of the reader's own code in the traceback.
        note: whose code raised it, where it is not the reader's.
        worded: whether no message is known, and the entries are those that speak of what the text tells.
    """

    known: Known
    entries: tuple[Entry, ...]
    general: str
    message: str
    values: Mapping[str, Sequence[str]]
    place: Frame | None
    note: str = ""
    worded: bool = False


@cache
def matcher() -> Matcher:
    """The index, read."""
    return Matcher(json.loads(INDEX.read_text(encoding="utf-8")))


@cache
def entries() -> tuple[Entry, ...]:
    """All of them, in the order of the site."""
    return tuple(entry_of(stored) for stored in matcher().entries)


def entry_of(stored: Mapping[str, Any], values: Mapping[str, Sequence[str]] | None = None, case: int = -1) -> Entry:
    """An entry of the index, in one of its cases; its texts name what the reader's message names."""
    stored = in_case(stored, case)
    nested = ("former", "cases")
    fields = {name: stored[name] for name in Entry.__dataclass_fields__ if name in stored and name not in nested}
    for name in ("change", "harmless", "cause", "fix", "tell"):
        if name in fields:
            fields[name] = filled(fields[name], values or {})
    if "see" in fields:
        fields["see"] = tuple(fields["see"])
    former = tuple(Former(**each) for each in stored.get("former", ()))
    cases = tuple(entry_of(stored, values, i) for i, _ in enumerate(stored.get("cases", ())))
    return Entry(**fields, former=former, cases=cases)


def in_case(stored: Mapping[str, Any], case: int) -> Mapping[str, Any]:
    """An entry with the texts of one of its cases in the place of its own; of a fix, the beginning is the change."""
    if case < 0:
        return stored
    told = {name: text for name, text in stored["cases"][case].items() if name != "when"}
    return {**stored, **({"change": ""} if "fix" in told else {}), **told, "cases": (), "special": True}


def advice(change: str, fix: str) -> tuple[str, str]:
    """The one thing to change, and what else there is to do; the first is how the fix begins, if it is not given."""
    if change:
        return change, fix
    parts = re.split(r"(?<=\.)\s+(?=[A-Z`])", fix, maxsplit=1)
    return parts[0], "".join(parts[1:])


def filled(text: str, values: Mapping[str, Sequence[str]]) -> str:
    """With the reader's node, operator and so on in the place of ``{node}`` and ``{op}``."""
    named = {"node": "the node", "op": "the operator", "type": "the type", "shape": "the shape", "device": "the device"}
    return re.sub(r"\{(node|op|type|shape|device)\}", lambda m: (values.get(m[1]) or [named[m[1]]])[0], text)


def explain(text: str) -> Explanation:
    """Find what a message means, pasted as it is, with the traceback or without.

    Names of classes, shapes, types, devices and numbers may be other ones than in the index, and so may the release of
    torch.

    Args:
        text: what was printed.

    Raises:
        ValueError: if there is no word in the text.
    """
    if not re.search(r"[A-Za-z]{2}", text):
        raise ValueError(f"expected an error message, got {text.strip()[:40]!r}")
    reader = matcher()
    found = answer(reader, text)
    message = found.message
    return Explanation(
        known=found.known,
        entries=tuple(entry_of(reader.entries[match.entry], match.values, match.case) for match in found.matches),
        general=found.general,
        message="" if message is None else str(message),
        values=found.matches[0].values if found.matches else {},
        place=found.place,
        note=filled(found.note, found.matches[0].values if found.matches else {}),
        worded=found.note == reader.rules["general"]["worded"],
    )
