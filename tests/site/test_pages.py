"""Each page of the built site, as a reader's browser sees it."""

import gzip
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlparse
from zipfile import ZipFile

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from docs._ext.pages import PLACES
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from autograd_cookbook.catalog import RECIPES

from .conftest import PUBLISHED, SITE, opened, pages, parsed

pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[2]
RECIPE_PAGES = sorted({f"cookbook/{place}.html" for place in PLACES.values()})
TEMPLATES = {
    "landing page": "index.html",
    "gallery": "cookbook/index.html",
    "section": "cookbook/01_first_steps/index.html",
    "recipe": "cookbook/01_first_steps/reductions.html",
    "matrix": "capabilities.html",
    "guide": "guide/graph.html",
    "decision": "guide/decision.html",
    "pitfalls": "pitfalls/wrong_numbers.html",
    "checks": "pitfalls/gradients.html",
    "error search": "errors/index.html",
    "errors": "errors/writing.html",
    "reference": "reference/generated/autograd_cookbook.recipes.hooks.html",
    "search": "search.html",
    "not found": "no-such-page.html",
}


PHONE = {"width": 390, "height": 844}


@pytest.mark.parametrize("path", pages())
def test_it_loads_without_error_asks_nobody_else_and_fits_a_phone(path: str, reader: Page, base: str) -> None:
    problems: list[str] = []
    heard = {
        "console": lambda message: problems.append(message.text) if message.type == "error" else None,
        "pageerror": lambda error: problems.append(str(error)),
        "requestfailed": lambda request: problems.append(f"failed: {request.url}"),
        "response": lambda r: problems.append(f"{r.status}: {r.url}") if r.status >= 400 else None,
        "request": lambda r: None if r.url.startswith((base, "data:")) else problems.append(f"elsewhere: {r.url}"),
    }
    reader.goto("about:blank")  # what the page before still asks for is not this one's
    for event, hear in heard.items():
        reader.on(event, hear)
    try:
        reader.set_viewport_size({"width": 1440, "height": 900})
        reader.goto(base + path, wait_until="networkidle")
    finally:
        for event, hear in heard.items():
            reader.remove_listener(event, hear)
    assert not problems

    missing = reader.locator("main img").evaluate_all(
        "images => images.filter(i => i.alt.trim().length < 4).map(i => i.src)"
    )
    assert not missing, "figures without a text that says what they show"
    cut = reader.locator(".bd-sidebar-secondary a").evaluate_all(
        "all => all.filter(one => one.getBoundingClientRect().right > innerWidth).map(one => one.textContent)"
    )
    assert not cut, f"cut off at the edge of the window: {cut[:3]}"

    reader.set_viewport_size(PHONE)
    width = reader.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"], f"on a phone the page is {width} pixels wide"
    squeezed = reader.locator("main img").evaluate_all(
        "images => images.filter(i => i.clientHeight && i.naturalHeight && getComputedStyle(i).objectFit == 'fill'"
        " && Math.abs(i.clientWidth * i.naturalHeight / i.clientHeight / i.naturalWidth - 1) > 0.05).map(i => i.src)"
    )
    assert not squeezed, "figures out of proportion on a phone"
    if path in RECIPE_PAGES:
        expect_purpose_and_copy_on_the_first_screen(reader, path)


def expect_purpose_and_copy_on_the_first_screen(page: Page, path: str) -> None:
    """On a phone, without scrolling."""
    if not page.locator(".glance").count():
        assert not [r for r in RECIPES if path == f"cookbook/{PLACES[r.page]}.html"], f"{path} has recipes and no card"
        return
    button = page.locator(".glance [data-copy]").first
    expect(button).to_be_visible()
    for part, box in (("purpose", page.locator("article section > p").first), ("Copy", button)):
        place = box.bounding_box()
        assert place, f"{part} is not there"
        assert place["y"] + place["height"] <= PHONE["height"], f"{part} is below the first screen: {place}"


@pytest.mark.parametrize("path", pages())
def test_a_table_is_not_left_as_text(path: str) -> None:
    """As the Markdown that a cell returns is, if the page does not ask for MyST."""
    assert not re.search(r"<p>\s*\|[^<]*\n\s*\|[ :|-]+\n", (SITE / path).read_text())


@pytest.mark.parametrize(
    "figure", sorted((SITE / "_images").glob("sphx_glr_*[0-9].png")), ids=lambda figure: figure.stem
)
def test_no_word_of_a_figure_is_cut_off(figure: Path) -> None:
    """What is drawn reaches no edge of the picture."""
    with Image.open(figure) as image:
        pixels = np.asarray(image.convert("L"))
    edges = {"left": pixels[:, 0], "right": pixels[:, -1], "top": pixels[0], "bottom": pixels[-1]}
    assert not [edge for edge, line in edges.items() if line.min() < 200], figure.name


FIELDS = {"Parameters", "Returns", "Raises", "Return type", "Yields", "Type", "Bases", "Warns"}


@pytest.mark.parametrize("path", [path for path in pages() if path.startswith("reference/generated/")])
def test_an_option_of_a_directive_is_not_left_as_text(path: str) -> None:
    found = {term.get_text().strip().rstrip(":") for term in parsed(path).select("dl.field-list > dt")}
    assert found <= FIELDS


