"""What a harvest is asked for, on the command line and in pytest alike."""

import argparse
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from autograd_cookbook.cli import UsageError
from autograd_cookbook.policy import LEVELS

FORMS = ".json", ".html", ".sarif"
BUDGET = 300.0  # seconds for all audits


@dataclass(frozen=True)
class Settings:
    """The options of one harvest; paths are relative to the folder in which it was started."""

    pattern: str = "*"
    budget: float = BUDGET
    jobs: int | None = None
    reports: tuple[Path, ...] = ()
    baseline: Path | None = None
    update_baseline: bool = False
    fail_on: str = ""  # what the project's table says, unless given

    def __post_init__(self) -> None:
        for path in self.reports:
            if path.suffix not in FORMS:
                raise UsageError(f"the report {str(path)!r} must end with one of {', '.join(FORMS)}")
        if self.update_baseline and not self.baseline:
            raise UsageError("to update the baseline, name its file")


def add_settings(add: Callable[..., object], prefix: str = "--") -> None:
    """Add the options to a parser."""
    add(f"{prefix}budget", type=seconds, default=BUDGET, metavar="SECONDS", help="for all audits; default: 300")
    add(f"{prefix}jobs", type=count, default=None, metavar="N", help="audits at a time; default: one per processor")
    add(
        f"{prefix}report",
        action="append",
        default=[],
        metavar="FILE",
        help="write the report of the audits: .json, .html or .sarif; can be given several times",
    )
    add(f"{prefix}baseline", default=None, metavar="FILE", help="fail only on findings that are not in this file")
    add(f"{prefix}update-baseline", action="store_true", help="write the findings into the baseline")
    add(
        f"{prefix}fail-on",
        choices=LEVELS,
        default="",
        help="the mildest finding that makes it fail; default: fail_on of the project's table, or warning",
    )


def settings_from(
    pattern: str,
    budget: float,
    jobs: int | None,
    reports: Iterable[str],
    baseline: str | None,
    update_baseline: bool,
    fail_on: str,
) -> Settings:
    """What the options say."""
    return Settings(
        pattern,
        budget,
        jobs,
        tuple(Path(each).absolute() for each in reports),
        Path(baseline).absolute() if baseline else None,
        update_baseline,
        fail_on,
    )


def seconds(text: str) -> float:
    """A positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, got {text!r}")
    return value


def count(text: str) -> int:
    """A positive integer."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)
