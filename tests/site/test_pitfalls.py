"""The address in a finding leads to the section that explains it."""

from html.parser import HTMLParser

import pytest

from autograd_cookbook.audit.checks import SITE as ADDRESS
from autograd_cookbook.audit.checks import all_checks

from .conftest import SITE

pytestmark = pytest.mark.site


class Anchors(HTMLParser):
    """Collects the ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attributes if name == "id" and value}


def test_every_finding_leads_to_its_section() -> None:
    anchors: dict[str, set[str]] = {}
    missing = []
    for check in all_checks().values():
        page, _, anchor = check.url.removeprefix(ADDRESS).partition("#")
        if page not in anchors:
            parser = Anchors()
            parser.feed((SITE / page).read_text() if (SITE / page).is_file() else "")
            anchors[page] = parser.found
        if anchor not in anchors[page]:
            missing.append(check.url)
    assert not missing, "the site has no such section:\n" + "\n".join(missing)
