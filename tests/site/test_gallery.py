"""The list of the cookbook: a stranger with a phone finds a page by its section, its purpose, or a word."""

import itertools

import pytest
from docs._ext.icons import DRAWINGS
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
        said = first.get_text(" ", strip=True).removeprefix("You will ")
        assert said[1:20] == purpose[1:20], page
        assert purpose[0].isupper()


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
    first = listed.locator(f"{CARDS}:visible").first.bounding_box()
    assert first["y"] + first["height"] <= PHONE["height"], "the first card is below the screen"
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


# The share of the pixels of two drawings that differ, on the grid of a card on a phone: for each pair.
DIFFER = """
    async icons => {
        const [width, height] = [96, 64];
        const ink = async (icon) => {
            const copy = icon.cloneNode(true);
            const from = [...icon.querySelectorAll("*")];
            [...copy.querySelectorAll("*")].forEach((shape, i) => {
                const style = getComputedStyle(from[i]);
                for (const name of ["stroke", "fill", "stroke-width", "stroke-dasharray", "font", "text-anchor"])
                    shape.style.setProperty(name, style.getPropertyValue(name));
            });
            const given = { width, height, xmlns: "http://www.w3.org/2000/svg" };
            Object.entries(given).forEach((it) => copy.setAttribute(...it));
            const image = new Image();
            image.src = "data:image/svg+xml," + encodeURIComponent(copy.outerHTML);
            await image.decode();
            const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
            context.drawImage(image, 0, 0);
            const { data } = context.getImageData(0, 0, width, height);
            return Array.from({ length: width * height }, (_, i) => data[4 * i + 3] > 99);
        };
        const drawn = await Promise.all(icons.map(ink));
        return drawn.map((one) => drawn.map((two) => {
            const [either, both] = one.reduce(([e, b], a, i) => [e + (a || two[i]), b + (a && two[i])], [0, 0]);
            return either ? 1 - both / either : 1;
        }));
    }
"""


def test_each_page_has_a_drawing_that_no_other_looks_like(page: Page, base: str) -> None:
    page.goto(base + LIST)
    assert set(DRAWINGS) == set(PLACES), "draw an icon in docs/_ext/icons.py"
    icons = page.locator(f"{CARDS} svg.page-icon")
    assert icons.count() == len(PLACES)
    differ = page.locator(f"{CARDS} svg.page-icon").evaluate_all(DIFFER)
    alike = [
        (one, two, differ[i][j])
        for (i, one), (j, two) in itertools.combinations(enumerate(PLACES), 2)
        if differ[i][j] < 0.5
    ]
    assert not alike, alike
    assert all(differ[i][i] == 0 for i in range(len(PLACES))), "something is not drawn"
