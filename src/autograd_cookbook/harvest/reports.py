"""Write the report to a file. The suffix of the file decides the format."""

import json
from pathlib import Path

from autograd_cookbook.harvest.html import html_of
from autograd_cookbook.harvest.results import Harvest
from autograd_cookbook.harvest.sarif import sarif_of


def write_report(path: Path, harvest: Harvest) -> None:
    """Write the report as .html, .sarif or .json."""
    if path.suffix == ".html":
        text = html_of(harvest)
    else:
        text = json.dumps(sarif_of(harvest) if path.suffix == ".sarif" else harvest.to_dict(), indent=2) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
