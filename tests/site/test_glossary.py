"""Terms are linked to the glossary where they are used first, on small documents and on the real glossary."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs._ext.glossary_links import Entry, Finder

pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[2]

TERMS = """
# Glossary

```{glossary}
leaf
leaf tensor
    A tensor at the end of the graph, and no hook.

hook
    Called with a gradient.

kernel
    A program on a device.

saved-tensor hook
    Called with a saved tensor.

in-place
    Written where it is.

VJP
    A {term}`hook` is not one.
```
"""

PAGE = """
# A hook in a heading

In place of a `hook`, [a hook](other.md) and {doc}`the hook <other>`: $hook$ nothing.

Two saved tensor hooks and a **hook**. A second hook, a saved-tensor
hook, an in place write; unhooked, hook-like. It leaves vjp alone.

- the leaves, a leaf tensor
- two VJPs

|a table|
|---|
|VJP|

```
VJP
```
"""

CONF = """
extensions = ["myst_parser", "docs._ext.glossary_links"]
html_theme = "basic"
myst_enable_extensions = ["dollarmath"]
"""


def build(folder: Path, parallel: int = 1) -> None:
    command = (sys.executable, "-m", "sphinx", "-qW", "-j", str(parallel), "-b", "html", folder, folder / "out")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "guide").mkdir()
    (tmp_path / "glossary.md").write_text(TERMS)
    (tmp_path / "guide" / "page.md").write_text(PAGE)
    (tmp_path / "guide" / "other.md").write_text("# Other\n\nAnother hook.\n")
    (tmp_path / "outside.md").write_text("# Outside\n\nNo hook here.\n")
    (tmp_path / "cookbook" / "01_first_steps").mkdir(parents=True)
    for name in ("index", "convolution", "module"):
        recipe = tmp_path / "cookbook" / "01_first_steps" / f"{name}.md"
        recipe.write_text("# Recipe\n\nThe kernel of a convolution, or a torch.hook: a hook.\n")
    (tmp_path / "index.md").write_text(
        "# Start\n\n```{toctree}\nglossary\noutside\nguide/page\nguide/other\n"
        "cookbook/01_first_steps/index\ncookbook/01_first_steps/convolution\ncookbook/01_first_steps/module\n```\n"
    )
    return tmp_path


def linked(folder: Path, page: str) -> list[tuple[str, str]]:
    """The words of each link to the glossary, and where it leads."""
    html = (folder / "out" / page).read_text()
    links = re.findall(r'<a class="glossary-link[^>]*href="([^"]*)"[^>]*>(.*?)</a>', html, flags=re.DOTALL)
    return [(" ".join(re.sub("<.*?>", "", words).split()), target) for target, words in links]


@pytest.mark.parametrize("parallel", [1, 2])
def test_the_first_use_of_each_term_is_linked(folder: Path, parallel: int) -> None:
    build(folder, parallel)
    assert linked(folder, "guide/page.html") == [
        ("saved tensor hooks", "../glossary.html#term-saved-tensor-hook"),
        ("hook", "../glossary.html#term-hook"),
        ("in place", "../glossary.html#term-in-place"),
        ("leaves", "../glossary.html#term-leaf"),
        ("VJPs", "../glossary.html#term-VJP"),
    ]
    assert linked(folder, "guide/other.html") == [("hook", "../glossary.html#term-hook")]
    hook, kernel = (("hook", "../../glossary.html#term-hook"), ("kernel", "../../glossary.html#term-kernel"))
    assert linked(folder, "cookbook/01_first_steps/module.html") == [kernel, hook]
    assert linked(folder, "cookbook/01_first_steps/convolution.html") == [hook], "its kernel is no program"
    assert linked(folder, "cookbook/01_first_steps/index.html") == []
    assert linked(folder, "outside.html") == linked(folder, "glossary.html") == []
    assert 'title="Called with a gradient."' in (folder / "out" / "guide" / "page.html").read_text()


def test_pages_are_written_again_when_the_glossary_has_changed(folder: Path) -> None:
    build(folder)
    (folder / "glossary.md").write_text(TERMS.replace("\nhook\n", "\nanother\nhook\n"))
    build(folder)
    assert linked(folder, "guide/other.html") == [("Another", "../glossary.html#term-another")]


def entries(*terms: str) -> list[Entry]:
    return [Entry(term, (term,), "") for term in terms]


@pytest.mark.parametrize(
    ("term", "text", "found"),
    [
        ("gradient penalty", "gradient penalties", ["gradient penalties"]),
        ("view", "Views, a view; review, view-like, viewed", ["Views", "view"]),
        ("double backward", "a double-backward", ["double-backward"]),
        ("non-contiguous", "noncontiguous, non-contiguous, non contiguous", 3),
        ("VJP", "VJP vjp VJPs", ["VJP", "VJPs"]),
        ("Jacobian", "Jacobians jacobian", ["Jacobians"]),
        ("in-place", "in place of it, written in\nplace", ["in\nplace"]),
        ("leaf", "it leaves the leaves", ["leaves"]),
        ("functional", "torch.nn.functional, a functional one", ["functional"]),
    ],
)
def test_forms(term: str, text: str, found: list[str] | int) -> None:
    uses = [match[0] for match, _ in Finder(entries(term))(text)]
    assert (uses if isinstance(found, list) else len(uses)) == found


def test_the_longest_term_is_found() -> None:
    uses = [
        entry.anchor for _, entry in Finder(entries("hook", "saved-tensor hook", "saved tensor"))("saved tensor hook")
    ]
    assert uses == ["saved-tensor hook"]
