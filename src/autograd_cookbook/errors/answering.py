"""Decide the answer for a pasted text: "this is it", "one of these", or "not in the index", each with advice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from autograd_cookbook.errors.matching import TOLD, Facts, Match, Matcher
from autograd_cookbook.errors.paste import CAUSE, EARLIER, LAST, PROSE, WARNING, Frame, Message, Paste, compiled, split

Known = Literal["yes", "maybe", "no"]
MOST = 3  # the most entries in an answer
LINE = 200  # the most characters of a message in a quotation
NOTHING = Message("", "", PROSE)


@dataclass(frozen=True)
class Answer:
    """The answer for a pasted text.

    Args:
        known: "yes" if the first match explains the text, "maybe" if one of the matches does, "no" if the matches are
            only the closest ones.
        matches: the matches, with the best first.
        general: advice for any entry: the part of PyTorch that raised the message, and what to try first.
        message: the message that was looked up.
        place: the last line of the reader's own code in the traceback.
        note: whose code raised the message, if the entry advises to change code that can belong to another person.
    """

    known: Known
    matches: tuple[Match, ...]
    general: str
    message: Message | None
    place: Frame | None
    note: str = ""


def answer(matcher: Matcher, text: str) -> Answer:
    """Read a pasted text and find its meaning."""
    paste = split(text, matcher.rules["paste"])
    facts = Facts(paste, matcher)
    found = judged(matcher, paste, facts)
    case = lambda m: facts.case(matcher.answers[m.entry], m.message, m.values)  # noqa: E731
    return replace(found, matches=tuple(replace(match, case=case(match)) for match in found.matches))


def judged(matcher: Matcher, paste: Paste, facts: Facts) -> Answer:
    """Return the entries that explain a pasted text, and how certain they are."""
    ranked = matcher.rank(paste, facts)
    last = raised(paste, matcher.rules)
    unknown = last or quoted(paste, matcher.rules) or warned(paste)
    general = in_general(paste, facts, unknown, matcher, covered=False)
    rules = matcher.rules["score"]
    about = facts.holds(rules["proof"], unknown or NOTHING, {})
    said = [m for m in ranked if m.score >= rules["about" if about or m.weight >= rules["heavy"] else "maybe"]]
    likely = [m for m in said if not slight(m, rules)]
    outside, foreign = scope(facts, last, matcher.rules, bool(likely) and likely[0].wording == TOLD)
    sure = bool(likely) and likely[0].score >= rules["yes"]
    if outside and (foreign or not (sure and (last is None or likely[0].message.part in (LAST, CAUSE)))):
        return Answer("no", (), outside, unknown, facts.place)
    if not likely or (not likely[0].proven and paste.frames):
        return by_words(matcher, paste, facts, unknown, ranked, general)
    if last is None and likely[0].message.part == PROSE:
        fitting = [match for match in likely if fits(matcher, match, paste, unknown)]
        if not fitting:
            return by_words(matcher, paste, facts, unknown, ranked, general, likely)
        likely = fitting
    likely = distinct(matcher, facts, likely)
    best = likely[0]
    general = in_general(paste, facts, unknown, matcher, covered=True)
    rivals = [m for m in likely if m is best or rival(best, m, rules)]
    # What the reader wrote, or an older warning, does not explain the exception after it. A warning can announce it.
    aside = best.message.part in (WARNING, PROSE, EARLIER) and last is not None and best.message is not last
    if aside and best.message.part == WARNING:
        sure = False
        if not matcher.entries[best.entry].get("announces"):
            return by_words(matcher, paste, facts, unknown, ranked, general)
    if best.message.part == PROSE and (aside or (best.weight < rules["quoted"] and best.score < rules["exact"])):
        sure = False
    note, settled = owner(facts, best, matcher)
    # Another exception follows the known one. The reader's fix of the known one may have caused it.
    if aside and last is not None and last.place and best.message.part == EARLIER and not paste.chained:
        note, settled = f"{matcher.rules['general']['later']} {heading(last)}", False
    if sure and len(rivals) == 1 and best.certain and settled:
        known: Known = "maybe" if undecided(facts, best, matcher) else "yes"
        return Answer(known, (best,), general, best.message, facts.place, note)
    near = [match for match in likely if match.score > best.score - rules["cause" if same(best, match) else "near"]]
    if best.wording == TOLD and not in_words(matcher, best):
        near = [match for match in near if not in_words(matcher, match)]  # a symptom of many causes adds nothing
    if not sure and best.message.part == PROSE and last is None:  # the reader's own words
        told, ahead = topics(matcher, paste, facts, unknown, ranked)
        if ahead and told[0].entry not in {match.entry for match in near}:
            # Common words prove less than signs. They prove more than some words of a message only if they are most of
            # the text.
            entry = told[0].entry < len(matcher.entries)  # and not a question
            first = best.wording != TOLD and entry and told[0].share >= matcher.rules["topics"]["most_of_it"]
            near.insert(0 if first else 1, told[0])
        there = {match.entry for match in near}
        if in_words(matcher, best):
            more = matcher.rules["topics"]["more"]
            near += [each for each in told if each.entry not in there and each.share >= more]
    return Answer("maybe", tuple(near[:MOST]), general, best.message, facts.place, note)


def distinct(matcher: Matcher, facts: Facts, matches: Sequence[Match]) -> list[Match]:
    """Return the matches without those whose case has the title of a case before: entries can share their cases."""
    found: dict[str, Match] = {}
    for match in matches:
        entry = matcher.answers[match.entry]
        case = facts.case(entry, match.message, match.values)
        title = entry["cases"][case].get("title") if case >= 0 else None
        found.setdefault(title or entry["title"], match)
    return list(found.values())


def by_words(
    matcher: Matcher,
    paste: Paste,
    facts: Facts,
    unknown: Message | None,
    ranked: Sequence[Match],
    general: str,
    doubted: Sequence[Match] = (),
) -> Answer:
    """Return the answer if no message is known: the closest messages, or the entries with the words of the text.

    ``doubted`` are the symptoms that the text has signs of, although most of its words are about something else.
    """
    found, ahead = topics(matcher, paste, facts, unknown, ranked)
    if doubted:
        if ahead and found[0].share >= matcher.rules["topics"]["most_of_it"]:
            first = [found[0], *(match for match in doubted[:1] if match.entry != found[0].entry)]
            return Answer("maybe", tuple(first), general, unknown, facts.place)
        told = [match for match in (*doubted[:1], *found) if in_words(matcher, match)]
        closest = {match.entry: match for match in told}
        return Answer("no", tuple(closest.values())[:MOST], general, unknown, facts.place)
    if ahead:
        return Answer("maybe", found, general, unknown, facts.place, matcher.rules["general"]["worded"])
    nearest = tuple(match for match in ranked[:MOST] if is_near(match, matcher.rules["score"]))
    return Answer("no", nearest or found, general, unknown, facts.place)


def fits(matcher: Matcher, match: Match, paste: Paste, unknown: Message | None) -> bool:
    """Whether a symptom is what a text is about, judged by all of its words: few entries have more of them.

    A short text has too few words to tell. Clues prove more than words do, and so do many signs.
    """
    rules = matcher.rules["topics"]
    clues = match.wording == TOLD and match.weight > 0
    if clues or match.score >= matcher.rules["score"]["yes"]:
        return True
    words = matcher.topics.words(paste, unknown)
    if len(words) < rules["fair"]:
        return True
    place = matcher.topics.rank(words)[1].index(match.entry)
    return any(match.score >= score and place < behind for score, behind in rules["fit"])


def topics(
    matcher: Matcher, paste: Paste, facts: Facts, unknown: Message | None, ranked: Sequence[Match]
) -> tuple[tuple[Match, ...], bool]:
    """Return the entries about the topic of a text, and whether the first entry is far ahead of the others."""
    rules = matcher.rules["topics"]
    said = unknown or NOTHING
    told = said.part == PROSE
    if told and facts.asks:
        return (), False
    short = told and len(facts.concepts) >= rules["alike"]
    words = matcher.topics.words(paste, unknown)
    if len(words) < rules["short" if short else "long"]:
        return (), False
    # If an entry has the message, but the text around the message rules the entry out, it is not the topic either.
    refused = {match.entry for match in ranked if match.share >= matcher.rules["score"]["whole"]}
    ranking, _ = matcher.topics.rank(words)
    found = [each for each in ranking if each.entry not in refused and has_needs(facts, matcher.answers[each.entry])]
    near = tuple(
        Match(topic.entry, TOLD, said, topic.score, topic.share, 0.0, {}, True, False)
        for topic in found
        if topic.share >= rules["near"] and topic.telling >= rules["few"]
    )
    first, second = (*found, None, None)[:2]
    share, ahead = (rules["share"], rules["ahead"]) if told else (rules["raised"], rules["raised_ahead"])
    enough = first is not None and first.share >= share and first.telling >= rules["enough"]
    ahead_of_all = bool(enough and first and (second is None or first.score >= ahead * second.score))
    # Concepts say more than words: with enough of them, one of the first entries is probably the answer.
    alike = first is not None and first.concepts >= rules["alike"] and first.share >= rules["alike_share"]
    return near, ahead_of_all or (told and bool(near) and alike)


def has_needs(facts: Facts, entry: Mapping[str, Any]) -> bool:
    """Whether a text has what the symptom of an entry is about, such as half precision, and not only its words."""
    return bool(entry["wordings"]) or all(facts.holds(need, NOTHING, {}) for need in entry.get("needs", ()))


def quoted(paste: Paste, rules: dict[str, Any]) -> Message | None:
    """Return a line without an exception type that can be a message, and is neither printed output nor source code."""
    says, source = compiled(rules["paste"]["says"]), compiled(rules["paste"]["source"])
    written = [message.text for message in paste.messages if message.part == PROSE]
    lines = [line.strip() for text in written for line in text.split("\n")]
    found = next((line for line in lines if says.search(line) and not source.search(line)), "")
    if not found and len(set(lines)) == 1 and not paste.frames and not source.search(lines[0]):
        found = lines[0]  # the text consists of this line only
    return Message("", found, PROSE) if found else None


def warned(paste: Paste) -> Message | None:
    """Return the last warning, if there is one."""
    return next((message for message in paste.messages if message.part == WARNING), None)


def heading(message: Message) -> str:
    """Return the first line of a message."""
    return str(message).split("\n")[0][:LINE]


def undecided(facts: Facts, best: Match, matcher: Matcher) -> bool:
    """Whether the message can have other causes that the entry asks about, and the text does not show which one.

    A case with its own title is another cause. Other cases change only the advice. A traceback rules out a cause that
    is recognized by its frames. An entry whose message has causes outside of the index is the answer only if the text
    has one of the signs in ``shown_by``.
    """
    entry = matcher.entries[best.entry]
    if facts.case(entry, best.message, best.values) >= 0:
        return False
    holds = lambda signs: any(facts.holds(sign, best.message, best.values) for sign in signs)  # noqa: E731
    if "shown_by" in entry and not holds(entry["shown_by"]):
        return True
    open_ = lambda case: not facts.frames or not all(sign.startswith("frames: ") for sign in case["when"])  # noqa: E731
    causes = any(case.get("asked") and "title" in case and open_(case) for case in entry.get("cases", ()))
    signs = (*entry.get("shown_by", ()), *entry.get("favors", ()), *entry.get("needs", ()))
    return causes and not holds(sign for sign in signs if not sign.startswith("not "))


def owner(facts: Facts, best: Match, matcher: Matcher) -> tuple[str, bool]:
    """Return whose code the best entry advises to change, and whether the entry is the answer anyway.

    The first result is empty if the code can be the reader's own.
    """
    entry = matcher.entries[best.entry]
    if facts.case(entry, best.message, best.values) >= 0:  # the case fits this text exactly
        return "", True
    holds = lambda signs: any(facts.holds(sign, best.message, best.values) for sign in signs)  # noqa: E731
    for each in matcher.rules["owners"]:
        if entry["group"] in each["groups"] and holds(each["when"]) and not holds(each.get("unless", ())):
            return str(each["says"]), bool(each.get("settled"))
    if "borrowed" in entry and not holds(matcher.rules["general"]["own"]):
        return str(entry["borrowed"]), True
    return "", True


def is_near(match: Match, rules: dict[str, float]) -> bool:
    """Whether an entry that is not the answer can still help: it has the message, or a large part of the message."""
    if match.share >= rules["whole"]:
        return match.score >= rules["alike"]
    return match.score >= rules["nearest"] and match.proven and not slight(match, rules)


def in_words(matcher: Matcher, match: Match) -> bool:
    """Whether a match is an entry that has no message."""
    return match.wording == TOLD and not matcher.answers[match.entry]["wordings"]


def slight(match: Match, rules: dict[str, float]) -> bool:
    """Whether the match consists of only a few words of a message in the reader's own text."""
    words = match.message.part == PROSE and match.wording != TOLD
    return words and match.weight < rules["slight"] and match.score < rules["yes"]


