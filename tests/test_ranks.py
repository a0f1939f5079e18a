"""Processes that are started, heard and ended."""

import os
import re
import time
from pathlib import Path

import pytest

from autograd_cookbook import ranks
from autograd_cookbook.ranks import run_ranks

pytestmark = pytest.mark.xdist_group("ranks")


def about_itself(word: str) -> tuple:
    import os

    import torch
    import torch.distributed as dist

    number = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(number)
    facts = dist.get_backend(), torch.get_num_threads(), os.environ.get("GLOO_SOCKET_IFNAME")
    return dist.get_rank(), dist.get_world_size(), word, number, *facts


def test_results_come_in_the_order_of_the_ranks() -> None:
    results = run_ranks(about_itself, 3, "hello")
    assert [r[:3] for r in results] == [(rank, 3, "hello") for rank in range(3)]
    for *_, number, backend, threads, interface in results:
        assert number.item() == 3.0, "the ranks have not heard each other"
        assert (backend, threads) == ("gloo", 1)
        assert interface in ("lo", "lo0"), f"the ranks talk over {interface!r}, which the outside may reach"


def waits_for_one_that(fate: str) -> None:
    """Rank 1 meets its fate between two collectives; the others say how long the second one took to raise."""
    import os
    import signal
    import time

    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(3))
    if dist.get_rank() == 1:
        if fate == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "raises":
            raise ValueError("a bad day")
        time.sleep(6)
    start = time.monotonic()
    try:
        dist.all_reduce(torch.ones(3))
    except RuntimeError as error:
        raise RuntimeError(f"waited {time.monotonic() - start:.2f} s: {error}") from None


def failures(fate: str, timeout: float) -> dict[int, str]:
    """What is said of each rank of three."""
    with pytest.raises(RuntimeError, match="3 of 3 ranks failed") as caught:
        run_ranks(waits_for_one_that, 3, fate, timeout=timeout, limit=100)
    _, *said = re.split(r"^rank (?=\d: )", str(caught.value), flags=re.MULTILINE)
    return {int(text[0]): text for text in said}


@pytest.mark.parametrize(
    ("fate", "said"),
    [("is killed", "exit status -9 and returned nothing"), ("raises", "ValueError: a bad day")],
)
def test_when_a_rank_dies_the_others_raise_at_once(fate: str, said: str) -> None:
    """Long before the timeout of the group: the connection to the dead process is closed."""
    reports = failures(fate, timeout=60)
    assert said in reports[1]
    for rank in (0, 2):
        (waited,) = re.findall(r"^RuntimeError: waited ([\d.]+) s: .*[Cc]onnection", reports[rank], flags=re.MULTILINE)
        assert float(waited) < 30, f"rank {rank} waited {waited} s"


def test_when_a_rank_is_late_the_others_raise_after_the_timeout() -> None:
    reports = failures("is late", timeout=2)
    waited = re.findall(
        r"^RuntimeError: waited ([\d.]+) s: .*Timed out waiting 2000ms", "".join(reports.values()), re.M
    )
    assert waited, f"no rank has timed out: {reports}"
    assert all(1.5 < float(seconds) < 30 for seconds in waited), f"the ranks waited {waited} s"


# In place of the one with torch, which takes seconds to start.
HANGS = """
import os, subprocess, sys, time
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("PATH", "w").write(f"{os.getpid()} {rank.pid}")
time.sleep(600)
"""


def nothing() -> None: ...


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_at_the_limit_all_processes_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "LAUNCHER", HANGS.replace("PATH", str(tmp_path / "pids")))
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"2 ranks have not ended within 4\.5 s"):
        run_ranks(nothing, 2, limit=4.5)
    assert time.monotonic() - start < 60
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    deadline = time.monotonic() + 10  # whoever inherits a killed process has to notice
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids)), f"of {pids} some are alive"


def test_what_keeps_the_ranks_from_starting_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "LAUNCHER", "raise SystemExit('no torch on this machine')")
    with pytest.raises(RuntimeError, match="could not be started\nno torch on this machine"):
        run_ranks(nothing, 2)


def test_functions_that_cannot_be_sent_are_refused() -> None:
    captured = 3

    def closes() -> int:
        return captured

    for function in (closes, lambda: None, len, about_itself.__get__(1)):
        with pytest.raises(TypeError, match="expected a function with a def that uses no variable of the one around"):
            run_ranks(function, 2)
    with pytest.raises(ValueError, match="world_size > 0, got 0"):
        run_ranks(nothing, 0)
