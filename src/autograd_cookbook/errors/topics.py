"""Find the topic of a text without a known message: search all entries and questions for the words of the text.

The words come from the message, from the reader's own text, and from the last lines of code. Words that few entries
have count more, and so does a whole name of several words. A concept counts as a word, too: it has a pattern for all
the ways to say one thing, such as that the memory grows.
"""

import bisect
import itertools
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autograd_cookbook.errors.paste import PROSE, Message, Paste, compiled, matches

FRAMES = 2  # the number of last places whose code is a part of the question
SAID = 600  # the number of characters of a message that are a part of the question
PARTS = 3  # the number of the reader's paragraphs that are a part of the question
WORDS = 80  # the most words that are compared
EXACT = 10_000  # scores are compared in steps of 1 / EXACT
MARK = "0"  # in front of the name of a concept: no word begins with it
CANDIDATES = 40  # the number of entries whose single texts are searched
# Every byte that is neither a small letter nor a digit becomes a space.
LETTERS = bytes(c if chr(c) in string.ascii_lowercase + string.digits else 32 for c in range(256))


@dataclass(frozen=True)
class Topic:
    """An entry about the topic of a text.

    Args:
        entry: the position of the entry in the index.
        score: how well the entry fits. You can compare the scores of entries for the same text.
        share: the part of the text's words that the entry has, by their weight.
        telling: the number of these words that few other entries have.
        concepts: the number of the text's concepts that the entry has.
    """

    entry: int
    score: float
    share: float
    telling: int
    concepts: int


class Topics:
    """The texts of the entries, in a form that can be searched."""

    def __init__(
        self, entries: Sequence[Mapping[str, Any]], rules: Mapping[str, Any], known: Mapping[str, str]
    ) -> None:
        self.entries = entries
        self.rules = rules
        self.known = known
        # The last words and their result: an answer asks for the same words several times.
        self.ranked: tuple[Sequence[str], tuple[list[Topic], list[int]]] | None = None
        self.about = [entry.get("about", ()) for entry in entries]
        self.texts = [
            f"{plain(' '.join(fields(entry)))}{marked(about)}" for entry, about in zip(entries, self.about, strict=True)
        ]
        self.joined = "\n".join(self.texts)  # one search of all takes less time than one of each
        self.ends = list(itertools.accumulate(len(text) + 1 for text in self.texts))
        self.asked = {i: f" {entry['asked']} " for i, entry in enumerate(entries) if entry.get("asked")}
        mean = sum(map(len, self.texts)) / max(len(self.texts), 1)
        self.lengths = [1 - rules["length"] + rules["length"] * len(text) / mean for text in self.texts]

    def words(self, paste: Paste, message: Message | None) -> list[str]:
        """Return the words of a text that are searched, and after them its concepts."""
        text = question(paste, message, self.rules)
        return list(words(text, self.rules))[:WORDS] + [marked([name]) for name in concepts(text, self.known)]

    def having(self, word: str) -> Iterator[int]:
        """Return the numbers of the entries whose text has a word."""
        place = self.joined.find(word)
        while place >= 0:
            entry = bisect.bisect_right(self.ends, place)
            yield entry
            place = self.joined.find(word, self.ends[entry])

    def rank(self, words: Sequence[str]) -> tuple[list[Topic], list[int]]:
        """Return the entries that have the most of these words, with the best first, and the order of all entries."""
        if self.ranked and self.ranked[0] == words:
            return self.ranked[1]
        count, total = len(self.texts), 0.0
        shares, telling, shared = [0.0] * count, [0] * count, [0] * count
        weights: list[tuple[str, float]] = []
        for word in words:
            having = list(self.having(word))
            weight = math.log((count + 1) / (len(having) + 0.5)) if having else self.rules["unknown"]
            total += weight
            weights.append((word, weight))
            for i in having:
                shares[i] += weight
                telling[i] += weight > self.rules["rare"]
                shared[i] += word[1] == MARK
            for i, text in self.asked.items():  # words that the entry itself does not have
                shares[i] += self.rules["asked"] * weight * (word in text)
        found = []
        order = sorted(range(count), key=lambda i: (-int(EXACT * shares[i] / self.lengths[i]), i))
        for i in order[:CANDIDATES]:
            rows = [*map(plain, fields(self.entries[i])), marked(self.about[i])]
            again = sum(weight * sum(word in row for row in rows) for word, weight in weights)
            score = (shares[i] + self.rules["again"] * again) / self.lengths[i]
            found.append(Topic(i, score, shares[i] / max(total, 1e-9), telling[i], shared[i]))
        # The browser's logarithm can differ in the last digit.
        found.sort(key=lambda topic: (-int(topic.score * EXACT), topic.entry))
        self.ranked = words, (found[: self.rules["most"]], order)
        return self.ranked[1]


def concepts(text: str, known: Mapping[str, str]) -> list[str]:
    """Return the names of the concepts that a text is about."""
    lowered = text.lower()
    return [name for name, pattern in known.items() if matches(pattern, lowered)]


def plain(text: str) -> str:
    """Return the words of a text in lower case, with at least one space around each word."""
    return f" {text.lower().encode('ascii', 'replace').translate(LETTERS).decode()} "


def said(entry: Mapping[str, Any]) -> str:
    """Return the messages of an entry."""
    return " ".join([str(entry["message"]), *(str(each["message"]) for each in entry.get("former", ()))])


def fields(entry: Mapping[str, Any]) -> list[str]:
    """Return the texts of an entry: what happened, its messages, what to do, and why."""
    told = lambda *names: " ".join(str(entry[name]) for name in names if name in entry)  # noqa: E731
    return [told("title"), said(entry), told("change", "fix"), told("cause", "tell")]


def marked(names: Sequence[str]) -> str:
    """Return concepts in the form of :func:`plain`."""
    return f" {' '.join(MARK + name for name in names)} "


def question(paste: Paste, message: Message | None, rules: Mapping[str, Any]) -> str:
    """Return the question of a text, without places of the engine, because every traceback has them."""
    engine = compiled(rules["engine"])
    parts = [str(message)[:SAID]] if message else []
    parts += [each.text for each in paste.messages if each.part == PROSE][:PARTS]
    places = [frame for frame in paste.frames if not engine.search(frame.file)]
    parts += [f"{frame.function} {frame.code}" for frame in places[-FRAMES:]]
    return "\n".join(parts)


def words(text: str, rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield the stems of a text's words, in the form of :func:`plain`, and also whole names of several words."""
    common = frozenset(rules["common"])
    seen: set[str] = set()
    for match in compiled(rules["word"]).finditer(compiled(rules["skip"]).sub(" ", text)):
        parts = [part for part in match[0].lower().split("_") if part]
        rows = [f" {' '.join(parts)} "] if len(parts) > 1 else []
        rows += [f" {stem(part, rules['endings'])}" for part in parts if len(part) > 2 and part not in common]
        for row in rows:
            if row not in seen:
                seen.add(row)
                yield row


def stem(word: str, endings: Sequence[str]) -> str:
    """Return a word without its ending, if at least four letters remain."""
    for ending in endings:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word
