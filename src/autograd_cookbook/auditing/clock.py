"""How long an audit may take, and when the function was last called."""

import math
import mmap
import os
import time
from pathlib import Path
from typing import Literal

TIMEOUT = 10.0
BUDGET = 15.0
SHARE = 1 / 3  # of the budget for one check, so that a slow one leaves room for others
COMPILING = 6  # times as long as anything else may a compiler be silent


class OutOfTime(BaseException):
    """The budget of the audit, or the share of a check, is spent."""


class Clock:
    """Times an audit; what a forked process writes here, its parent reads.

    Time counts in which the process that runs the checks works or sleeps, not time in which it waits for a processor:
    a function is no slower because the machine is busy. Linux tells that. It does not tell for what else a process
    waits, such as memory or another process, so that the limits grow with the load, too.

    Args:
        timeout: seconds in which a call must come back.
        budget: seconds for all checks together; None for no limit.
        untimed: names of checks that the budget is not for.
    """

    def __init__(self, timeout: float, budget: float | None, untimed: tuple[str, ...] = ()) -> None:
        self.timeout, self.budget = timeout, math.inf if budget is None else budget
        self.untimed = untimed
        self.spent = 0.0  # by checks that are over
        self.watch(os.getpid())
        self.check, self.since = "", self._now()
        # Stored at once: ``struct.pack_into`` sets to zero first, and a parent that reads just then sees a hang.
        self._memory = memoryview(mmap.mmap(-1, 8)).cast("d")
        self.beat()

    def watch(self, process: int) -> None:
        """From now on this process runs the checks."""
        self._process, self._waited = process, 0.0

    def _now(self) -> float:
        """Seconds, without those that the process has waited for a processor."""
        waited = waited_for_a_processor(self._process)
        # A process that has ended is asked for its last time.
        self._waited = self._waited if waited is None else waited
        return time.monotonic() - self._waited

    def beat(self) -> None:
        """A call begins."""
        self._memory[0] = self._now()

    def start(self, check: str) -> None:
        """A check begins."""
        self.check, self.since = check, self._now()
        self.beat()

    def stop(self) -> None:
        """The check is over; time that is not the function's to save does not count."""
        if self.check not in self.untimed:
            self.spent += self._now() - self.since
        self.check = ""

    def excuse(self) -> None:
        """The check is over, and its time does not count: it hung."""
        self.check = ""

    def allows(self, check: str) -> bool:
        """Whether there is time left to begin a check."""
        return check in self.untimed or self.spent < _patience(self.budget)

    def verdict(self) -> Literal["hangs", "slow"] | None:
        """What is to be said of the check that is running, if it is to be cut off."""
        now = self._now()
        if now - self._memory[0] > _patience(self.timeout * (COMPILING if self.check == "compile" else 1)):
            return "hangs"
        taken = now - self.since
        if self.check in self.untimed:
            return None
        over = taken > _patience(SHARE * self.budget) or self.spent + taken > _patience(self.budget)
        return "slow" if over else None


def waited_for_a_processor(process: int) -> float | None:
    """Seconds in which the first thread of a process could run and had no processor; None if nothing tells us."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _patience(seconds: float) -> float:
    """How long to wait here for what takes so many seconds on an idle machine."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0
    return seconds * max(1.0, load)
