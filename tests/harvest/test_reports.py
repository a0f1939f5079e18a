"""The report in its forms: each says the same, and is what its readers expect."""

import json
from html.parser import HTMLParser

import jsonschema
import pytest

from autograd_cookbook.harvest.reports import write_report
from autograd_cookbook.harvest.results import Found, FunctionResult, Harvest
from autograd_cookbook.harvest.sarif import sarif_of
from autograd_cookbook.harvest.terminal import lines_of
from tests.harvest.sarif_schema import LOG

SOURCE = "class F:\n    a = '<b>'\n\n\nclass Next:\n    pass\n"


@pytest.fixture
def harvest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code.py").write_text(SOURCE)
    bad = Found("first_order", "error", "the gradient is <wrong>", "a cause", "a fix", "https://x/y#z", "print(1)")
    warned = Found("tensors_on_ctx", "warning", "too much", "c", "f", "", accepted="it is small")
    known = Found("vmap", "info", "no vmap", "c", "f", "")
    return Harvest(
        [
            FunctionResult("code.F", "code.py", 1, True, 3, 2, 1.5, [bad, warned, known], {"vmap": "no"}),
            FunctionResult("code.G", "/elsewhere/code.py", 9, True, 1, not_audited="it cannot be copied"),
            FunctionResult("code.H", "code.py", 5),
        ],
        torch="2.0",
        version="1",
    )


def test_the_terminal_has_every_function_once(harvest):
    text = "\n".join(lines_of(harvest))
    assert "code.py:1 code.F: NOT ok (2 of 3 calls audited in 1.5 s)" in text
    assert "tensors_on_ctx (accepted)\n      accepted: it is small" in text
    assert "/elsewhere/code.py:9 code.G: it cannot be copied" in text
    assert "not reached: no call of these was seen\n  code.py:5 code.H" in text
    assert text.endswith("NOT ok: 1 of 3 custom functions audited, 2 reached: 1 error, 1 accepted (torch 2.0)")


def test_html_needs_nothing_else_and_shows_text_as_text(harvest, tmp_path):
    write_report(tmp_path / "new" / "r.html", harvest)
    text = (tmp_path / "new" / "r.html").read_text()
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)
    parser.feed(text)
    assert {"script", "link", "img"}.isdisjoint(tags)
    assert tags.count("section") == 1
    assert "the gradient is &lt;wrong&gt;" in text
    assert "class F:\n    a = &#x27;&lt;b&gt;&#x27;</pre>" in text


def test_the_reports_say_what_ok_does_not_cover_and_show_what_is_to_be_declared(harvest, tmp_path):
    first = harvest.functions[0]
    first.capabilities = {"vmap": "no", "complex128": "wrong"}
    write_report(tmp_path / "r.html", harvest)
    assert "does not cover" not in "\n".join(lines_of(harvest)) + (tmp_path / "r.html").read_text()  # it is not ok
    tangent = Found("first_order", "info", "looks like a gradient in a tangent space: declare it. Seen", "c", "f", "")
    first.findings[:] = [tangent, *first.findings[2:]]
    write_report(tmp_path / "r.html", harvest)
    text = " ".join("\n".join(lines_of(harvest)).split())
    assert "It does not cover complex128: the function runs there" in text
    assert "looks like a gradient in a tangent space: declare it" in text
    assert "It does not cover complex128" in (tmp_path / "r.html").read_text()


def test_sarif_fits_the_standard(harvest):
    log = sarif_of(harvest)
    jsonschema.Draft7Validator.check_schema(LOG)
    jsonschema.Draft7Validator(LOG, format_checker=jsonschema.FormatChecker()).validate(log)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda log: log.pop("version"),
        lambda log: log["runs"][0]["tool"]["driver"].pop("name"),
        lambda log: log["runs"][0]["results"][0].update(level="info"),
        lambda log: log["runs"][0]["results"][0].pop("message"),
        lambda log: log["runs"][0]["results"][0].update(place="code.py"),
        lambda log: log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"].update(startLine=0),
        lambda log: log["runs"][0]["results"][1]["suppressions"][0].update(kind="accepted"),
    ],
    ids=["version", "name", "level", "message", "unknown", "line", "kind"],
)
def test_the_schema_refuses_what_the_standard_refuses(harvest, spoil):
    log = sarif_of(harvest)
    spoil(log)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(LOG).validate(log)


def test_sarif_has_what_the_standard_asks_for(harvest, tmp_path):
    """Facts of SARIF 2.1.0: the properties that it requires, its enumerations, and indices that fit."""
    write_report(tmp_path / "r.sarif", harvest)
    log = json.loads((tmp_path / "r.sarif").read_text())
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"]
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    assert len(run["results"]) == 3
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["message"]["text"]
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uri"] == "code.py"
        assert physical["region"]["startLine"] >= 1
        assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
    suppressed = [r["suppressions"] for r in run["results"] if "suppressions" in r]
    assert suppressed == [[{"kind": "external", "justification": "it is small"}]]


def test_two_causes_of_one_check_stay_two_results_of_sarif(harvest):
    (first, *_), *_ = [each.findings for each in harvest.functions]
    harvest.functions[0].findings.append(Found(first.check, "error", "another number", "another cause", "f", ""))
    marks = [result["partialFingerprints"]["function/check"] for result in sarif_of(harvest)["runs"][0]["results"]]
    assert marks[0] == "code.F/first_order"
    assert len(set(marks)) == len(marks)
