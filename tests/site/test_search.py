"""The search leads to the right page: by the words that people type, and by the title of each pitfall."""

import re
import tomllib
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from docs._ext.one_page import documents
from docs._ext.pages import PLACES
from docs._ext.search import ANSWERS, purpose, words
from docs._ext.verdicts import GROUPS, Pitfall, pitfalls_of
from docs.asked import asked
from playwright.sync_api import Page, expect

from autograd_cookbook.catalog import RECIPES

from .conftest import parsed

pytestmark = pytest.mark.site

PAGES = Path(__file__).parents[2] / "docs" / "pitfalls"
PITFALLS = [(group, pitfall) for group in GROUPS for pitfall in pitfalls_of(PAGES / f"{group}.md")]
QUERIES = tomllib.loads(Path(__file__).with_name("queries.toml").read_text())
ALL = {**QUERIES["first"], **QUERIES["seen"], **QUERIES["unseen"]}


def hits(page: Page, base: str, query: str) -> list[tuple[str, str]]:
    """Text and address of the first three."""
    page.goto(f"{base}search.html?q={quote_plus(query)}")
    # The hits are shown in their order, each when its page was fetched for an excerpt; the summary is the last.
    expect(page.locator("#search-results .search-summary")).to_have_text(re.compile("found"))
    links = page.locator("#search-results li a").evaluate_all("links => links.map(link => [link.innerText, link.href])")
    return [(text, href.removeprefix(base)) for text, href in links[:3]]


def test_words_that_people_type_lead_to_a_page_that_answers(page: Page, base: str) -> None:
    page.goto(f"{base}search.html?q=STE")
    expect(page.locator("#search-results li a").first).to_be_visible()
    # What the page shows, without the excerpts, for which every hit is fetched.
    order = "query => Search._performSearch(...Search._parseQuery(query)).reverse().slice(0, 3).map(hit => hit[0])"
    found = {query: page.evaluate(order, query) for query in ALL}
    missed = {
        query: names
        for query, names in found.items()
        if not any(f"/{name}".endswith(f"/{wanted}") for name in names for wanted in ALL[query])
    }
    assert not missed, f"{len(missed)} of {len(ALL)} queries have no page that answers among the first three: {missed}"
    assert {query: found[query][:1] for query in QUERIES["first"]} == QUERIES["first"]


@pytest.mark.parametrize("query", ["STE", "my loss is nan after some hours, only in backward"])
def test_enter_gives_the_hits_that_typing_gives(query: str, page: Page, base: str) -> None:
    """The second has words that no page has all of, for which Sphinx's own search gives one hit."""
    shown = [href.partition("#")[0].partition("?")[0] for _, href in hits(page, base, query)]
    order = "query => Search._performSearch(query).reverse().slice(0, 3).map(hit => `${hit[0]}.html`)"
    assert shown == page.evaluate(order, query)
    assert len(shown) == 3


def test_queries_are_many_and_name_pages_that_exist() -> None:
    assert len(ALL) >= 120
    names = documents()
    wanted = {page for pages in ALL.values() for page in pages}
    missing = {page for page in wanted if not any(f"/{name}".endswith(f"/{page}") for name in names)}
    assert not missing


def test_words_are_given_to_pages_that_exist() -> None:
    assert not words()["pages"].keys() - set(documents())


def test_words_are_given_to_sections_that_exist() -> None:
    places = [place.partition("#") for place in words()["sections"]]
    assert not [f"{page}#{anchor}" for page, _, anchor in places if not parsed(f"{page}.html").find(id=anchor)]


def test_what_people_ask_is_given_to_sections_that_exist() -> None:
    places = [(page, anchor) for page, sections in asked().items() for anchor in sections]
    assert not [place for place in places if place[1] and not parsed(f"{place[0]}.html").find(id=place[1])]


def test_each_answer_has_what_people_ask() -> None:
    """Among its phrases are those of readers who do not know its words."""
    missing = []
    for page in (name for name in documents() if name.startswith(ANSWERS)):
        known = asked()[page]
        for section in parsed(f"{page}.html").select("article section section section"):
            anchors = {section["id"], *(span["id"] for span in section.select(":scope > span[id]"))}
            if not anchors & known.keys():
                missing.append(f"{page}#{section['id']}")
    assert not missing, "write into docs/asked.toml what people type who look for these"


