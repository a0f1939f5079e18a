"""The settings of a harvest, for the command line and for pytest."""

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
    """The options of one harvest."""

    pattern: str = "*"
    budget: float = BUDGET
    jobs: int | None = None
    reports: tuple[Path, ...] = ()
    baseline: Path | None = None
    update_baseline: bool = False
    fail_on: str = ""  # if empty, the value of the project's table

    def __post_init__(self) -> None:
        for path in self.reports:
            if path.suffix not in FORMS:
                raise UsageError(f"the report {str(path)!r} must end with one of {', '.join(FORMS)}")
        if self.update_baseline and not self.baseline:
            raise UsageError("to update the baseline, name its file")


def add_settings(add: Callable[..., object], prefix: str = "--") -> None:
    """Add the options to a parser."""
    add(f"{prefix}budget", type=seconds, default=BUDGET, metavar="SECONDS", help="time for all audits; default: 300")
    add(
        f"{prefix}jobs",
        type=count,
        default=None,
        metavar="N",
        help="number of audits at a time; default: one per processor",
    )
    add(
        f"{prefix}report",
        action="append",
        default=[],
        metavar="FILE",
        help="write the report of the audits to a .json, .html or .sarif file; you can use this option several times",
    )
    add(f"{prefix}baseline", default=None, metavar="FILE", help="fail only on findings that are not in this file")
    add(f"{prefix}update-baseline", action="store_true", help="write the current findings to the baseline file")
    add(
        f"{prefix}fail-on",
        choices=LEVELS,
        default="",
        help="the mildest severity that fails the run; default: fail_on in pyproject.toml, or warning",
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
    """Return the settings for the values of the options."""
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
    """Return the positive number that a text stands for."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, got {text!r}")
    return value


def count(text: str) -> int:
    """Return the positive integer that a text stands for."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)
