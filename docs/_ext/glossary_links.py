"""Links from the first use of a glossary term on a page to its entry in the glossary.

The uses are not marked: they are found in the text of paragraphs when a page is written, by the term, its plural, and
with a hyphen or a space between its words. All synonyms of an entry count as one term.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

GLOSSARY = "glossary"
FOLDERS = ("guide/", "pitfalls/", "errors/", "cookbook/")
GALLERY = re.compile(r"cookbook/(.*/)?index")  # its cards are links, and its texts are short
# Pages where a word of the glossary has another meaning: the kernel of a convolution, the nodes of a graph that is
# data, the graph of the compiler, a graph of CUDA.
OTHERWISE = {
    "convolution": {"kernel", "stride"},
    "custom_operator": {"graph"},
    "data_parallel": {"view"},
    "devices": {"graph"},
    "flash_attention": {"graph"},
    "graph_breaks": {"graph"},
    "masks": {"storage"},
    "recompiling": {"graph"},
    "row_reduction": {"tangent"},
    "scipy_functions": {"graph", "transform"},
    "selective_checkpointing": {"graph"},
    "sparse": {"graph", "node"},
    "torch_compile": {"graph"},
    "transport": {"kernel"},
}
# What a use may stand in, inside of its paragraph; all else is code, a formula, a link, or the caption of one.
MARKUP = (nodes.emphasis, nodes.strong)
# Paragraphs in there are left alone: tables are looked things up in, cards are links, terminals are printed text.
CLOSED = (nodes.table, nodes.title, nodes.term, nodes.caption, nodes.legend, nodes.reference, addnodes.pending_xref)
CLOSED_CLASSES = {
    *("terminal", "cell_output", "sd-card", "toctree-wrapper", "no-glossary"),
    *("recipe", "sphx-glr-example-tags"),
}
# What the rules for plurals miss, and where a form is another word.
EXTRA = {"leaf": r"(?<=\bthe )leaves", "vertex": "vertices", "matrix": "matrices"}
NOT_BEFORE = {"in-place": r"\s+of\b"}


class Entry(NamedTuple):
    """An entry of the glossary: its anchor, its terms, and what it says, in plain text."""

    anchor: str
    terms: tuple[str, ...]
    definition: str


def pattern(term: str) -> str:
    """A regular expression for the uses of a term."""
    # An acronym, or a name such as Jacobian, is one only as it is written.
    flags = "i" if term.islower() else "-i"
    words = [re.escape(word) for word in re.split(r"[-\s]+", term)]
    last = words[-1]
    plural = f"{last[:-1]}(?:y|ies)" if re.search(r"[^aeiou]y$", last) else f"{last}(?:s|es)?"
    first = rf"{words[0]}(?:[-\s]+)?" if words[0] == "non" else None
    body = r"[-\s]+".join([*words[:-1], plural])
    if first and len(words) > 1:
        body = first + r"[-\s]+".join([*words[1:-1], plural])
    unless = f"(?!{NOT_BEFORE[term]})" if term in NOT_BEFORE else ""
    extra = f"|{EXTRA[term]}" if term in EXTRA else ""
    # A sentence may start with it.
    return f"(?{flags}:{body}{extra}){unless}"


class Finder:
    """Finds the uses of all terms in a text, the longest of those that start at one place."""

    def __init__(self, entries: list[Entry]) -> None:
        pairs = sorted(((t, e) for e in entries for t in e.terms), key=lambda pair: -len(pair[0]))
        self.entries = [entry for _, entry in pairs]
        groups = "|".join(f"(?P<t{i}>{pattern(term)})" for i, (term, _) in enumerate(pairs))
        self.expression = re.compile(rf"(?<![\w.-])(?:{groups})(?![\w-])")

    def __call__(self, text: str) -> Iterator[tuple[re.Match[str], Entry]]:
        for match in self.expression.finditer(text):
            yield match, self.entries[int(match.lastgroup[1:])]


def entries_of(doctree: nodes.document) -> list[Entry]:
    """What a page defines in its ``{glossary}``."""
    found = []
    for glossary in doctree.findall(addnodes.glossary):
        for item in glossary.findall(nodes.definition_list_item):
            terms = [child for child in item.children if isinstance(child, nodes.term)]
            definition = next(iter(item.findall(nodes.definition)))
            words = " ".join(definition.astext().split())
            found.append(Entry(terms[0]["ids"][0], tuple(term.astext() for term in terms), words))
    return found


def in_scope(docname: str) -> bool:
    return docname.startswith(FOLDERS) and not GALLERY.fullmatch(docname)


def otherwise(docname: str) -> set[str]:
    """The terms that have another meaning on a page."""
    return OTHERWISE.get(docname.rpartition("/")[2], set())


def prose_of(document: nodes.document) -> Iterator[nodes.Text]:
    """Each piece of text in which a term may be linked, in the order of the page."""
    for text in document.findall(nodes.Text):
        node = text.parent
        while isinstance(node, MARKUP):
            node = node.parent
        if isinstance(node, nodes.paragraph):
            while node is not None and not isinstance(node, CLOSED) and not CLOSED_CLASSES & set(node["classes"]):
                node = node.parent
            if node is None:
                yield text


def link_glossary(app: Sphinx, document: nodes.document, docname: str) -> None:
    """Link the first use of each term. The references of the page are resolved already, and recognized as such."""
    entries = getattr(app.env, "glossary_entries", [])
    if not entries or not in_scope(docname):
        return
    find, linked = Finder(entries), set()
    linked |= {entry.anchor for entry in entries if otherwise(docname) & {*entry.terms}}
    for text in list(prose_of(document)):
        pieces, end = [], 0
        for match, entry in find(str(text)):
            if entry.anchor not in linked:
                linked.add(entry.anchor)
                label = nodes.inline(match[0], match[0])
                link = make_refnode(app.builder, docname, GLOSSARY, entry.anchor, label, entry.definition)
                link["classes"].append("glossary-link")
                pieces += [nodes.Text(str(text)[end : match.start()]), link]
                end = match.end()
        if pieces:
            text.parent.replace(text, [*pieces, nodes.Text(str(text)[end:])])


def renew(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Read the entries once all pages are read; if they have changed, all pages that use them are written again."""
    if GLOSSARY not in env.all_docs:
        return []
    before, env.glossary_entries = getattr(env, "glossary_entries", None), entries_of(env.get_doctree(GLOSSARY))
    if before == env.glossary_entries:
        return []
    return [name for name in env.all_docs if in_scope(name)]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("env-updated", renew)
    app.connect("doctree-resolved", link_glossary)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
