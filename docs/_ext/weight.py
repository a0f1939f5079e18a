"""What a page makes a browser fetch and wait for, reduced when the site is built.

All stylesheets become one, ``_static/site.css``, with the rules that some page can need; fonts of icons keep the icons
that are shown; no script holds the page up; figures wait until they are scrolled to, and keep their place meanwhile;
and code has fewer elements. A page that Sphinx does not write again is as the build before left it, so each page keeps
the names of its own stylesheets, and doing all this twice changes nothing.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

from docs._ext import icon_fonts, stylesheet, tokens
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.images import get_image_size

SHEET = "_static/site.css"
TOKENS = "pygments.css"
NO_PAGES = {"_static", "_images", "_sources", "_downloads"}
LINK = re.compile(r"<link\b[^>]*>\s*")
SCRIPT = re.compile(r"<script\b([^>]*)>(.*?)</script>", re.DOTALL)
IMAGE = re.compile(r"<img\b[^>]*>")
ATTRIBUTE = re.compile(r"""\b([\w-]+)\s*=\s*["']([^"']*)["']""")
# Sphinx gives each word of code an element, so that it is not broken: 13,000 in the list of all messages, which keeps
# none. Elsewhere few words have a place where a browser would break them.
LISTED = re.compile(r'<dl class="[^"]*\bcheck-index\b[^"]*">.*?</dl>', re.DOTALL)
WORD = re.compile(r'<span class="pre">([^<]*)</span>')
BREAKABLE = re.compile(r"""-.|.[?!/|}].|.[)\]][^\w\s.,;:!?)\]}'"].|[^\x00-\x7f]""")
AT_ONCE = "data-cfasync"  # by this the theme marks the script that sets the colors before anything is painted
# The first replaces icons by pictures, for those who add icons of their own. We do not, and it weighs 90 kB. The second
# filters the gallery by tags, in place of which gallery.js filters it by words.
UNUSED_SCRIPTS = ("scripts/fontawesome.js", "sg-tags.js")
TABS, TAB = "design-tabs.js", "sd-tab-"  # a script, and the classes without which it has nothing to do


@dataclass
class Page:
    """A page as Sphinx or the build before wrote it."""

    file: Path
    html: str
    static: str  # how it names the folder of what is not a page
    sheets: list[str]  # in that folder


def attributes(tag: str) -> dict[str, str]:
    return dict(ATTRIBUTE.findall(tag))


def is_sheet(tag: str) -> bool:
    return "stylesheet" in attributes(tag).get("rel", "").split()


def read(file: Path, site: Path) -> Page | None:
    """A page and the stylesheets that it is written for.

    Raises:
        ExtensionError: if one of them is elsewhere, or not there.
    """
    html = file.read_text(encoding="utf-8")
    sheets: list[str] = []
    static = ""
    for tag in LINK.findall(html):
        if not is_sheet(tag):
            continue
        said = attributes(tag)
        address = urlsplit(said["href"])
        before, folder, name = address.path.rpartition("_static/")
        if address.scheme or address.netloc or not folder:
            raise ExtensionError(f"{file}: the stylesheet {said['href']} is not in _static, so it cannot be joined")
        static = before + folder
        sheets += said["data-sheets"].split() if "data-sheets" in said else [name]
    for name in sheets:
        if not (site / "_static" / name).is_file():
            raise ExtensionError(f"{file}: the stylesheet {name} is linked, but _static has no such file")
    return Page(file, html, static, sheets) if sheets else None


def in_order(lists: Iterable[list[str]]) -> list[str]:
    """All names, each after those that come before it in any of the lists.

    Raises:
        ExtensionError: if two lists disagree.
    """
    before: dict[str, set[str]] = {}
    for names in sorted(map(tuple, lists), key=len, reverse=True):
        for i, name in enumerate(names):
            before.setdefault(name, set()).update(names[max(0, i - 1) : i])
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise ExtensionError(f"pages link stylesheets in different orders: {', '.join(error.args[1])}") from None


def joined(pages: list[Page], site: Path) -> tuple[str, tokens.Looks]:
    """The one stylesheet, and how tokens of code look in it."""
    static = site / "_static"
    names = in_order(page.sheets for page in pages)
    try:
        sheets = {name: stylesheet.read(static / name, static) for name in names}
    except FileNotFoundError as error:
        raise ExtensionError(f"a stylesheet imports {error.filename}, which is not there") from None
    scripts = [file.read_text(encoding="utf-8") for file in sorted(static.rglob("*.js")) if used_script(file)]
    used = stylesheet.Used()
    for page in pages:
        used.add_page(page.html)
        for said, inline in SCRIPT.findall(page.html):
            if attributes(said).get("type", "module") == "module":
                used.add_script(inline)
    for script in scripts:
        used.add_script(script)
    used.classes.add(tokens.MARK)
    others = "".join(css for name, css in sheets.items() if name != TOKENS)
    known = tokens.looks(sheets.get(TOKENS, ""), others, "".join(scripts))
    if TOKENS in sheets:
        sheets[TOKENS] += tokens.rule(sheets[TOKENS])
    try:
        css = "\n".join(filter(None, (stylesheet.purged(text, used, name) for name, text in sheets.items())))
    except ValueError as error:
        raise ExtensionError(str(error)) from None
    texts = [*scripts, *(page.html for page in pages)]
    return icon_fonts.lighten(stylesheet.without_unused_variables(css, texts), static, texts), known


