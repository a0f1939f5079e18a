"""Lists of all pages, for machines: llms.txt with the first words of each, and sitemap.xml if the site is published.

Made from all documents that Sphinx knows, also where it has written only some of them anew.
"""

from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.environment.collectors import EnvironmentCollector


class FirstWords(EnvironmentCollector):
    """Keeps the first paragraph of each page when it is read."""

    def process_doc(self, app: Sphinx, doctree: nodes.document) -> None:
        paragraph = next(iter(doctree.findall(nodes.paragraph)), None)
        words = " ".join(paragraph.astext().split()) if paragraph is not None else ""
        first_words(app.env)[app.env.current_document.docname] = words

    def clear_doc(self, app: Sphinx, env: BuildEnvironment, docname: str) -> None:
        first_words(env).pop(docname, None)

    def merge_other(self, app: Sphinx, env: BuildEnvironment, docnames: set[str], other: BuildEnvironment) -> None:
        first_words(env).update((name, first_words(other)[name]) for name in docnames)


def first_words(env: BuildEnvironment) -> dict[str, str]:
    """By page."""
    return vars(env).setdefault("first_words", {})


def write_listings(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.name != "html":
        return
    lines = [
        f"# {app.config.project}",
        "",
        "> Custom gradients for PyTorch, to learn, copy and verify. Every page is executed when the site is built.",
        "",
        "## Pages",
        "",
    ]
    sitemap = ElementTree.Element("urlset", xmlns="http://www.sitemaps.org/schemas/sitemap/0.9")
    for name in sorted(app.env.found_docs):
        title = app.env.titles[name].astext()
        address = app.config.html_baseurl + app.builder.get_target_uri(name)
        lines.append(f"- [{title}]({address}): {first_words(app.env)[name]}")
        ElementTree.SubElement(ElementTree.SubElement(sitemap, "url"), "loc").text = address
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n")
    if app.config.html_baseurl:  # a sitemap has whole addresses, llms.txt may have relative ones
        ElementTree.ElementTree(sitemap).write(Path(app.outdir, "sitemap.xml"), xml_declaration=True)


def setup(app: Sphinx) -> dict[str, int]:
    app.add_env_collector(FirstWords)
    app.connect("build-finished", write_listings)
    return {"env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
