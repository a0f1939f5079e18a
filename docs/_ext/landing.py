"""What the landing page shows of the project as a whole, computed when the site is built."""

import html
import shutil
import subprocess
import tomllib
from pathlib import Path

import yaml
from docs._ext import findings, results
from docs._ext.icons import icon
from docs._ext.pages import PLACES
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import autograd_cookbook.errors
from autograd_cookbook.catalog import RECIPES

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["urls"]["Source"]


class Pictures(SphinxDirective):
    """``{pictures}``: pages of the cookbook, each as its drawing, its name, and what it is for.

    A line of the content for each: ``name: what it is for``.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        pictures = nodes.container(classes=["pictures"])
        for line in self.content:
            name, _, purpose = (part.strip() for part in line.partition(":"))
            if name not in PLACES:
                raise self.error(f"no page of the cookbook is named {name!r}")
            place = f"cookbook/{PLACES[name]}"
            link = self.env.app.builder.get_relative_uri(self.env.docname, place)
            card = nodes.reference("", "", internal=True, refuri=link, classes=["picture"])
            card += nodes.raw("", icon(name), format="html")
            card += nodes.strong("", name.replace("_", " ").capitalize())
            card += nodes.inline("", purpose)
            pictures += nodes.paragraph("", "", card)
        return [pictures]


class Paste(SphinxDirective):
    """``{paste}``: the field for an error message, which hands the text over to the page that explains it."""

    def run(self) -> list[nodes.Node]:
        page = self.env.app.builder.get_relative_uri(self.env.docname, "errors/index")
        form = (
            f'<form class="paste-door" action="{page}">'
            '<label class="visually-hidden" for="paste-door-text">The error message</label>'
            '<textarea id="paste-door-text" name="text" rows="4" spellcheck="false" autocomplete="off" '
            'placeholder="RuntimeError: one of the variables needed for gradient computation has been modified …">'
            '</textarea><button type="submit">Explain it</button></form>'
        )
        return [nodes.raw("", form, format="html")]


class Proof(SphinxDirective):
    """``{proof}``: a strip of figures, each with the page that shows where it comes from."""

    def run(self) -> list[nodes.Node]:
        uri = self.env.app.builder.get_relative_uri
        items = "".join(
            f'<li><a href="{uri(self.env.docname, page)}"><strong>{number}</strong> {html.escape(said)}</a></li>'
            for number, said, page in figures()
        )
        return [nodes.raw("", f'<ul class="proof">{items}</ul>', format="html")]


class InstallLine(SphinxDirective):
    """``{install-line}``: the one command that installs the package; it is on no index, so it names the repository."""

    def run(self) -> list[nodes.Node]:
        command = f'pip install "autograd-cookbook @ git+{REPOSITORY}"'
        return [nodes.literal_block(command, command, language="shell", classes=["install-line"])]


def figures() -> list[tuple[str, str, str]]:
    """The numbers that the project stands for, what each counts, and the page that derives it."""
    known = autograd_cookbook.errors.entries()
    (seen, wrong), (passed, right) = map(first_sight, ("broken", "right"))
    return [
        (
            str(len(RECIPES)),
            f"recipes and tools; the audit covers the {len(results.rows('verified'))} that are functions",
            "capabilities",
        ),
        (
            f"{seen} of {wrong}",
            "wrong functions found by the audit at first sight, before we improved it on them",
            "guide/measured",
        ),
        (
            f"{passed} of {right}",
            "right functions passed at first sight; the others were false alarms",
            "guide/measured",
        ),
        (str(len(known)), "error messages with cause and fix", "errors/index"),
    ]


def bibtex() -> str:
    """How to cite these sources: the file for citations, with the version, and the last commit where there is one."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    fields = {
        "title": f"{{{cited['title']}}}",
        "author": f"{{{' and '.join(author['name'] for author in cited['authors'])}}}",
        "version": autograd_cookbook.__version__,
        "url": cited["repository-code"],
    }
    command = ["git", "log", "-1", "--format=%cs %H"]
    found = shutil.which("git") and subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found and found.returncode == 0:  # not in a copy of the sources without their history
        date, commit = found.stdout.split()
        fields |= {"date": date, "note": f"commit {commit[:12]}"}
    lines = ",\n".join(f"  {name:7} = {{{value}}}" for name, value in fields.items())
    return f"@software{{autograd_cookbook,\n{lines}\n}}"


def first_sight(handed_in_as: str) -> tuple[int, int]:
    """Of how many functions the audit judged right when it first saw them, and how many there were."""
    sets = [s for s in findings.first_sight() if s["handed_in_as"] == handed_in_as]
    return sum(s["judged_right"] for s in sets), sum(len(s["functions"]) for s in sets)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("pictures", Pictures)
    app.add_directive("paste", Paste)
    app.add_directive("proof", Proof)
    app.add_directive("install-line", InstallLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
