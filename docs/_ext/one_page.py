"""One page of the site, built alone: ``python -m docs._ext.one_page masks``.

It is built from a copy of the sources and into a folder of its own, so that the next build of the whole site finds
its files as it left them. Links to other pages lead to the published site; if there is none, they are plain text.
"""

import argparse
import difflib
import shutil
import sys
from pathlib import Path

from docs._ext.pages import EXAMPLES, PLACES
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import docname_join

DOCS = Path(__file__).parents[1]
GENERATED = ("cookbook", "reference/generated")
FOLDER = DOCS.parent / "build" / "page"


def documents() -> list[str]:
    """The pages that are written by hand, as Sphinx names them."""
    written = (path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))
    return [*sorted(name for name in written if not name.startswith(GENERATED)), *cookbook()]


def cookbook() -> list[str]:
    return [f"cookbook/{place}" for place in PLACES.values()]


def sections() -> dict[str, str]:
    """What has a section of a page, by its name: checks of the audit, messages of the error index, and pitfalls."""
    from docs._ext.verdicts import GROUPS, pitfalls_of
    from docs.errors import programs

    from autograd_cookbook.auditing.checks import all_checks

    return {
        **{check.name: f"pitfalls/{check.family}" for check in all_checks().values()},
        **{program.name: f"errors/{program.group}" for program in programs.load().values()},
        **{
            pitfall.name: f"pitfalls/{group}"
            for group in GROUPS
            for pitfall in pitfalls_of(DOCS / "pitfalls" / f"{group}.md")
        },
    }


def page_of(name: str) -> str:
    """The page that a reader means: by its name, with or without its folder, or by the name of one of its sections.

    Raises:
        ValueError: if there is no such page, or more than one.
    """
    known = documents()
    if name in known:
        return name
    found = [page for page in known if page.rpartition("/")[2] == name]
    within = sections()
    if not found and name in within:
        found = [within[name]]
    if not found:
        names = {page.rpartition("/")[2] for page in known} | within.keys()
        near = difflib.get_close_matches(name, sorted(names), n=5)
        raise ValueError(f"no page or section is named {name!r}" + (f"; near it are {', '.join(near)}" if near else ""))
    if len(found) > 1:
        raise ValueError(f"{len(found)} pages are named {name!r}: {', '.join(found)}")
    return found[0]


def stage(page: str, section: str) -> dict[str, object]:
    """Copy what the page is made from, and say how Sphinx's configuration is to differ."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(DOCS, FOLDER / "docs", ignore=lambda folder, _: {"cookbook", "generated", "__pycache__"})
    examples = FOLDER / "examples"
    examples.mkdir()
    shutil.copy(EXAMPLES / "GALLERY_HEADER.rst", examples)
    if page in cookbook():
        script = EXAMPLES / f"{page.removeprefix('cookbook/')}.py"
        folder = examples / script.parent.name
        folder.mkdir()
        for file in (script, script.with_name("GALLERY_HEADER.rst")):
            shutil.copy(file, folder)
    elif page.startswith("errors/") and section in sections():
        # A page of the error index runs some hundred programs: here only those of this message.
        source = FOLDER / "docs" / f"{page}.md"
        group = page.removeprefix("errors/")
        source.write_text(source.read_text().replace(f"```{{errors}} {group}", f"```{{errors}} {group} {section}"))
    return {
        "root_doc": page,
        "include_patterns": [f"{page}.*"],
        "nitpicky": False,
        "suppress_warnings": ["toc"],
        "sphinx_gallery_conf.examples_dirs": str(examples),
    }


def lead_to_the_published_site(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Resolve links to what is not built here. Those to pages that do not exist stay errors."""
    if node["reftype"] != "doc":
        return content
    target = docname_join(node.get("refdoc", env.docname), node["reftarget"])
    if target not in documents():
        return None
    label = content if node["refexplicit"] else nodes.inline(target, target.rpartition("/")[2].replace("_", " "))
    if not app.config.html_baseurl:
        return label
    address = app.config.html_baseurl + app.builder.get_target_uri(target)
    return nodes.reference("", "", label, internal=False, refuri=address)


def main() -> int:
    """Build the page; the exit status is 1 if Sphinx has anything to say against it."""
    parser = argparse.ArgumentParser(prog="nox -s docs --", description="Build one page of the site.")
    parser.add_argument("--page", metavar="NAME", required=True, help="a page, or a check, message or pitfall on one")
    name = parser.parse_args().page
    try:
        page = page_of(name)
    except ValueError as error:
        parser.error(str(error))
    overrides = stage(page, name)
    site = FOLDER / "site"
    app = Sphinx(
        *(FOLDER / "docs", DOCS, site, FOLDER / "doctrees", "html", overrides), warningiserror=True, keep_going=True
    )
    # After intersphinx, which knows Python and torch.
    app.connect("missing-reference", lead_to_the_published_site, priority=900)
    app.build()
    print(f"\n{page} is at {(site / page).with_suffix('.html')}")
    return app.statuscode


if __name__ == "__main__":
    sys.exit(main())
