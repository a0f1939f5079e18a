"""Where each page of the cookbook is: the sections are folders of ``examples/``, their headers say the order."""

import re
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDER = re.compile(r"^\.\. In this order: (.*)$", re.MULTILINE)

# The name of a page, which is that of its recipes' module, and its place: {"masks": "04_memory/masks"}.
PLACES: dict[str, str] = {
    page: f"{header.parent.name}/{page}"
    for header in sorted(EXAMPLES.glob("*/GALLERY_HEADER.rst"))
    for page in ORDER.search(header.read_text())[1].split()
}
