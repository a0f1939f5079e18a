"""The search's own index: each section of the site with its words, weighed by BM25F.

Sphinx's index knows which page has a word, but not which section, and a page of answers has sixty. Here each section is
a document with five fields: its title, names that are given to it by hand, what people type who look for it, the titles
above it, and its prose. A word counts more if few sections have it, and less in a long field; each repetition adds less
than the one before. Browsers get the finished points of each word, and only have to add.

Source: S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section 3.6.
"""

import functools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from docutils import nodes
from sphinx import addnodes
from sphinx.search.en import SearchEnglish

ENGLISH = SearchEnglish({})
WORD = re.compile(r"\w+")
DOTTED = re.compile(r"[^\W_]\.([^\W\d_]+)")
PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
HYPHENED = re.compile(r"\w+(?:-\w+)+")
WEIGHTS = {"title": 3.0, "names": 3.0, "asked": 1.0, "above": 1.0, "prose": 1.0}
LONG = {"title": 0.5, "names": 0.2, "asked": 0.5, "above": 0.5, "prose": 0.7}  # how much the length of a field counts
AGAIN = 2.5  # the larger, the more does a word count that comes again
SCALE = 4  # points are whole numbers
# Tables and what is generated come after pages that explain.
KINDS = {"cookbook": 1.0, "guide": 1.0, "errors": 0.8, "pitfalls": 0.9, "glossary": 0.7, "reference": 0.4}
OTHER = 0.5
ASIDE = ("Sources", "Next")  # titles of sections that only lead on


@dataclass(frozen=True)
class Section:
    """A section, or a term, or an object: where it is, and what it is found by."""

    page: str
    anchor: str  # "" is the page
    title: str
    names: str = ""
    asked: str = ""
    above: str = ""
    prose: str = ""


def sections(page: str, doctree: nodes.document) -> Iterator[Section]:
    """The sections of a page, the terms of a glossary, and the objects of a reference."""
    for section in doctree.findall(nodes.section):
        if title_of(section) in ASIDE:
            continue
        top = not isinstance(section.parent, nodes.section)
        yield Section(
            page,
            "" if top else section["ids"][0],
            title_of(section),
            above=" ".join(title_of(each) for each in above(section)),
            prose="\n".join(prose(section)),
        )
    for term in doctree.findall(nodes.term):
        if isinstance(term.parent.parent.parent, addnodes.glossary) and term["ids"]:
            yield Section(page, term["ids"][0], term.astext(), prose=term.parent[-1].astext())
    for signature in doctree.findall(addnodes.desc_signature):
        if signature["ids"]:
            yield Section(page, signature["ids"][0], signature["ids"][0].rpartition(".")[2])


def title_of(section: nodes.section) -> str:
    return section.next_node(nodes.title).astext()


def above(section: nodes.section) -> Iterator[nodes.section]:
    while isinstance(section := section.parent, nodes.section):
        yield section


def prose(section: nodes.section) -> Iterator[str]:
    """Paragraphs of a section, without those of the sections in it."""
    for child in section.children:
        if not isinstance(child, nodes.section | nodes.title):
            yield from (each.astext() for each in child.findall(nodes.paragraph))


@functools.cache
def stem(word: str) -> str:
    return ENGLISH.stem(word)


def stems(text: str) -> list[str]:
    """The words of a text as search.js has those of a query.

    ``save_for_backward`` and ``torch.tensor`` are found by each of their parts, and by all of them; ``torch.where`` by
    a word that says nothing elsewhere; "k-means" by "kmeans", too.
    """
    text = text.lower()
    whole = WORD.findall(text)
    parts = [part for word in whole if "_" in word for part in word.split("_") if part]
    joined = [word.replace("-", "") for word in HYPHENED.findall(text)]
    dotted = {*DOTTED.findall(text)}
    found = (*whole, *parts, *joined, *PATH.findall(text))
    return [stem(word) for word in found if word not in ENGLISH.stopwords or word in dotted]


def points(documents: Iterable[Section]) -> dict[str, list[int]]:
    """For each word the sections that have it, by number, each followed by its points.

    A number is given as the difference from the one before.
    """
    documents = list(documents)
    counts: dict[str, list[Counter[str]]] = {
        field: [Counter(stems(getattr(each, field))) for each in documents] for field in WEIGHTS
    }
    having: dict[str, dict[int, float]] = defaultdict(dict)
    for field, rows in counts.items():
        lengths = [row.total() for row in rows]
        mean = sum(lengths) / max(1, sum(map(bool, lengths))) or 1.0  # of a page built alone, all may be empty
        for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            factor = WEIGHTS[field] / (1 - LONG[field] + LONG[field] * length / mean)
            for word, count in row.items():
                having[word][number] = having[word].get(number, 0.0) + factor * count
    found = {}
    for word, weights in having.items():
        rare = math.log(1 + (len(documents) - len(weights) + 0.5) / (len(weights) + 0.5))
        flat, before = [], 0
        for number, weight in sorted(weights.items()):
            kind = KINDS.get(documents[number].page.partition("/")[0], OTHER)
            worth = round(SCALE * kind * rare * weight * (AGAIN + 1) / (weight + AGAIN))
            if worth:
                flat += [number - before, worth]
                before = number
        if flat:
            found[word] = flat
    return found
