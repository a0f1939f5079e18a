"""Forked processes: whether they can run backward at all, and a short piece of work in one."""

import ctypes
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable

import torch

from autograd_cookbook.auditing.clock import waited_for_a_processor

# Where fork is safe.
CAN_FORK = sys.platform == "linux"
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
PATIENCE = 5.0  # seconds for a backward of one number


def can_fork() -> bool:
    """Whether a process that is forked from this one now can run backward.

    It cannot where CUDA is in use, nor once the autograd engine has started its threads for devices. The engine starts
    them in the first backward of a process that sees a GPU, and, with a CUDA build of torch on a machine without one,
    in the first backward if that is one of ``torch.compile`` (seen with 2.12.1, 2.14.1 and 2.15.0). PyTorch does not
    tell whether it has; so a process is forked and tries.
    """
    return CAN_FORK and not torch.cuda.is_initialized() and status_of(_backward, PATIENCE) == 0


def status_of(work: Callable[[], int], patience: float) -> int | None:
    """The exit status of a forked process that does some work; None if it does not come back and has to be ended.

    Args:
        work: returns the exit status, which is 1 if it raises an exception.
        patience: seconds, without those in which the process waits for a processor.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads
        process = os.fork()
    if process == 0:
        status = 1
        try:
            # It ends with the process that waits for it, which can be ended in the meantime.
            ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
            status = work()
        finally:
            os._exit(status)
    start = time.monotonic()
    while time.monotonic() - start - (waited_for_a_processor(process) or 0.0) < patience:
        done, wait_status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(wait_status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def _backward() -> int:
    with torch.inference_mode(False), torch.enable_grad():
        torch.ones((), device="cpu", requires_grad=True).backward()
    return 0
