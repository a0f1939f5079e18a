"""``nox -s docs -- --page NAME``: the page, in the design of the site, and no file changed outside of its folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs._ext import one_page

from tests.support import HANG

pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[2]


def sources() -> dict[Path, int]:
    folders = ("docs", "examples", "build/site")
    return {path: path.stat().st_mtime_ns for folder in folders for path in (ROOT / folder).rglob("*.[!p]*")}


@pytest.mark.parametrize(
    ("name", "page", "words"),
    [
        ("reversal", "cookbook/02_changing_the_gradient/reversal", ["Copy", "reverse_gradient", "y = x"]),
        ("pack_in_place", "errors/saving", ["A pack hook changed the tensor"]),
        ("guide/graph", "guide/graph", ["grad_fn"]),
    ],
)
@pytest.mark.xdist_group("one page")  # they share a folder
def test_a_page_is_built_alone(name: str, page: str, words: list[str]) -> None:
    before = sources()
    command = [sys.executable, "-m", "docs._ext.one_page", "--page", name]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    text = (one_page.FOLDER / "site" / page).with_suffix(".html").read_text()
    assert "pydata-sphinx-theme" in text
    for word in words:
        assert word in text, word
    assert sources() == before


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("masks", "cookbook/04_memory/masks"),
        ("cookbook/04_memory/masks", "cookbook/04_memory/masks"),
        ("costs", "costs"),
        ("index", "index"),
        ("pitfalls/memory", "pitfalls/memory"),
        ("inputs_unchanged", "pitfalls/effects"),
        ("pack_in_place", "errors/saving"),
        ("reference-cycles", "pitfalls/waste"),
    ],
)
def test_a_page_is_known_by_its_name_and_by_what_is_on_it(name: str, page: str) -> None:
    assert one_page.page_of(name) == page


@pytest.mark.parametrize(
    ("name", "said"),
    [("maskz", "near it are masks"), ("transforms", "errors/transforms"), ("qqqq", "no page or section")],
)
def test_another_name_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        one_page.page_of(name)
