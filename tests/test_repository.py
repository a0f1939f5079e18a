"""The repository is what its own papers say."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.version import Version

import autograd_cookbook
from autograd_cookbook import _site
from autograd_cookbook.catalog import RECIPES
from tests.distribution import MAXIMUM, UNRELEASED, check_contents

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
        *(
            "docs",
            "examples",
            "src",
            "tests",
            "benchmarks",
            "wild",
            "noxfile.py",
            "pyproject.toml",
            "constraints.txt",
            "hatch_build.py",
        ),
        *("README.md", "LICENSE", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "CHANGELOG.md", "changes"),
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


def test_the_version_is_written_in_one_place() -> None:
    version = Version(autograd_cookbook.__version__)
    assert str(version) == autograd_cookbook.__version__
    assert "version" in PROJECT["project"]["dynamic"]
    assert not re.search("^version:", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    released = re.findall(r"^## (\S+) \(", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if version.is_devrelease:
        assert all(Version(each) < version for each in released)
    else:
        assert released[0] == str(version)
        assert not list(ROOT.glob("changes/*.md")), "entries of a release are in CHANGELOG.md"


def test_every_change_will_be_in_the_changelog() -> None:
    """Towncrier passes over files whose names it does not know."""
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    for path in ROOT.glob("changes/[!.]*"):
        assert re.fullmatch(rf"(\d+|\+[\w-]+)\.({'|'.join(kinds)})\.md", path.name), path.name
        assert path.read_text().strip()


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, of a copy without what a clone has besides, for a site that is published."""
    copy = tmp_path_factory.mktemp("sources")
    for file in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / file, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    env = os.environ | {_site.SETTING: "https://docs.example.org/gradients"}
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build"], cwd=copy, env=env, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    (wheel,), (sdist,) = copy.glob("dist/*.whl"), copy.glob("dist/*.tar.gz")
    return wheel, sdist


def test_the_wheel_holds_the_package_and_its_error_index_alone(distributions: tuple[Path, Path]) -> None:
    check_contents(*distributions, MAXIMUM * UNRELEASED)


def test_the_metadata_are_valid_and_their_links_whole(distributions: tuple[Path, Path]) -> None:
    wheel, sdist = distributions
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name)
    with tarfile.open(sdist) as archive:
        (name,) = [name for name in archive.getnames() if name.endswith("/PKG-INFO")]
        assert archive.extractfile(name).read() == text
    metadata = Metadata.from_email(text, validate=True)
    assert str(metadata.version) == autograd_cookbook.__version__
    assert metadata.project_urls["Documentation"] == "https://docs.example.org/gradients/"
    links = re.findall(r"\]\(([^)]*)\)", metadata.description)
    assert links
    assert all(link.startswith("https://") for link in links), links
    source = f"{metadata.project_urls['Source']}/blob/v{autograd_cookbook.__version__}/"
    for link in links:
        if link.startswith(source):
            assert (ROOT / link.removeprefix(source)).is_file(), link


def test_the_workflows_run_every_python_that_the_package_names() -> None:
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    (matrix,) = re.findall(r"python: \[(.*)\]", (ROOT / ".github/workflows/checks.yml").read_text())
    assert re.findall(r"[\d.]+", matrix) == named
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"
    assert f'"--python-version", "{named[-1]}"' in (ROOT / "noxfile.py").read_text()


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
