"""Somebody who types the title of a pitfall into the search finds its section."""

from pathlib import Path

import pytest
from docs._ext.verdicts import GROUPS, Pitfall, pitfalls_of
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.site

PAGES = Path(__file__).parents[2] / "docs" / "pitfalls"
PITFALLS = [(group, pitfall) for group in GROUPS for pitfall in pitfalls_of(PAGES / f"{group}.md")]


@pytest.mark.parametrize(("group", "pitfall"), PITFALLS, ids=[pitfall.name for _, pitfall in PITFALLS])
def test_a_title_leads_to_its_section(group: str, pitfall: Pitfall, page: Page, base: str) -> None:
    page.goto(f"{base}search.html")
    page.locator("#search-documentation input[name=q], input[name=q]:visible").first.fill(pitfall.title)
    page.keyboard.press("Enter")
    expect(page.locator("#search-results li a").nth(2)).to_be_attached()
    hits = page.locator("#search-results li a").evaluate_all("links => links.slice(0, 3).map(link => link.href)")
    (hit,) = [hit for hit in hits if f"pitfalls/{group}.html" in hit and "#" in hit] or [None]
    assert hit, f"not among {hits}"
    page.goto(hit)
    anchor = hit.partition("#")[2]
    heading = page.locator(f"[id='{anchor}']").locator("xpath=ancestor-or-self::section[1]/h2")
    expect(heading).to_contain_text(pitfall.title)
