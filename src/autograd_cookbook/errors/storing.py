"""Store the index of messages in a form that compresses well: field by field instead of entry by entry.

Texts that repeat each other are next to each other, because the compression of a wheel looks back 32 kB only. Each
value has its own line, so that a comparison of two versions of the file can be read. A wheel has the file compressed
with LZMA, which is a quarter smaller than the wheel's own compression.
"""

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Fields whose texts repeat each other, or that most entries lack. Every other field has a table of its own.
TOGETHER = (
    ("message", "names", "former", "wordings"),
    ("title", "tell", "cause", "fix", "change", "cases"),
    ("needs", "favors", "against", "shown_by", "signs"),
)


def read(path: Path) -> dict[str, Any]:
    """Return the index in a file, which an installed package has compressed."""
    stored = path.read_bytes() if path.exists() else lzma.decompress(path.with_name(f"{path.name}.xz").read_bytes())
    index: dict[str, Any] = json.loads(stored)
    return {**index, "entries": unpacked(index["entries"]), "questions": asked(index["questions"])}


def write(path: Path, index: Mapping[str, Any]) -> None:
    """Write the index to a file."""
    stored = {**index, "entries": packed(index["entries"]), "questions": by_page(index["questions"])}
    # Without indentation, which would add 9 kB to the wheel.
    path.write_text(json.dumps(stored, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def packed(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tables of the fields. A table has the values of its fields for one entry after the other."""
    rows = [{name: short(name, entry) for name in entry} for entry in entries]
    single = dict.fromkeys(name for row in rows for name in row)
    for names in TOGETHER:
        for name in names:
            single.pop(name, None)
    return [
        {"fields": list(names), "values": [row.get(name) for row in rows for name in names]}
        for names in (*TOGETHER, *((name,) for name in single))
    ]


def short(name: str, entry: Mapping[str, Any]) -> Any:
    """Return a field of an entry without the type of the exception where it is the entry's own."""
    kind = entry["kind"]
    if name == "former":
        return [[each["torch"], each["message"], *([each["kind"]] if "kind" in each else [])] for each in entry[name]]
    if name == "wordings":
        return [[lead, tail, *([] if own == kind else [own])] for lead, tail, own in entry[name]]
    return entry[name]


def by_page(questions: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the questions by their page: title, answer, title, …"""
    pages: dict[str, list[str]] = {}
    for each in questions:
        pages.setdefault(each["page"], []).extend((each["title"], each["change"]))
    return pages


def asked(pages: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return the questions of the pages."""
    return [
        {"page": page, "title": title, "change": change}
        for page, rows in pages.items()
        for title, change in zip(rows[::2], rows[1::2], strict=True)
    ]


def unpacked(tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of the tables."""
    entries: list[dict[str, Any]] = []
    for table in tables:
        fields, values = table["fields"], table["values"]
        entries.extend({} for _ in range(len(values) // len(fields) - len(entries)))
        for i, name in enumerate(fields):
            for entry, value in zip(entries, values[i :: len(fields)], strict=True):
                if value is not None:
                    entry[name] = value
    for entry in entries:
        if "former" in entry:
            entry["former"] = list(formers(entry["former"]))
        entry["wordings"] = [row if len(row) > 2 else [*row, entry["kind"]] for row in entry["wordings"]]
    return entries


def formers(rows: Sequence[Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield the messages of other releases."""
    for torch, message, *kind in rows:
        yield {"torch": torch, "message": message, **({"kind": kind[0]} if kind else {})}
