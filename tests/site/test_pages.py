"""Each page of the built site, as a reader's browser sees it."""

import gzip
import json
import re
import xml.etree.ElementTree as ET
from io import BytesIO
from pathlib import Path
from urllib.parse import urljoin, urlparse
from zipfile import ZipFile

import pytest
from axe_playwright_python.sync_playwright import Axe
from docs._ext.pages import PLACES
from playwright.sync_api import Browser, Page, expect

from autograd_cookbook.catalog import RECIPES

from .conftest import PUBLISHED, SITE, pages

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


@pytest.mark.parametrize("path", pages())
def test_it_loads_without_error_and_asks_nobody_else(path: str, page: Page, base: str) -> None:
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
    page.on("response", lambda r: problems.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
    page.on(
        "request", lambda r: problems.append(f"elsewhere: {r.url}") if not r.url.startswith((base, "data:")) else None
    )
    page.goto(base + path, wait_until="networkidle")
    assert not problems

    missing = page.locator("main img:not(.sphx-glr-thumbcontainer img, .picture img)").evaluate_all(
        "images => images.filter(i => i.alt.trim().length < 4).map(i => i.src)"
    )
    assert not missing, "figures without a text that says what they show"

    page.set_viewport_size({"width": 390, "height": 844})
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390, f"on a phone the page is {width} pixels wide"
    squeezed = page.locator("main img").evaluate_all(
        "images => images.filter(i => i.clientHeight && i.naturalHeight && getComputedStyle(i).objectFit == 'fill'"
        " && Math.abs(i.clientWidth * i.naturalHeight / i.clientHeight / i.naturalWidth - 1) > 0.05).map(i => i.src)"
    )
    assert not squeezed, "figures out of proportion on a phone"


@pytest.mark.parametrize("path", pages())
def test_a_table_is_not_left_as_text(path: str) -> None:
    """As the Markdown that a cell returns is, if the page does not ask for MyST."""
    assert not re.search(r"<p>\s*\|[^<]*\n\s*\|[ :|-]+\n", (SITE / path).read_text())


# Of what repeats one pattern hundreds of times, which takes axe a minute, as much as shows the pattern.
SHORTEN = """
    limit => document.querySelectorAll("main :not(pre, p, svg *)").forEach(
        parent => [...parent.children].slice(limit).forEach(child => child.remove())
    )
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", TEMPLATES.values(), ids=list(TEMPLATES))
def test_accessibility(path: str, theme: str, browser: Browser, base: str) -> None:
    with browser.new_context(color_scheme=theme) as context:
        page = context.new_page()
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


@pytest.mark.parametrize("path", RECIPE_PAGES)
def test_recipe_page_is_light(path: str, page: Page, base: str) -> None:
    """At most 400 kB over the wire on first load, figures apart."""
    sizes: dict[str, int] = {}

    def weigh(response) -> None:
        if "_images" not in response.url and response.url.startswith(base):
            body = response.body()
            sizes[response.url] = len(body) if response.url.endswith(".woff2") else len(gzip.compress(body, 6))

    page.on("response", weigh)
    page.goto(base + path, wait_until="networkidle")
    heaviest = sorted(((size, url.rpartition("/")[2]) for url, size in sizes.items()), reverse=True)[:5]
    assert sum(sizes.values()) <= 400_000, f"{sum(sizes.values()):,} bytes: {heaviest}"


@pytest.mark.parametrize("path", RECIPE_PAGES)
def test_recipe_page_offers_what_readers_expect(path: str, page: Page, base: str) -> None:
    page.goto(base + path)
    edit = page.locator("a", has_text="Edit on GitHub").first.get_attribute("href")
    source = edit.partition("/edit/main/")[2]
    assert (ROOT / source).is_file(), f"the edit link leads to {source}, which is not there"
    assert page.locator(".prev-next-footer a, .prev-next-area a").count() >= 1
    links = page.locator("a").evaluate_all("links => links.map(a => a.href)")
    (script,) = {link for link in links if link.endswith(".py") and "_downloads" in link}
    (notebook,) = {link for link in links if link.endswith(".ipynb")}
    compile(page.request.get(script).text(), script, "exec")
    (bundle,) = {link for link in links if link.endswith(".zip")}
    with ZipFile(BytesIO(page.request.get(bundle).body())) as archive:
        (inner,) = [name for name in archive.namelist() if name.endswith(".ipynb")]
        assert archive.read(inner).decode() == page.request.get(notebook).text()
    cells = json.loads(page.request.get(notebook).text())["cells"]
    assert cells
    assert not any(".. recipe::" in "".join(cell["source"]) for cell in cells)


@pytest.mark.parametrize("path", [p for p in pages() if p.startswith(("index", "reference/generated", "capab"))])
def test_edit_links_lead_to_files(path: str, page: Page, base: str) -> None:
    page.goto(base + path)
    for link in page.locator("a", has_text="Edit on GitHub").all():
        source = link.get_attribute("href").partition("/edit/main/")[2]
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


def test_links_inside_the_site_lead_somewhere(browser: Browser) -> None:
    """Files and anchors, read from the files; nothing is fetched."""
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        links, anchors = {}, {}
        for file in SITE.rglob("*.html"):
            if file.name == "404.html":
                continue  # its links start with the prefix
            page.set_content(file.read_text(), wait_until="commit")
            name = str(file.relative_to(SITE))
            anchors[name] = set(page.locator("[id]").evaluate_all("nodes => nodes.map(n => n.id)"))
            links[name] = page.locator("a[href]").evaluate_all("nodes => nodes.map(n => n.getAttribute('href'))")
    dead = []
    for name, targets in links.items():
        for target in targets:
            url = urlparse(urljoin(f"site:///{name}", target)) if not urlparse(target).scheme else None
            if url is None or target.startswith("//"):
                continue
            path = urljoin(f"/{name}", urlparse(target).path or f"/{name}").lstrip("/")
            path = path + "index.html" if path.endswith("/") or path == "" else path
            if not (SITE / path).exists():
                dead.append(f"{name}: {target}")
            elif url.fragment and path in anchors and url.fragment not in anchors[path]:
                dead.append(f"{name}: {target} (no such anchor)")
    assert not dead, "\n".join(sorted(set(dead))[:40])
