"""Work that may hang, end its process, or change torch for good."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

FORK = multiprocessing.get_context("fork")


def alone(work: Callable[[], Any], seconds: float, context: Any = FORK) -> Any:
    """Call it in a process of its own, and return what it returns, which must be picklable.

    Args:
        work: what to call.
        seconds: how long it may take.
        context: how the process is made: a copy of this one, unless another context of ``multiprocessing`` is given.

    Raises:
        TimeoutError: if it takes longer than so many seconds.
        EOFError: if it raises, or ends its process.
    """
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(work, theirs))
    # A process that is no copy would first run the file that this one was started with, and the work needs none of it.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise TimeoutError(f"it does not come back within {seconds:.0f} s")
        return ours.recv()
    finally:
        process.kill()  # which is silent about one that has ended
        process.join()
        ours.close()


def _child(work: Callable[[], Any], connection: Any) -> None:
    connection.send(work())
    os._exit(0)
