"""The error index: what PyTorch says around custom gradients, why, and what to do, found by pasting the message.

Each entry was really raised, by a program that the site shows; ``index.json`` is what these programs have said.

>>> found = explain("TypeError: save_for_backward can only save variables, but argument 3 is of type str")
>>> found.known
True
>>> print(found.entries[0].cause)
``ctx.save_for_backward`` keeps tensors, and ``None`` in the place of one; nothing else.
"""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autograd_cookbook import SITE

INDEX = Path(__file__).with_name("index.json")

# An entry is taken for what was pasted if this share of its words is there, the rarer ones counting more.
KNOWN = 0.8
# Where the last exception or warning of a pasted text starts.
HEADING = re.compile(
    r"^(?:\S*:\d+: )?(?:(?:\w+\.)+[A-Z]\w*|[A-Z]\w*(?:Error|Exception|Warning|Unsupported)): ", re.MULTILINE
)
# A frame of a traceback, with the line of code and the carets below it.
FRAME = re.compile(r'^[ \t]*File "[^\n]*", line \d+[^\n]*(?:\n[ \t]{4,}[^\n]*)*', re.MULTILINE)
# Other people's tensors have other types, and are elsewhere.
DTYPES = (
    "float",
    "double",
    "half",
    "bfloat",
    "complex",
    "cfloat",
    "cdouble",
    "long",
    "short",
    "byte",
    "char",
    "int",
    "bool",
)
VARIABLE = frozenset(
    (
        *("cpu", "cuda", "mps", "xpu", "meta"),
        *DTYPES,
        *(f"{dtype}tensor" for dtype in DTYPES),
        *("str", "list", "tuple", "dict", "set", "none", "nonetype", "true", "false", "nan", "inf"),
    )
)


@dataclass(frozen=True)
class Entry:
    """One message, with its explanation.

    Args:
        name: unique; the anchor of its section on the site.
        group: the page that it is on.
        title: what happened, in plain words.
        kind: the type of the exception or warning.
        message: as it was raised.
        words: the message without the names, numbers and types that are other ones in every program; ``*`` for a name.
        cause: why PyTorch says this.
        fix: what to do.
        torch: the version that said so.
    """

    name: str
    group: str
    title: str
    kind: str
    message: str
    words: str
    cause: str
    fix: str
    torch: str

    @property
    def url(self) -> str:
        """The section that shows the program, broken and mended."""
        return f"{SITE}errors/{self.group}.html#{self.anchor}"

    @property
    def anchor(self) -> str:
        """Where that section is on its page."""
        return f"error-{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Explanation:
    """What a pasted text is taken for.

    Args:
        known: whether the first entry explains it; otherwise the entries are merely the nearest.
        entries: the best first.
        shares: of the words of each entry, how much is in the text.
    """

    known: bool
    entries: tuple[Entry, ...]
    shares: tuple[float, ...]


@cache
def entries() -> tuple[Entry, ...]:
    """All of them, in the order of the site."""
    return tuple(Entry(**entry) for entry in json.loads(INDEX.read_text(encoding="utf-8")))


def words(text: str, names: Iterable[str] = ()) -> list[str]:
    """The words of a message that are the same for everybody; ``*`` for each that holds one of the names.

    >>> words("Function PowBackward returned an invalid gradient at index 1 - got [3, 4]", ["Pow"])
    ['function', '*', 'returned', 'an', 'invalid', 'gradient', 'at', 'index', 'got']
    """
    own = [name.lower() for name in names]
    found = re.findall(r"[a-z_]{2,}|\*", FRAME.sub("", text).lower())
    return ["*" if any(name in word for name in own) else word for word in found if word not in VARIABLE]


def message_of(text: str) -> str:
    """From the last exception or warning on, if there is one."""
    headings = list(HEADING.finditer(text))
    return text[headings[-1].end() :] if headings else text


def features(found: Sequence[str]) -> frozenset[str]:
    """Words, and pairs of neighbors, which tell sentences from the same words in another order."""
    pairs = {f"{a} {b}" for a, b in itertools.pairwise(found) if "*" not in (a, b)}
    return frozenset({word for word in found if word != "*"} | pairs)


def explain(text: str, count: int = 3) -> Explanation:
    """Find what a message means, pasted as it is, with the traceback or without.

    Names of classes, shapes, types, devices and numbers may be other ones than in the index.

    Args:
        text: what was printed.
        count: how many entries to return.

    Raises:
        ValueError: if there is no word in the text, or ``count`` is not positive.
    """
    if count < 1:
        raise ValueError(f"expected count > 0, got {count}")
    if not words(text):
        raise ValueError(f"expected an error message, got {text.strip()[:40]!r}")
    # A long traceback has many words; the message itself comes first.
    for part in (message_of(text), text):
        result = _ranked(words(part), count)
        if result.known:
            break
    return result


def _ranked(pasted: list[str], count: int) -> Explanation:
    there = features(pasted)
    ranking = []
    for entry, weighed in weights().items():
        total = sum(weighed.values())
        matched = sum(weight for feature, weight in weighed.items() if feature in there)
        # Of two entries that are there as a whole, the longer one says more.
        ranking.append((matched * matched / total, matched / total, entry))
    ranking.sort(key=lambda line: -line[0])
    best = ranking[:count]
    return Explanation(best[0][1] >= KNOWN, tuple(entry for *_, entry in best), tuple(share for _, share, _ in best))


@cache
def weights() -> dict[Entry, dict[str, float]]:
    """The features of each entry; those that few entries have weigh more."""
    of = {entry: features(entry.words.split()) for entry in entries()}
    known = Counter(feature for found in of.values() for feature in found)
    return {entry: {f: math.log(1 + len(of) / known[f]) for f in sorted(found)} for entry, found in of.items()}
