"""Whether a custom function hands its tensors to code outside of PyTorch, which may trust what it reads."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from autograd_cookbook.auditing.observe import observing
from autograd_cookbook.auditing.subject import Subject

# Ways to the memory of a tensor.
DOORS = frozenset(["data_ptr", "numpy", "__array__", "__dlpack__", "untyped_storage", "storage", "_typed_storage"])
# Modules in C that cannot write beyond what they own; those of the standard library that can are left out.
SAFE = (sys.stdlib_module_names | {"torch"}) - {"ctypes", "_ctypes", "posix", "nt", "os", "signal", "_signal", "mmap"}


class _Doors(TorchFunctionMode):
    def __init__(self, leaves: Callable[[], None]) -> None:
        super().__init__()
        self.leaves = leaves

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in DOORS:
            self.leaves()
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __init__(self, leaves: Callable[[], None]) -> None:
        super().__init__()
        self.leaves = leaves

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace not in ("aten", "prim", "prims"):
            self.leaves()
        return func(*args, **(kwargs or {}))


def leaves_torch(subject: Subject) -> bool:
    """Whether forward or backward of the custom functions calls C code that is not PyTorch's or Python's.

    Also so if that cannot be told, because the call raises an exception when it is watched.
    """
    found = []

    def leaves() -> None:
        found.append(True)

    def look(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and _module(called).partition(".")[0] not in SAFE:
            leaves()

    @contextlib.contextmanager
    def watched() -> Iterator[None]:
        before = sys.getprofile()  # that of this thread: backward has one of its own on a GPU
        with _Doors(leaves), _Operators(leaves):
            sys.setprofile(look)
            try:
                yield
            finally:
                sys.setprofile(before)

    try:
        with observing(subject.classes, saved=False, around=watched):
            subject.run().gradients()
    except (Exception, SystemExit):
        return True
    return bool(found)


def _module(called: Any) -> str:
    """Where a function in C comes from: its module, or that of the object whose method it is."""
    owner = getattr(called, "__self__", None)
    named = getattr(called, "__module__", None) or getattr(owner, "__name__", None)
    return str(named or type(owner).__module__)
