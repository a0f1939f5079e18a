"""The ``audit`` fixture and ``--audit-functions`` for pytest.

Every pytest run in an environment with this package loads this module, so it imports torch only when one of them is
asked for; that is why it is not part of :mod:`autograd_cookbook.auditing`.
"""

import sys
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from autograd_cookbook.auditing import Report


FLAG = "--audit-functions"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Describe the options of the audit of a whole project."""
    from autograd_cookbook.harvest.settings import add_settings

    group = parser.getgroup("audit", "audit of custom functions")
    group.addoption(
        FLAG,
        nargs="?",
        const="*",
        default=None,
        metavar="PATTERN",
        help="audit every custom function that the tests call, or those with such names: --audit-functions=PATTERN",
    )
    add_settings(group.addoption, "--audit-")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(args: list[str]) -> None:
    """What follows the flag is a file, and no pattern: that comes behind an equals sign."""
    args[:] = [f"{FLAG}=*" if word == FLAG else word for word in args]


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record, if that is asked for."""
    if config.option.audit_functions is not None:
        from autograd_cookbook.harvest.pytest_harvest import harvester_for

        config.pluginmanager.register(harvester_for(config), "autograd_cookbook_harvest")


@pytest.fixture
def audit() -> "Callable[..., Report]":
    """Called as autograd_cookbook.audit is: returns the report, and fails the test with it if there are findings.

    ``fail_on=`` and ``accept=`` are those of :func:`autograd_cookbook.policy.raise_for_findings`.
    """
    from autograd_cookbook import auditing, policy

    def audit(
        fn: Callable[..., Any],
        inputs: Any,
        *,
        fail_on: str = policy.FAIL_ON,
        accept: Mapping[str, str] | None = None,
        **options: Any,
    ) -> "Report":
        __tracebackhide__ = True
        try:
            policy.checked(fail_on, accept)
            report = auditing.audit(fn, inputs, **options)
            policy.raise_for_findings(report, fail_on=fail_on, accept=accept)
        except (TypeError, ValueError) as error:  # the call is wrong, and not what is inside of the audit
            raise error.with_traceback(None) from None
        except auditing.AuditError as error:
            raise error.with_traceback(None) from None
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
