"""The share of the code on the pages that is run when they are built, counted in lines from their sources.

Run are the cells of a page, the code that our directives show and run (``checks``, ``recipe``, ``errors``, ``file``),
and the code of the gallery's scripts. Only shown is all code else: fenced and indented blocks, and literal blocks in
the text of a script. Cells that the reader does not see count for nothing, nor do empty lines.
"""

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

if TYPE_CHECKING:  # the tests count without Sphinx
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MARKER = "|executed|"
KINDS = {
    "guide": "Guide",
    "pitfalls": "Pitfalls",
    "errors": "Error index",
    "cookbook": "Cookbook",
    "other": "Other pages",
}
UNSEEN = ("remove-cell", "remove-input")
# Directives of MyST, Sphinx and ours whose content is no code; other unknown ones are read as Markdown.
CODE_DIRECTIVES = {"code", "code-block", "sourcecode", "literalinclude", "parsed-literal", "doctest", "testcode"}
NO_CODE = {"math", "toctree", "glossary", "raw", "figure", "image"}


class Lines(NamedTuple):
    """Lines of code."""

    run: int = 0
    shown: int = 0  # and not run

    def __add__(self, other: "Lines") -> "Lines":
        return Lines(self.run + other.run, self.shown + other.shown)

    @property
    def share(self) -> float:
        """Of those that the reader sees; without any, nothing is left that was not run."""
        return self.run / sum(self) if sum(self) else 1.0


def size(code: str) -> int:
    """Lines that are not empty."""
    return sum(bool(line.strip()) for line in code.splitlines())


# --- Markdown ---


def of_markdown(text: str) -> Lines:
    """Count a page in MyST Markdown."""
    front = re.match(r"---\n.*?\n---\n", text, flags=re.DOTALL)
    return of_blocks(text[front.end() :] if front else text)


def of_blocks(text: str, indented: bool = True) -> Lines:
    total = Lines()
    for token in MarkdownIt().parse(text):
        if token.type == "code_block" and indented:
            total += Lines(shown=size(token.content))
        elif token.type == "fence":
            total += of_fence(token.info.strip(), token.content)
    return total


def of_fence(info: str, content: str) -> Lines:
    directive = re.fullmatch(r"\{([\w:-]+)\}\s*(.*)", info)
    if not directive:
        return Lines(shown=size(content))
    name, argument = directive.groups()
    if name == "code-cell":
        options, code = split_options(content)
        return Lines() if any(tag in options for tag in UNSEEN) else Lines(run=size(code))
    if name == "file":  # see files.py
        return Lines(run=size(split_options(content)[1]))
    if name in DIRECTIVES:
        return Lines(run=sum(map(size, DIRECTIVES[name](argument))))
    if name in CODE_DIRECTIVES:
        return Lines(shown=size(split_options(content)[1]) or 1)  # a file that is included is at least one
    if name == "eval-rst":
        return of_rst(content)
    return Lines() if name in NO_CODE else of_blocks(content, indented=False)


def split_options(content: str) -> tuple[str, str]:
    """The options of a directive, in either notation, and what it contains."""
    match = re.match(
        r"---\n.*?\n---(?:\n|$)|(?::[\w-]+:.*(?:\n|$))*", content, flags=re.DOTALL if content[:3] == "---" else 0
    )
    return content[: match.end()], content[match.end() :]


# --- Code of our directives ---


def of_recipe(name: str) -> Iterator[str]:
    from autograd_cookbook.catalog import BY_NAME

    yield BY_NAME[name].source


def of_checks(family: str) -> Iterator[str]:
    from docs.pitfalls import programs

    from autograd_cookbook.auditing.checks import all_checks

    programs.load()
    for check in all_checks().values():
        if check.family == family:
            yield from (specimen.code for specimen in programs.shown_for(check.name))


def of_errors(group: str) -> Iterator[str]:
    from docs.errors import programs as errors

    for program in errors.load().values():
        if program.group == group:
            yield program.source
            if program.fixed:
                yield program.fixed_source


DIRECTIVES: dict[str, Callable[[str], Iterator[str]]] = {"checks": of_checks, "errors": of_errors, "recipe": of_recipe}


# --- Scripts of the gallery ---


def of_script(source: str) -> Lines:
    """Count a script: what is between its comments is run, literal blocks in them are shown."""
    docstring = ast.parse(source).body[0]
    total = of_rst(textwrap.dedent(docstring.value.value))
    lines = source.splitlines()[docstring.end_lineno :]
    text, code = [], []
    within = False
    for line in lines:
        within = line.startswith("# %%") or (within and line.startswith("#"))
        (text if within else code).append(line)
    seen = [line for line in code if not line.startswith(("# sphinx_gallery_", "#!/"))]
    prose = "\n".join("" if line.startswith("# %%") else line.removeprefix("#").removeprefix(" ") for line in text)
    return total + Lines(run=size("\n".join(seen))) + of_rst(prose)


def of_rst(text: str) -> Lines:
    """Count reStructuredText: literal blocks, directives for code, and ours."""
    total = Lines()
    lines = text.splitlines()
    for i, line in enumerate(lines):
        directive = re.match(r"( *)\.\. ([\w-]+):: *(.*)", line)
        if directive and directive[2] in DIRECTIVES:
            total += Lines(run=sum(map(size, DIRECTIVES[directive[2]](directive[3]))))
        elif (directive and directive[2] in CODE_DIRECTIVES) or (not directive and line.rstrip().endswith("::")):
            margin = len(line) - len(line.lstrip())
            for below in lines[i + 1 :]:
                if below.strip() and len(below) - len(below.lstrip()) <= margin:
                    break
                total += Lines(shown=bool(below.strip()) and not re.match(r" *:[\w-]+:", below))
    return total


# --- All pages ---


def pages() -> dict[str, list[Path]]:
    """The sources of the pages, by their kind; those of the reference are docstrings, which doctest runs."""
    markdown = {path: path.relative_to(DOCS).parts[0] for path in sorted(DOCS.rglob("*.md")) if not is_built(path)}
    found = {kind: [path for path, folder in markdown.items() if folder == kind] for kind in KINDS}
    found["cookbook"] = sorted((ROOT / "examples").glob("*/*.py"))
    found["other"] = [path for path, folder in markdown.items() if folder not in KINDS]
    return found


def is_built(path: Path) -> bool:
    return {"cookbook", "_build"} & set(path.relative_to(DOCS).parts[:1]) != set()


def count(path: Path) -> Lines:
    """Count the code of one page."""
    source = path.read_text()
    return of_script(source) if path.suffix == ".py" else of_markdown(source)


def table() -> str:
    """What the colophon shows."""
    rows = ["| Pages | number | lines of code run | only shown | share run |", "|---|---:|---:|---:|---:|"]
    for kind, paths in pages().items():
        total = sum(map(count, paths), Lines())
        if paths:
            rows.append(f"| {KINDS[kind]} | {len(paths)} | {total.run:,} | {total.shown:,} | {total.share:.1%} |")
    return "\n".join(rows)


def insert_table(app: "Sphinx", docname: str, source: list[str]) -> None:
    if MARKER in source[0]:
        source[0] = source[0].replace(MARKER, table())
        for path in [path for paths in pages().values() for path in paths]:
            app.env.note_dependency(str(path), docname=docname)


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("source-read", insert_table)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
