"""The first screen of a cookbook page, on a phone too, and the sections below it that are folded."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from docs._ext.glance import what
from docs._ext.one_page import documents
from docs._ext.pages import PLACES
from docs._ext.recipe import LEARN, shown
from docs._ext.results import LABELS
from playwright.sync_api import Browser, Page, expect

from autograd_cookbook.catalog import RECIPES, Recipe

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


def test_recipes_of_one_page_are_told_apart_by_what_they_do(page: Page, base: str) -> None:
    page.goto(f"{base}cookbook/{PLACES['straight_through']}.html")
    said = page.locator(".glance-recipe > .glance-what").all_inner_texts()
    assert said[0] == "Round to whole numbers, with the gradient of the identity."
    assert len(set(said)) == page.locator(".glance-recipe").count()
    assert not [text for text in said if "`" in text]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_each_recipe_has_a_line_that_says_what_it_does(recipe: Recipe) -> None:
    said = what(recipe)
    assert len(said) > 15
    assert not set("`\\{") & set(said), said


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


FORWARD_MODE = "cookbook/05_higher_order/forward_mode.html"


def test_a_badge_says_what_it_means_to_a_keyboard(page: Page, base: str) -> None:
    page.goto(f"{base}cookbook/{PLACES['linear_cross_entropy']}.html")
    badge = page.locator(".glance .badge-no").first
    tip = page.get_by_role("tooltip")
    expect(tip).to_be_hidden()
    badge.focus()
    expect(tip).to_contain_text("Forward-mode tangents agree")
    expect(badge).to_have_accessible_description(re.compile("Forward-mode tangents agree"))
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    badge.press("Enter")
    expect(page).to_have_url(re.compile(r"capabilities\.html#capability-forward-mode$"))


def test_a_badge_says_what_it_means_to_a_finger(browser: Browser, base: str) -> None:
    """A tap stays on the page; what it shows leads on, and goes with a tap elsewhere."""
    with opened(browser, viewport={"width": 390, "height": 844}, has_touch=True) as page:
        address = f"{base}cookbook/{PLACES['linear_cross_entropy']}.html"
        page.goto(address)
        page.locator(".glance summary").tap()
        tip = page.get_by_role("tooltip")
        for badge in (page.locator(".glance .badge-yes").last, page.locator(".glance .badge-no").first):
            badge.scroll_into_view_if_needed()
            badge.tap()
            expect(tip).to_be_visible()
            assert page.url == address
            box = tip.bounding_box()
            assert box["x"] >= 0, box
            assert box["x"] + box["width"] <= 390, box
        page.locator("h1").tap()
        expect(tip).to_be_hidden()
        badge.tap()
        tip.get_by_text("How to add it").tap()
        expect(page).to_have_url(base + FORWARD_MODE)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_a_badge_says_can_be_read(theme: str, browser: Browser, base: str) -> None:
    with opened(browser, color_scheme=theme) as page:
        page.goto(f"{base}cookbook/{PLACES['linear_cross_entropy']}.html")
        page.locator(".glance .badge-no").first.hover()
        tip = page.get_by_role("tooltip")
        expect(tip).to_be_visible()
        assert not Axe().run(page, context=".badge-tip").response["violations"]
        tip.get_by_text("What is checked").hover()  # on the way the tip stays
        expect(tip).to_be_visible()


def test_a_limit_in_the_matrix_is_said_to_a_keyboard(page: Page, base: str) -> None:
    page.goto(f"{base}capabilities.html")
    page.locator(".capability-matrix .badge-yes:visible", has_text="*").first.focus()
    expect(page.get_by_role("tooltip")).to_contain_text("not for")


def test_each_capability_leads_to_the_page_that_adds_it() -> None:
    assert set(LEARN) == set(shown(LABELS))
    assert set(LEARN.values()) <= set(documents())


def test_on_a_phone_the_download_stands_next_to_the_copy_button(browser: Browser, base: str) -> None:
    with opened(browser, viewport={"width": 390, "height": 844}) as page:
        for place in PLACES.values():
            page.goto(f"{base}cookbook/{place}.html")
            tops = page.locator(".glance-take").evaluate_all(
                "all => all.map(one => [...one.children].map(child => child.getBoundingClientRect().top))"
            )
            assert all(max(pair) - min(pair) < 4 for pair in tops), place


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
FEW = {"one recipe": "linear_cross_entropy", "several recipes": "masks"}


@pytest.mark.parametrize("page_name", FEW.values(), ids=list(FEW))
def test_on_a_phone_each_card_is_folded_behind_its_exceptions(page_name: str, browser: Browser, base: str) -> None:
    with opened(browser, **PHONE) as page:
        page.goto(f"{base}cookbook/{PLACES[page_name]}.html")
        for recipe in page.locator(".glance-recipe").all():
            expect(recipe.locator("summary")).to_contain_text(re.compile("[Ss]afe with|Not audited"))
            expect(recipe.locator(".glance-yes, .glance-cost").first).to_be_hidden()
        first = page.locator(".glance-recipe").first
        expect(first.locator("summary")).to_contain_text(re.compile("^Does not offer .*; safe with"))
        first.locator("summary").tap()
        expect(first.locator(".glance-cost")).to_be_visible()


def test_on_a_wide_screen_the_card_of_one_recipe_shows_everything(page: Page, base: str) -> None:
    page.goto(f"{base}cookbook/{PLACES['linear_cross_entropy']}.html")
    expect(page.locator(".glance summary")).to_be_hidden()
    expect(page.locator(".glance-yes")).to_be_visible()
    gap = page.locator(".glance-cost").evaluate(
        "cost => cost.firstChild.getBoundingClientRect().height ? getComputedStyle(cost).display : ''"
    )
    assert gap == "flex", "the words of the costs stand in no column"


def test_who_lands_below_the_card_of_a_phone_is_led_to_it(browser: Browser, base: str) -> None:
    with opened(browser, **PHONE) as page:
        page.goto(f"{base}cookbook/{PLACES['linear_cross_entropy']}.html")
        link = page.locator(".to-glance")
        expect(link).to_be_hidden()
        page.goto(f"{base}cookbook/{PLACES['linear_cross_entropy']}.html#see-it-work")
        expect(link).to_be_visible()
        expect(link).to_contain_text("Copy linear_cross_entropy")
        assert link.bounding_box()["height"] >= 44
        link.tap()
        expect(page.locator(".glance [data-copy]").first).to_be_in_viewport()
        expect(link).to_be_hidden()
