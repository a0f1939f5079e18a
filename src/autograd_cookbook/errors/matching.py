"""Find the entry that explains a message: compare its wordings word by word, and use the text around it as evidence.

A wording is a sequence of words and variables (``<node>``, ``<op>``, ``<shape>`` …). The variable ``*`` is a name from
the reader's code. The leading sentences decide. Words that few wordings have count more, and so do words in the right
order. All data about particular messages is in the index, and the browser uses the same data.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autograd_cookbook.errors.paste import (
    CAUSE,
    EARLIER,
    LAST,
    PROSE,
    WARNING,
    Frame,
    Message,
    Paste,
    compiled,
    matches,
)
from autograd_cookbook.errors.topics import Topics, concepts, plain

TOKENS = 240  # the most tokens of one message that are compared
CANDIDATES = 16  # the number of wordings that are compared word by word, for each message
# What a condition can ask about in addition to the message itself.
AROUND = re.compile("(?:not )?(?:text|printed|own|frames|end|place|raiser|raised|told|tried|about): ")
SAID = 600  # the first characters of a message, which say what it is about
TOLD_WORDS = 4000  # the characters of a text whose words are clues
EXACT = 1_000_000  # scores are compared in steps of 1 / EXACT
TOLD = -1  # instead of a wording: the reader describes a symptom in words


@dataclass(frozen=True)
class Text:
    """A message in tokens. ``starts`` and ``ends`` have, for each token, where its sentence starts and ends."""

    tokens: tuple[str, ...]
    values: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True)
class Match:
    """How well an entry explains a message.

    Args:
        entry: the position of the entry in the index.
        wording: the number of the wording. Entries with the same message share a wording.
        message: the message that the entry explains.
        score: 1 if the message has all words of the leading sentence in this order, and no other words.
        share: the part of the wording's leading sentence that the message has.
        weight: the weight of this part; of a symptom, 1 if the text has enough clues of it, else 0.
        values: the values of the variables in the message, by kind, such as ``{"node": ["MulBackward0"]}``.
        proven: whether the message is about gradients. It is not if another library can raise it, and the text has no
            sign of gradients.
        certain: whether the place that raised the message also shows this.
        case: the number of the entry's case that the text shows, or -1.
    """

    entry: int
    wording: int
    message: Message
    score: float
    share: float
    weight: float
    values: dict[str, list[str]] = field(compare=False)
    proven: bool
    certain: bool
    case: int = -1


class Matcher:
    """The index in a form that can be searched."""

    def __init__(self, index: dict[str, Any]) -> None:
        self.rules: dict[str, Any] = index["rules"]
        self.entries: list[dict[str, Any]] = index["entries"]
        # What an answer can name: the entries, and after them the questions of the guide.
        self.answers: list[dict[str, Any]] = [*self.entries, *map(as_entry, index["questions"])]
        rules = self.rules["tokens"]
        self.drop = frozenset(rules["drop"])
        self.plain = frozenset(rules["plain"])
        self.nodes = frozenset(index["nodes"])
        # The operators that have a derivative in the torch of the index, and those whose derivative it lacks.
        derivatives = index["derivatives"]
        self.formulas = frozenset(squashed(name) for name in (*index["nodes"], *derivatives["have"]))
        self.lacking = frozenset(derivatives["lack"])
        # Several entries can have the same message. Compare each wording once, for all entries that have it.
        wordings: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for i, entry in enumerate(self.entries):
            for lead, tail, kind in entry["wordings"]:
                wordings.setdefault((lead, tail), []).append((i, kind))
        self.owners = list(wordings.values())
        self.leads = [lead.split(" ") for lead, _ in wordings]
        self.tails = [tail for _, tail in wordings]
        self.having: dict[str, list[int]] = {}
        for i, lead in enumerate(self.leads):
            for word in dict.fromkeys(lead):
                if word not in ("*", "<number>"):
                    self.having.setdefault(word, []).append(i)
        # A word has a large weight if few messages have it.
        total = len(self.entries)
        self.weight = {
            word: self._weight(word, math.log(1 + total / len({self.owners[i][0][0] for i in found})))
            for word, found in self.having.items()
        }
        self.distinct = [sum(self.weight.get(word, 0.0) for word in dict.fromkeys(lead)) for lead in self.leads]

    @cached_property
    def topics(self) -> Topics:
        """The texts of the entries, for a search without a message."""
        return Topics(self.answers, self.rules["topics"], self.rules["concepts"])

    def _weight(self, word: str, rarity: float) -> float:
        if word[0] == "<":
            return float(self.rules["tokens"]["variable_weight"])
        return rarity * self.rules["tokens"]["plain_weight"] if word in self.plain else rarity

    def tells(self, word: str) -> int:
        """Return how much a word shows where a message is from. A name of the code is enough."""
        return 0 if word[0] in "<*" or word in self.plain else 2 if "_" in word else 1

    def weigh(self, word: str) -> float:
        """Return the weight of a word of a pasted text."""
        if word == "<number>":
            return 0.0
        known = self.weight.get(word)
        if known is not None:
            return known
        return min(self.rules["tokens"]["unknown_weight"], self._weight(word, self.rules["tokens"]["unknown_weight"]))

    def read(self, message: Message) -> Text:
        """Return the tokens of a message. They include its type if a wording has it.

        The reader's own statements, such as ``optimizer.step()``, are no part of a message.
        """
        kind = message.kind.lower()
        text = f"{message.kind}: {message.text}" if kind in self.weight else message.text
        if message.part == PROSE:
            told = compiled(self.rules["paste"]["statement"], re.MULTILINE).sub("", text)
            text = told if told.strip() else text
        return tokenized(text, self.rules["tokens"], self.drop)

    def values(self, message: Message) -> dict[str, list[str]]:
        """Return the variables of a message."""
        text = self.read(message)
        return captured(text, 0, len(text.tokens) - 1) if text.tokens else {}

    def rank(self, paste: Paste, facts: "Facts") -> list[Match]:
        """Return the entries with the best first, each with the message that it explains best."""
        best: dict[int, Match] = {}
        bonus = self.rules["score"]["proven"]
        for message in paste.messages:
            for match in self._matches(message, facts):
                other = best.get(match.entry)
                if other is None or match.score + bonus * match.proven > other.score + bonus * other.proven:
                    best[match.entry] = match
        for match in self._symptoms(paste, facts):
            if match.entry not in best or match.score > best[match.entry].score:
                best[match.entry] = match
        # The browser's logarithm can differ in the last digit.
        return sorted(best.values(), key=lambda match: (-int(match.score * EXACT), match.entry))

    def _symptoms(self, paste: Paste, facts: "Facts") -> Iterator[Match]:
        """Yield entries without a message, found by the words in which readers describe the symptom. Never certain."""
        # If there is an exception, the reader's words can follow its message, as a part of it.
        nothing = Message("", "", PROSE)  # a traceback without its end
        told = next((message for message in paste.messages if message.part == PROSE), [*paste.messages, nothing][0])
        for i, entry in enumerate(self.entries):
            if any(all(facts.holds(sign, told, {}) for sign in signs) for signs in entry.get("signs", ())):
                base = self.rules["score"]["symptom"]
            elif any(map(facts.tells, entry.get("ways", ()))):
                base = self.rules["score"]["concepts"]
            else:
                base = 0.0
            if (spare := max(map(facts.spared, entry.get("clues", ())), default=-1)) >= 0:
                base = max(base, self.rules["score"]["symptom"]) + self.rules["score"]["clue"] * min(spare, 2)
            if not base:
                continue
            score = base + facts.evidence(entry, told, {}, needed=False)
            yield Match(i, TOLD, told, score, 0.0, float(spare >= 0), {}, True, False)

    def _matches(self, message: Message, facts: "Facts") -> Iterator[Match]:
        text = self.read(message)
        shared: dict[int, float] = {}
        positions: dict[str, list[int]] = {}
        sums = [0.0]
        for j, word in enumerate(text.tokens):
            if word not in positions:
                for i in self.having.get(word, ()):
                    shared[i] = shared.get(i, 0.0) + self.weight[word]
            positions.setdefault(word, []).append(j)
            sums.append(sums[-1] + self.weigh(word))
        chosen = sorted(shared, key=lambda i: (-shared[i] * shared[i] / max(self.distinct[i], 1.0), i))
        for i in chosen[:CANDIDATES]:
            yield from self._compared(i, message, text, positions, sums, facts)

    def _compared(
        self,
        i: int,
        message: Message,
        text: Text,
        positions: Mapping[str, Sequence[int]],
        sums: Sequence[float],
        facts: "Facts",
    ) -> Iterator[Match]:
        """Compare a wording with a message, and yield a match for each entry that has the wording."""
        rules = self.rules["score"]
        lead = self.leads[i]
        matched, first, last = chain(lead, positions, sums, self.weight, rules)
        share = matched / max(sum(self.weight.get(word, 0.0) for word in lead), 1e-9)
        explained = min(1.0, matched / max(sums[text.ends[last]] - sums[text.starts[first]], 1e-9))
        score = share * (1 - rules["explained"] + rules["explained"] * explained)
        values = captured(text, first, last)
        near = any(facts.holds(sign, message, values) for sign in rules["certain"])
        about = near or facts.holds(rules["proof"], message, values)
        # Any program can raise a message that has only words of Python itself.
        plainly = sum(self.tells(word) for word in lead) < 2
        if plainly and share < rules["whole"]:
            score *= share
        elif matched >= rules["enough"] and share >= rules["piece"]:  # a part of a message, with few other words
            score = max(score, explained * (0.5 + 0.45 * share))
        # Any text about the subject has some words of a message among many other words.
        if share < rules["half"] and explained < rules["among"] and matched < rules["heavy"]:
            score *= rules["strewn"]
        # A message of one word says little among the reader's own words.
        if plainly and message.part == PROSE and explained < rules["among"]:
            score *= rules["strewn"]
        # Words that occur everywhere do not show that the message has this wording.
        telling = {word: self.weight[word] for word in lead if self.tells(word)}
        end = len(text.tokens) - 1
        # The message can be cut off here. In the middle of a bracket, the last tokens can be parts of longer ones.
        unfinished = matches(rules["unfinished"], message.text)
        if matched >= rules["enough"] and last >= end - (rules["unfinished_tokens"] if unfinished else 0):
            there = lead[: len(lead) - lead[::-1].index(text.tokens[last])]
            telling = {word: weight for word, weight in telling.items() if word in frozenset(there)}
            if unfinished:
                begun = matched / max(sum(self.weight.get(word, 0.0) for word in there), 1e-9)
                told = matched / max(sums[last + 1] - sums[text.starts[first]], 1e-9)
                score = max(score, min(rules["begun"], begun * min(1.0, told)))
        if len(telling) > 1:
            told = sum(weight for word, weight in telling.items() if word in positions) / sum(telling.values())
            score *= 1.0 if told >= rules["telling"] else told
        if tail := [(self.weight.get(word, 1.0), word in positions) for word in self.tails[i].split()]:
            score += rules["tail"] * sum(w for w, there in tail if there) / sum(w for w, _ in tail)
        else:
            score += rules["tail"] / 2
        if not ((message.part == WARNING and not facts.raised) or (message.part == PROSE and not facts.headed)):
            score *= rules["parts"][message.part]
        for number, kind in self.owners[i]:
            entry = self.entries[number]
            here = score + facts.evidence(entry, message, values)
            # A few words of a message about the compiler are not about the compiler if nothing in the text is.
            ground = self.rules["grounds"].get(entry["group"]) if share < rules["whole"] else None
            if ground and not facts.holds(ground, message, values):
                here -= rules["lacking"]
            if message.kind and kind.endswith("Warning") != (message.part == WARNING):
                here -= rules["against"]
            elif message.kind and kind != message.kind:
                here -= rules["other_kind" if matched >= rules["light"] else "other_kind_light"]
            # A message that any program can raise is about gradients if the text has the entry's own evidence.
            held = [each for each in entry.get("favors", ()) if facts.holds(each, message, values)]
            own = entry.get("proven") or not (plainly or entry.get("common"))
            certain = own or near or any(not each.startswith("text: ") for each in held)
            yield Match(number, i, message, here, share, matched, values, bool(own or about or held), bool(certain))


class Facts:
    """The facts that conditions ask about: the whole text, the frames, the message and its variables."""

    def __init__(self, paste: Paste, matcher: Matcher) -> None:
        self.rules = rules = matcher.rules
        self.nodes = matcher.nodes
        self.formulas = matcher.formulas
        self.lacking = matcher.lacking
        self.text = paste.text
        self.printed = paste.printed
        self.frames = "\n".join(str(frame) for frame in paste.frames)
        self.place = own_place(paste, rules)
        self.raiser = outer_place(paste, rules)
        self.end = str(paste.frames[-1]) if paste.frames else ""
        said = lambda *parts: "\n".join(str(each) for each in paste.messages if each.part in parts)  # noqa: E731
        self.raised = said(LAST, EARLIER, CAUSE)
        self.told = said(PROSE)
        # Remove PyTorch's advice and the reader's questions, because they do not show what the reader has done.
        advice = compiled(rules["tried"]["advice"])
        self.tried = advice.sub(" ", paste.text)
        # Remove the code and the messages of libraries, because they do not show what the reader's code does.
        self.own = advice.sub(" ", "\n".join([*own_code(paste, rules), *map(str, paste.messages)]))
        # Whether the reader asks for a value or a choice, such as a learning rate.
        self.asks = matches(rules["topics"]["asks"], self.told.lower())
        # The concepts of the reader's own words, or of all words if they cannot be told from a message.
        beginning = (self.told or paste.text)[:SAID]
        self.concepts = frozenset(concepts(beginning, rules["concepts"]))
        # The details are no topics: only conditions and ways ask for them.
        self.details = self.concepts.union(concepts(beginning, rules["details"]))
        self.about = " ".join(sorted(self.details))
        self.words = f" {' '.join(plain(paste.text[:TOLD_WORDS]).split())} "
        self.headed = any(message.kind for message in paste.messages)
        self.known: dict[str, bool] = {}  # results of conditions that do not depend on the message

    def holds(self, condition: str, message: Message, values: dict[str, list[str]]) -> bool:
        """Whether a condition is true, such as ``frames: checkpoint`` or its opposite, ``not frames: checkpoint``."""
        if condition in self.known:
            return self.known[condition]
        where, _, pattern = condition.partition(": ")
        negated = where.startswith("not ")
        where = where.removeprefix("not ")
        held = matches(pattern, self._fact(where, message, values)) != negated
        if AROUND.match(condition):
            self.known[condition] = held
        return held

    def tells(self, way: str) -> bool:
        """Whether the reader tells of all these concepts and raised nothing: ``memory & grows|leaks & !compiled``."""
        if self.raised.strip() or self.asks:
            return False
        parts = (part.removeprefix("!").split("|") for part in way.split(" & "))
        wanted = (part[0] != "!" for part in way.split(" & "))
        return all((not self.details.isdisjoint(names)) == want for names, want in zip(parts, wanted, strict=True))

    def spared(self, clues: str) -> int:
        """Return how many clues the text has besides those that are enough, or -1.

        ``1:+worker|loader; ram|grows;!gpu`` asks for the clue with ``+`` and for one of the others. The clue with ``!``
        speaks against it and takes two others away. Any of the words of a clue is enough. A part of a word is enough,
        too, because a space stands for the edge of a word.
        """
        if self.raised.strip():
            return -1
        least, _, listed = clues.partition(":")
        found = 0
        for clue in listed.split(";"):
            kind = clue[0] if clue[0] in "+!" else ""
            there = any(map(self.mentions, clue.removeprefix(kind).split("|")))
            if kind == "+" and not there:
                return -1
            found += there * {"+": 0, "!": -2}.get(kind, 1)
        return found - int(least)

    def mentions(self, words: str) -> bool:
        """Whether the text has these words, or any of a group of words: ``@load``."""
        if words[0] != "@":
            return words in self.words
        if words not in self.known:
            self.known[words] = any(word in self.words for word in self.rules["clues"][words[1:]].split("|"))
        return self.known[words]

    def _fact(self, where: str, message: Message, values: dict[str, list[str]]) -> str:
        if where == "text":
            return self.text
        if where == "frames":
            return self.frames
        if where == "end":
            return self.end
        if where == "place":
            return str(self.place) if self.place else ""
        if where == "raiser":
            return str(self.raiser) if self.raiser else ""
        if where == "message":
            return str(message)
        if where == "said":
            return str(message).split("\n\n")[0][:SAID]
        if where in ("printed", "own", "raised", "told", "tried", "about"):
            return str(getattr(self, where))
        if where == "shapes":
            return related(*values.get("shape", ())[:2])
        if where == "node":
            return " ".join(f"{self.origin(node)} {node}" for node in values.get("node", ()))
        if where == "formula":
            return " ".join(self.differentiated(str(message)))
        return " ".join(values.get(where, ()))

    def differentiated(self, message: str) -> Iterator[str]:
        """Yield, for each operator that has no derivative according to the message, whether this is still so.

        The torch of the index tells. "has" and "lacks" stand in front of the name. An operator that it does not know is
        left out.
        """
        for found in compiled(self.rules["formulas"]["named"]).finditer(message):
            name = found["name"].partition(".")[0]
            if {name, name + found["input"]} & self.lacking:
                yield f"lacks {name}"
            elif squashed(name) in self.formulas:
                yield f"has {name}"

    def origin(self, node: str) -> str:
        """Return whose backward a node is: "builtin", "custom", "own" or "unclear".

        "own" is a Function that PyTorch itself defines in Python. "unclear" is a node of an old release, which did not
        give numbers to built-in nodes.
        """
        name, _, number = node.partition("Backward") if node.find("Backward") else node.rpartition("Backward")
        if name in self.nodes:
            return "builtin" if number else "unclear"
        return "own" if name in self.rules["functions"]["names"] else "custom"

    def case(self, entry: dict[str, Any], message: Message, values: dict[str, list[str]]) -> int:
        """Return the number of the first case of an entry whose signs are all in the text, or -1."""
        cases = enumerate(entry.get("cases", ()))
        return next((i for i, each in cases if all(self.holds(sign, message, values) for sign in each["when"])), -1)

    def evidence(
        self, entry: dict[str, Any], message: Message, values: dict[str, list[str]], *, needed: bool = True
    ) -> float:
        """Return what the conditions of an entry add to its score. The needed conditions are about its message."""
        rules = self.rules["score"]
        held = lambda name: [each for each in entry.get(name, ()) if self.holds(each, message, values)]  # noqa: E731
        absent = [each for each in entry.get("needs", ()) if needed and not self.holds(each, message, values)]
        missing = sum(rules["lacking" if AROUND.match(each) else "unlike"] for each in absent)
        favors = sum(rules["hint" if each.startswith("text: ") else "favor"] for each in held("favors"))
        favors += rules["hint"] * (self.case(entry, message, values) >= 0)
        absent_words = ("not text: ", "not printed: ")
        against = sum(rules["absent" if each.startswith(absent_words) else "against"] for each in held("against"))
        return float(entry.get("prior", 0.0) + min(favors, 2 * rules["favor"]) - against - missing)


def as_entry(question: Mapping[str, str]) -> dict[str, Any]:
    """Return a question of the guide in the form of an entry."""
    nothing = dict.fromkeys(("group", "kind", "message", "cause", "torch"), "")
    return {**nothing, **question, "change": "", "name": question["title"], "fix": question["change"], "wordings": []}


def squashed(name: str) -> str:
    """Return the common form of a node and its operator: "upsamplenearest2d" for upsample_nearest2d."""
    return name.replace("_", "").lower()


def related(got: str = "", expected: str = "") -> str:
    """Return how two shapes are related: "regrouped", "reordered", "reduced" or "rows". Empty if this is unclear."""
    if re.search(r"[jsu]\d", got + expected):  # sizes that are no numbers
        return ""
    a, b = ([int(size) for size in re.findall(r"\d+", shape)] for shape in (got, expected))
    if not (a and b) or a == b or 0 in a:
        return ""
    if sorted(a) == sorted(b):
        return "reordered"
    if math.prod(a) == math.prod(b):
        return "regrouped"
    if len(a) <= len(b) and all(x in (1, y) for x, y in zip(a[::-1], b[::-1], strict=False)):
        return "reduced"
    return "rows" if len(a) > 1 and a[1:] == b[1:] else ""


def own_place(paste: Paste, rules: Mapping[str, Any]) -> Frame | None:
    """Return the last line of the reader's own code in the traceback."""
    library = compiled(rules["paste"]["library"])
    return next((f for f in reversed(paste.frames) if f.file and not library.search(f.file)), None)


