"""What ``nox -s add`` writes: it runs as it is, and its tests are red for what is still to be written and no more."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
WANTED = {
    "recipe": "recipe probe --section memory",
    "check": "check probe_check --family effects",
    "error": "error probe_error --group saving",
    "pitfall": "pitfall probe-pitfall --group waste",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository, which a scaffold is written to."""
    ignored = shutil.ignore_patterns("__pycache__", "cookbook", "generated", "_static")
    for folder in (".scaffold", "benchmarks", "docs", "examples", "src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for file in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


def add(root: Path, command: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, root / ".scaffold" / "add.py", *command.split()]
    return subprocess.run(script, capture_output=True, text=True, check=False)


def files(root: Path) -> dict[Path, bytes]:
    """Everything below `root` but what Python compiles for itself."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"}


@pytest.mark.parametrize("command", WANTED.values(), ids=WANTED)
def test_a_name_is_used_once(copy: Path, command: str) -> None:
    done = add(copy, command)
    assert done.returncode == 0, done.stderr
    before = files(copy)
    again = add(copy, command)
    assert again.returncode == 1
    assert re.search(r"named 'probe[\w-]*' already. Nothing was written", again.stderr)
    assert files(copy) == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("recipe Probe", "'Probe' cannot be its name"),
        ("recipe class", "'class' cannot be its name"),
        ("recipe masks", "a page named 'masks'"),
        ("recipe packed_relu", "a recipe named 'packed_relu'"),
        ("recipe probe --section memry", "no section 'memry', only 01_first_steps, "),
        ("check inputs_unchanged --family effects", "a check named 'inputs_unchanged'"),
        ("check probe --family recipes", "no family 'recipes', only contract, effects, "),
        ("error pack_in_place --group saving", "a program named 'pack_in_place'"),
        ("error probe --group save", "no group 'save', only changed_in_place, compiling, "),
        ("pitfall reference_cycles --group waste", "a pitfall named 'reference-cycles'"),
        ("pitfall probe --group effects", "no group 'effects', only crashes, "),
    ],
)
def test_what_is_refused_is_named_and_nothing_is_written(copy: Path, command: str, said: str) -> None:
    before = files(copy)
    done = add(copy, command)
    assert done.returncode == 1
    assert said in done.stderr
    assert files(copy) == before


def test_a_file_that_cannot_be_written_undoes_the_others(copy: Path) -> None:
    header = copy / "examples" / "04_memory" / "GALLERY_HEADER.rst"
    before = files(copy)
    spec = importlib.util.spec_from_file_location("add", copy / ".scaffold" / "add.py")
    add = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(add)
    new = add.recipe("probe", "memory")
    new.texts[Path("no/such/folder.py")] = ""
    with pytest.raises(FileNotFoundError):
        new.write()
    assert header.exists()
    assert files(copy) == before


@pytest.mark.slow(".scaffold", "benchmarks", "docs/_ext", "docs/errors", "docs/pitfalls", "src", "tests")
def test_red_is_what_is_to_be_written_and_to_be_measured(copy: Path) -> None:
    before = files(copy)
    for command in WANTED.values():
        assert add(copy, command).returncode == 0
    added = "".join(path.read_text() for path, content in files(copy).items() if before.get(path) != content)
    marks = re.findall(r"WRITE\(probe[\w-]*\): ", added)
    generic = map(str, (copy / "tests").glob("test_*.py"))
    tests = ["tests/recipes/test_probe.py", *generic, "tests/auditing/test_corpus.py"]
    report = copy / "report.xml"
    environment = os.environ | {"PYTHONPATH": f"{copy}:{copy / 'src'}", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    done = subprocess.run(
        [*command, "-k", "probe", *tests], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    cases = list(ElementTree.parse(report).iter("testcase"))
    red = {case.get("name"): case[0].get("message") for case in cases if case.find("failure") is not None}
    assert not list(ElementTree.parse(report).iter("error")), done.stdout
    to_write = [name for name in red if name.startswith("test_nothing_is_left_to_write")]
    assert len(to_write) == len(marks) > 20
    others = {name: said for name, said in red.items() if name not in to_write}
    assert not {name: said for name, said in others.items() if "nox -s refresh" not in said}
    assert len(cases) - len(red) > 40, "the tests of all four run"


@pytest.mark.parametrize("name", ["abc", "a" * 32])
def test_lines_fit_whatever_the_name(copy: Path, name: str) -> None:
    before = files(copy)
    for command in WANTED.values():
        assert add(copy, re.sub(r"probe-pitfall|probe\w*", name, command)).returncode == 0
    for path in files(copy).keys() - before.keys():
        ast.parse(path.read_text())
        assert max(map(len, path.read_text().splitlines())) <= 120, path
