"""The questions of the guide, as answers of the error index: each with its answer's first sentences and its address.

Readers who tell what they see, and paste no message, often ask a question that one of these pages answers.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.asked import asked

GUIDE = Path(__file__).parents[1] / "guide"
LENGTH = 100  # the most characters of the answer, which ends with a sentence


def questions() -> list[dict[str, Any]]:
    """Every question of the pages, with its answer's first sentences, and where it is."""
    phrases = asked()
    pages = sorted(GUIDE.glob("questions*.md"))
    found = [row for path in pages for row in on_page(path, phrases.get(f"guide/{path.stem}", {}))]
    repeated = {name for name, count in Counter(row["title"] for row in found).items() if count > 1}
    if repeated:
        raise ValueError(f"asked twice: {', '.join(sorted(repeated))}")
    return found


def on_page(path: Path, phrases: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Any]]:
    """The questions of one page, each with what people type who ask it, by its anchor."""
    parts = re.split(r"^(?:\((.+)\)=\n+)?### (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for label, title, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        answer = first_sentences(re.split(r"\n\s*\n|\n```", text.strip(), maxsplit=1)[0])
        if answer and "{{" not in title + answer:
            row = {"page": f"guide/{path.stem}", "title": plain(title), "change": answer}
            yield {**row, "asked": "\n".join(phrases.get(label or anchor(title), ()))}


def anchor(title: str) -> str:
    """The name of the section with this title in an address."""
    letters = unicodedata.normalize("NFKD", plain(title).lower()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")


def first_sentences(paragraph: str) -> str:
    """The first sentence of a paragraph, and those after it that fit."""
    text = plain(paragraph)
    if text.startswith(("|", "-", "$", ":::", "```")):
        return ""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`(])", text)
    kept = sentences[0]
    for sentence in sentences[1:]:
        if len(kept) + 1 + len(sentence) > LENGTH:
            break
        kept += f" {sentence}"
    return kept.removesuffix(":") + "." * kept.endswith(":")


def plain(text: str) -> str:
    """The words of a text in Markdown, with code as in the entries."""
    text = re.sub(r"\{\w+\}`([^`<]*?) ?<[^`]*>`", r"\1", " ".join(text.split()))
    text = re.sub(r"\{\w+\}`([^`]*)`", r"\1", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(?<![\w*])\*{1,2}([^\s*][^*]*?)\*{1,2}(?![\w*])", r"\1", text)
    return re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", text)
