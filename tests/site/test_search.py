"""Somebody who types the title of a pitfall into the search finds its section."""

import re
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from docs._ext.verdicts import GROUPS, Pitfall, pitfalls_of
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.site

PAGES = Path(__file__).parents[2] / "docs" / "pitfalls"
PITFALLS = [(group, pitfall) for group in GROUPS for pitfall in pitfalls_of(PAGES / f"{group}.md")]


@pytest.mark.parametrize(("group", "pitfall"), PITFALLS, ids=[pitfall.name for _, pitfall in PITFALLS])
def test_a_title_leads_to_its_section(group: str, pitfall: Pitfall, page: Page, base: str) -> None:
    page.goto(f"{base}search.html?q={quote_plus(pitfall.title)}")
    # The hits are shown in their order, each when its page was fetched for an excerpt; the summary is the last.
    expect(page.locator("#search-results .search-summary")).to_have_text(re.compile("found"), timeout=60_000)
    links = page.locator("#search-results li a").evaluate_all("links => links.map(link => [link.innerText, link.href])")
    hits = [
        href
        for text, href in links[:3]
        if text.endswith(f"> {pitfall.title}") and href.startswith(f"{base}pitfalls/{group}.html")
    ]
    assert len(hits) == 1, f"not among the first three of {len(links)}: {links[:3]}"
    anchor = hits[0].partition("#")[2]
    page.goto(hits[0])
    heading = page.locator(f"xpath=//*[@id='{anchor}']/ancestor-or-self::section[1]/h2")
    expect(heading).to_contain_text(pitfall.title)