def test_a_title_leads_to_its_section(page: Page, base: str) -> None:
    """Among the first three hits is the section of each pitfall with the title that is searched for."""
    page.goto(f"{base}search.html?q=STE")
    expect(page.locator("#search-results li a").first).to_be_visible()
    order = (
        "query => Search._performSearch(...Search._parseQuery(query)).reverse().slice(0, 3)"
        ".map(hit => [hit[0], hit[1], hit[2]])"
    )
    missed = []
    for group, pitfall in PITFALLS:
        found = [
            anchor.removeprefix("#")
            for name, title, anchor in page.evaluate(order, pitfall.title)
            if name == f"pitfalls/{group}" and title.endswith(f"> {pitfall.title}")
        ]
        targets = [parsed(f"pitfalls/{group}.html").select_one(f"section#{a}, section:has(> span#{a})") for a in found]
        if [target and pitfall.title in target.h2.get_text() for target in targets] != [True]:
            missed.append((pitfall.title, found))
    assert not missed


FEW_WORDS = {
    "round straight through": "02_changing_the_gradient/straight_through",
    "checkpoint": "04_memory/checkpointing#recipe-checkpoint",
    "reverse gradient": "02_changing_the_gradient/reversal",
    "argmax": "02_changing_the_gradient/discrete_choices",
    "norm": "01_first_steps/reductions#recipe-norm",
}


def test_a_few_words_lead_to_a_recipe_before_answers_and_tests_of_it(page: Page, base: str) -> None:
    page.goto(f"{base}search.html?q=STE")
    page.wait_for_function("Search._index")
    order = "query => Search._performSearch(query).reverse().map(hit => hit[0] + hit[2])"
    found = {query: page.evaluate(order, query) for query in FEW_WORDS}
    assert {query: hits[0].removeprefix("cookbook/") for query, hits in found.items()} == FEW_WORDS
    # A question in words keeps its answer.
    assert page.evaluate(order, "Is argmax differentiable?")[0].startswith("guide/questions_choices#")


def test_a_recipe_is_not_shown_again_by_its_reference(page: Page, base: str) -> None:
    page.goto(f"{base}search.html?q=STE")
    page.wait_for_function("Search._index")
    order = "query => Search._performSearch(query).map(hit => hit[0])"
    twice = {}
    for recipe in RECIPES:
        found = page.evaluate(order, recipe.name)
        again = f"reference/generated/autograd_cookbook.recipes.{recipe.page}"
        if f"cookbook/{PLACES[recipe.page]}" in found and again in found:
            twice[recipe.name] = found
    assert not twice


KINDS = {"logsumexp": "Recipe", "ctx": "Guide", "Is argmax differentiable?": "Question", "leaf variable": "Error"}


@pytest.mark.parametrize(("query", "kind"), KINDS.items(), ids=KINDS.values())
def test_a_hit_says_what_it_is(query: str, kind: str, page: Page, base: str) -> None:
    page.goto(f"{base}search.html?q={quote_plus(query)}")
    expect(page.locator("#search-results .search-summary")).to_have_text(re.compile("found"))
    assert page.locator("#search-results li a > .hit-kind").count() == page.locator("#search-results li").count()
    expect(page.locator("#search-results .hit-kind").first).to_have_text(kind)
    if kind == "Recipe":
        expect(page.locator("#search-results .hit-title").first).to_have_text(query)
        expect(page.locator("#search-results .hit-line").first).to_contain_text("without overflow")


@pytest.mark.parametrize("page_name", PLACES)
def test_each_page_of_recipes_has_a_purpose_that_is_plain_text(page_name: str) -> None:
    said = purpose(page_name)
    assert said.endswith((".", ":")) or len(said) > 30, said
    assert not set("`*") & set(said), said
    assert "You will" not in said, said


def test_the_name_of_a_recipe_leads_to_its_source(page: Page, base: str) -> None:
    page.goto(f"{base}search.html?q=STE")
    page.wait_for_function("Search._index")
    order = "query => Search._performSearch(query).reverse().slice(0, 3).map(hit => hit[0] + hit[2])"
    missed = {}
    for recipe in RECIPES:
        wanted = f"cookbook/{PLACES[recipe.page]}#recipe-{recipe.name}"
        found = page.evaluate(order, recipe.name)
        if wanted not in found:
            missed[recipe.name] = found
    assert not missed


@pytest.mark.parametrize(("group", "pitfall"), PITFALLS[:2], ids=[pitfall.name for _, pitfall in PITFALLS[:2]])
def test_the_page_of_hits_shows_a_title_that_leads_to_its_section(
    group: str, pitfall: Pitfall, page: Page, base: str
) -> None:
    found = [
        href
        for text, href in hits(page, base, pitfall.title)
        if pitfall.title in text and href.startswith(f"pitfalls/{group}.html")
    ]
    assert len(found) == 1, f"not among the first three of the search for {pitfall.title!r}"
    anchor = found[0].partition("#")[2]
    page.goto(base + found[0])
    heading = page.locator(f"xpath=//*[@id='{anchor}']/ancestor-or-self::section[1]/h2")
    expect(heading).to_contain_text(pitfall.title)
