"""The list of the cookbook: a stranger with a phone finds a page by its section, its purpose, or a word."""

import pytest
from docs._ext.pages import PLACES
from playwright.sync_api import Page, expect

from .conftest import parsed

pytestmark = pytest.mark.site

PHONE = {"width": 390, "height": 844}
LIST = "cookbook/index.html"
CARDS = ".sphx-glr-thumbcontainer"


@pytest.fixture
def listed(page: Page, base: str) -> Page:
    page.set_viewport_size(PHONE)
    page.goto(base + LIST)
    return page


def shown(page: Page) -> list[str]:
    """The names of the pages whose cards are visible."""
    links = page.locator(f"{CARDS}:visible a").evaluate_all("links => links.map(link => link.pathname)")
    return [link.rpartition("/")[2].removesuffix(".html") for link in links]


def test_each_card_says_the_purpose_of_its_page_without_a_mouse(listed: Page) -> None:
    assert shown(listed) == list(PLACES)
    purposes = listed.locator(f"{CARDS}:visible .card-purpose").all_inner_texts()
    for page, purpose in zip(PLACES, purposes, strict=True):
        first = parsed(f"cookbook/{PLACES[page]}.html").select_one("article section > p")
        assert first.get_text(" ", strip=True)[:20] == purpose[:20], page


def test_on_a_phone_two_thumbs_of_scrolling_show_a_section(listed: Page) -> None:
    """A card is at most a fifth of the screen high, and a section begins where its link leads."""
    heights = listed.locator(CARDS).evaluate_all("cards => cards.map(card => card.offsetHeight)")
    assert max(heights) <= PHONE["height"] / 5
    links = listed.locator(".jump a")
    sections = listed.locator("article h2")
    assert links.all_inner_texts() == [text.removesuffix("#").strip() for text in sections.all_inner_texts()]
    box = links.last.bounding_box()
    assert box["y"] + box["height"] < PHONE["height"], "the last link is below the first screen"
    links.last.click()
    expect(sections.last).to_be_in_viewport()


def test_the_page_has_one_title(listed: Page) -> None:
    expect(listed.locator("article h1")).to_have_count(1)


@pytest.mark.parametrize(
    ("typed", "name"),
    [("binarize", "straight_through"), ("Rounding", "straight_through"), ("less vocabulary", "linear_cross_entropy")],
)
def test_the_filter_leaves_what_has_the_most_words(typed: str, name: str, listed: Page) -> None:
    field = listed.get_by_label("Filter the recipes")
    field.fill(typed)
    assert name in shown(listed)
    assert len(shown(listed)) < len(PLACES) / 4
    expect(listed.locator(".card-filter output")).to_contain_text(f"{len(shown(listed))} of {len(PLACES)} pages")
    for section in listed.locator("article section section:visible").all():
        assert section.locator(f"{CARDS}:visible").count(), "a section is left without cards"
    field.fill("")
    assert shown(listed) == list(PLACES)


def test_what_no_card_has_is_searched_for_on_the_whole_site(listed: Page, base: str) -> None:
    listed.get_by_label("Filter the recipes").fill("zzzqqq")
    assert shown(listed) == []
    listed.get_by_role("link", name="Search the whole site").click()
    expect(listed).to_have_url(f"{base}search.html?q=zzzqqq")


@pytest.mark.parametrize("path", [LIST, f"cookbook/{PLACES['masks']}.html"])
def test_no_letter_is_one_that_fonts_lack(path: str) -> None:
    assert "🏷" not in parsed(path).get_text()
