"""How long an audit may take, and when the function was last called."""

import math
import mmap
import os
import struct
import time
from typing import Literal

TIMEOUT = 10.0
BUDGET = 15.0
SHARE = 1 / 3  # of the budget for one check, so that a slow one leaves room for others
COMPILING = 6  # times as long as anything else may a compiler be silent


class OutOfTime(BaseException):
    """The budget of the audit, or the share of a check, is spent."""


class Clock:
    """Times an audit; what a forked process writes here, its parent reads.

    Args:
        timeout: seconds in which a call must come back.
        budget: seconds for all checks together; None for no limit.
        untimed: names of checks that the budget is not for.
    """

    def __init__(self, timeout: float, budget: float | None, untimed: tuple[str, ...] = ()) -> None:
        self.timeout, self.budget = timeout, math.inf if budget is None else budget
        self.untimed = untimed
        self.spent = 0.0  # by checks that are over
        self.check, self.since = "", time.monotonic()
        self._memory = mmap.mmap(-1, 8)
        self.beat()

    def beat(self) -> None:
        """A call begins."""
        struct.pack_into("d", self._memory, 0, time.monotonic())

    def start(self, check: str) -> None:
        """A check begins."""
        self.check, self.since = check, time.monotonic()
        self.beat()

    def stop(self) -> None:
        """The check is over; time that is not the function's to save does not count."""
        if self.check not in self.untimed:
            self.spent += time.monotonic() - self.since
        self.check = ""

    def excuse(self) -> None:
        """The check is over, and its time does not count: it hung."""
        self.check = ""

    def allows(self, check: str) -> bool:
        """Whether there is time left to begin a check."""
        return check in self.untimed or self.spent < _patience(self.budget)

    def verdict(self) -> Literal["hangs", "slow"] | None:
        """What is to be said of the check that is running, if it is to be cut off."""
        now = time.monotonic()
        (beat,) = struct.unpack_from("d", self._memory, 0)
        if now - beat > _patience(self.timeout * (COMPILING if self.check == "compile" else 1)):
            return "hangs"
        taken = now - self.since
        if self.check in self.untimed:
            return None
        over = taken > _patience(SHARE * self.budget) or self.spent + taken > _patience(self.budget)
        return "slow" if over else None


def _patience(seconds: float) -> float:
    """How long to wait here for what may take so many seconds on an idle machine."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0
    return seconds * max(1.0, load)
