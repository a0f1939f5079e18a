"""Audit one call in a new Python process, for a function that hangs or dies in a forked process.

A forked process has none of the threads of its parent. So a library that has started threads of its own, such as Numba
or the pool of ``torch.jit.fork``, can wait for them forever.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys

from autograd_cookbook.harvest.judging import Task, Verdict, judge

COMMAND = "from autograd_cookbook.harvest.fresh import main; main()"


def judged_afresh(task: Task, patience: float) -> Verdict | None:
    """Return the verdict of a new process.

    None if the call cannot be sent there, for example because its function is defined in the program itself, or if the
    process also hangs or dies.
    """
    try:
        sent = pickle.dumps(task)
    except Exception:  # whatever pickling an object of the program raises
        return None
    places = os.pathsep.join(path or os.getcwd() for path in sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": places},
        start_new_session=True,  # so that the processes that it starts can be ended with it
    ) as process:
        try:
            received, _ = process.communicate(sent, timeout=patience)
            verdict = pickle.loads(received)
        except (subprocess.TimeoutExpired, OSError, EOFError, pickle.UnpicklingError):
            return None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return verdict if isinstance(verdict, Verdict) else None


def main() -> None:
    """Read a call, audit the call, and write the verdict. Everything else that the audit prints is lost."""
    answer = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    task = pickle.load(sys.stdin.buffer)
    os.dup2(null, 0)
    verdict = judge(task)
    with open(answer, "wb") as stream:
        pickle.dump(verdict, stream)
    os._exit(0)  # threads of the library can keep a process from ending
