"""A recipe's copy buttons and its download yield the very text that the catalog's tests run in an empty namespace."""

import pytest
from docs._ext.pages import PLACES
from playwright.sync_api import Browser, Page, expect

from autograd_cookbook.catalog import RECIPES, Recipe

from .conftest import SITE, opened, parsed

pytestmark = pytest.mark.site

SECTIONS = {place.partition("/")[0]: page for page, place in reversed(PLACES.items())}  # with its first page


@pytest.mark.parametrize("recipe", [pytest.param(r, id=r.name) for r in RECIPES])
def test_what_the_page_shows_and_offers_is_the_source(recipe: Recipe) -> None:
    page = f"cookbook/{PLACES[recipe.page]}.html"
    (shown,) = parsed(page).select(f"#recipe-{recipe.name} pre")
    assert shown.get_text().strip() == recipe.source.strip(), "the copy button yields another text"
    assert parsed(page).select(f".glance [data-copy={recipe.name}]"), "there is no button on the card"
    (link,) = {link["href"] for link in parsed(page).select(f".glance-download[href$='/{recipe.name}.py']")}
    download = (SITE / page).parent / link
    assert download.read_text(encoding="utf-8") == recipe.source, "the download is another file"


@pytest.mark.parametrize("page_name", SECTIONS.values(), ids=list(SECTIONS))
def test_copy_buttons(page_name: str, browser: Browser, base: str) -> None:
    """That of the source and that of the card, clicked for each recipe of a page."""
    recipes = [recipe for recipe in RECIPES if recipe.page == page_name]
    with opened(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        for recipe in recipes:
            # The source is folded, and the link to it opens it.
            page.goto(f"{base}cookbook/{PLACES[page_name]}.html#recipe-{recipe.name}")
            for button in (f"#recipe-{recipe.name} [data-copy]", f".glance [data-copy={recipe.name}]"):
                page.evaluate("navigator.clipboard.writeText('')")
                page.locator(button).click()
                page.wait_for_function("navigator.clipboard.readText().then((text) => text.length > 100)")
                copied = page.evaluate("navigator.clipboard.readText()")
                # Older browsers and systems may change the ends of lines, nothing else may.
                assert copied.replace("\r\n", "\n").strip() == recipe.source.strip(), f"{recipe.name}: {button}"


BUTTONS = "button.copybtn, [data-copy]"


@pytest.mark.parametrize("path", ["index.html", f"cookbook/{PLACES['straight_through']}.html", "guide/backward.html"])
def test_each_button_says_what_it_copies(path: str, page: Page, base: str) -> None:
    page.goto(base + path)
    expect(page.locator(BUTTONS).first).to_be_attached()
    page.wait_for_function("document.readyState == 'complete'")
    names = page.locator(BUTTONS).evaluate_all(
        "all => all.map(b => [b.getAttribute('aria-label'), !!b.closest('.glance')])"
    )
    assert all(name and name.startswith("Copy ") and len(name) > len("Copy x") for name, _ in names), names
    for kind in (True, False):  # the card has the same recipes as the sections below it
        same = [name for name, of_card in names if of_card is kind]
        assert len(same) == len(set(same)), same


def test_what_is_printed_has_no_button(page: Page, base: str) -> None:
    for path in ("index.html", f"cookbook/{PLACES['straight_through']}.html", "errors/saving.html"):
        page.goto(base + path, wait_until="load")
        assert page.locator(".highlight button.copybtn").count()
        printed = page.locator(":is(.cell_output, .sphx-glr-script-out, .error-message) button.copybtn")
        expect(printed).to_have_count(0)


def test_a_button_is_seen_by_a_keyboard_and_on_a_touch_screen(browser: Browser, base: str) -> None:
    for options in ({"has_touch": True, "is_mobile": True}, {}):
        with opened(browser, viewport={"width": 390, "height": 844}, **options) as page:
            page.goto(f"{base}guide/backward.html")
            button = page.locator("article button.copybtn").first
            if not options:
                expect(button).to_have_css("opacity", "0")
                page.locator("article h1").click()
                page.keyboard.press("Tab")
                while not button.evaluate("button => button === document.activeElement"):
                    page.keyboard.press("Tab")
            expect(button).to_have_css("opacity", "1")


def test_on_a_touch_screen_no_button_covers_code_and_each_has_the_size_of_a_finger(browser: Browser, base: str) -> None:
    with opened(browser, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as page:
        page.goto(f"{base}guide/backward.html", wait_until="load")
        gaps = page.locator("article .highlight:has(> button.copybtn)").evaluate_all(
            "all => all.map(one => { const range = new Range(); range.selectNodeContents(one.querySelector('pre'));"
            " const box = one.querySelector('button').getBoundingClientRect();"
            " return [range.getBoundingClientRect().top - box.bottom, box.width, box.height]; })"
        )
        assert gaps
        assert all(gap > -4 and width >= 44 and height >= 44 for gap, width, height in gaps), gaps
        recipe = next(recipe for recipe in RECIPES if recipe.page == "straight_through")
        page.goto(f"{base}cookbook/{PLACES[recipe.page]}.html#recipe-{recipe.name}")
        box = page.locator(f"#recipe-{recipe.name}")
        for control in box.locator(".glance-take > *").all():
            place = control.bounding_box()
            assert place["height"] >= 44, place
            assert place["y"] < box.locator(".badges").bounding_box()["y"]
        chips = page.locator(f"#recipe-{recipe.name} .badges a, .bd-breadcrumbs a")
        small = chips.evaluate_all("all => all.map(a => a.getBoundingClientRect().height).filter(size => size < 43.5)")
        assert not small