def rival(best: Match, other: Match, rules: dict[str, float]) -> bool:
    """Whether another match explains the text about as well as the best match."""
    return other.score > best.score - rules["same" if same(best, other) else "margin"] and not covers(best, other)


def same(best: Match, other: Match) -> bool:
    """Whether two matches have the same wording, so that only the text around the message distinguishes them."""
    return best.wording == other.wording and best.message is other.message


def covers(best: Match, other: Match) -> bool:
    """Whether a match has all words of another match, and at least one more word."""
    return best.message is other.message and best.weight > other.weight + 2 and best.share > other.share - 0.01


def raised(paste: Paste, rules: dict[str, Any]) -> Message | None:
    """Return the exception that ended the program, and not the exception of a launcher around it."""
    wrapper = compiled(rules["paste"]["wrappers"])
    found = [message for message in paste.messages if message.part in (LAST, EARLIER, CAUSE)]
    own = [m for m in found if not wrapper.search(m.kind) and not wrapper.search(m.text)]
    return next(iter(own or found), None)


def scope(facts: Facts, message: Message | None, rules: dict[str, Any], told: bool) -> tuple[str, bool]:
    """Return the subject of an error that is not about gradients, and whether this is certain.

    The subject is empty if the error can be about gradients.
    """
    if message is None:
        message = Message("", facts.told, PROSE)  # without the traceback, which can name any library
    backward = any(facts.holds(sign, message, {}) for sign in rules["backward"]["signs"])
    for each in rules["outside"]:
        # Look for another framework anywhere in the text, unless the text has torch as well.
        where = "text" if "unless" in each or each.get("anywhere") else "message"
        torch = "unless" in each and facts.holds(f"text: {each['unless']}", message, {})
        excused = torch or (backward and each.get("forward")) or (told and each.get("told"))
        around = all(facts.holds(sign, message, {}) for sign in each.get("when", ()))
        if around and facts.holds(f"{where}: {each['find']}", message, {}) and not excused:
            return str(each["says"]), "unless" in each or bool(each.get("surely"))
    return "", False


