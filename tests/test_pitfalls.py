"""Every check is explained on the site: with a broken function, a mended one, and a page that shows them."""

from pathlib import Path

import pytest

from autograd_cookbook.audit.checks import FAMILIES, all_checks
from tests.audit import corpus

PAGES = Path(__file__).parents[1] / "docs" / "pitfalls"

corpus.load()


@pytest.mark.parametrize("name", all_checks())
def test_a_check_is_shown_with_one_broken_and_one_mended_function(name: str) -> None:
    shown = [s.name for s in corpus.BROKEN.values() if s.shown and s.checks[0] == name]
    assert len(shown) == 1, f"the site is to show one function that {name} finds, not {shown}"
    mended = [s.name for s in corpus.RIGHT.values() if s.mends == shown[0]]
    assert len(mended) == 1, f"beside {shown[0]} the site is to show one mended function, not {mended}"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_a_page(family: str) -> None:
    assert f"\n```{{checks}} {family}\n```\n" in (PAGES / f"{family}.md").read_text()


def test_the_index_lists_the_families_in_the_order_of_the_audit() -> None:
    toctree = (PAGES / "index.md").read_text().partition("```{toctree}")[2].partition("```")[0]
    assert tuple(line for line in toctree.split() if not line.startswith(":")) == FAMILIES
    assert {path.stem for path in PAGES.glob("*.md")} == {"index", *FAMILIES}
