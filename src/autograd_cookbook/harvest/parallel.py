"""Run several audits at a time, each in its own process, so that a crash or a hang affects only one audit."""

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from autograd_cookbook.auditing.forking import can_fork
from autograd_cookbook.harvest.fresh import judged_afresh
from autograd_cookbook.harvest.judging import Task, Verdict, judge
from autograd_cookbook.harvest.settings import BUDGET

LONGEST = 120.0  # seconds for one audit
# From timeout or a canceled job, and from a closed terminal, which Windows does not have.
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

Progress = Callable[[str, int, int], None]


@dataclass
class _Running:
    task: int
    process: Any
    connection: Connection
    until: float


def judged(tasks: Sequence[Task], jobs: int, budget: float = BUDGET, progress: Progress | None = None) -> list[Verdict]:
    """Return the verdict for each task, in the order of the tasks.

    If the budget is spent, or the user presses Ctrl-C, the verdicts of the other tasks say so.
    """
    verdicts: list[Verdict | None] = [None] * len(tasks)
    stream = _forked if can_fork() else _here
    late = f"the budget of {budget:g} s was spent before its turn"
    done = 0
    try:
        with contextlib.closing(stream(tasks, max(1, jobs), time.monotonic() + budget)) as finished:
            for number, verdict in finished:
                verdicts[number] = verdict
                done += 1
                if progress:
                    progress(tasks[number].name, done, len(tasks))
    except KeyboardInterrupt:
        late = "interrupted"
    return [v or Verdict(reason=late) for v in verdicts]


def _here(tasks: Sequence[Task], _: int, end: float) -> Generator[tuple[int, Verdict]]:
    """Run the audits one after the other in this process, if a forked process is impossible or cannot run backward."""
    for number, task in enumerate(tasks):
        if time.monotonic() > end:
            return
        try:
            yield number, judge(task)
        except Exception as error:
            yield number, Verdict(reason=f"the audit failed: {type(error).__name__}: {error}")


def _forked(tasks: Sequence[Task], jobs: int, end: float) -> Generator[tuple[int, Verdict]]:
    context = multiprocessing.get_context("fork")
    pending = list(enumerate(tasks))
    running: list[_Running] = []
    stuck: list[tuple[int, Verdict]] = []
    ended: list[int] = []
    before = _noted(ended)
    try:
        while (pending or running) and not ended:
            now = time.monotonic()
            while pending and len(running) < jobs and now < end:
                number, task = pending.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(task, theirs), daemon=False)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # newer versions of Python warn about threads
                    process.start()
                theirs.close()
                running.append(_Running(number, process, ours, now + LONGEST))
            if now >= end:
                pending = []
            ready = wait([r.connection for r in running], timeout=0.2)
            for each in list(running):
                verdict = None
                if each.connection in ready:
                    verdict = _received(each)
                elif time.monotonic() > each.until:
                    verdict = Verdict(reason=f"its audit was not done after {LONGEST:g} s", stuck=True)
                elif time.monotonic() < end:
                    continue
                _end(each)
                running.remove(each)
                if verdict and verdict.stuck:
                    stuck.append((each.task, verdict))
                elif verdict:
                    yield each.task, verdict
    finally:
        for each in running:
            _end(each)
        for number, handler in before.items():
            signal.signal(number, handler)
        if ended:
            os.kill(os.getpid(), ended[0])
    for number, verdict in stuck:
        left = end - time.monotonic()
        yield number, (judged_afresh(tasks[number], min(LONGEST, left)) if left > 0 else None) or verdict


def _noted(ended: list[int]) -> dict[int, Any]:
    """Let a signal that would end this process be added to the list instead. Return the handlers of before.

    Without this, the audits go on after ``timeout`` or a canceled CI job has ended this process, because each of them
    is the leader of a process group of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}  # Python sets handlers in the main thread only
    # A program with handlers of its own decides what a signal does.
    default = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    return {number: signal.signal(number, lambda number, _: ended.append(number)) for number in default}


def _received(each: _Running) -> Verdict:
    try:
        return each.connection.recv()
    except (EOFError, OSError):
        each.process.join()
        code = each.process.exitcode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        return Verdict(reason=f"the process of its audit died ({how})", stuck=True)


def _end(each: _Running) -> None:
    """End the process with all processes that it has started."""
    if each.process.is_alive():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.kill()
    each.process.join()
    each.connection.close()


def _child(task: Task, connection: Connection) -> None:
    """Audit in a forked process, with its own process group, without threads and without output."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (pytest has put others there)
    faulthandler.disable()
    torch.set_num_threads(1)  # the threads of the parent do not exist here
    gc.freeze()
    try:
        verdict = judge(task)
    except BaseException as error:
        verdict = Verdict(reason=f"the audit failed: {type(error).__name__}: {error}")
    connection.send(verdict)
    connection.close()
    os._exit(0)
