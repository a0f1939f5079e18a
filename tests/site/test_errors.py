"""The field of the error index answers as the command does."""

import random
import re

import pytest
from bs4 import BeautifulSoup
from docs.errors import programs as errors
from docs.errors.build import names_in
from playwright.sync_api import Browser, Page, expect

from autograd_cookbook.errors import entries, entry_of, matcher
from autograd_cookbook.errors.answering import answer
from tests.test_errors import PASTES, another, pasted

from .conftest import SITE, opened, parsed

pytestmark = pytest.mark.site


@pytest.mark.parametrize("every", [pytest.param(12, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_the_browser_answers_as_the_command_does(every: int, page: Page, base: str) -> None:
    """Each message below a frame, with other names and numbers; each message alone; the first line of each."""
    page.goto(f"{base}errors/index.html")
    chance = random.Random(0)
    texts = [another(pasted(name), names_in(program.source), chance) for name, program in errors.load().items()]
    for entry in entries():
        texts += [entry.message, f"{entry.kind}: {entry.message.strip().splitlines()[0]}"]
        texts += [former.message for former in entry.former]
    # Texts that follow each other resemble each other, and what people really pasted is compared whole.
    texts = [*texts[::every], *(text.replace("<ESC>", "\x1b") for text in PASTES.values())]
    read = (
        "async t => (a => [a.known, a.matches.map(m => [m.entry, m.case]), a.general, a.note])(await explainError(t))"
    )
    differing = []
    for text, there in zip(texts, page.evaluate(f"texts => Promise.all(texts.map({read}))", texts), strict=True):
        here = answer(matcher(), text)
        if there != [here.known, [[match.entry, match.case] for match in here.matches], here.general, here.note]:
            differing.append(text[:200])
    assert not differing, f"{len(differing)} of {len(texts)}, the first: {differing[:3]}"


def test_what_is_known_is_explained_on_the_page(page: Page, base: str) -> None:
    page.goto(f"{base}errors/index.html")
    page.locator("#error-text").fill("grad can be implicitly created only for scalar outputs")
    found = page.locator(".error-found")
    expect(found).to_have_attribute("data-known", "yes")
    expect(found).to_contain_text("Change: Reduce the loss to one number")
    expect(found).to_contain_text("Why:")


def test_a_question_of_the_guide_is_where_its_address_says() -> None:
    for question in map(entry_of, matcher().answers[len(matcher().entries) :]):
        assert parsed(f"{question.page}.html").find(id=question.anchor), question.url


def test_options_keep_their_dashes() -> None:
    """Readers copy ``--no-half`` from a text. Sphinx makes a long dash of two short ones, unless it is told not to."""
    for page in sorted((SITE / "errors").glob("*.html")):
        text = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").get_text()
        assert not re.findall(r"[\s(][–—][a-z][a-z-]+", text), page.name


def test_the_index_is_loaded_when_the_field_is_used(page: Page, base: str) -> None:
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url) if "error-index" in request.url else None)
    page.goto(f"{base}errors/index.html", wait_until="networkidle")
    assert not loaded, "the page loads the index for those who came to read"
    with page.expect_request("**/error-index.js*"):
        page.locator("#error-text").focus()


def test_an_index_that_does_not_load_is_named_and_asked_for_again(page: Page, base: str) -> None:
    page.route("**/error-index.js*", lambda route: route.abort())
    page.goto(f"{base}errors/index.html")
    page.locator("#error-text").fill("grad can be implicitly created only for scalar outputs")
    expect(page.locator(".error-found")).to_contain_text("did not load")
    page.unroute("**/error-index.js*")
    page.locator("#error-text").fill("")
    page.locator("#error-text").fill("grad can be implicitly created only for scalar outputs")
    expect(page.locator(".error-found")).to_have_attribute("data-known", "yes")


def test_what_is_unknown_is_said_to_be_and_can_be_reported(page: Page, base: str) -> None:
    page.goto(f"{base}errors/index.html")
    page.locator("#error-text").fill("RuntimeError: frobnicate failed in backward")
    expect(page.locator(".error-verdict")).to_contain_text("not in the index")
    report = page.locator(".error-found a").last
    assert "issues/new?template=unknown-message.yml&title=" in report.get_attribute("href")
    page.locator("#error-text").fill("")
    expect(page.locator(".error-found")).to_be_empty()


def test_the_answer_fits_a_phone(page: Page, base: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{base}errors/index.html")
    page.locator("#error-text").fill(max((entry.message for entry in entries()), key=len))
    box = page.locator(".error-found").bounding_box()
    assert box["x"] + box["width"] <= 360


def test_an_entry_is_reached_by_its_link(page: Page, base: str) -> None:
    page.goto(f"{base}errors/index.html")
    entry = entries()[0]
    page.locator("#error-text").fill(entry.message)
    page.locator(".error-found a").first.click()
    expect(page.locator("section:target h2")).to_contain_text(entry.title)
    expect(page.locator("section:target .error-message")).to_contain_text(entry.message)


IN_PLACE = (
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor [3]], which is output 0 of SigmoidBackward0, is at version 1; expected version 0 instead."
)


def test_what_was_pasted_is_answered_in_sight_with_the_change_first(browser: Browser, base: str) -> None:
    """On a phone: from the landing page, and in the field of the page itself; but not while someone types."""
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with opened(browser, permissions=["clipboard-read", "clipboard-write"], **phone) as page:
        page.goto(base)
        page.locator(".paste-door textarea").fill(IN_PLACE)
        page.locator(".paste-door button").tap()
        change = page.locator(".error-found li p").first
        expect(change).to_contain_text("Change:")
        expect(change).to_be_in_viewport()
        expect(page.locator(".error-found li p").nth(1)).to_contain_text("How to tell: The operation")
        page.evaluate("text => navigator.clipboard.writeText(text)", IN_PLACE)
        page.goto(f"{base}errors/index.html")
        page.locator("#error-text").focus()
        page.keyboard.press("ControlOrMeta+V")
        expect(change).to_be_in_viewport()
        page.goto(f"{base}errors/index.html")
        page.locator("#error-text").press_sequentially("grad can be implicitly created")
        expect(page.locator(".error-found")).to_have_attribute("data-known", "yes")
        assert page.evaluate("scrollY") < 100