# Of what repeats one pattern hundreds of times, which takes axe a minute, as much as shows the pattern.
SHORTEN = """
    limit => document.querySelectorAll("main :not(pre, p, svg *)").forEach(
        parent => [...parent.children].slice(limit).forEach(child => child.remove())
    )
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", TEMPLATES.values(), ids=list(TEMPLATES))
def test_accessibility(path: str, theme: str, browser: Browser, base: str) -> None:
    with opened(browser, color_scheme=theme) as page:
        page.goto(base + path, wait_until="networkidle")
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        page.evaluate(SHORTEN, 20)
        violations = Axe().run(page).response["violations"]
    grave = [
        f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:200]} ({len(v['nodes'])} places)"
        for v in violations
        if v["impact"] in ("serious", "critical")
    ]
    assert not grave, "\n".join(grave)


def test_search_finds_a_recipe(page: Page, base: str) -> None:
    page.goto(f"{base}search.html?q=logsumexp")
    first = page.locator("#search-results li a").first
    expect(first).to_be_visible()
    results = page.locator("#search-results li a").evaluate_all("links => links.map(a => a.href)")
    assert any("reductions" in result for result in results[:3])


def test_the_matrix_has_every_recipe(page: Page, base: str) -> None:
    page.goto(f"{base}capabilities.html")
    names = page.locator(".capability-matrix tbody tr td:first-child").all_inner_texts()
    assert sorted(names) == sorted(recipe.name for recipe in RECIPES if recipe.calls)


def test_recipe_pages_are_light(page: Page, base: str) -> None:
    """At most 400 kB over the wire on first load, figures apart: the heaviest, which has all that the others share."""

    def weight(path: str) -> int:
        return len(gzip.compress((SITE / path).read_bytes(), 6))

    sizes: dict[str, int] = {}

    def weigh(response) -> None:
        if "_images" not in response.url and response.url.startswith(base):
            body = response.body()
            sizes[response.url] = len(body) if response.url.endswith(".woff2") else len(gzip.compress(body, 6))

    page.on("response", weigh)
    page.goto(base + max(RECIPE_PAGES, key=weight), wait_until="networkidle")
    heaviest = sorted(((size, url.rpartition("/")[2]) for url, size in sizes.items()), reverse=True)[:5]
    assert sum(sizes.values()) <= 400_000, f"{sum(sizes.values()):,} bytes: {heaviest}"


@pytest.mark.parametrize("path", RECIPE_PAGES)
def test_recipe_page_offers_what_readers_expect(path: str) -> None:
    assert parsed(path).select(".prev-next-footer a, .prev-next-area a")
    links = {link["href"] for link in parsed(path).select("a[href*=_downloads]")}

    def file(suffix: str) -> Path:
        (link,) = [link for link in links if link.endswith(suffix)]
        return SITE / urljoin(path, link)

    compile(file(".py").read_text(encoding="utf-8"), path, "exec")
    notebook = file(".ipynb").read_text(encoding="utf-8")
    with ZipFile(file(".zip")) as archive:
        (inner,) = [name for name in archive.namelist() if name.endswith(".ipynb")]
        assert archive.read(inner).decode() == notebook
    cells = json.loads(notebook)["cells"]
    assert cells
    directive = re.compile(r"^\.\. (recipe|costs|slider)::", re.MULTILINE)
    assert not [cell for cell in cells if directive.search("".join(cell["source"]))]


@pytest.mark.parametrize("path", pages())
def test_edit_links_lead_to_files(path: str) -> None:
    # Read without a parser, which takes seconds for the longest pages.
    links = re.findall(r'class="[^"]*editthispage.*?<a href="(.*?)"', (SITE / path).read_text(), re.DOTALL)
    assert links or not path.startswith(("cookbook/0", "guide", "pitfalls", "errors", "reference/generated"))
    for link in links:
        source = link.partition("/edit/main/")[2]
        assert (ROOT / source).is_file(), f"the edit link leads to {source}, which is not there"


def test_a_page_that_is_not_there_says_so_and_leads_back(page: Page, base: str) -> None:
    response = page.goto(f"{base}some/where/else.html")
    assert response.status == 404
    page.locator("a.navbar-brand").first.click()
    expect(page.locator("h1").first).to_contain_text("Custom gradients")


def test_llms_txt_and_the_sitemap_list_every_page() -> None:
    built = {str(file.relative_to(SITE)) for file in SITE.rglob("*.html") if "_static" not in file.parts}
    built -= {"search.html", "404.html", "genindex.html", "py-modindex.html"}
    assert set(pages()) == built
    if PUBLISHED:
        locations = ET.parse(SITE / "sitemap.xml").getroot().iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")
        assert {location.text for location in locations} == {PUBLISHED[0] + path for path in built}
    else:
        assert not (SITE / "sitemap.xml").exists()


class Ends(HTMLParser):
    """Where the links of a page lead, and where links to it may."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given["id"]} if "id" in given else set()
        self.links += [given["href"]] if tag == "a" and "href" in given else []


def test_links_inside_the_site_lead_somewhere() -> None:
    """Files and anchors, read from the files; nothing is fetched."""
    # The links of 404.html start with the prefix.
    found = {str(file.relative_to(SITE)): Ends(file) for file in SITE.rglob("*.html") if file.name != "404.html"}
    dead = []
    for name, ends in found.items():
        for target in ends.links:
            url = urlparse(urljoin(f"site:///{name}", target)) if not urlparse(target).scheme else None
            if url is None or target.startswith("//"):
                continue
            path = urljoin(f"/{name}", urlparse(target).path or f"/{name}").lstrip("/")
            path = path + "index.html" if path.endswith("/") or path == "" else path
            if not (SITE / path).exists():
                dead.append(f"{name}: {target}")
            elif url.fragment and path in found and url.fragment not in found[path].anchors:
                dead.append(f"{name}: {target} (no such anchor)")
    assert not dead, "\n".join(sorted(set(dead))[:40])