def used_script(file: Path) -> bool:
    return not file.as_posix().endswith(UNUSED_SCRIPTS)


def linked(page: Page, version: str) -> str:
    """The page with one stylesheet, where its first one was."""
    one = (
        f'<link rel="stylesheet" href="{page.static}{Path(SHEET).name}?v={version}"'
        f' data-sheets="{" ".join(page.sheets)}" />\n'
    )
    waiting = [one]

    def replace(match: re.Match[str]) -> str:
        said = attributes(match[0])
        if said.get("rel") == "preload" and said.get("as") == "script":
            return ""  # a deferred script is found soon enough, and would take the line from the stylesheet
        if not is_sheet(match[0]):
            return match[0]
        return waiting.pop() if waiting else ""

    return LINK.sub(replace, page.html)


def deferred(html: str) -> str:
    """The page with scripts that run once it is read, in their order: those that have waited before come last.

    An inline script waits as a module: a browser runs modules and deferred scripts in one order.
    """
    late: list[str] = []
    unused = UNUSED_SCRIPTS if TAB in html else (*UNUSED_SCRIPTS, TABS)

    def replace(match: re.Match[str]) -> str:
        said = attributes(match[1])
        if AT_ONCE in said or said.get("type", "module") != "module":
            return match[0]  # data, or what sets the colors
        if any(script in said.get("src", "") for script in unused):
            return ""
        if "src" not in said:
            return match[0] if "type" in said else f'<script type="module"{match[1]}>{match[2]}</script>'
        if re.search(r"\bdefer\b", match[1]):
            late.append(match[0])
            return ""
        at_once.append(match[0])
        return f"<script defer{match[1]}>{match[2]}</script>"

    at_once: list[str] = []
    changed = SCRIPT.sub(replace, html)
    if not at_once:
        return html  # all of them wait already: the build before has put them in order
    return changed.replace("</body>", "\n".join([*late, "</body>"]))


def sized(html: str, folder: Path) -> str:
    """The page of a folder with figures that are fetched when they are scrolled to, into the place that is kept."""

    def replace(match: re.Match[str]) -> str:
        said = attributes(match[0])
        file = folder / said.get("src", "")
        if "loading" in said or file.suffix != ".png" or not file.is_file():
            return match[0]
        size = "" if "width" in said else ' width="{}" height="{}"'.format(*size_of(file))
        return f'{match[0].rstrip("/> ")}{size} loading="lazy" decoding="async" />'

    return IMAGE.sub(replace, html)


def size_of(file: Path) -> tuple[int, int]:
    """The width and height of a picture.

    Raises:
        ExtensionError: if it is none.
    """
    size = get_image_size(str(file))
    if size is None:
        raise ExtensionError(f"{file} is no PNG")
    return size


def unworded(html: str) -> str:
    """The page without the elements of words of code that no browser breaks, and with none in lists of messages."""
    html = LISTED.sub(lambda match: WORD.sub(r"\1", match[0]), html)
    return WORD.sub(lambda match: match[0] if BREAKABLE.search(unescape(match[1])) else match[1], html)


def lighten(site: Path) -> None:
    """Reduce all pages of a built site.

    Raises:
        ExtensionError: if a page links a stylesheet that cannot be joined to the others.
    """
    files = (file for file in sorted(site.rglob("*.html")) if not NO_PAGES & set(file.relative_to(site).parts))
    pages = [page for page in (read(file, site) for file in files) if page]
    if not pages:
        return
    css, known = joined(pages, site)
    (site / SHEET).write_text(css, encoding="utf-8")
    version = hashlib.sha256(css.encode()).hexdigest()[:8]
    for page in pages:
        html = unworded(tokens.unwrapped(deferred(linked(page, version)), known))
        html = sized(html, page.file.parent)
        if html != page.html:
            page.file.write_text(html, encoding="utf-8")


def finish(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html":
        lighten(Path(app.outdir))


def setup(app: Sphinx) -> dict[str, bool]:
    # After the extensions that write their own stylesheets when the pages are there.
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
