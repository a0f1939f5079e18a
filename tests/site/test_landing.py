"""The first minute: what the landing page shows, and where its doors lead."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

import autograd_cookbook

from .conftest import opened

pytestmark = pytest.mark.site

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 800}


@pytest.mark.parametrize(
    ("size", "below"), [pytest.param(DESKTOP, 500, id="desktop"), pytest.param(PHONE, 900, id="phone")]
)
def test_a_recipe_with_its_copy_button_is_on_the_first_screen(
    page: Page, base: str, size: dict[str, int], below: int
) -> None:
    page.set_viewport_size(size)
    page.goto(base)
    code = page.locator(".hero-code .highlight").first
    assert code.bounding_box()["y"] < below
    expect(code.locator(".copybtn")).to_be_visible()
    expect(code).to_contain_text("class Round")


def test_what_to_install_and_for_which_torch_is_on_the_first_screen(page: Page, base: str) -> None:
    page.set_viewport_size(DESKTOP)
    page.goto(base)
    place = page.locator(".hero-install")
    assert place.bounding_box()["y"] + place.bounding_box()["height"] < DESKTOP["height"]
    expect(place).to_contain_text("pip install")
    expect(place).to_contain_text("torch 2.")
    expect(place).to_contain_text("BSD 3-Clause")


def test_a_message_that_is_pasted_on_the_landing_page_is_explained(page: Page, base: str) -> None:
    page.goto(base)
    text = "RuntimeError: grad can be implicitly created only for scalar outputs\n100 % & #1"
    page.locator(".paste-door textarea").fill(text)
    page.locator(".paste-door button").click()
    expect(page.locator("#error-text")).to_have_value(text)
    expect(page.locator(".error-found")).to_have_attribute("data-known", "yes")
    assert "#" not in page.url, "the text stays in the address, where a reload would bring it back"


def test_an_address_that_is_no_hand_over_leaves_the_field_alone(page: Page, base: str) -> None:
    page.goto(f"{base}errors/index.html#paste=%E0%A4%A")
    expect(page.locator("#error-text")).to_have_value("")


def test_each_picture_is_there_and_leads_to_its_page(page: Page, base: str) -> None:
    page.goto(base)
    pictures = page.locator(".picture")
    assert pictures.count() == 6
    for i in range(6):
        expect(pictures.nth(i).locator("svg.page-icon")).to_be_visible()
    name = pictures.first.locator("strong").inner_text()
    pictures.first.click()
    expect(page.locator("h1").first).to_contain_text(name.split()[0])


def test_the_audit_that_is_shown_has_found_the_slip(page: Page, base: str) -> None:
    page.goto(base)
    expect(page.locator(".door").last).to_contain_text("constant factor is wrong")


def test_each_figure_leads_to_the_page_that_derives_it(page: Page, base: str) -> None:
    page.goto(base)
    links = page.locator(".proof a")
    found = links.evaluate_all("links => links.map(link => [link.querySelector('strong').textContent, link.href])")
    assert len(found) == 4
    for number, address in found:
        assert any(digit.isdigit() for digit in number), number
        assert page.request.get(address).ok, address


@pytest.mark.parametrize("path", ["", "guide/audit.html", "cookbook/04_memory/masks.html"])
def test_the_bar_has_what_readers_come_for_and_all_else_under_more(page: Page, base: str, path: str) -> None:
    page.set_viewport_size(DESKTOP)
    page.goto(base + path)
    bar = page.locator(".bd-header nav[aria-label=Main]").first
    names = [name.strip() for name in bar.locator(":scope > ul > li > a").all_inner_texts()]
    assert names == ["Recipes", "Guide", "Errors", "Audit", "Reference"]
    bar.locator("summary").click()
    expect(bar.get_by_text("Install and support")).to_be_visible()
    page.keyboard.press("Escape")
    expect(bar.get_by_text("Install and support")).to_be_hidden()


def test_the_page_that_is_open_is_marked_in_the_bar(page: Page, base: str) -> None:
    for path, name in [
        ("guide/audit.html", "Audit"),
        ("guide/backward.html", "Guide"),
        ("errors/engine.html", "Errors"),
    ]:
        page.goto(base + path)
        marked = page.locator(".bd-header nav[aria-label=Main]").first.locator("[aria-current]")
        assert [text.strip() for text in marked.all_inner_texts()] == [name]


def test_what_is_cited_has_its_version(page: Page, base: str) -> None:
    page.goto(f"{base}install.html#cite")
    entry = page.locator("#cite pre", has_text="@software").inner_text()
    fields = dict(re.findall(r"^  (\w+) += {(.*)},?$", entry, re.MULTILINE))
    assert fields["version"] == autograd_cookbook.__version__
    assert {"title", "author", "url", "date"} <= set(fields)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", fields["date"])
    assert re.fullmatch(r"commit [0-9a-f]{12}", fields["note"])


def test_a_phone_asks_what_a_reader_needs_before_it_shows_figures(browser: Browser, base: str) -> None:
    with opened(browser, viewport=PHONE, has_touch=True, is_mobile=True) as page:
        page.goto(base)
        links = page.locator("#what-do-you-need > ul:not(.proof) a")
        assert links.first.bounding_box()["y"] < page.locator(".proof").bounding_box()["y"]
        heights = links.evaluate_all("all => all.map(link => link.getBoundingClientRect().height)")
        assert min(heights) >= 44


def test_the_drawer_of_a_phone_has_a_button_that_closes_it(browser: Browser, base: str) -> None:
    with opened(browser, viewport=PHONE, has_touch=True, is_mobile=True) as page:
        page.goto(base)
        page.locator("button.primary-toggle").tap()
        drawer = page.locator("#pst-primary-sidebar-modal")
        expect(drawer.get_by_text("Recipes", exact=True)).to_be_visible()
        ends = drawer.locator(".sidebar-header-items__end .navbar-item button, .sidebar-header-items__end img")
        middles = ends.evaluate_all(
            "all => all.map(one => one.getBoundingClientRect()).filter(box => box.height)"
            ".map(box => box.top + box.height / 2)"
        )
        assert max(middles) - min(middles) < 4, middles
        drawer.get_by_role("button", name="Close the menu").tap()
        expect(drawer).to_be_hidden()
