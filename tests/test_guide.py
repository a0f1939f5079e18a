"""The guide is whole: every page is listed, introduced, and says what it rests on."""

import re
from pathlib import Path

import pytest

from autograd_cookbook.audit.checks import all_checks

GUIDE = Path(__file__).parents[1] / "docs" / "guide"
INDEX = (GUIDE / "index.md").read_text()
PAGES = sorted(path.stem for path in GUIDE.glob("*.md") if path.stem != "index")
TREES = re.findall(r"```{toctree}\n(.*?)```", INDEX, flags=re.DOTALL)
LISTED = [line for tree in TREES for line in tree.splitlines() if line and not line.startswith(":")]


def test_the_parts_are_captioned_and_list_every_page_once() -> None:
    captions = re.findall(r":caption: (.*)", INDEX)
    assert captions == re.findall(r"^## (.*)", INDEX, flags=re.MULTILINE)
    assert len(captions) == len(TREES)
    assert sorted(LISTED) == sorted([*PAGES, "../glossary"])


def test_a_line_says_what_each_page_is_good_for_in_the_order_of_the_contents() -> None:
    assert re.findall(r"^- {doc}`([\w./]+)`: \S", INDEX, flags=re.MULTILINE) == LISTED


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_its_sources_at_the_end(page: str) -> None:
    text = (GUIDE / f"{page}.md").read_text()
    sources = text.rpartition("\n## ")[2]
    assert sources.startswith("Sources\n"), f"the last section of {page} is not its sources"
    assert re.search(r"https://|{external\+", sources), f"{page} links to no source"


GLOSSARY = (GUIDE.parent / "glossary.md").read_text().partition("```{glossary}\n")[2].partition("```")[0]
ENTRIES = [block.partition("\n    ")[0].splitlines() for block in GLOSSARY.strip().split("\n\n")]


def test_the_glossary_is_sorted_and_names_each_term_once() -> None:
    assert len(ENTRIES) >= 70
    first = [entry[0] for entry in ENTRIES]
    assert first == sorted(first, key=str.lower)
    terms = [term for entry in ENTRIES for term in entry]
    assert len({term.lower() for term in terms}) == len(terms)


def test_the_glossary_refers_to_terms_that_it_has() -> None:
    terms = {term for entry in ENTRIES for term in entry}
    used = re.findall(r"{term}`(?:[^`<]*<)?([^`>]+)>?`", " ".join(GLOSSARY.split()))
    # As Sphinx does, a term is also found in another case.
    assert {term.lower() for term in used} <= {term.lower() for term in terms}


def test_every_check_is_reached_from_the_red_flags_or_has_none() -> None:
    text = (GUIDE / "checklist.md").read_text()
    flags, _, rest = text.partition("\n## No flag\n")
    none = rest.partition("\n## ")[0]
    flagged, unflagged = ({*re.findall(r"{ref}`check-([\w-]+)`", part)} for part in (flags, none))
    assert flagged | unflagged == {name.replace("_", "-") for name in all_checks()}
    assert not flagged & unflagged


def test_a_red_flag_names_the_check_that_is_run_on_it() -> None:
    flags = (GUIDE / "checklist.md").read_text().partition("\n## No flag\n")[0]
    for block in re.split(r"\n\*\*", flags)[1:]:
        named = {name.replace("-", "_") for name in re.findall(r"{ref}`check-([\w-]+)`", block)}
        run = {*re.findall(r'flag\(\s*"(\w+)"', block), *re.findall(r'only=\["(\w+)"', block)}
        assert run, block
        assert run <= named, block


def test_each_false_statement_is_refuted_by_a_run() -> None:
    text = (GUIDE / "statements.md").read_text()
    statements = re.split(r"\n### ", text.partition("\n## Sources\n")[0])[1:]
    assert len(statements) >= 20
    assert all("{code-cell} python" in statement for statement in statements)
    assert len({statement.splitlines()[0] for statement in statements}) == len(statements)
