"""``{file} NAME``: a file as the reader would have it, which the page's code finds in a folder.

The block becomes two: its text under its name, and a hidden cell, which writes the text below ``root``. An
earlier cell of the page makes this folder. With ``:append:`` the text goes to the end of the file.
"""

import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

BLOCK = re.compile(r"^```{file} (\S+)\n(:append:\n)?(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}


def expanded(source: str) -> str:
    """A page with two blocks for each of its files."""

    def blocks(match: re.Match[str]) -> str:
        name, append, text = match.groups()
        caption = f"{name}, added at the end" if append else name
        shown = f"```{{code-block}} {LANGUAGES[PurePath(name).suffix]}\n:caption: {caption}\n\n{text}```"
        code = f"from docs._ext import files\n\nfiles.write(root / {name!r}, {text!r}, append={bool(append)})"
        return f"{shown}\n\n```{{code-cell}} python\n:tags: [remove-cell]\n\n{code}\n```"

    return BLOCK.sub(blocks, source)


def write(path: Path, text: str, append: bool) -> None:
    """Write a file, and its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text(encoding="utf-8") + "\n" if append else "") + text, encoding="utf-8")


def expand(app: "Sphinx", docname: str, source: list[str]) -> None:
    source[0] = expanded(source[0])


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("source-read", expand)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
