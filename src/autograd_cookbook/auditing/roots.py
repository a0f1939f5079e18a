"""Findings that have one cause are one finding."""

import re
from collections.abc import Sequence
from dataclasses import replace

from autograd_cookbook.auditing.report import Finding

# What is found first explains the others: a tensor that torch does not watch, and what goes wrong because of that.
UNWATCHED = {
    "later_writes": ("in_place_consumer", "tensors_on_ctx"),
    "in_place_consumer": ("tensors_on_ctx",),
    "freed_at_once": ("tensors_on_ctx",),
}
# Cause and fix of a backward that does not look at grad_output, which explains whatever changes grad_output.
IGNORED = (
    "backward ignores grad_output: for three times the grad_output, it returns the very same gradient.",
    "Multiply by grad_output, as the chain rule says: a caller may scale, weight or sum the output.",
)
# Cause and fix of a backward that sets .grad itself, where first_order sees twice the gradient.
WRITES_GRAD = (
    "backward writes to .grad of an input itself, or runs a backward that does. If the input is a leaf, PyTorch adds "
    "the gradient that backward returns to it.",
    "Return the gradients, and call torch.autograd.grad instead of backward() inside of a backward.",
)
# Cause of a wrong gradient that is like nothing known.
NO_PATTERN = "The formula of the backward is not the derivative of the forward; no simple pattern was recognized."
# What is kept outside of ctx is overwritten by a later call, has no version, and lives until the next call.
KEPT_OUTSIDE = ("later_writes", "freed_at_once")
# Where the sample has each index once, other sizes repeat some, and so do special points.
REPEATED = (
    "Where an index occurs more than once, backward keeps one of the gradients, and not their sum.",
    "Add them up: index_add_, scatter_add_, or index_put_ with accumulate=True.",
)
# Where the sample has its indices in order, other sizes bring them out of order, and so does their reverse.
IN_ORDER = (
    "The sample has its indices in order. Forward sorts others, or takes the order for granted, and the gradient is "
    "that of the sorted ones.",
    "Bring the gradient back into the order of the arguments, by the inverse of the sort; or refuse other orders.",
)
# What a call in another dtype leaves behind: the last one, or the first one.
LAST_DTYPE = (
    "The function keeps a constant, a buffer or a cache in the dtype of the last call. A cast to fewer bits and back "
    "loses digits.",
    "Make it in each call in the dtype of the inputs, or keep one for each dtype.",
)
FIRST_DTYPE = (
    "The function keeps a constant or a cache in the dtype of its first call, and uses it in other dtypes, too. A cast "
    "from fewer bits does not bring the digits back.",
    "Let the key of the cache contain the dtype, or make the constant in float64 and cast it in each call.",
)
LAYOUTS = "input_layouts", "grad_output_layouts"  # where both are refused for one reason
# The function stops with an exception: what it would have returned to a later check, nobody knows.
RAISED = re.compile(r"\braises\b.*?\b([A-Z]\w*(?:Error|Exception|Exit)\b.*)$")
SHARED = "refers to a single memory location"
# Where a second backward finds other arguments, or other saved tensors, than the first.
BY_ANOTHER_BACKWARD = ("backward_twice", "batched_grad")
# A dtype that is fixed inside shows in every other one, and in what backward returns.
DTYPE = ("output_dtype", "digits", "returned", "float32", "float16", "bfloat16")
NARROW = ("float32", "float16", "bfloat16")  # where the cause is the same in two of them, it is one


def _written_on_ctx(finding: Finding, findings: Sequence[Finding]) -> bool:
    """Whether a later write reaches the backward through an attribute of ctx, and not through what calls share."""
    after = re.match("after a later in-place operation on (the output(?=s,)|.+?(?=,))", finding.summary)
    kept = re.compile(f"(keeps|,|and) (a view of )?{re.escape(after[1])} as ") if after else None
    return kept is not None and any(f.check == "tensors_on_ctx" and kept.search(f.summary) for f in findings)


def _raised(finding: Finding) -> str | None:
    """The exception, with its message, that a finding is about."""
    match = RAISED.search(finding.summary)
    return match[1] if match else None


