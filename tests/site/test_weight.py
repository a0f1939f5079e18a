"""What a page makes a browser fetch and wait for."""

import gzip
import re
from collections import Counter
from pathlib import Path

import pytest
from docs._ext import stylesheet, tokens, weight
from PIL import Image
from playwright.sync_api import Browser, Page, Response
from sphinx.errors import ExtensionError

from .conftest import opened

pytestmark = pytest.mark.site

# Compressed, as servers send them. Half of the scripts is the theme's Bootstrap.
MOST_BYTES = {"css": 32_000, "js": 46_500}
SEARCHED = "errors/index.html", 57_500  # the page whose script finds what a message means
MOST_ELEMENTS = 8000
PAGES = {
    "landing page": "index.html",
    "gallery": "cookbook/index.html",
    "matrix": "capabilities.html",
    "recipe": "cookbook/02_changing_the_gradient/straight_through.html",
    "guide": "guide/backward.html",
    "error search": "errors/index.html",
    "errors": "errors/engine.html",
    "reference": "reference/generated/autograd_cookbook.recipes.hooks.html",
}


@pytest.mark.parametrize("path", PAGES.values(), ids=list(PAGES))
def test_a_page_is_light_and_nothing_holds_it_up(path: str, page: Page, base: str) -> None:
    sizes: Counter[str] = Counter()
    elsewhere: list[str] = []

    def weigh(response: Response) -> None:
        kind = response.url.partition("?")[0].rpartition(".")[2]
        if not response.url.startswith((base, "data:")):
            elsewhere.append(response.url)
        elif kind in MOST_BYTES:
            size = len(gzip.compress(response.body(), 6))  # meanwhile, other responses may come
            sizes[kind] += size

    page.on("response", weigh)
    found = page.goto(base + path, wait_until="networkidle")
    assert found is not None
    assert found.ok, f"there is no page {path}"
    assert not elsewhere, f"asks other hosts: {elsewhere}"
    most = MOST_BYTES | ({"js": SEARCHED[1]} if path == SEARCHED[0] else {})
    heavy = {kind: size for kind, size in sizes.items() if size > most[kind]}
    assert not heavy, f"compressed bytes {heavy}, of which there may be {most}"
    scripts = page.locator("script[src]:not([defer], [async], [type=module])").evaluate_all(
        "all => all.map(s => s.src)"
    )
    assert not scripts, f"the page waits for {scripts}"
    sheets = page.locator("link[rel=stylesheet]").evaluate_all("all => all.map(link => link.href)")
    assert len(sheets) == 1, f"the page waits for {len(sheets)} stylesheets: {sheets}"
    elements = page.evaluate("document.querySelectorAll('*').length")
    assert elements < MOST_ELEMENTS, f"{elements} elements"


SHIFTS = """
    () => new Promise((done) => {
        const observer = new PerformanceObserver(() => {});
        observer.observe({ type: "layout-shift", buffered: true });
        setTimeout(() => done(observer.takeRecords().reduce((sum, { value }) => sum + value, 0)), 100);
    })
"""


@pytest.mark.parametrize("path", PAGES.values(), ids=list(PAGES))
def test_what_is_read_does_not_move(path: str, page: Page, base: str) -> None:
    """On a phone, while fonts and figures come: Lighthouse takes a sum of 0.1 for good."""
    page.set_viewport_size({"width": 412, "height": 823})
    page.goto(base + path, wait_until="networkidle")
    assert page.evaluate(SHIFTS) < 0.05


