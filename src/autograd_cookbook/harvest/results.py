"""The results of a harvest: the findings about each function, each finding once for all calls that show it."""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autograd_cookbook.policy import FAIL_ON, fails

ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass
class Found:
    """A finding about a function. ``accepted`` is the reason why the finding does not count, or empty."""

    check: str
    severity: str
    summary: str
    cause: str
    fix: str
    url: str
    program: str = ""
    accepted: str = ""


@dataclass
class FunctionResult:
    """One function: its place, its recorded calls, and the results of the audit or the reason why there are none."""

    name: str
    file: str
    line: int
    reached: bool = False
    calls: int = 0
    audited: int = 0
    seconds: float = 0.0
    findings: list[Found] = field(default_factory=list)
    capabilities: dict[str, str] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_audited: str = ""

    def add(self, report: dict[str, Any], programs: dict[str, str]) -> None:
        """Add the report of another call."""
        before = list(self.findings)
        for each in report["findings"]:
            known = next((f for f in self.findings if (f.check, f.cause) == (each["check"], each["cause"])), None)
            # Calls of other sizes give other numbers for the same cause.
            words = each["check"], _words(each["cause"])
            known = known or next((f for f in before if (f.check, _words(f.cause)) == words), None)
            if known is None:
                self.findings.append(Found(**each, program=programs.get(each["check"], "")))
            elif ORDER[each["severity"]] < ORDER[known.severity]:
                known.severity, known.summary = each["severity"], each["summary"]
                known.program = programs.get(each["check"], "")
        self.findings.sort(key=lambda f: ORDER[f.severity])
        worst = {"yes": 0, "no": 1, "wrong": 2}
        for name, verdict in report["capabilities"].items():
            self.capabilities[name] = max(self.capabilities.get(name, "yes"), verdict, key=worst.__getitem__)
        self.checks += [c for c in report["checks"] if c not in self.checks]
        self.notes += [n for n in report["notes"] if n not in self.notes]
        self.seconds = round(self.seconds + sum(report["seconds"].values()), 3)
        self.audited += 1


@dataclass
class Harvest:
    """All functions of a project, and the problems with its configuration."""

    functions: list[FunctionResult]
    problems: list[str] = field(default_factory=list)
    torch: str = ""
    version: str = ""
    fail_on: str = FAIL_ON

    @property
    def ok(self) -> bool:
        """Whether there is no problem, and no finding counts."""
        return not self.problems and not any(map(self.counting, self.functions))

    def counting(self, function: FunctionResult) -> list[Found]:
        """Return the findings about a function that make the harvest fail."""
        return [f for f in function.findings if fails(f.severity, self.fail_on) and not f.accepted]

    def to_dict(self) -> dict[str, Any]:
        """Return all results as plain lists, dicts, strings and numbers."""
        return {"ok": self.ok} | asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Harvest":
        """Return the harvest from the result of :meth:`to_dict`."""
        functions = [
            FunctionResult(**(each | {"findings": [Found(**f) for f in each["findings"]]}))
            for each in data["functions"]
        ]
        return cls(functions, data["problems"], data["torch"], data["version"], data["fail_on"])


def _words(text: str) -> str:
    """Return a text without its numbers and shapes."""
    return re.sub(r"\[[\d, ]*\]|\d[\d.,e+-]*", "#", text)


def read_baseline(path: Path) -> set[tuple[str, str, str]]:
    """Return function, check and severity of the findings in a baseline.

    Raises:
        ValueError: if the file does not exist, or is not a baseline.
    """
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))["findings"]
        return {(f["function"], f["check"], f["severity"]) for f in listed}
    except FileNotFoundError:
        raise ValueError(f"no baseline {str(path)!r}: write it with the option to update the baseline") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{str(path)!r} is not a baseline: {error!r}") from None


def write_baseline(path: Path, harvest: Harvest) -> None:
    """Store the findings that count now, so that later only new findings count."""
    listed = [
        {"function": each.name, "check": f.check, "severity": f.severity}
        for each in harvest.functions
        for f in harvest.counting(each)
    ]
    path.write_text(json.dumps({"findings": listed}, indent=2) + "\n", encoding="utf-8")


def accept_baseline(harvest: Harvest, known: set[tuple[str, str, str]]) -> None:
    """Mark the findings of the baseline as accepted, so that they do not count."""
    for each in harvest.functions:
        for f in harvest.counting(each):
            if (each.name, f.check, f.severity) in known:
                f.accepted = "in the baseline"
