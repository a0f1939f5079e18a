"""The field of the error index finds what the command finds."""

import random

import pytest
from playwright.sync_api import Page, expect

from autograd_cookbook.errors import entries, explain
from tests import errors
from tests.errors.__main__ import names_in
from tests.test_errors import another

pytestmark = pytest.mark.site


def test_a_pasted_traceback_finds_its_entry(page: Page, base: str) -> None:
    """Each of them, with other names and numbers, in the browser and in Python."""
    page.goto(f"{base}errors/index.html")
    chance = random.Random(0)
    missed, differing = [], []
    for program in errors.load().values():
        text = another(errors.run(program.source, program.warning).traceback, names_in(program.source), chance)
        page.locator("#error-text").fill(text)
        link = page.locator(".error-found a").first
        found = explain(text)
        if not link.get_attribute("href").endswith(found.entries[0].url.rpartition("/")[2]):
            differing.append(program.name)
        if link.text_content() != program.title or page.locator(".error-found").get_attribute("data-known") != "true":
            missed.append(program.name)
    assert not differing, f"Python finds another entry than the browser: {differing}"
    assert len(missed) <= 0.05 * len(entries()), missed


def test_what_is_unknown_is_said_to_be(page: Page, base: str) -> None:
    page.goto(f"{base}errors/index.html")
    page.locator("#error-text").fill("KeyError: 'weight'")
    expect(page.locator(".error-found p")).to_contain_text("No such message")
    assert page.locator(".error-found a").count() == 3
    page.locator("#error-text").fill("")
    expect(page.locator(".error-found")).to_be_empty()


def test_an_entry_is_reached_by_its_link(page: Page, base: str) -> None:
    page.goto(f"{base}errors/index.html")
    entry = entries()[0]
    page.locator("#error-text").fill(entry.message)
    page.locator(".error-found a").first.click()
    expect(page.locator("section:target h2")).to_contain_text(entry.title)
    expect(page.locator("section:target .error-message")).to_contain_text(entry.message)
