"""The audit: hand it any custom function, learn what is wrong and how to fix it. It knows torch, and no recipe."""

from autograd_cookbook.auditing.arguments import capability_names
from autograd_cookbook.auditing.memory import held_bytes, kept_bytes, peak_bytes, saved_bytes
from autograd_cookbook.auditing.report import AuditError, Finding, Report
from autograd_cookbook.auditing.runner import audit

__all__ = [
    "AuditError",
    "Finding",
    "Report",
    "audit",
    "capability_names",
    "held_bytes",
    "kept_bytes",
    "peak_bytes",
    "saved_bytes",
]
