"""Store the index of messages and their programs: in the repository as text, with each value on its own line, so that a
comparison of two versions can be read; in a wheel and a source distribution compressed, which needs a quarter less than
their own compression. There entries and their cases are stored by field, because texts of one field resemble each
other. Only the messages and their wordings are stored by entry, and a wording as what differs from its message. Prose
is compressed with bzip2 and the rest, mostly patterns, with LZMA: each is the smaller one for its part. In both, one
byte stands for each of the most frequent words and two for the next, so that more of what comes before is found. The
file holds both parts, one after the other. A fixed program is stored as its differences from the broken one.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PROSE = ("cause", "fix", "tell", "change", "title")  # fields of entries and cases
SAID = ("message", "former", "wordings")  # fields that repeat each other's words
WORD = re.compile(rb"[a-z]{2,}")  # what is abbreviated
# Bytes that ASCII lacks: each of these stands for a word, and each of the remaining ones does with another byte.
ALONE, LEADS, SECOND = range(0x80, 0xF2), range(0xF2, 0x100), range(0x21, 0x7B)
IN_TWO = re.compile(rb"([\xf2-\xff].)")
SPOKEN, LEADING = re.compile(r"[a-z_]\w*"), 160  # a word of a message, and in how many characters a wording has its own
Row = dict[str, Any]


def read(path: Path) -> dict[str, Any]:
    """Return what a file holds, which an installed package has compressed."""
    if path.exists():
        return dict(json.loads(path.read_bytes()))
    import bz2
    import lzma

    first = bz2.BZ2Decompressor()
    prose = json.loads(_written_out(first.decompress(path.with_name(f"{path.name}.packed").read_bytes())))
    if not first.unused_data:  # programs
        return {name: [broken, _edited(broken, edits)] for name, broken, edits in prose}
    stored = json.loads(_written_out(lzma.decompress(first.unused_data)))
    texts = ({field: both[i] for field, both in prose["fields"].items()} for i in (0, 1))
    entries, cases = (_rows(stored.pop(name) | own) for name, own in zip(("entries", "cases"), texts, strict=True))
    remaining = iter(cases)
    left_out = frozenset(stored["rules"]["tokens"]["drop"])
    for entry, said in zip(entries, stored.pop("said"), strict=True):
        _restore(entry, said, left_out)
        if count := entry.pop("cases", 0):
            entry["cases"] = [next(remaining) for _ in range(count)]
    return stored | {"entries": entries, "questions": _rows(prose["questions"])}


def write(path: Path, stored: Mapping[str, Any]) -> None:
    """Write the index, or the programs, to a file."""
    path.write_text(json.dumps(stored, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def compressed(path: Path) -> bytes:
    """Return the compressed form of a file."""
    import bz2
    import lzma

    stored = read(path)
    if "entries" not in stored:
        programs = [[name, broken, _edits(broken, fixed)] for name, (broken, fixed) in stored.items()]
        return bz2.compress(_abbreviated(programs))
    cases = [case for entry in stored["entries"] for case in entry.get("cases", ())]
    entries = [entry | {"cases": len(entry["cases"])} if "cases" in entry else entry for entry in stored["entries"]]
    columns = {"entries": _columns(entries), "cases": _columns(cases)}
    left_out = frozenset(stored["rules"]["tokens"]["drop"])
    said = {"said": [_said(entry, left_out) for entry in entries]}
    prose = {"fields": {field: [columns[name].pop(field) for name in ("entries", "cases")] for field in PROSE}}
    prose["questions"] = _columns(stored.pop("questions"))
    stored |= {name: {k: v for k, v in fields.items() if k not in SAID} for name, fields in columns.items()} | said
    # A byte of text says more about the next one than its position does.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
    return bz2.compress(_abbreviated(prose)) + lzma.compress(_abbreviated(stored), filters=filters)


def _edits(broken: str, fixed: str) -> list[Any]:
    """Return the changes from the broken to the fixed program: from which line to which, and the lines instead."""
    if not fixed:
        return []
    import difflib

    before, after = broken.split("\n"), fixed.split("\n")
    changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [[i, j, after[k:m]] for kind, i, j, k, m in changes if kind != "equal"]


def _edited(broken: str, edits: Sequence[Any]) -> str:
    """Return the fixed program, or nothing if there is none."""
    lines = broken.split("\n")
    for first, last, instead in reversed(edits):
        lines[first:last] = instead
    return "\n".join(lines) if edits else ""


def _said(entry: Row, left_out: frozenset[str]) -> list[Any]:
    """Return the messages of an entry, of this release and of former ones, each with a wording next to it."""
    order = ("torch", "message", "kind")
    former = [[each[name] for name in order if name in each] for each in entry.get("former", ())]
    said = list(itertools.chain(*itertools.zip_longest([entry["message"], *former], entry["wordings"])))
    for i, words in _each_wording(said, left_out):
        lead, tail, kind = said[i]
        said[i] = [_differences(words, lead.split()), tail, *([kind] if kind != entry["kind"] else [])]
    return said


def _restore(entry: Row, said: list[Any], left_out: frozenset[str]) -> None:
    """Put into an entry what :func:`_said` returned."""
    for i, words in _each_wording(said, left_out):
        differences, *others = said[i]
        said[i] = [_with_differences(words, differences), *others, entry["kind"]][:3]
    entry["message"], *former = (each for each in said[::2] if each is not None)
    if former:
        entry["former"] = [dict(zip(("torch", "message", "kind"), each, strict=False)) for each in former]
    entry["wordings"] = [each for each in said[1::2] if each is not None]


def _each_wording(said: Sequence[Any], left_out: frozenset[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the place of each wording and the words of the last message before it."""
    message = ""
    for i in range(0, len(said) - 1, 2):
        if said[i] is not None:
            message = said[i] if isinstance(said[i], str) else said[i][1]
        if said[i + 1] is not None:
            yield i + 1, [word for word in SPOKEN.findall(message[:LEADING].lower()) if word not in left_out]