def in_general(paste: Paste, facts: Facts, message: Message | None, matcher: Matcher, *, covered: bool) -> str:
    """Return advice for any entry: the kind of the message, the part that raised it, and what to check first.

    If an entry covers the text, the advice does not say that the index lacks it.
    """
    rules = matcher.rules["general"]
    whole = Message("", facts.text, PROSE)
    values = matcher.values(message or NOTHING)

    def first(table: str, text: Message) -> dict[str, Any]:
        rows: list[dict[str, Any]] = matcher.rules[table]
        return next((each for each in rows if any(facts.holds(sign, text, values) for sign in each["when"])), {})

    kind, layer = first("kinds", message or NOTHING), first("layers", message or whole)
    # If the text does not show the layer, the kind of the message is enough.
    if kind and (kind.get("alone") or layer.get("unclear")):
        layer = {}
    parts: list[str] = []
    if message is None:
        shown = kind or not layer.get("unclear")
        parts += [
            rules["cut" if paste.frames or compiled(rules["places"]).search(facts.text) else "untold"],
            rules["until" if shown else "tell"],
        ]
        layer = {} if layer.get("unclear") else layer
    if kind:
        parts.append(kind["says"])
    elif layer and message is not None and not (covered and layer.get("lacking")):
        parts.append(layer["raised"])
    if message is not None and (named := naming(values, rules)):
        parts.append(named)
    if layer:
        parts.append(layer["first"])
    return " ".join(parts)


def naming(values: dict[str, list[str]], rules: dict[str, Any]) -> str:
    """Return what the message names: operators, types, shapes, devices."""
    rows = []
    plain = compiled(rules["unnamed"])
    for kind, label in rules["names"]:
        if found := [each for each in dict.fromkeys(values.get(kind, ())) if not plain.search(each)][:MOST]:
            rows.append(f"{label} {', '.join(f'``{each}``' for each in found)}")
    return f"{rules['named']} {'; '.join(rows)}." if rows else ""