def _follows(finding: Finding, lead: Finding, findings: Sequence[Finding]) -> bool:
    if finding.check in NARROW and lead.check in NARROW:
        same = (finding.severity, finding.cause, finding.fix) == (lead.severity, lead.cause, lead.fix)
        refused = lead.summary.startswith(f"no {lead.check}: ")  # which is said of each
        return same and not refused and NARROW.index(finding.check) > NARROW.index(lead.check)
    if lead.check == finding.check in ("first_order", "opcheck") and lead.severity == finding.severity != "info":
        if findings.index(finding) > findings.index(lead):
            same = (finding.cause, finding.fix) == (lead.cause, lead.fix)  # said of several inputs, or of several tests
            return same or finding.cause == NO_PATTERN
        return lead.cause != NO_PATTERN == finding.cause  # what was recognized comes first
    if (raised := _raised(finding)) is not None and raised == _raised(lead) and lead.severity == finding.severity:
        return findings.index(finding) > findings.index(lead)
    if lead.check == "grad_output_unchanged" and finding.check == "grad_output_layouts":
        # Written to in place: no expanded tensor allows it, or each of its entries is that of all others.
        return SHARED in finding.summary or " is expanded " in finding.summary
    if (lead.check, finding.check) == LAYOUTS:
        return (finding.severity, finding.cause, finding.fix) == (lead.severity, lead.cause, lead.fix)
    if lead.check == "grad_output_unchanged" and " changes saved tensor " in lead.summary:
        return finding.check in BY_ANOTHER_BACKWARD and finding.severity == "error"
    if lead.check == DTYPE[0] and lead.severity == "error" and finding.check in DTYPE[1:]:
        return finding.check in ("returned", "digits") or " inputs, output " in finding.summary
    if lead.check == "returned" and lead.severity == "error" and finding.check == "digits":
        return finding.summary.startswith("the gradient of")  # of the dtype that backward returns
    if lead.check == "first_order" and lead.cause.startswith(IGNORED[0]):
        of_nothing = finding.check == "empty" and finding.summary.endswith(" and not 0")
        return of_nothing or finding.check == "undefined_gradient"
    if lead.check == "first_order" and lead.cause == WRITES_GRAD[0]:
        return finding.check == "grad_attribute" and finding.severity == "error"
    if lead.check == "inputs_unchanged" and lead.summary.startswith("backward changes"):
        return finding.check in BY_ANOTHER_BACKWARD and finding.severity == "error"
    if lead.check == "independent_calls" and lead.severity == "error" and finding.severity != "info":
        return finding.check in KEPT_OUTSIDE and not _written_on_ctx(finding, findings)
    if lead.cause == LAST_DTYPE[0]:
        return finding.cause == FIRST_DTYPE[0]
    if lead.cause == IN_ORDER[0]:
        return finding.check == "sizes" and finding.severity == "error"
    if lead.cause == REPEATED[0] == finding.cause:
        return lead.check == "special_points" and finding.check == "sizes"
    if lead.check == "without_grad" and finding.check in ("without_grad", "subsets") and finding is not lead:
        first = finding.check == "subsets" or finding.summary.startswith("where no input")
        return first and " output " in finding.summary and " output " in lead.summary
    unwatched = finding.check in UNWATCHED.get(lead.check, ())
    return unwatched and lead.severity != "info" and (finding.check == "tensors_on_ctx" or finding.severity == "error")


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, of those with one cause only the first, which names the others."""
    leads = [f for f in findings if not any(_follows(f, lead, findings) for lead in findings)]
    result = []
    for lead in leads:
        others = [f for f in findings if _follows(f, lead, findings)]
        seen = [f.summary for f in others if f.check not in (*NARROW, *DTYPE, "opcheck")]
        cause = f"{lead.cause} Seen, too: {'; '.join(seen).removesuffix('.')}." if seen else lead.cause
        result.append(
            replace(lead, cause=cause, also=tuple(dict.fromkeys(f.check for f in others if f.check != lead.check)))
        )
    return result
