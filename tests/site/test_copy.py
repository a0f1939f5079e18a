"""A recipe's copy buttons and its download yield the very text that the catalog's tests run in an empty namespace."""

import pytest
from docs._ext.pages import PLACES
from playwright.sync_api import Browser

from autograd_cookbook.catalog import RECIPES

pytestmark = pytest.mark.site

PAGES = list(PLACES)


@pytest.mark.parametrize("page_name", PAGES)
def test_copy_buttons(page_name: str, browser: Browser, base: str) -> None:
    recipes = [recipe for recipe in RECIPES if recipe.page == page_name]
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
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
            address = page.locator(f".glance-download[href$='/{recipe.name}.py']").evaluate("link => link.href")
            assert page.request.get(address).text() == recipe.source, f"{recipe.name}: the download is another file"
