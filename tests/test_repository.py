"""The repository is what its own papers say."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import autograd_cookbook

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
    ignored = {".git", "build", ".nox", "__pycache__"}
    found = (
        {path.name for path in ROOT.iterdir() if not path.name.endswith("_cache")}
        - ignored
        - {".hypothesis", "uv.lock"}
    )
    assert found == {
        *("docs", "examples", "src", "tests", "benchmarks", "noxfile.py", "README.md", "pyproject.toml"),
        *("constraints.txt", "LICENSE", "CONTRIBUTING.md", "CITATION.cff", "CHANGELOG.md"),
        *(".ci", ".github", ".gitignore", ".readthedocs.yaml"),
    }


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
