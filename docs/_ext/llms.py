"""llms.txt: the site's pages in plain text, for programs that read it, with the address and first words of each."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx


def write_llms(app: Sphinx, exception: Exception | None) -> None:
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
    for name in sorted(app.env.found_docs):
        doctree = app.env.get_doctree(name)
        paragraph = next(iter(doctree.findall(nodes.paragraph)), None)
        words = " ".join(paragraph.astext().split()) if paragraph is not None else ""
        title = app.env.titles[name].astext()
        lines.append(f"- [{title}]({app.config.html_baseurl}{app.builder.get_target_uri(name)}): {words}")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write_llms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
