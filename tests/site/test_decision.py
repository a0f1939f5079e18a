"""The guide "Do I need a custom function?" ends, whatever one answers."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs" / "_ext"))

from decision import TREE, No, Question, Yes, leaves  # noqa: E402

pytestmark = pytest.mark.site  # it needs what the site is built with
LEAVES = dict(leaves())


def questions(node: object = TREE) -> list[Question]:
    if not isinstance(node, Question):
        return []
    return [node, *(q for following in node.answers.values() for q in questions(following))]


def source_of(page: str) -> Path:
    """The file that a page is made of: scripts become the pages of the cookbook."""
    section, _, rest = page.partition("/")
    return ROOT / "examples" / f"{rest}.py" if section == "cookbook" else ROOT / "docs" / f"{page}.md"


@pytest.mark.parametrize("question", dict.fromkeys(questions()), ids=lambda q: q.text)
def test_a_question_has_answers_to_choose_from(question: Question) -> None:
    assert question.text.endswith("?")
    assert len(question.answers) > 1


@pytest.mark.parametrize("path", LEAVES, ids=" / ".join)
def test_a_branch_ends_at_a_recipe_or_at_no(path: tuple[str, ...]) -> None:
    leaf = LEAVES[path]
    missing = [page for page in leaf.pages if not source_of(page).exists()]
    assert not missing, f"no such page: {missing}"
    match leaf:
        case Yes():
            recipes = [page for page in leaf.pages if page.startswith("cookbook/")]
            assert recipes, "a branch that says yes names a recipe"
            assert leaf.reason
        case No():
            assert leaf.reason, "a branch that says no says why"
            assert leaf.instead, "and what to use instead"


def test_a_wish_is_three_answers_away() -> None:
    assert max(len(path) for path in LEAVES) <= 3


def test_every_section_of_the_cookbook_is_reached() -> None:
    reached = {page.split("/")[1] for leaf in LEAVES.values() for page in leaf.pages if page.startswith("cookbook/")}
    assert reached == {folder.name for folder in (ROOT / "examples").iterdir() if folder.is_dir()}


def test_the_page_shows_the_tree() -> None:
    assert "\n```{decision}\n```\n" in (ROOT / "docs" / "guide" / "decision.md").read_text()
