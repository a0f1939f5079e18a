"""Store the index of messages: in the repository as text, with each entry on its own line, so that a comparison of two
versions shows which entries changed; in a wheel compressed with LZMA, which needs a quarter less than the wheel's own
compression. A line for each value would be easier to read, but makes an sdist 3 kB larger.
"""

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    """Return the index in a file, which an installed package has compressed."""
    stored = path.read_bytes() if path.exists() else lzma.decompress(path.with_name(f"{path.name}.xz").read_bytes())
    index: dict[str, Any] = json.loads(stored)
    return index


def write(path: Path, index: Mapping[str, Any]) -> None:
    """Write the index to a file."""
    parts = ",\n".join(f"{_text(name)}:{_lines(value)}" for name, value in index.items())
    path.write_text(f"{{\n{parts}\n}}\n", encoding="utf-8")


def _lines(value: object) -> str:
    return "[\n" + ",\n".join(map(_text, value)) + "\n]" if isinstance(value, list) else _text(value)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
