"""The capability matrix: filters by need, on the release that is chosen, on a phone and without scripts."""

import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import opened

pytestmark = pytest.mark.site


def names_that_can(page: Page, *needs: str) -> list[str]:
    """By the cells that are shown, whatever the filter does."""
    return page.locator(".capability-matrix tbody tr").evaluate_all(
        "(rows, needs) => rows.filter(row => needs.every(need => row.querySelector("
        "`[data-capability=${need}]:not([hidden])`).dataset.verdict == 'yes'))"
        ".map(row => row.cells[0].textContent.trim())",
        list(needs),
    )


def names_shown(page: Page) -> list[str]:
    return [
        name.strip() for name in page.locator(".capability-matrix tbody tr:visible td:first-child").all_inner_texts()
    ]


def test_the_table_keeps_the_recipes_that_can_do_all_that_is_checked(page: Page, base: str) -> None:
    page.goto(f"{base}capabilities.html")
    everything = names_shown(page)
    for needs in (["compile"], ["compile", "complex128"]):
        page.locator(f".needs input[value={needs[-1]}]").check()
        found = names_that_can(page, *needs)
        assert names_shown(page) == found, needs
        assert 0 < len(found) < len(everything), f"{needs} is no test: {len(found)} of {len(everything)} remain"
        expect(page.locator(".needs-found")).to_have_text(f"{len(found)} of {len(everything)} recipes")


def test_the_filter_follows_the_release(page: Page, base: str) -> None:
    page.goto(f"{base}capabilities.html")
    page.locator(".needs input[value=compile]").check()
    for choice in page.locator(".releases input").all():
        choice.check()
        release = choice.get_attribute("value")
        found = names_that_can(page, "compile")
        expect(page.locator(".needs-found")).to_contain_text(f"{len(found)} of ")
        assert names_shown(page) == found, f"torch {release}"


def test_without_scripts_the_whole_table_fits_a_phone(browser: Browser, base: str) -> None:
    with opened(browser, java_script_enabled=False, viewport={"width": 390, "height": 844}) as page:
        page.goto(f"{base}capabilities.html")
        expect(page.locator(".needs")).to_be_hidden()
        expect(page.locator(".capability-matrix tbody tr").last).to_be_visible()
        assert page.locator("html").evaluate("page => page.scrollWidth") <= 390
