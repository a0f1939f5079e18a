"""Fonts of icons with the few glyphs that the site shows."""

import logging
import re
from io import BytesIO
from pathlib import Path

import tinycss2
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

logging.getLogger("fontTools").setLevel(logging.WARNING)  # of each table it tells what it has done
FACE = re.compile(r"url\((vendor/fontawesome/webfonts/[\w.-]+\.woff2)\)")
PRIVATE = re.compile("[\ue000-\uf8ff]")


def glyphs(css: str, texts: list[str]) -> set[str]:
    """The characters that may be icons: strings of one character in the stylesheet, and what no alphabet has."""
    found = set(PRIVATE.findall("".join(texts)))
    waiting = tinycss2.parse_component_value_list(css, skip_comments=True)
    while waiting:
        node = waiting.pop()
        if node.type == "string" and len(node.value) == 1:
            found.add(node.value)
        waiting += getattr(node, "content", None) or getattr(node, "arguments", None) or []
    return found


def subset(font: Path, characters: set[str]) -> bytes:
    """The font as WOFF2, with the glyphs of these characters alone. The same input gives the same bytes."""
    options = Options(flavor="woff2", notdef_outline=True)
    read = TTFont(font, recalcTimestamp=False)
    subsetter = Subsetter(options)
    subsetter.populate(text="".join(sorted(characters)))
    subsetter.subset(read)
    read.flavor = "woff2"
    file = BytesIO()
    read.save(file)
    return file.getvalue()


def lighten(css: str, static: Path, texts: list[str]) -> str:
    """Write the fonts of icons that the stylesheet names anew, next to it, and let it name these."""
    characters = glyphs(css, texts)

    def small(match: re.Match[str]) -> str:
        font = static / match[1]
        name = f"icons-{font.name}"
        (static / name).write_bytes(subset(font, characters))
        return f"url({name})"

    return FACE.sub(small, css)
