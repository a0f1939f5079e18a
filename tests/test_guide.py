"""The guide is whole: every page is introduced, says what it rests on, and claims of a check what that check does."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGES = sorted(path.stem for path in GUIDE.glob("*.md") if path.stem != "index")


def test_a_line_says_what_each_page_is_good_for_in_the_order_of_the_contents() -> None:
    """That the contents have every page is what Sphinx itself demands."""
    index = (GUIDE / "index.md").read_text()
    trees = re.findall(r"```{toctree}\n(.*?)```", index, flags=re.DOTALL)
    contents = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    assert re.findall(r"^- {doc}`([\w./]+)`: \S", index, flags=re.MULTILINE) == contents


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_its_sources_at_the_end(page: str) -> None:
    sources = (GUIDE / f"{page}.md").read_text().rpartition("\n## ")[2]
    assert sources.startswith("Sources\n"), f"the last section of {page} is not its sources"
    assert re.search(r"https://|{external\+", sources), f"{page} links to no source"


def test_the_workflow_installs_as_the_site_says_and_on_the_tested_python() -> None:
    workflow = (GUIDE / "audit_workflow.yml").read_text()
    repository = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["urls"]["Source"]
    assert f'"autograd-cookbook @ git+{repository}"' in workflow
    assert f'python-version: "{PYPROJECT["project"]["requires-python"].removeprefix(">=")}"' in workflow


def test_each_case_ends_at_a_recipe_or_at_what_to_use_instead() -> None:
    cases, _, _ = (GUIDE / "decision.md").read_text().partition("\nThe rest of this page")
    ends = re.findall(r"^: (.*?)(?=\n\n|\n:::)", cases, flags=re.MULTILINE | re.DOTALL)
    for end in ends:
        recipe, instead = "{doc}`/cookbook/" in end, "Instead:" in end
        assert (end.startswith("**Yes.** ") and recipe) or (end.startswith("**No.** ") and instead), end
    sections = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert {*re.findall(r"{doc}`/cookbook/(\w+)/", "".join(ends))} == sections


def test_a_red_flag_names_the_check_that_is_run_on_it() -> None:
    flags = (GUIDE / "checklist.md").read_text().partition("\n## No flag\n")[0]
    for block in re.split(r"\n\*\*", flags)[1:]:
        named = {name.replace("-", "_") for name in re.findall(r"{ref}`check-([\w-]+)`", block)}
        run = {*re.findall(r'flag\(\s*"(\w+)"', block), *re.findall(r'only=\["(\w+)"', block)}
        assert run, block
        assert run <= named, block


def test_each_false_statement_is_refuted_by_a_run() -> None:
    text, _, _ = (GUIDE / "statements.md").read_text().partition("\n## Sources\n")
    for statement in re.split(r"\n### ", text)[1:]:
        assert "{code-cell} python" in statement, statement
