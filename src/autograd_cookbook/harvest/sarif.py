"""Write the report as SARIF 2.1.0. Code hosts show this format as annotations."""

from collections import Counter
from pathlib import Path
from typing import Any

from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.harvest.results import Found, FunctionResult, Harvest

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def sarif_of(harvest: Harvest) -> dict[str, Any]:
    """Return a SARIF log with one run. Its rules are the checks that found something."""
    found = [(each, f) for each in harvest.functions for f in each.findings]
    names = list(dict.fromkeys(f.check for _, f in found))
    # Code hosts show results with equal fingerprints as one, but a check can find two causes.
    seen: Counter[str] = Counter()
    prints = []
    for each, f in found:
        mark = f"{each.name}/{f.check}"
        seen[mark] += 1
        prints.append(mark if seen[mark] == 1 else f"{mark}/{seen[mark]}")
    driver = {
        "name": "autograd-cookbook",
        "version": harvest.version,
        "rules": [_rule(name) for name in names],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [
                    _result(each, f, names.index(f.check), mark) for (each, f), mark in zip(found, prints, strict=True)
                ],
            }
        ],
    }


def _rule(name: str) -> dict[str, Any]:
    check = all_checks()[name]
    rule: dict[str, Any] = {"id": name, "shortDescription": {"text": check.purpose}}
    return rule | ({"helpUri": check.url} if "://" in check.url else {})


def _result(each: FunctionResult, found: Found, rule: int, mark: str) -> dict[str, Any]:
    path = Path(each.file)
    result: dict[str, Any] = {
        "ruleId": found.check,
        "ruleIndex": rule,
        "level": LEVELS[found.severity],
        "message": {"text": f"{each.name}: {found.summary}\nCause: {found.cause}\nFix: {found.fix}"},
        "partialFingerprints": {"function/check": mark},
    }
    if not each.file.startswith("<"):
        uri = path.as_uri() if path.is_absolute() else path.as_posix()
        region = {"startLine": max(1, each.line)}
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}]
    if found.accepted:
        result["suppressions"] = [{"kind": "external", "justification": found.accepted}]
    return result
