"""What an audit says: findings with their cause and cure, and what the function can do."""

import html
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
MARKS = {"error": "✗", "warning": "!", "info": "i"}
# What these checks find is a matter of taste as long as nothing goes wrong because of it.
TASTE = ("returned", "tensors_on_ctx", "unused_saved", "in_place_consumer")
VERDICTS = {"yes": "✓", "no": "–", "wrong": "✗"}


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Args:
        check: name of the check that found it.
        severity: "error" for a wrong number or a crash that a user will meet; "warning" for a hazard; "info" for
            a capability that is not there, which is nothing against the function.
        summary: what was seen, with the numbers.
        cause: why, most likely.
        fix: what to do about it.
        url: the section of the site that explains it; relative if no site is published.
        also: names of other checks that found the same cause.
        source: two or three lines of the function that it is most likely about, with their numbers; empty if there
            is no source.
        program: a program of at most twenty lines, not counting code that cannot be imported, that fails as long as the
            function is as it is; empty if the call cannot be written out.
    """

    check: str
    severity: Severity
    summary: str
    cause: str
    fix: str
    url: str
    also: tuple[str, ...] = ()
    source: str = field(default="", repr=False)
    program: str = field(default="", repr=False)

    @property
    def link(self) -> str:
        """The url, if there is something to open."""
        return self.url if "://" in self.url else ""

    def __str__(self) -> str:
        lines = [f"{MARKS[self.severity]} {self.severity}: {', '.join((self.check, *self.also))}"]
        for label, text in (("", self.summary), ("cause: ", self.cause), ("fix: ", self.fix), ("see: ", self.link)):
            if text:
                lines += textwrap.wrap(
                    label + text,
                    width=110,
                    initial_indent="    ",
                    subsequent_indent="    " + " " * len(label),
                    break_long_words=False,
                    break_on_hyphens=False,
                )
        lines += textwrap.indent(textwrap.dedent(self.source), " " * 8).splitlines()
        return "\n".join(lines)


def enumerated(names: Sequence[str]) -> str:
    """Some names in words: "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def not_covered(capabilities: dict[str, str]) -> str:
    """What ``ok`` does not cover, in words: where the function runs on other inputs than the sample, and is wrong."""
    wrong = [name for name, verdict in capabilities.items() if verdict == "wrong"]
    if not wrong:
        return ""
    return (
        f"ok means that there is no error and no warning. It does not cover {enumerated(wrong)}: the function runs "
        "there, but returns wrong numbers."
    )


def _linked(finding: Finding) -> str:
    """The name of its check in HTML."""
    name = f"<code>{html.escape(finding.check)}</code>"
    return f'<a href="{html.escape(finding.link)}">{name}</a>' if finding.link else name


class AuditError(AssertionError):
    """An audited function has findings; the message is the report, and ``report`` holds it."""

    def __init__(self, report: "Report") -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True)
class Report:
    """The outcome of an audit. Print it, or show it in a notebook.

    Args:
        subject: name of what was audited.
        findings: errors first, then warnings, then infos.
        capabilities: for each capability "yes", "no" (the function or torch refuses) or "wrong" (a wrong number).
        saved_bytes: bytes that the function keeps alive for its backward on the given sample, beyond its inputs,
            each storage once; None if it does not run.
        checks: names of the checks that ran, in order.
        seconds: how long each check took.
        notes: what the audit did on its own account, such as promoting float32 samples.
        versions: of torch and Python, and the device.
    """

    subject: str
    findings: tuple[Finding, ...]
    capabilities: dict[str, str]
    saved_bytes: int | None
    checks: tuple[str, ...]
    seconds: dict[str, float] = field(repr=False)
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no finding is an error or a warning."""
        return not any(finding.severity in ("error", "warning") for finding in self.findings)

    def of(self, *severities: Severity) -> Iterator[Finding]:
        """The findings of some severities."""
        return (finding for finding in self.findings if finding.severity in severities)

    @property
    def seen(self) -> tuple[str, ...]:
        """The checks that saw something, by name; an error, a warning or a matter of taste, but no capability."""
        told = (f for f in self.findings if f.severity != "info" or f.check in TASTE)
        return tuple(dict.fromkeys(name for f in told for name in (f.check, *f.also)))

    def raise_for_findings(self) -> None:
        """Do nothing if the report is ok.

        Raises:
            AuditError: with the report as message, if there is an error or a warning.
        """
        if not self.ok:
            raise AuditError(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain lists, dicts, strings and numbers, for JSON.

        What a finding has in addition to its texts is listed separately, in the order of the findings.
        """
        plain = asdict(self)
        more = {name: [found.pop(name) for found in plain["findings"]] for name in ("also", "source", "program")}
        return {"ok": self.ok} | plain | {f"{name}_by_finding": values for name, values in more.items()}

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        counts = {s: sum(1 for _ in self.of(s)) for s in ("error", "warning", "info")}
        found = ", ".join(f"{n} {s if s == 'info' or n == 1 else s + 's'}" for s, n in counts.items() if n)
        return (
            f"{self.subject}: {'ok' if self.ok else 'NOT ok'} ({len(self.checks)} checks in "
            f"{sum(self.seconds.values()):.1f} s{', ' + found if found else ''})"
        )

    def __str__(self) -> str:
        blocks = [self.headline, *map(str, self.findings)]
        if self.ok and (limits := not_covered(self.capabilities)):
            blocks[0] += "\n" + textwrap.fill(limits, width=110)
        if self.capabilities:
            width = max(map(len, self.capabilities)) + 3
            cells = [f"{VERDICTS[v]} {name}".ljust(width) for name, v in self.capabilities.items()]
            rows = ["  " + "".join(cells[i : i + 5]).rstrip() for i in range(0, len(cells), 5)]
            blocks.append("\n".join(["capabilities (✓ yes, – no, ✗ wrong)", *rows]))
        if self.saved_bytes is not None:
            blocks.append(f"saved for backward, beyond the inputs: {self.saved_bytes} bytes on this sample")
        blocks += [f"note: {note}" for note in self.notes]
        return "\n\n".join(blocks)

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr class="audit-{f.severity}"><td>{MARKS[f.severity]} {f.severity}</td>'
            f"<td>{_linked(f)}</td>"
            f"<td><p>{html.escape(f.summary)}</p><p><b>Cause.</b> {html.escape(f.cause)}</p>"
            f"<p><b>Fix.</b> {html.escape(f.fix)}</p></td></tr>"
            for f in self.findings
        )
        table = (
            f"<table><thead><tr><th>severity</th><th>check</th><th>finding</th></tr></thead><tbody>{rows}</tbody></table>"
            if rows
            else ""
        )
        can = ", ".join(f"{VERDICTS[v]}&nbsp;{html.escape(name)}" for name, v in self.capabilities.items())
        saved = "" if self.saved_bytes is None else f"<p>Saved beyond the inputs: {self.saved_bytes} bytes.</p>"
        notes = "".join(f"<p>Note: {html.escape(note)}</p>" for note in self.notes)
        limits = not_covered(self.capabilities) if self.ok else ""
        headline = f"<p><b>{html.escape(self.headline)}</b></p>" + (f"<p>{html.escape(limits)}</p>" if limits else "")
        return f'<div class="audit-report">{headline}{table}<p>{can}</p>{saved}{notes}</div>'
