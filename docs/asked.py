"""What people type who look for a section: ``asked.toml``, for the search and for ``explain``."""

import tomllib
from pathlib import Path

ASKED = Path(__file__).with_name("asked.toml")


def asked() -> dict[str, dict[str, list[str]]]:
    """The phrases of each section, by page and anchor; the anchor "" is the page."""
    return tomllib.loads(ASKED.read_text(encoding="utf-8"))
