"""Hits while typing: those of the search page, reachable by keyboard, and nothing loaded before the first letter."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from .conftest import opened as opened_page

pytestmark = pytest.mark.site

QUERIES = ["logsumexp", "straight through", "save_for_backward", "out of memory"]


def opened(page: Page, base: str, path: str = "guide/backward.html") -> None:
    page.goto(base + path)
    page.locator(".search-button__button:visible").first.click()


@pytest.mark.parametrize("query", QUERIES)
def test_hits_are_the_first_of_the_search_page(query: str, page: Page, base: str) -> None:
    page.goto(f"{base}search.html?q=a")
    page.wait_for_function("Search._index")
    order = (
        "query => Search._performSearch(query).reverse().slice(0, 8).map(([name, , anchor]) => `${name}.html${anchor}`)"
    )
    expected = page.evaluate(order, query)
    opened(page, base)
    page.keyboard.type(query)
    expect(page.locator(".quick-hits a")).to_have_count(len(expected))
    page.wait_for_function(
        "expected => [...document.querySelectorAll('.quick-hits a')].map(a => a.href).join() === expected.join()",
        arg=[base + address for address in expected],
    )


def test_nothing_is_loaded_before_the_first_letter(page: Page, base: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(base)))
    opened(page, base)
    page.wait_for_load_state("networkidle")
    assert not [url for url in asked if "search.html" in url], asked
    page.keyboard.type("relu")
    expect(page.locator(".quick-hits a").first).to_be_visible()
    assert [url for url in asked if "search.html" in url]
    assert not [url for url in asked if "searchindex" in url]  # Sphinx's, of which this search needs nothing


def test_a_hit_is_reached_by_keyboard(page: Page, base: str) -> None:
    opened(page, base)
    page.keyboard.type("logsumexp")
    first = page.locator(".quick-hits a").first
    expect(first).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.locator("#pst-search-dialog input")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(f"{base}guide/backward.html")
    expect(page.locator("h1").first).to_be_visible()


def test_what_is_typed_while_the_search_loads_is_kept(page: Page, base: str) -> None:
    opened(page, base)
    page.keyboard.type("gradcheck eps")
    expect(page.locator(".quick-hits a").first).to_be_visible()
    expect(page.locator("#pst-search-dialog input")).to_have_value("gradcheck eps")


def test_enter_leads_to_the_search_page_and_no_query_has_no_hits(page: Page, base: str) -> None:
    opened(page, base)
    page.keyboard.type("zzzqqq")
    page.wait_for_function("typeof Search === 'object' && !!Search.show")
    expect(page.locator(".quick-hits a")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{base}search.html?q=zzzqqq")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hits_say_what_they_are_and_can_be_read(theme: str, browser: Browser, base: str) -> None:
    with opened_page(browser, color_scheme=theme) as page:
        opened(page, base)
        page.keyboard.type("logsumexp")
        hit = page.locator(".quick-hits a").first
        expect(hit.locator(".hit-kind")).to_have_text("Recipe")
        expect(hit.locator(".hit-title")).to_have_text("logsumexp")
        expect(hit.locator(".hit-line")).to_contain_text("without overflow")
        assert not Axe().run(page, context="#pst-search-dialog").response["violations"]


def test_on_a_phone_the_search_fits_and_closes(browser: Browser, base: str) -> None:
    """A keyboard takes half of the screen; nothing of the search lies under it, and no tooltip stays after it."""
    with opened_page(browser, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as page:
        page.goto(f"{base}guide/backward.html")
        page.locator(".search-button__button:visible").first.tap()
        page.keyboard.type("gradient of a loss")
        expect(page.locator(".quick-hits a").nth(4)).to_be_visible()
        page.set_viewport_size({"width": 390, "height": 430})
        page.wait_for_function("document.querySelector('.quick-hits').getBoundingClientRect().bottom <= 430")
        field = page.locator("#pst-search-dialog input")
        assert float(field.evaluate("field => parseFloat(getComputedStyle(field).fontSize)")) <= 18
        expect(page.locator(".tooltip")).to_have_count(0)
        page.get_by_role("button", name="Close the search").tap()
        expect(field).to_be_hidden()
        expect(page.locator(".tooltip")).to_have_count(0)
