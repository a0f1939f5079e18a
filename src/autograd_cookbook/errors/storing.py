"""Store the index of messages: in the repository as text, with each value on its own line, so that a comparison of two
versions can be read; in a wheel compressed with LZMA, which needs a quarter less than the wheel's own compression.
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
    path.write_text(json.dumps(index, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
