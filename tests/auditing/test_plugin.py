"""The ``audit`` fixture: what a test that uses it shows when it fails, and what it costs those that do not."""

from collections.abc import Callable

import pytest
import torch._dynamo  # here, and not in pytester, which forgets all modules that are imported in it

from autograd_cookbook.auditing import AuditError, Report
from autograd_cookbook.auditing.checks import all_checks

pytest_plugins = ["pytester"]
all_checks()

WRONG = """
import torch

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output

x = torch.ones(2, requires_grad=True)

def test_twice(audit):
    audit(Twice.apply, (x,), only=["first_order"])
"""


def test_it_is_part_of_every_pytest_run_and_imports_torch_in_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_light(request):
            assert request.config.pluginmanager.has_plugin("autograd_cookbook")
            assert "torch" not in sys.modules
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_report_that_is_ok_comes_back(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import torch

        def test_sigmoid(audit):
            x = torch.ones(2, requires_grad=True)
            assert audit(torch.sigmoid, (x,), only=["vmap"]).capabilities["vmap"] == "yes"
    """)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize("style", ["auto", "short", "long"])
def test_a_failure_is_the_line_of_the_test_and_the_report(pytester: pytest.Pytester, style: str) -> None:
    pytester.makepyfile(test_twice=WRONG)
    result = pytester.runpytest_inprocess(f"--tb={style}")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"(>      |   ) audit\(Twice\.apply, \(x,\), only=\[\"first_order\"\]\)",
            r"E   .*AuditError: Twice: NOT ok \(2 checks in .* s, 1 error\)",
            r"E   +✗ error: first_order",
            r"E   +cause: ",
            r"E   +fix: ",
            r"E   +capabilities ",
        ]
    )
    for library in ("pytest_plugin.py", "runner.py", "report.py"):
        result.stdout.no_fnmatch_line(f"*{library}*")


def test_the_summary_has_the_verdict_and_not_the_path_of_the_exception(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_twice=WRONG)
    pytester.runpytest_inprocess("-rf").stdout.fnmatch_lines(
        ["FAILED test_twice.py::test_twice - Twice: NOT ok (2 checks in *"]
    )


def test_it_is_an_audit_error_with_the_report(audit: Callable[..., Report]) -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(AuditError, match="first_order") as caught:
        audit(lambda x: x.detach() * x, (x,), only=["first_order"])
    assert [f.check for f in caught.value.report.findings] == ["first_order"]


def test_a_call_that_makes_no_sense_is_an_error_at_the_line_of_the_call(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import torch

        def test_constant(audit):
            audit(torch.sigmoid, (torch.ones(2),))
    """)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([">*audit(torch.sigmoid, (torch.ones(2),))", "E*TypeError: inputs must hold a *"])
    result.stdout.no_fnmatch_line("*runner.py*")


def test_other_failures_are_shown_as_ever(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_other="def test_other():\n    assert 1 == 2, 'told'")
    pytester.runpytest_inprocess("-rf").stdout.fnmatch_lines(
        ["FAILED test_other.py::test_other - AssertionError: told*"]
    )


def test_the_fixture_is_described(pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess("--fixtures").stdout.fnmatch_lines(
        ["audit -- *", "*Call it like autograd_cookbook.audit: *"]
    )
