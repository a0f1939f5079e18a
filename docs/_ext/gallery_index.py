"""The pages that list the cookbook: links to the sections, a filter, and cards that say what each page is for.

Sphinx-Gallery shows a page's purpose only under a mouse, filters by elements that no keyboard reaches, and makes each
section a page's title. Its pictures are figures made small, which look alike; ours are drawn for their size.
"""

import ast
import html
import re

from docs._ext.icons import icon
from docs._ext.pages import PLACES
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from autograd_cookbook.catalog import RECIPES

INDEX = "cookbook/index"
YOU = "You will "  # with which all begin: of the three lines of a card, words that say nothing
TAG = "🏷 "  # many fonts have no such letter
TAG_LIST = "sg-tag-list"
CARD = re.compile(r"""<div class="sphx-glr-thumbcontainer" data-sgtags='(\[.*?\])' tooltip="(.*?)">""", re.DOTALL)
TITLE = re.compile(r'<div class="sphx-glr-thumbnail-title">.*?</div>', re.DOTALL)
FILTER = """
<form class="card-filter" role="search" action="../search.html" hidden>
<label for="card-filter">Filter the recipes</label>
<input id="card-filter" type="search" placeholder="for example: round, memory, softmax" autocomplete="off">
<output aria-live="polite"></output>
</form>
"""


def words(page: str, tags: list[str]) -> str:
    """What a card is found by, besides by what it shows."""
    return " ".join([page, *tags, *(recipe.name for recipe in RECIPES if recipe.page == page)])


class GalleryTransform(SphinxTransform):
    """Change what Sphinx-Gallery writes, before the contents in the sidebar are made from it."""

    default_priority = 500

    def apply(self, **kwargs: object) -> None:
        """Change the lists of the cookbook; of its pages, only the line of tags."""
        name = self.env.docname
        if not name.startswith("cookbook/"):
            return
        for paragraph in self.document.findall(nodes.paragraph):
            if "sphx-glr-example-tags" in paragraph["classes"]:
                paragraph[:] = [nodes.Text(paragraph.astext().removeprefix(TAG))]
        if name.endswith("/index"):
            self.cards()
        if name == INDEX:
            self.sections()

    def cards(self) -> None:
        """Have each say its purpose in its text, under the drawing of its page."""
        purpose = ""
        for raw in list(self.document.findall(nodes.raw)):
            text = raw.astext()
            if TAG_LIST in text:
                raw.parent.remove(raw)
            elif opened := CARD.search(text):
                purpose = opened[2].removeprefix(YOU)
                purpose = purpose[:1].upper() + purpose[1:]
                behind = self.behind(raw)
                page = self.page_among(behind)
                picture = next(node for sibling in behind for node in sibling.findall(nodes.image))
                self.replace(picture, icon(page))
                found = html.escape(words(page, ast.literal_eval(html.unescape(opened[1]))))
                self.replace(raw, f'<div class="sphx-glr-thumbcontainer" data-words="{found}">')
            elif title := TITLE.search(text):  # the link over the card has the same words for screen readers
                shown = title[0].replace("<div ", '<div aria-hidden="true" ', 1)
                self.replace(raw, text.replace(title[0], f'{shown}<div class="card-purpose">{purpose}</div>'))

    def behind(self, raw: nodes.raw) -> list[nodes.Node]:
        """What comes after the beginning of a card."""
        siblings = raw.parent.children
        return siblings[siblings.index(raw) + 1 :]

    def page_among(self, behind: list[nodes.Node]) -> str:
        """The page that a card leads to: that of the first link behind its beginning."""
        targets = (
            node["reftarget"] for sibling in behind for node in sibling.findall() if node.get("reftype") == "doc"
        )
        page = next(targets).rpartition("/")[2]
        if page not in PLACES:
            raise ValueError(f"the card leads to {page!r}, which is no page of the cookbook")
        return page

    def replace(self, node: nodes.Node, text: str) -> None:
        node.replace_self(nodes.raw("", text, format="html"))

    def sections(self) -> None:
        """Make them sections of the one page, and list them above the first."""
        first, *others = [child for child in self.document.children if isinstance(child, nodes.section)]
        links = "".join(
            f'<li><a href="#{section["ids"][0]}">{html.escape(section[0].astext())}</a></li>' for section in others
        )
        paragraph = next(i for i, child in enumerate(first) if isinstance(child, nodes.paragraph))
        jump = f'<nav class="jump" aria-label="Sections"><ul>{links}</ul></nav>'
        first.insert(paragraph + 1, nodes.raw("", jump + FILTER, format="html"))
        for section in others:
            self.document.remove(section)
            first += section


def add_script(app: Sphinx, pagename: str, *_: object) -> None:
    if pagename == INDEX:
        app.add_js_file("gallery.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(GalleryTransform)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
