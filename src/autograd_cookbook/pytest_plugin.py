"""The ``audit`` fixture for pytest.

Every pytest run in an environment with this package loads this module, so it imports torch only when the fixture is
asked for; that is why it is not part of :mod:`autograd_cookbook.auditing`.
"""

import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from autograd_cookbook.auditing import Report


@pytest.fixture
def audit() -> "Callable[..., Report]":
    """Called as autograd_cookbook.audit is: returns the report, and fails the test with it if there are findings."""
    from autograd_cookbook import auditing

    def audit(fn: Callable[..., Any], inputs: Any, **options: Any) -> "Report":
        __tracebackhide__ = True
        try:
            report = auditing.audit(fn, inputs, **options)
        except (TypeError, ValueError) as error:  # the call is wrong, and not what is inside of the audit
            raise error.with_traceback(None) from None
        if not report.ok:
            raise auditing.AuditError(report)
        return report

    return audit


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: "pytest.CallInfo[None]",
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The verdict comes first in the summary line, which has no room for the full name of the exception."""
    report = yield
    auditing = sys.modules.get("autograd_cookbook.auditing")
    crash = getattr(report.longrepr, "reprcrash", None)
    if auditing and crash and call.excinfo and isinstance(call.excinfo.value, auditing.AuditError):
        crash.message = str(call.excinfo.value)
    return report