def test_the_fonts_of_the_site_are_asked_for_first(page: Page, base: str) -> None:
    """And once: the address in the page is that in the stylesheet."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.goto(f"{base}guide/graph.html", wait_until="networkidle")
    fonts = [name for name in asked if name.endswith("latin-wght-normal.woff2")]
    assert sorted(fonts) == sorted(set(fonts))
    assert len(fonts) == 2
    first_script = min(i for i, name in enumerate(asked) if ".js" in name)
    assert max(map(asked.index, fonts)) < first_script


@pytest.mark.parametrize("path", [PAGES["reference"], PAGES["errors"]])
def test_the_page_stands_still_when_its_fonts_arrive(path: str, browser: Browser, base: str) -> None:
    """On a phone, where the way to the page must not take a second line with one font and not with the other."""
    tops = []
    for fonts in ("loaded", "missing"):
        with opened(browser, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as page:
            if fonts == "missing":
                page.route("**/*.woff2", lambda route: route.abort())
            page.goto(base + path, wait_until="networkidle")
            tops.append(page.locator("article.bd-article").evaluate("article => article.getBoundingClientRect().top"))
    assert tops[0] == tops[1], f"the article begins at {tops[0]}, and without its fonts at {tops[1]}"


def test_a_theme_that_follows_the_system_is_set_before_anything_is_painted(browser: Browser, base: str) -> None:
    for scheme in ("light", "dark"):
        with opened(browser, color_scheme=scheme) as page:
            page.route("**/*.js*", lambda route: route.abort())
            page.goto(base)
            assert page.locator("html").get_attribute("data-theme") == scheme


def test_figures_keep_their_place_and_wait_until_they_are_scrolled_to(tmp_path: Path) -> None:
    Image.new("1", (700, 320)).save(tmp_path / "a.png")
    new = weight.sized('<img src="a.png" class = "figure"/><img src="logo.svg"/>', tmp_path)
    wanted = '<img src="a.png" class = "figure" width="700" height="320" loading="lazy" decoding="async" />'
    assert new == wanted + '<img src="logo.svg"/>'
    assert weight.sized(new, tmp_path) == new
    given = weight.sized('<img src="a.png" width="350" />', tmp_path)
    assert 'width="350" loading="lazy"' in given
    (tmp_path / "a.png").write_bytes(b"something else")
    with pytest.raises(ExtensionError, match="is no PNG"):
        weight.sized('<img src="a.png">', tmp_path)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_colors_are_set_before_anything_is_painted(mode: str, page: Page, base: str) -> None:
    """A theme that was chosen on another page holds without any script but the one in the page."""
    page.add_init_script(f"localStorage.setItem('mode', '{mode}'); localStorage.setItem('theme', '{mode}')")
    page.route("**/*.js*", lambda route: route.abort())
    page.goto(base)
    assert page.locator("html").get_attribute("data-theme") == mode


CSS = """
.seen, .unseen { color: red }
#unseen > p { color: red }
.unseen:not(.seen) { color: red }
:is(.unseen) { color: red }
[data-x="unseen"] { color: red }
.made-by-script-1 { color: red }
@media (width > 1px) { .seen { margin: 0 auto } .unseen { margin: 0 } }
@font-face { font-family: "A"; src: url("a.woff2") }
:root { --unseen: 1px }
"""


def test_a_rule_goes_only_if_no_page_can_need_it() -> None:
    used = stylesheet.Used()
    used.add_page('<p class = "seen">')
    used.add_script("element.className = `made-by-script-${i}`")
    assert stylesheet.purged(CSS, used, "a.css").splitlines() == [
        ".seen{color:red}",
        ":is(.unseen){color:red}",
        '[data-x="unseen"]{color:red}',
        ".made-by-script-1{color:red}",
        "@media (width > 1px){.seen{margin:0 auto}}",
        '@font-face{font-family: "A"; src: url("a.woff2")}',
        ":root{--unseen:1px}",
    ]


COLORS = "".join(f"html .highlight .{name} {{ color: {color} }}\n" for name, color in [("n", 1), ("p", 1), ("k", 2)])


def test_only_tokens_that_look_like_their_block_are_unwrapped() -> None:
    block = '<div class="highlight"><pre>{}</pre></div>'.format
    code = '<span></span><span class="k">if</span> <span class="n">x</span><span class="p">:</span>'
    known = tokens.looks(COLORS, "", "")
    new = tokens.unwrapped(block(code), known)
    assert new == '<div class="highlight"><pre class="plain-tokens"><span class="k">if</span> x:</pre></div>'
    assert tokens.unwrapped(new, known) == new, "done twice, it changes something"
    printed = block('text <span class="n">x</span>')
    assert tokens.unwrapped(printed, known) == printed, "bare text would change its color"
    linked = block('<a href="#"><span class="n">x</span></a>')
    assert '<span class="n">' in tokens.unwrapped(linked, known), "in a link it would get the color of links"
    assert not tokens.looks(COLORS, "", "querySelectorAll('.n')").plain, "a script looks for it"
    dotted = '<span class="n">x</span><span class="o">.</span><span class="n">y</span> <span class="o">=</span>'
    colored = tokens.looks(COLORS + "html .highlight .o { color: 3 }\n", "", "")
    assert 'x.y <span class="o">=</span>' in tokens.unwrapped(block(dotted), colored)


def test_words_of_code_have_elements_where_a_browser_would_break_them() -> None:
    word = '<code><span class="pre">{}</span></code>'.format
    for said in ("x.grad", "use_reentrant=False", "f(x,", "y)", "&lt;class", "torch.ops.mylib.scale"):
        assert weight.unworded(word(said)) == f"<code>{said}</code>"
    for said in ("--update", "dim=-1", "a/b", "f(x)[0]", "x-y", "a|b", "d!=e"):
        assert weight.unworded(word(said)) == word(said)
    listed = '<dl class="check-index"><dt>{}</dt></dl>'.format
    assert weight.unworded(listed(word("dim=-1"))) == listed("<code>dim=-1</code>")


def test_a_stylesheet_that_is_not_there_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "_static").mkdir()
    (tmp_path / "index.html").write_text('<link rel="stylesheet" href="_static/gone.css" />')
    with pytest.raises(ExtensionError, match=r"gone\.css is linked, but _static has no such file"):
        weight.lighten(tmp_path)


def test_scripts_run_in_the_order_in_which_they_ran_before() -> None:
    """A script that waited for the page ran after all that did not, wherever it stood."""
    page = (
        '<head><script defer="defer" src="late.js"></script><script src="early.js"></script>'
        "<script>inline()</script></head><body></body>"
    )
    once = weight.deferred(page)
    assert re.findall(r"late|early|inline", once) == ["early", "inline", "late"]
    assert weight.deferred(once) == once


def test_variables_that_nothing_uses_are_dropped() -> None:
    """With what they use alone; text in quotes and in addresses is a value, whatever it holds."""
    css = (
        """:root{--a:1;--b:var(--a);--c:url("data:image/svg+xml;utf8,<svg style='x{y:1;}'/>");"""
        """--d:url(data:image/png;base64,AA==);--e:"}";--f:2}\np{color:var(--f)}\nq{--g:3}\n"""
    )
    kept = stylesheet.without_unused_variables(css, ["setProperty('--e', 1)"])
    assert kept == """:root{--e:"}";--f:2}\np{color:var(--f)}\n"""


def test_code_that_goes_on_behind_the_edge_has_a_shadow_there(browser: Browser, base: str) -> None:
    """One that a reader who has scrolled to the end no longer sees."""
    with opened(browser, viewport={"width": 390, "height": 844}) as page:
        page.goto(f"{base}guide/backward.html")
        blocks = page.locator("article pre").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth + 1)"
            ".map(one => getComputedStyle(one).backgroundAttachment)"
        )
        assert blocks
        assert set(blocks) == {"local, scroll, scroll"}, blocks
