"""What is said of a paste: "this is it", "one of these", or "not in the index", each with what helps."""

from dataclasses import dataclass
from typing import Any, Literal

from autograd_cookbook.errors.matching import TOLD, Facts, Match, Matcher
from autograd_cookbook.errors.paste import CAUSE, EARLIER, LAST, PROSE, WARNING, Frame, Message, Paste, compiled, split

Known = Literal["yes", "maybe", "no"]
MOST = 3  # entries that are told apart


@dataclass(frozen=True)
class Answer:
    """What is known of a paste.

    Args:
        known: "yes" for the first match, "maybe" for one of the matches, "no" if they are merely the nearest.
        matches: the best first.
        general: what can be said whatever the entry: the part of PyTorch that raised it, and what to try first.
        message: what was explained, or could not be.
        place: the last line of the reader's own code in the traceback.
        note: whose code raised it, if the entry tells to change what is not the reader's; then it is no certain answer.
    """

    known: Known
    matches: tuple[Match, ...]
    general: str
    message: Message | None
    place: Frame | None
    note: str = ""


def answer(matcher: Matcher, text: str) -> Answer:
    """Read a paste and find what it means."""
    paste = split(text, matcher.rules["paste"])
    facts = Facts(paste, matcher.nodes, matcher.rules)
    ranked = matcher.rank(paste, facts)
    last = raised(paste, matcher.rules)
    general = in_general(facts, last, matcher.rules)
    unknown = last or next(iter(paste.messages), None)
    rules = matcher.rules["score"]
    about = facts.holds(rules["proof"], unknown or Message("", "", PROSE), {})
    said = [m for m in ranked if m.score >= rules["about" if about or m.weight >= rules["heavy"] else "maybe"]]
    likely = [m for m in said if not slight(m, rules)]
    outside = scope(facts, last, matcher.rules, bool(likely) and likely[0].wording == TOLD)
    sure = bool(likely) and likely[0].score >= rules["yes"]
    if outside and not (sure and (last is None or likely[0].message.part in (LAST, CAUSE))):
        return Answer("no", (), outside, unknown, facts.place)
    nearest = tuple(match for match in ranked[:MOST] if match.score >= rules["nearest"])
    if not likely or (not likely[0].proven and paste.frames):
        return Answer("no", nearest, general, unknown, facts.place)
    best = likely[0]
    rivals = [m for m in likely if m is best or rival(best, m, rules)]
    # What the reader wrote, or an older warning, does not explain the exception behind it; at most it announces that.
    aside = best.message.part in (WARNING, PROSE, EARLIER) and last is not None and best.message is not last
    if aside and best.message.part == WARNING:
        sure = False
        if not matcher.entries[best.entry].get("announces"):
            return Answer("no", nearest, general, unknown, facts.place)
    if best.message.part == PROSE and (aside or (best.weight < rules["quoted"] and best.score < rules["exact"])):
        sure = False
    note = owner(facts, best, matcher)
    if sure and len(rivals) == 1 and best.certain and not note:
        return Answer("yes", tuple(likely[:1]), general, best.message, facts.place)
    near = [match for match in likely if match.score > best.score - rules["cause" if same(best, match) else "near"]]
    return Answer("maybe", tuple(near[:MOST]), general, best.message, facts.place, note)


def owner(facts: Facts, best: Match, matcher: Matcher) -> str:
    """Whose the code is that the best entry would have changed; empty if nothing shows that it is another's."""
    group = matcher.entries[best.entry]["group"]
    for each in matcher.rules["owners"]:
        if group in each["groups"] and any(facts.holds(sign, best.message, best.values) for sign in each["when"]):
            return str(each["says"])
    return ""


def slight(match: Match, rules: dict[str, float]) -> bool:
    """Whether it is a few words of a message within what the reader wrote."""
    words = match.message.part == PROSE and match.wording != TOLD
    return words and match.weight < rules["slight"] and match.score < rules["yes"]


def rival(best: Match, other: Match, rules: dict[str, float]) -> bool:
    """Whether it may as well be the other."""
    return other.score > best.score - rules["same" if same(best, other) else "margin"] and not covers(best, other)


def same(best: Match, other: Match) -> bool:
    """Whether the other says the same, so that only what stands around the message tells them apart."""
    return best.wording == other.wording and best.message is other.message


def covers(best: Match, other: Match) -> bool:
    """Whether a match has all that another has, and a word more."""
    return best.message is other.message and best.weight > other.weight + 2 and best.share > other.share - 0.01


def raised(paste: Paste, rules: dict[str, Any]) -> Message | None:
    """The exception that ended the program, without the launchers around it."""
    wrapper = compiled(rules["paste"]["wrappers"])
    found = [message for message in paste.messages if message.part in (LAST, EARLIER, CAUSE)]
    own = [m for m in found if not wrapper.search(m.kind) and not wrapper.search(m.text)]
    return next(iter(own or found), None)


def scope(facts: Facts, message: Message | None, rules: dict[str, Any], told: bool) -> str:
    """What an error is about that is none of gradients; empty if it may be one."""
    if message is None:
        message = Message("", facts.text, PROSE)
    backward = any(facts.holds(sign, message, {}) for sign in rules["backward"]["signs"])
    for each in rules["outside"]:
        # Another framework shows anywhere in the text, unless torch does as well.
        where = "text" if "unless" in each else "message"
        torch = "unless" in each and facts.holds(f"text: {each['unless']}", message, {})
        excused = torch or (backward and each.get("forward")) or (told and each.get("told"))
        if facts.holds(f"{where}: {each['find']}", message, {}) and not excused:
            return str(each["says"])
    return ""


def in_general(facts: Facts, last: Message | None, rules: dict[str, Any]) -> str:
    """Which part of PyTorch raised it, and what to try first."""
    message = last or Message("", facts.text, PROSE)
    for layer in rules["layers"]:
        if any(facts.holds(each, message, {}) for each in layer["when"]):
            return f"{layer['raised']} {layer['first']}"
    return ""