def own_code(paste: Paste, rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield all lines of the reader's own code in the traceback."""
    library = compiled(rules["paste"]["library"])
    for frame in paste.frames:
        if frame.file and not library.search(frame.file):
            yield f"{frame}\n{frame.around}"


def outer_place(paste: Paste, rules: Mapping[str, Any]) -> Frame | None:
    """Return the last place outside of torch, in the reader's code or in another library."""
    torch = compiled(rules["paste"]["torch"])
    return next((f for f in reversed(paste.frames) if f.file and not torch.search(f.file)), None)


def tokenized(text: str, rules: Mapping[str, Any], drop: frozenset[str]) -> Text:
    """Split a text into words and variables, sentence by sentence."""
    for pattern, instead in rules["same"]:
        text = compiled(pattern).sub(instead, text)
    pattern, kinds = compiled(rules["pattern"]), rules["kinds"]
    tokens: list[str] = []
    values: list[str] = []
    bounds: list[int] = []
    position = 0
    breaks = [match.start() for match in compiled(rules["sentence"]).finditer(text)]
    for match in pattern.finditer(text):
        while position < len(breaks) and breaks[position] < match.start():
            position += 1
            bounds.append(len(tokens))
        kind = kinds[(match.lastindex or 1) - 1]
        if not kind:
            continue
        token = match[0].lower() if kind == "word" else kind
        if token in drop:
            continue
        tokens.append(token)
        values.append(match[0])
        if len(tokens) == TOKENS:
            break
    starts, ends = [], []
    edges = [*dict.fromkeys([0, *bounds]), len(tokens)]
    for begin, end in itertools.pairwise(edges):
        starts += [begin] * (end - begin)
        ends += [end] * (end - begin)
    return Text(tuple(tokens), tuple(values), tuple(starts), tuple(ends))


def chain(
    lead: Sequence[str],
    positions: Mapping[str, Sequence[int]],
    sums: Sequence[float],
    weight: Mapping[str, float],
    rules: Mapping[str, float],
) -> tuple[float, int, int]:
    """Find the heaviest sequence of common words in the same order.

    Return its weight, and its first and last position in the text.
    """
    pairs = [(i, j) for i, word in enumerate(lead) if word in weight for j in positions.get(word, ())]
    before = [0.0]  # the weight of the words before each position
    for word in lead:
        before.append(before[-1] + (weight.get(word, 0.0) if word[0] != "<" else 0.0))
    gap, swap, reach, name = rules["gap"], rules["swap"], rules["reach"], rules["name"]
    best: list[tuple[float, int]] = []
    top, last, first = 0.0, 0, 0
    for n, (i, j) in enumerate(pairs):
        score, begin = 0.0, j
        for m in range(n):
            row, at = pairs[m]
            skipped = j - at - 1
            if row >= i or skipped < 0 or skipped > reach:
                continue
            worth = best[m][0]
            if skipped:  # words between, some of which can be names from the reader's code
                worth -= gap * max(0.0, sums[j] - sums[at + 1] - name * (i - row - 1))
                worth -= swap * (before[i] - before[row + 1])
            if worth > score:
                score, begin = worth, best[m][1]
        score += weight[lead[i]]
        best.append((score, begin))
        if score > top:
            top, first, last = score, begin, j
    return top, first, last


def captured(text: Text, first: int, last: int) -> dict[str, list[str]]:
    """Return the variables of the sentences from one token to another."""
    found: dict[str, list[str]] = {}
    for token, value in zip(
        text.tokens[text.starts[first] : text.ends[last]], text.values[text.starts[first] :], strict=False
    ):
        if token[0] == "<":
            found.setdefault(token[1:-1], []).append(value)
    return found


def wordings(kind: str, message: str, names: Iterable[str], rules: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a message in the form of an entry: its leading sentences, and the words after them.

    Names from the reader's code become ``*``. A message can have several leading sentences, such as the heading and the
    explanation of the compiler. Then also yield the first sentence alone, because a reader may paste only this one.
    """
    own = sorted((name.lower() for name in names), key=len, reverse=True)
    message = re.split(rules["trailer"], message, maxsplit=1)[0]
    text = tokenized(message, rules, frozenset(rules["drop"]))
    plain = frozenset(rules["plain"])
    tokens = ["*" if token[0] != "<" and any(n in token for n in own) else token for token in text.tokens]
    explained = next((j for j, token in enumerate(tokens) if token == "explanation"), 0)
    if not tokens:  # without a word, only its type is compared
        yield kind.lower(), ""
        return
    end, told = 0, 0
    while end < len(tokens) and (told < 3 or end <= explained):
        following = text.ends[end]
        told += sum(token[0] not in "<*" and token not in plain for token in tokens[end:following])
        end = following
    lead, tail = tokens[:end], [token for token in tokens[end : end + 60] if token[0] not in "<*"]
    if not told:  # only its type says what it is about
        lead.insert(0, kind.lower())
    yield " ".join(lead), " ".join(dict.fromkeys(tail))
    first = tokens[: text.ends[0]]
    if len(first) < end and (explained or sum(token[0] not in "<*" and token not in plain for token in first) > 1):
        yield " ".join(first), ""
