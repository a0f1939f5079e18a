"""What other releases of torch do otherwise: stored, read, and looked up by release."""

import json
from pathlib import Path

import pytest
from docs._ext import digests, results, versions
from docs.errors import wordings

from autograd_cookbook.catalog import BY_NAME
from autograd_cookbook.errors import Entry, Former
from tests.junit import counted

CAN = dict.fromkeys(results.LABELS, "yes")


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of the pinned release, and of one before on which a recipe cannot be mapped."""
    rows = {
        digests.torch(): {"recipes": {}},
        "2.9.1": {"recipes": {"square": {"capabilities": {"vmap": "no"}, "saved_bytes": 8}}},
    }
    (tmp_path / "versions.json").write_text(json.dumps(rows))
    monkeypatch.setattr(versions, "STORED", tmp_path / "versions.json")
    versions.stored.cache_clear()
    yield
    versions.stored.cache_clear()


def test_a_release_is_as_the_pinned_one_but_for_what_is_stored(two) -> None:
    row = {"capabilities": CAN, "saved_bytes": 0}
    assert versions.releases() == ["2.9.1", digests.torch()]
    assert versions.verified("square", row, "2.9.1") == {"capabilities": CAN | {"vmap": "no"}, "saved_bytes": 8}
    assert versions.verified("square", row, digests.torch()) == row
    assert versions.verified("power", row, "2.9.1") == row
    found = versions.verdicts("square", row)
    assert found["vmap"] == {"no": ["2.9.1"], "yes": [digests.torch()]}
    assert found["empty"] == {"yes": ["2.9.1", digests.torch()]}


def test_what_is_stored_is_about_what_there_is() -> None:
    for release, row in versions.stored().items():
        assert set(row.get("recipes", {})) <= set(BY_NAME), release
        assert not row.get("tests", {}).get("failed"), release
        wrong = [name for name, other in row.get("recipes", {}).items() if "wrong" in other]
        assert not wrong, f"{release}: the audit finds fault with {wrong}"


def test_a_wording_is_known_on_the_releases_that_have_it_and_today_s_everywhere() -> None:
    former = (Former("2.8 to 2.11", "no 3"), Former("1.x", "never"))
    entry = Entry("e", "g", "t", "TypeError", "must be 4", "c", "f", "2.13.0", former=former)
    assert wordings.known(entry, "2.11.0", ("TypeError", "no 5"))
    assert not wordings.known(entry, "2.12.1", ("TypeError", "no 5"))
    assert wordings.known(entry, "2.12.1", ("TypeError", "must be 7"))
    assert not wordings.known(entry, "2.12.1", ("ValueError", "must be 7"))
    assert not wordings.known(entry, "2.12.1", ("TypeError", "never"))


def test_tests_are_counted_and_those_that_fail_are_named(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a" name="b"/>'
        '<testcase classname="a" name="c"><failure/></testcase>'
        '<testcase classname="a" name="d"><skipped/></testcase><testcase classname="a" name="e"><error/></testcase>'
        "</testsuite></testsuites>"
    )
    assert counted(report) == {"passed": 1, "skipped": 1, "failed": ["a::c", "a::e"]}
