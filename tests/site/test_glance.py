"""The first screen of a cookbook page, on a phone too, and the sections below it that are folded."""

import pytest
from docs._ext.pages import PLACES
from playwright.sync_api import Browser, Page, expect

from autograd_cookbook.catalog import RECIPES

from .conftest import opened

pytestmark = pytest.mark.site


def test_a_card_names_the_recipes_of_its_page_with_exceptions_first(page: Page, base: str) -> None:
    page.goto(f"{base}cookbook/{PLACES['masks']}.html")
    names = page.locator(".glance-head code").all_inner_texts()
    assert names == [recipe.name for recipe in RECIPES if recipe.page == "masks"]
    first = page.locator(".glance-recipe").first
    first.locator("summary").click()
    said = first.inner_text()
    assert said.index("Does not offer") < said.index("Safe with") < said.index("Cost"), said
    expect(first.locator(".glance-no")).to_contain_text("forward mode")
    expect(first.locator(".glance-instead")).to_contain_text("Use torch.relu instead")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_link_to_a_folded_section_opens_it(scripts: bool, browser: Browser, base: str) -> None:
    with opened(browser, java_script_enabled=scripts) as page:
        page.goto(f"{base}cookbook/{PLACES['masks']}.html")
        source = page.locator("#recipe-linear_relu pre")
        expect(source).to_be_hidden()
        page.locator(".glance a[href='#recipe-linear_relu']").click()
        expect(source).to_be_visible()


def test_a_section_opens_by_its_own_anchor_and_again_after_it_was_closed(page: Page, base: str) -> None:
    page.goto(f"{base}cookbook/{PLACES['masks']}.html")
    fold = page.locator("#the-gradient > details")
    link = page.locator(".page-toc a[href='#the-gradient']").first
    for _ in range(2):
        expect(fold).not_to_have_attribute("open", "")
        link.click()
        expect(fold).to_have_attribute("open", "")
        fold.locator("summary").click(position={"x": 2, "y": 10})


def test_the_downloads_of_the_gallery_are_called_a_demonstration(page: Page, base: str) -> None:
    page.goto(f"{base}cookbook/{PLACES['masks']}.html")
    texts = page.locator("a[href*='_downloads']").all_inner_texts()
    assert texts, "the page offers no demonstration"
    assert all("demonstration" in text for text in texts), texts


def test_costs_are_bars_after_a_verdict_and_a_table_has_the_same_numbers(page: Page, base: str) -> None:
    page.goto(f"{base}cookbook/{PLACES['masks']}.html")
    chart = page.locator(".cost-verdict + .cost-bars").first
    shown = chart.locator(".cost-ours .cost-bar").all_inner_texts()
    lengths = chart.locator(".cost-row:not(.cost-head)").evaluate_all(
        "rows => rows.map(row => [parseFloat(row.querySelector('.cost-bar').innerText),"
        " row.querySelector('.cost-bar i').getBoundingClientRect().width])"
    )
    assert max(lengths)[1] == max(width for _, width in lengths), f"the largest has not the longest bar: {lengths}"
    table = page.locator(".cost-numbers table")
    expect(table).to_be_hidden()
    page.locator(".cost-numbers > summary").click()
    cells = table.locator("tr.ours").first.locator("td").all_inner_texts()
    assert {text.strip() for text in shown} <= {text.strip() for text in cells}, (shown, cells)
