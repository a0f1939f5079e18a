"""The address in a finding leads to the section that explains it, and that to the programs in which it is met."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from docs._ext.verdicts import GROUPS, pitfalls_of

from autograd_cookbook import SITE as ADDRESS
from autograd_cookbook.auditing.checks import all_checks

from .conftest import SITE

pytestmark = pytest.mark.site

PAGES = Path(__file__).parents[2] / "docs" / "pitfalls"


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


@pytest.mark.parametrize("group", GROUPS)
def test_pitfalls_and_checks_link_each_other(group: str) -> None:
    index = (SITE / "pitfalls/index.html").read_text()
    met = (SITE / f"pitfalls/{group}.html").read_text()
    missing = []
    for pitfall in pitfalls_of(PAGES / f"{group}.md"):
        there = f'href="{group}.html#{pitfall.label}"'
        if there not in index:
            missing.append(f"index: {there}")
        for name in pitfall.checks:
            here = all_checks()[name].url.removeprefix(f"{ADDRESS}pitfalls/")
            if f'href="{here}"' not in met:
                missing.append(f"{group}: {here}")
            if there not in (SITE / "pitfalls" / here.partition("#")[0]).read_text():
                missing.append(f"{here}: {there}")
    assert not missing, "\n".join(missing)
