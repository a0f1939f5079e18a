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


def test_heads_and_names_stay_in_sight_while_a_finger_goes_through_the_table(browser: Browser, base: str) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with opened(browser, **phone) as page:
        page.goto(f"{base}capabilities.html")
        frame = page.locator(".pst-scrollable-table-container:has(.capability-matrix)")
        frame.evaluate("frame => frame.scrollTo(200, 900)")
        edge = frame.bounding_box()
        head = page.locator(".capability-matrix thead th").nth(6).bounding_box()
        assert abs(head["y"] - edge["y"]) < 3, (head, edge)
        corner = page.locator(".capability-matrix thead th").first.bounding_box()
        name = page.locator(".capability-matrix tbody tr").nth(30).locator("td").first.bounding_box()
        assert abs(corner["x"] - edge["x"]) < 3
        assert abs(name["x"] - edge["x"]) < 3
        lefts = page.locator(".needs label").evaluate_all("all => all.map(one => one.getBoundingClientRect().left)")
        assert len(set(map(round, lefts))) <= 2, "the choices stand in no columns"
        sizes = page.locator(".needs label").evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")
        assert min(sizes) >= 44


def test_the_marks_are_explained_before_the_table(page: Page, base: str) -> None:
    page.goto(f"{base}capabilities.html")
    legend = page.locator("article p", has_text="not for all samples").first
    assert legend.bounding_box()["y"] < page.locator(".capability-matrix").bounding_box()["y"]


def test_costs_name_their_units_and_keep_the_names_of_recipes_in_sight(browser: Browser, base: str) -> None:
    with opened(browser, viewport={"width": 390, "height": 844}) as page:
        page.goto(f"{base}costs.html")
        heads = page.locator("table.costs th").all_inner_texts()
        assert [head.strip() for head in heads] == [
            *("recipe", "way", "bytes saved per element", "peak bytes per element", "time (ours = 1)")
        ]
        expect(page.locator("table.costs td[rowspan]", has_text="linear_cross_entropy").first).to_contain_text(
            "bytes per"
        )
        assert "nox" not in page.locator("article").inner_text()
        frame = page.locator(".pst-scrollable-table-container:has(table.costs)")
        frame.evaluate("frame => frame.scrollTo(120, 0)")
        name = page.locator("table.costs td[rowspan]").first.bounding_box()
        assert abs(name["x"] - frame.bounding_box()["x"]) < 3
