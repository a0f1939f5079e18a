"""The ``audit`` fixture and ``--audit-functions`` for pytest.

Every pytest run in an environment with this package loads this module. So the module must import torch only if a test
uses the fixture or the option. For this reason, it is not part of :mod:`autograd_cookbook.auditing`.
"""

import sys
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from autograd_cookbook.auditing import Report


FLAG = "--audit-functions"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the audit of a whole project."""
    from autograd_cookbook.harvest.settings import add_settings

    group = parser.getgroup("audit", "audit of custom functions")
    group.addoption(
        FLAG,
        nargs="?",
        const="*",
        default=None,
        metavar="PATTERN",
        help="audit every custom function that the tests call; with =PATTERN, those whose names match, as in a shell",
    )
    add_settings(group.addoption, "--audit-")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(args: list[str]) -> None:
    """Keep the word after the flag as a file for pytest, because a pattern must follow an equals sign."""
    args[:] = [f"{FLAG}=*" if word == FLAG else word for word in args]


def pytest_configure(config: pytest.Config) -> None:
    """Start to record if the option is given."""
    if config.option.audit_functions is not None:
        from autograd_cookbook.harvest.pytest_harvest import harvester_for

        config.pluginmanager.register(harvester_for(config), "autograd_cookbook_harvest")


@pytest.fixture
def audit() -> "Callable[..., Report]":
    """Call it like autograd_cookbook.audit: it returns the report, and fails the test if there are findings.

    ``fail_on=`` and ``accept=`` work as in :func:`autograd_cookbook.policy.raise_for_findings`.
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
        except (TypeError, ValueError) as error:  # the arguments are wrong, so show no frames of the audit
            raise error.with_traceback(None) from None
        except auditing.AuditError as error:
            raise error.with_traceback(None) from None
        return report

    return audit


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: "pytest.CallInfo[None]",
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the verdict first in the summary line, because this line has no room for the exception's full name."""
    report = yield
    auditing = sys.modules.get("autograd_cookbook.auditing")
    crash = getattr(report.longrepr, "reprcrash", None)
    if auditing and crash and call.excinfo and isinstance(call.excinfo.value, auditing.AuditError):
        crash.message = str(call.excinfo.value)
    return report
