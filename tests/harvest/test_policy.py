"""One policy for CI, in Python, pytest and the harvest: what fails, and what is accepted with a reason."""

from pathlib import Path

import pytest

from autograd_cookbook.auditing import AuditError, Finding, Report
from autograd_cookbook.cli import main
from autograd_cookbook.policy import FAIL_ON, LEVELS, raise_for_findings
from tests.harvest.test_command import PROGRAM

pytest_plugins = ["pytester"]
SEVERITIES = "error", "warning", "info"
ALSO = {"warning": ("tensors_on_ctx",)}


def report(*severities):
    checks = dict(zip(SEVERITIES, ("first_order", "later_writes", "vmap"), strict=True))
    findings = tuple(Finding(checks[s], s, f"{s} seen", "a cause", "a fix", "", ALSO.get(s, ())) for s in severities)
    return Report("F", findings, {}, 0, (*checks.values(), "tensors_on_ctx"), {})


@pytest.mark.parametrize("fail_on", LEVELS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_what_is_as_bad_as_fail_on_or_worse_fails(severity, fail_on):
    order = [*SEVERITIES, "never"]
    if order.index(severity) <= order.index(fail_on) and fail_on != "never":
        with pytest.raises(AuditError, match=f"{severity} seen"):
            raise_for_findings(report(severity), fail_on=fail_on)
    else:
        raise_for_findings(report(severity), fail_on=fail_on)


def test_unless_told_it_fails_when_the_report_is_not_ok():
    for severity in SEVERITIES:
        given = report(severity)
        assert given.ok != (SEVERITIES.index(severity) <= SEVERITIES.index(FAIL_ON))


def test_what_is_accepted_does_not_count_and_stands_in_the_notes_of_what_does():
    raise_for_findings(report("warning"), accept={"later_writes": "nobody writes"})
    with pytest.raises(AuditError) as caught:
        raise_for_findings(report("error", "warning"), accept={"later_writes": "nobody writes"})
    assert "note: accepted: later_writes (nobody writes)" in str(caught.value)
    assert [f.check for f in caught.value.report.findings] == ["first_order"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fail_on": "errors"}, "fail_on must be one of 'error', 'warning', 'info', 'never', got 'errors'"),
        ({"fail_on": None}, "got None"),
        ({"accept": ["vmap"]}, "accept must map checks to reasons, got \\['vmap'\\]"),
        ({"accept": {"vmpa": "why"}}, "unknown check 'vmpa'; did you mean vmap"),
        ({"accept": {"vmap": " "}}, "expected a reason for 'vmap', got ' '"),
        ({"accept": {"vmap": "no loops"}}, "does not find 'vmap' any more: remove it"),
        (
            {"accept": {"tensors_on_ctx": "no writes"}},
            "'tensors_on_ctx' is reported together with 'later_writes': accept that one instead",
        ),
    ],
)
def test_what_makes_no_sense_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        raise_for_findings(report("warning"), **{"fail_on": "error"} | options)


def test_in_a_test(pytester):
    import torch._dynamo  # noqa: F401 (here, and not in pytester, which forgets what is imported in it)

    pytester.makepyfile("""
        import pytest
        import torch

        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return 2 * x

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output

        x = torch.ones(2, requires_grad=True)

        def test_accepted(audit):
            report = audit(Twice.apply, (x,), only=["first_order"], accept={"first_order": "meant so"})
            assert not report.ok

        def test_never(audit):
            audit(Twice.apply, (x,), only=["first_order"], fail_on="never")

        def test_bad_value(audit):
            with pytest.raises(ValueError, match="fail_on must be one of"):
                audit(Twice.apply, (x,), fail_on="all")

        def test_fails(audit):
            audit(Twice.apply, (x,), only=["first_order"], fail_on="error")
    """)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["FAILED *test_fails*NOT ok*"])


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    return Path("pyproject.toml")


def harvest(*options):
    return main(["harvest", *options, "program.py"])


def test_in_a_harvest_the_option_comes_before_the_table(table, capsys):
    for said, options, status in (
        ("", (), 1),
        ("", ("--fail-on", "never"), 0),
        ('fail_on = "never"', (), 0),
        ('fail_on = "never"', ("--fail-on", "error"), 1),
    ):
        table.write_text(f"[tool.autograd_cookbook]\n{said}\n")
        assert harvest(*options) == status, (said, options)
    assert "1 error" in capsys.readouterr().out


def test_a_level_that_is_none_stops_a_harvest_before_the_program_runs(table, capsys):
    assert harvest("--fail-on", "errors") == 2
    table.write_text('[tool.autograd_cookbook]\nfail_on = "errors"\n')
    assert harvest() == 2
    captured = capsys.readouterr()
    assert "invalid choice: 'errors'" in captured.err
    assert "tool.autograd_cookbook: fail_on must be one of" in captured.err
    assert "arguments" not in captured.out
