"""The directive ``{terms}``: how this site calls each thing, as ``docs/terms.toml`` has it."""

import tomllib

from docs.prose import TERMS
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class TermsDirective(SphinxDirective):
    """A list of the terms that stand for one thing each, with what they mean here."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(TERMS))
        items = nodes.definition_list()
        for entry in sorted(tomllib.loads(TERMS.read_text(encoding="utf-8"))["term"], key=lambda entry: entry["say"]):
            inline, messages = self.parse_inline(entry["meaning"])
            meaning = nodes.definition("", nodes.paragraph("", "", *inline), *messages)
            items += nodes.definition_list_item("", nodes.term(entry["say"], entry["say"]), meaning)
        return [items]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("terms", TermsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
