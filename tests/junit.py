"""What pytest has reported of a run, for ``tests/versions.py``; apart from it, which needs what builds the site."""

from pathlib import Path
from xml.etree import ElementTree

from docs._ext.results import Row


def counted(report: Path) -> Row:
    """How many tests passed and were skipped, and the names of those that failed."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"passed": len(cases) - len(failed) - skipped, "skipped": skipped, "failed": failed}
