"""The index of the search: which words a section has, and how many points each gives it."""

import pytest
from docs._ext.search_index import Section, points, sections, stems
from docutils.core import publish_doctree
from playwright.sync_api import Page

pytestmark = pytest.mark.site


def given(*documents: Section) -> dict[str, dict[int, int]]:
    """The points of each word, by the number of the section."""
    found: dict[str, dict[int, int]] = {}
    for word, flat in points(documents).items():
        number, found[word] = 0, {}
        for step, worth in zip(flat[::2], flat[1::2], strict=True):
            number += step
            found[word][number] = worth
    return found


def section(title: str, prose: str = "", asked: str = "") -> Section:
    return Section("guide/x", "a", title, prose=prose, asked=asked)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gradients vanish", ["gradient", "vanish"]),
        ("save_for_backward", ["save_for_backward", "save", "backward"]),
        ("torch.where", ["torch", "where", "torch.wher"]),
        ("where it is", []),
        ("k-means", ["k", "mean", "kmean"]),
    ],
)
def test_words_are_found_by_their_parts_and_whole(text: str, words: list[str]) -> None:
    assert stems(text) == words


TEXTS = [
    "save_for_backward of k-means",
    "torch.where(x)",
    "Differentiable F1-score, Padé",
    "a.b.c log-sum-exp 2e-3 x_i",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_browser_has_the_same_words(text: str, page: Page, base: str) -> None:
    page.goto(f"{base}search.html?q=STE")
    page.wait_for_function("!!Search.stems")
    assert page.evaluate("text => Search.stems(text)", text) == list(dict.fromkeys(stems(text)))


def test_a_word_of_the_title_counts_more_than_one_of_the_prose() -> None:
    found = given(section("spikes"), section("else", "spikes"), section("other"))["spike"]
    assert found[0] > found[1] > 0
    assert 2 not in found


def test_a_rare_word_counts_more() -> None:
    found = given(section("first", "hook loss"), section("second", "loss"), section("third", "loss"), section("else"))
    assert found["hook"][0] > found["loss"][0] > 0


def test_a_word_counts_less_in_a_long_text() -> None:
    found = given(section("a", "hook " + "more words stand here " * 20), section("b", "hook"), section("c"))["hook"]
    assert found[1] > found[0] > 0


def test_what_people_ask_leads_to_a_section_without_these_words() -> None:
    found = given(section("Reductions", asked="sum over rows"), section("else"))
    assert list(found["row"]) == [0]


def test_a_section_has_its_own_prose_and_the_titles_above_it() -> None:
    text = "Page\n====\n\nFirst.\n\nPart\n----\n\nSecond.\n\nSources\n-------\n\nNames.\n"
    page, part = sections("guide/x", publish_doctree(text, settings_overrides={"doctitle_xform": False}))
    assert (page.anchor, page.title, page.prose, page.above) == ("", "Page", "First.", "")
    assert (part.anchor, part.title, part.prose, part.above) == ("part", "Part", "Second.", "Page")
