"""A recipe's copy buttons and its download yield the very text that the catalog's tests run in an empty namespace."""

import pytest
from docs._ext.pages import PLACES
from playwright.sync_api import Browser

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
            for button in (f"#recipe-{recipe.name} button.copybtn", f".glance [data-copy={recipe.name}]"):
                page.evaluate("navigator.clipboard.writeText('')")
                page.locator(button).click()
                page.wait_for_function("navigator.clipboard.readText().then((text) => text.length > 100)")
                copied = page.evaluate("navigator.clipboard.readText()")
                # Older browsers and systems may change the ends of lines, nothing else may.
                assert copied.replace("\r\n", "\n").strip() == recipe.source.strip(), f"{recipe.name}: {button}"
