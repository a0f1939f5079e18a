"""Decide which findings make CI fail: one policy for Python, for pytest and for the command ``harvest``."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autograd_cookbook.cli import instead

if TYPE_CHECKING:
    from autograd_cookbook.auditing import Report

SEVERITIES = "info", "warning", "error"  # the worst last
LEVELS = "error", "warning", "info", "never"
FAIL_ON = "warning"


def level(value: Any) -> str:
    """Return the value if it is a level of ``fail_on``.

    Raises:
        ValueError: if the value is not a level.
    """
    if value in LEVELS:
        return str(value)
    raise ValueError(f"fail_on must be one of {', '.join(map(repr, LEVELS))}, got {value!r}")


def fails(severity: str, fail_on: str) -> bool:
    """Whether a finding of this severity is at least as bad as ``fail_on``."""
    return fail_on != "never" and SEVERITIES.index(severity) >= SEVERITIES.index(fail_on)


def stale(accept: Iterable[str], ran: Collection[str], found: Collection[str]) -> list[str]:
    """Return the accepted checks that ran and found nothing."""
    return [check for check in accept if check in ran and check not in found]


def checked(fail_on: Any, accept: Any) -> Mapping[str, str]:
    """Return the accepted checks with their reasons, if both arguments are valid.

    Raises:
        ValueError: if ``fail_on`` is not a level, a check is unknown, or a reason is missing.
    """
    from autograd_cookbook.auditing.checks import all_checks

    level(fail_on)
    if not isinstance(accept, Mapping | None):
        raise ValueError(f"accept must map checks to reasons, got {accept!r}")
    for check, reason in (accept or {}).items():
        if check not in all_checks():
            raise ValueError(f"accept: unknown check {check!r}{instead(str(check), all_checks())}")
        if not (isinstance(reason, str) and reason.strip()):
            raise ValueError(f"accept: expected a reason for {check!r}, got {reason!r}")
    return accept or {}


def raise_for_findings(report: "Report", *, fail_on: str = FAIL_ON, accept: Mapping[str, str] | None = None) -> None:
    """Raise an error if the report of an audit has findings that count.

    Args:
        report: the result of an audit.
        fail_on: the mildest severity that counts: "error", "warning" (the default), "info", or "never".
        accept: maps the name of a check to the reason why findings of this check do not count. If a finding has
            several checks, its name is the first one.

    Raises:
        AuditError: if a finding counts. Its message is the report, and the notes of the report list what you accept.
        ValueError: if ``fail_on`` is not a level, a check is unknown, a reason is missing, or you accept a check that
            ran and found nothing.

    >>> import torch
    >>> from autograd_cookbook import audit
    >>> report = audit(torch.sigmoid, (torch.randn(3, dtype=torch.float64, requires_grad=True),), only=["vmap"])
    >>> raise_for_findings(report, fail_on="info")
    """
    from autograd_cookbook.auditing import AuditError

    accept = checked(fail_on, accept)
    left = tuple(f for f in report.findings if f.check not in accept)
    if any(fails(f.severity, fail_on) for f in left):
        notes = [f"accepted: {f.check} ({accept[f.check]})" for f in report.findings if f.check in accept]
        raise AuditError(replace(report, findings=left, notes=(*report.notes, *notes)))
    # A finding that several checks show is accepted by the name of the first of them.
    first = {other: finding.check for finding in report.findings for other in finding.also}
    for check in stale(accept, report.checks, {f.check for f in report.findings}):
        if check in first:
            raise ValueError(f"accept: {check!r} is reported together with {first[check]!r}: accept that one instead")
        raise ValueError(f"accept: the audit does not find {check!r} any more: remove it")
