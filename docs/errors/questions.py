"""The questions of the guide, as answers of the error index: each with its answer's first sentences and its address.

Readers who tell what they see, and paste no message, often ask a question that one of these pages answers.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

GUIDE = Path(__file__).parents[1] / "guide"
LENGTH = 120  # the most characters of the answer, which ends with a sentence


def questions() -> list[dict[str, str]]:
    """Every question of the pages, with its answer's first sentences, and where it is."""
    found = [row for path in sorted(GUIDE.glob("questions*.md")) for row in on_page(path)]
    repeated = {name for name, count in Counter(row["title"] for row in found).items() if count > 1}
    if repeated:
        raise ValueError(f"asked twice: {', '.join(sorted(repeated))}")
    return found


def on_page(path: Path) -> Iterator[dict[str, str]]:
    """The questions of one page."""
    parts = re.split(r"^### (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        answer = first_sentences(re.split(r"\n\s*\n|\n```", text.strip(), maxsplit=1)[0])
        if answer and "{{" not in title + answer:
            yield {"page": f"guide/{path.stem}", "title": plain(title), "change": answer}


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