def _differences(words: Sequence[str], wording: Sequence[str]) -> str:
    """Return how to get a wording from these words: take so many, leave out so many (negative), or add a word."""
    import difflib

    steps: list[str] = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, words, wording, autojunk=False).get_opcodes():
        if kind == "equal":
            steps.append(str(j - i))
        else:
            steps += [str(i - j)] * (i < j < len(words)) + list(wording[k:m])
    return " ".join(steps)


def _with_differences(words: Sequence[str], differences: str) -> str:
    """Return the wording to which the differences lead; none of its own words is a whole number."""
    wording: list[str] = []
    at = 0
    for step in differences.split():
        if step.isdigit():
            wording += words[at : at + int(step)]
        elif not step.startswith("-"):
            wording.append(step)
            continue
        at += abs(int(step))
    return " ".join(wording)


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {field: [row.get(field) for row in rows] for field in dict.fromkeys(field for row in rows for field in row)}


def _rows(fields: Mapping[str, list[Any]]) -> list[Row]:
    return [
        {k: v for k, v in zip(fields, row, strict=True) if v is not None} for row in zip(*fields.values(), strict=True)
    ]


def _codes() -> Iterator[bytes]:
    """Yield what stands for a word, for the most frequent word first."""
    yield from (bytes([byte]) for byte in ALONE)
    yield from (bytes([lead, second]) for lead in LEADS for second in SECOND)


def _abbreviated(stored: Any) -> bytes:
    """Return the text of something in ASCII with codes for the most frequent words, after a list of them."""
    text = json.dumps(stored, separators=(",", ":")).encode()
    counts = Counter(WORD.findall(text))
    often = (word for word, count in counts.items() if count > 3)  # any other takes more in the list than it saves
    words = sorted(often, key=lambda word: ((1 - len(word)) * counts[word], word))
    codes = dict(zip(words, _codes(), strict=False))
    return b" ".join(codes) + b"\n" + WORD.sub(lambda match: codes.get(match[0], match[0]), text)


def _written_out(abbreviated: bytes) -> bytes:
    """Return the text that :func:`_abbreviated` has made shorter."""
    words, _, text = abbreviated.partition(b"\n")
    meant = dict(zip(_codes(), words.split(), strict=False))
    parts = IN_TWO.split(text)
    parts[1::2] = map(meant.__getitem__, parts[1::2])
    text = b"".join(parts)
    for code, word in itertools.islice(meant.items(), len(ALONE)):  # faster than with the others
        text = text.replace(code, word)
    return text
