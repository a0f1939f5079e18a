"""Sliders: what a position says was computed, a keyboard moves them, and without scripts one position is shown."""

import pytest
from docs._ext.one_page import documents
from docs._ext.pages import PLACES
from docs._ext.sliders import SLIDERS, checkpoints, step, surrogate, written
from playwright.sync_api import Browser, Page, expect

from .conftest import opened

pytestmark = pytest.mark.site

PAGES = {
    "surrogate": f"cookbook/{PLACES['surrogate_gradients']}",
    "checkpoints": f"cookbook/{PLACES['checkpointing']}",
    "step": "guide/gradcheck",
}


def test_each_slider_has_its_page() -> None:
    assert set(PAGES) == set(SLIDERS)
    assert set(PAGES.values()) <= set(documents())


@pytest.mark.parametrize("name", SLIDERS)
def test_all_that_is_drawn_lies_in_the_picture(name: str) -> None:
    slider = SLIDERS[name]()
    lines = [points for _, points in slider.still] + [
        points for one in slider.positions for points in (one.line, one.dots)
    ]
    assert all(0 <= value <= 1 for points in lines for point in points for value in point)
    assert len({one.said for one in slider.positions}) == len(slider.positions)
    assert 0 <= slider.first < len(slider.positions)
    assert written(name).count("NaN") == 0


def test_the_numbers_are_those_of_the_code() -> None:
    said = [one.said for one in checkpoints().positions]
    assert said[0] == "1 segment: at most 64 activations are in memory at once, and the 64 layers are called 64 times."
    assert "8 segments: at most 15 activations" in said[checkpoints().first]  # 7 inputs of segments, and 8 in the last
    heights = [max(y for _, y in one.line) for one in surrogate().positions]
    assert heights == pytest.approx([1] * len(heights), abs=1e-4)
    widths = [sum(y > 0.1 for _, y in one.line) for one in surrogate().positions]
    assert widths == sorted(widths, reverse=True)
    errors = [one.dots[1][1] for one in step().positions]  # in float64
    assert errors.index(min(errors)) == 8, "the best power of ten is 1e-5"


@pytest.mark.parametrize("name", SLIDERS)
def test_a_keyboard_moves_it(name: str, page: Page, base: str) -> None:
    page.goto(f"{base}{PAGES[name]}.html")
    slider = page.locator(".slider")
    before = slider.locator("figcaption").inner_text(), slider.locator(".slider-line, .slider-dots").evaluate_all(D)
    slider.get_by_role("slider").press("ArrowRight")
    after = slider.locator("figcaption").inner_text(), slider.locator(".slider-line, .slider-dots").evaluate_all(D)
    assert before[0] != after[0]
    assert before[1] != after[1]
    expect(slider.get_by_role("slider")).to_have_attribute("aria-valuetext", after[0])


D = "paths => paths.map(path => path.getAttribute('d'))"


def test_without_scripts_one_position_is_shown(browser: Browser, base: str) -> None:
    with opened(browser, java_script_enabled=False) as page:
        page.goto(f"{base}{PAGES['step']}.html")
        expect(page.locator(".slider figcaption")).to_contain_text("float64")
        expect(page.locator(".slider svg")).to_be_visible()
        expect(page.locator(".slider input")).to_be_hidden()
