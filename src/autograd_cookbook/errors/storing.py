"""Store the index of messages and their programs: in the repository as text, with each value on its own line, so that a
comparison of two versions can be read; in a wheel and a source distribution compressed with LZMA, which needs a quarter
less than their own compression. There the entries are stored by field, because texts of one field resemble each other.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TABLE = "entries"  # the list of the index that is stored by field


def read(path: Path) -> dict[str, Any]:
    """Return what a file holds, which an installed package has compressed."""
    if path.exists():
        return dict(json.loads(path.read_bytes()))
    import lzma

    stored = dict(json.loads(lzma.decompress(path.with_name(f"{path.name}.xz").read_bytes())))
    if TABLE in stored:
        fields = stored[TABLE]
        rows = zip(*fields.values(), strict=True)
        stored[TABLE] = [{k: v for k, v in zip(fields, row, strict=True) if v is not None} for row in rows]
    return stored


def write(path: Path, stored: Mapping[str, Any]) -> None:
    """Write the index, or the programs, to a file."""
    path.write_text(json.dumps(stored, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def compressed(path: Path) -> bytes:
    """Return the compressed form of a file."""
    import lzma

    stored = read(path)
    if TABLE in stored:
        fields = dict.fromkeys(field for row in stored[TABLE] for field in row)
        stored[TABLE] = {field: [row.get(field) for row in stored[TABLE]] for field in fields}
    text = json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode()
    # A byte of text says more about the next one than its position does.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
    return lzma.compress(text, filters=filters)
