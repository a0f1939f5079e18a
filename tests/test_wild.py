"""Public libraries: each finding is judged, each judgment is about a finding, and every environment is pinned."""

import json
import re

import pytest
from docs._ext import wild
from wild.libraries import JUDGMENTS, Library, differences, libraries
from wild.run import main, summary

LIBRARIES = libraries()


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request):
    return request.param


def test_there_are_enough_of_them():
    assert len(LIBRARIES) >= 12


def test_everything_to_install_is_pinned_and_nothing_brings_torch(library):
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for pin in library.pins)
    assert library.pins[0].partition("==")[0] == library.name
    assert not any(pin.startswith("torch==") for pin in library.pins)


def test_what_was_found_is_of_the_pinned_version_and_a_function_was_reached(library):
    assert library.found["version"] == library.version
    assert 0 < library.found["reached"] <= library.found["functions"]
    assert library.found["problems"] == []


def test_what_was_found_is_judged_and_nothing_else(library):
    assert differences(library) == []
    for judged in library.judged.values():
        assert judged["judgment"] in JUDGMENTS
        assert judged["why"].endswith(".")


def test_programs_of_true_findings_are_python(library):
    for finding in library.found["findings"]:
        compile(finding["program"], "program", "exec")


def test_what_appears_and_what_disappears_is_said(tmp_path):
    finding = {"function": "a.F", "check": "vmap", "severity": "error"}
    (tmp_path / "found.json").write_text(json.dumps({"findings": [finding]}))
    (tmp_path / "judged.toml").write_text(
        '[[findings]]\nfunction = "a.F"\ncheck = "empty"\nseverity = "error"\njudgment = "true"\nwhy = "It is."\n'
    )
    name = tmp_path.name
    assert differences(Library(tmp_path)) == [
        f"{name}: appeared, and is not judged: a.F vmap error",
        f"{name}: is judged, and disappeared: a.F empty error",
    ]


def test_functions_of_a_library_that_it_needs_are_not_its_own(tmp_path):
    packages, report = tmp_path / "packages", {"torch": "2", "problems": [], "functions": []}
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["own==1.0"]\n\n[tool.wild]\npackage = "own"\n')
    finding = dict.fromkeys(("check", "severity", "summary", "cause", "fix", "program"), "text")
    for package in ("own", "needed"):
        (packages / package).mkdir(parents=True)
        file = packages / package / "__init__.py"
        file.write_text("import torch\n\n\nclass F(torch.autograd.Function):\n    pass\n")
        about = {"name": f"{package}.F", "file": str(file), "line": 4}
        report["functions"].append(about | {"reached": True, "audited": True, "findings": [finding]})
    found = summary(Library(tmp_path), report, packages, 1.0)
    assert [each["function"] for each in found["findings"]] == ["own.F"]
    assert (found["functions"], found["reached"], found["audited"]) == (1, 1, 1)


def test_an_unknown_name_is_said_with_those_there_are(capsys):
    assert main(["numpy"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("no library 'numpy' in wild; there are ")
    assert "entmax" in error


def test_the_page_has_every_library_and_every_finding_once():
    overview, sections = wild.overview(), wild.sections()
    for each in LIBRARIES:
        assert f"| {each.version} |" in overview
        assert each.name in overview
        assert sections.count(f"(wild-{each.name})=") == bool(each.judged)
    assert sections.count("\n- **") == sum(len(each.found["findings"]) for each in LIBRARIES)
