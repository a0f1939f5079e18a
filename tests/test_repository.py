"""The repository is what its own papers say."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import autograd_cookbook
from autograd_cookbook.catalog import RECIPES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_top_level_is_easily_seen_over() -> None:
    """What git tracks: beside it a clone may have environments, caches and settings of editors."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {path.partition("/")[0] for path in tracked.splitlines()} == {
        *("docs", "examples", "src", "tests", "benchmarks", "noxfile.py", "pyproject.toml", "constraints.txt"),
        *("README.md", "LICENSE", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "CHANGELOG.md"),
        *(".ci", ".github", ".gitignore", ".pre-commit-config.yaml", ".readthedocs.yaml", ".scaffold"),
    }


def test_a_page_has_one_name_in_five_places() -> None:
    """A page that only uses the recipes of others has its script alone; helpers start with an underscore."""

    def names(pattern: str, start: str = "") -> set[str]:
        return {path.stem.removeprefix(start) for path in ROOT.glob(pattern)}

    pages, helpers = names("src/autograd_cookbook/recipes/[!_]*"), names("src/autograd_cookbook/recipes/_*", "_")
    assert names("src/autograd_cookbook/catalog/[!_]*.py") == pages
    assert pages <= names("examples/*/*.py")
    assert pages <= names("tests/recipes/test_*.py", "test_") <= pages | helpers
    assert {recipe.page for recipe in RECIPES if recipe.calls} <= names("benchmarks/results/*.json")


def test_a_prefilled_link_leads_to_a_form_with_these_fields() -> None:
    forms = {form.name: form.read_text() for form in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")}
    links = [
        link
        for path in (*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/_static/*.js"), *ROOT.glob("docs/**/*.md"))
        for link in re.findall(r"[?]template=([\w-]+\.yml)((?:&\w+=)?)", path.read_text())
    ]
    assert links
    for form, fields in links:
        for field in re.findall(r"&(\w+)=", fields):
            assert field == "title" or f"id: {field}\n" in forms[form]


def test_continuous_integration_runs_the_commands_of_the_readme() -> None:
    commands = re.findall(r"```console\n(.*?)\n```", (ROOT / "README.md").read_text())
    assert len(commands) == 2
    script = (ROOT / ".ci" / "run").read_text()
    for command in commands:
        assert command in script, f"README says {command!r}, and .ci/run does not run it"


def test_versions_agree() -> None:
    version = PROJECT["project"]["version"]
    assert autograd_cookbook.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


REQUIREMENTS = [
    Requirement(entry)
    for entries in (PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"].values())
    for entry in entries
    if isinstance(entry, str)
]


@pytest.mark.parametrize("requirement", sorted(set(map(str, REQUIREMENTS))))
def test_every_requirement_is_pinned_to_a_version_that_it_allows(requirement: str) -> None:
    parsed = Requirement(requirement)
    pins = {normal(name): version for name, version in PINS.items()}
    assert normal(parsed.name) in pins, f"{parsed.name} has no pin in constraints.txt: run nox -s lock"
    assert parsed.specifier.contains(pins[normal(parsed.name)])


def to_write() -> Iterator[pytest.param]:
    """The marks of scaffolds, see .scaffold/add.py."""
    folders = ("src", "tests", "examples", "docs/errors", "docs/guide", "docs/pitfalls")
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.*"))):
        if path.suffix in {".py", ".md"}:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if found := re.search(r"WRITE\(([\w-]+)\): (.*)", line):
                    place = f"{path.relative_to(ROOT)}:{number}"
                    yield pytest.param(f"{place}: write {found[2]}", id=f"{found[1]}: {place}")


@pytest.mark.parametrize("part", list(to_write()) or ["nothing"])
def test_nothing_is_left_to_write(part: str) -> None:
    if part != "nothing":
        pytest.fail(part, pytrace=False)
