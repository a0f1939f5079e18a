"""The error index: paste a message of PyTorch about gradients, and get its cause and its fix.

For most entries, the site shows a program that raises the message. ``index.json`` has the entries, and the rules for
reading a pasted text. The site's search uses the same file.

>>> found = explain("TypeError: save_for_backward can only save variables, but argument 3 is of type str")
>>> found.known
'yes'
>>> print(found.entries[0].title)
save_for_backward was given a number
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autograd_cookbook import SITE
from autograd_cookbook.errors import storing
from autograd_cookbook.errors.answering import Known, answer
from autograd_cookbook.errors.matching import Matcher
from autograd_cookbook.errors.paste import Frame

__all__ = ["Entry", "Explanation", "Former", "entries", "explain"]

# The page for reporting a message that is not in the index.
ISSUES = "https://github.com/autograd-cookbook/autograd-cookbook/issues/new"
INDEX = Path(__file__).with_name("index.json")
OTHERS = 4  # other causes that the reader is asked about
# The program that raises the message of an entry, and the fixed program, if there are such programs.
PROGRAMS = Path(__file__).with_name("programs.json")


@dataclass(frozen=True)
class Former:
    """The message of another release of torch for the same problem."""

    torch: str
    message: str
    kind: str = ""


@dataclass(frozen=True)
class Entry:
    """One message, with its explanation.

    Args:
        name: the unique name of the entry, and the anchor of its section on the site.
        group: the page of the entry.
        title: what happened, in plain words.
        kind: the type of the exception or warning.
        message: the message of the newest torch.
        cause: why PyTorch raises it.
        fix: what to do.
        torch: the version of torch that raised the message.
        change: the one thing to change in the reader's code. If empty, it is the first sentence of the fix.
        line: a regular expression for the lines of code that cause the message. Empty if the traceback shows them.
        harmless: when you can ignore the message. Empty if you cannot.
        tell: how the reader recognizes this cause, if other entries have the same message.
        borrowed: what to do if the code that raises it belongs to another person.
        source: where the message was seen, if no program here raises it.
        see: pages that explain more, if the program does not name them.
        former: the messages of other releases.
        cases: variants of the entry for texts that show more than the message. For example, the text shows another
            cause, or shows that the reader has tried the fix.
        special: whether this entry is such a variant. The program of the original entry does not show its fix.
        asked: whether the text need not show this variant, so that the reader is asked about it.
        page: the page of the guide, if this is one of its questions and not a message.
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
    page: str = ""

    @property
    def others(self) -> tuple["Entry", ...]:
        """The variants that a text need not show. They have the same message, so the reader is asked about them."""
        return tuple(case for case in self.cases if case.asked)[:OTHERS]

    @property
    def url(self) -> str:
        """The address of the section with the broken and the fixed program. It is relative if no site is published."""
        return f"{SITE}{self.page or f'errors/{self.group}'}.html#{self.anchor}"

    @property
    def advice(self) -> tuple[str, str]:
        """The one thing to change, and the rest of the fix."""
        return advice(self.change, self.fix)

    @property
    def remedy(self) -> str:
        """All of the advice, in one text."""
        return " ".join(filter(None, self.advice))

    @property
    def anchor(self) -> str:
        """The anchor of that section on its page."""
        if self.page:  # as Sphinx names the section of a heading
            plain = unicodedata.normalize("NFKD", self.title.lower()).encode("ascii", "ignore").decode()
            return re.sub("[^a-z0-9]+", "-", plain).strip("-")
        return f"error-{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Explanation:
    """The explanation of a pasted text.

    Args:
        known: "yes" if the first entry explains the text, "maybe" if one of the entries does, "no" if the entries are
            only the closest ones.
        entries: at most three entries, with the best first. Their texts have the nodes and operators of the message.
        general: which part of PyTorch raised the message, and what to try first; or that it is not about gradients.
        message: the message that was looked up, with its type.
        values: the values of the first entry's variables in the message, such as ``{"node": ["MulBackward0"]}``.
        place: the last line of the reader's own code in the traceback.
        note: whose code raised the message, if it is not the reader's.
        worded: whether the text has no known message, and the entries were found by the words of the text.
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
    """Return the index, read from its file."""
    return Matcher(storing.read(INDEX))


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, in the order of the site."""
    return tuple(entry_of(stored) for stored in matcher().entries)


def entry_of(stored: Mapping[str, Any], values: Mapping[str, Sequence[str]] | None = None, case: int = -1) -> Entry:
    """Return an entry of the index in one of its cases, with the names of the reader's message in its texts."""
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
    """Return an entry with the texts of one of its cases instead of its own texts."""
    if case < 0:
        return stored
    told = {name: text for name, text in stored["cases"][case].items() if name != "when"}
    return {**stored, **({"change": ""} if "fix" in told else {}), **told, "cases": (), "special": True}


def advice(change: str, fix: str) -> tuple[str, str]:
    """Return the one thing to change, and the rest of the fix. Without ``change``, split the first sentence off."""
    if change:
        return change, fix
    parts = re.split(r"(?<=\.)\s+(?=[A-Z`])", fix, maxsplit=1)
    return parts[0], "".join(parts[1:])


def filled(text: str, values: Mapping[str, Sequence[str]]) -> str:
    """Replace ``{node}``, ``{op}`` and so on in a text by the reader's node, operator and so on."""
    named = {"node": "the node", "op": "the operator", "type": "the type", "shape": "the shape", "device": "the device"}
    return re.sub(r"\{(node|op|type|shape|device)\}", lambda m: (values.get(m[1]) or [named[m[1]]])[0], text)


def explain(text: str) -> Explanation:
    """Explain an error message or a warning, with or without its traceback.

    Paste the text as it was printed. Names of classes, shapes, types, devices and numbers can differ from the index,
    and so can the release of torch.

    Args:
        text: the printed text.

    Raises:
        ValueError: if there is no word in the text.
    """
    if not re.search(r"[A-Za-z]{2}|[\u0400-\u04ff\u3040-\u9fff\uac00-\ud7af]{2}", text):
        raise ValueError(f"expected an error message, got {text.strip()[:40]!r}")
    reader = matcher()
    found = answer(reader, text)
    message = found.message
    return Explanation(
        known=found.known,
        entries=tuple(entry_of(reader.answers[match.entry], match.values, match.case) for match in found.matches),
        general=found.general,
        message="" if message is None else str(message),
        values=found.matches[0].values if found.matches else {},
        place=found.place,
        note=filled(found.note, found.matches[0].values if found.matches else {}),
        worded=found.note == reader.rules["general"]["worded"],
    )
