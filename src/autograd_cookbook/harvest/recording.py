"""Recording: a few copies of the calls that a program makes of its own functions, while it runs as it always does."""

import contextlib
import fnmatch
import inspect
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, function

from autograd_cookbook.harvest.copying import UncopyableError, copied, tensors_in
from autograd_cookbook.harvest.naming import Operator, Place, is_foreign, operator_of, place_of_class, place_of_operator

KINDS = 8  # calls that are kept for each function
SHAPES = 256  # distinct calls that are looked at for each function
EVERY = 32  # of a function that is called again and again, one call in so many is looked at
MEMORY = 2**28  # bytes of all copies
SECONDS = 0.5  # for copying the arguments of one function
ELEMENTS = 16  # in each tensor: the audit compares derivatives element by element


@dataclass
class Call:
    """One recorded call: its arguments, and how well it suits an audit (the lower the better)."""

    function: type[Function] | Callable[..., Any]
    args: tuple[Any, ...]
    size: int
    rank: tuple[bool, float]

    @property
    def target(self) -> Callable[..., Any]:
        """What to call; of a class it is ``apply`` as it is now, which during the recording is observed."""
        if isinstance(self.function, type) and issubclass(self.function, Function):
            return self.function.apply
        return self.function


@dataclass
class Recorded:
    """What was seen of one function."""

    place: Place
    operator: Operator | None = None
    calls: int = 0
    kept: dict[Any, Call] = field(default_factory=dict)
    seen: set[Any] = field(default_factory=set)
    seconds: float = 0.0
    reason: str = "it was called without an input that requires grad, or under no_grad"

    def best(self, count: int) -> list[Call]:
        """The calls to audit, the best first."""
        return sorted(self.kept.values(), key=lambda call: call.rank)[:count]


class Recorder:
    """Records calls while it is entered.

    Args:
        pattern: of the names of functions, as in a shell; what has no dot or star fits the last part, too.
    """

    def __init__(self, pattern: str = "*") -> None:
        self.pattern = pattern
        self.functions: dict[Place, Recorded] = {}
        self.bytes = 0
        # By id, since a dictionary of weak keys takes as long as everything else that is done in each call.
        self._known: dict[int, Recorded | None] = {}
        self._alive: dict[int, weakref.ref[type]] = {}
        self._lock = threading.RLock()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Recorder":
        self._stack.enter_context(_observed(self._saw))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wants(self, name: str) -> bool:
        """Whether a function of this name is to be recorded."""
        return fnmatch.fnmatchcase(name, self.pattern) or name.rpartition(".")[2] == self.pattern

    def _saw(self, cls: type[Function], args: tuple[Any, ...], *, transformed: bool = False) -> None:
        """Look at a call; whatever happens here, the program must not notice."""
        try:
            entry = self._known[id(cls)]
        except KeyError:
            entry = self._meet(cls)
        if entry is None:
            return
        entry.calls += 1
        if entry.calls > SHAPES and entry.calls % EVERY:
            return
        if transformed:
            if not entry.kept:
                entry.reason = "it was called only inside of transforms of torch.func"
            return
        if not torch.is_grad_enabled():
            return
        with self._lock:
            self._look(entry, cls, args)

    def _meet(self, cls: type[Function]) -> Recorded | None:
        """Look at a class for the first time; forget it when it is gone, since another may get its id."""
        key = id(cls)
        known, alive = self._known, self._alive

        def forget(_: object) -> None:
            known.pop(key, None)
            alive.pop(key, None)

        alive[key] = weakref.ref(cls, forget)
        known[key] = self._entry(cls)
        return known[key]

    def _entry(self, cls: type[Function]) -> Recorded | None:
        if operator := operator_of(cls):
            place = place_of_operator(operator, cls)
        elif is_foreign(cls):
            place = place_of_class(cls)
        else:
            return None
        return self.functions.setdefault(place, Recorded(place, operator)) if self.wants(place.name) else None

    def _look(self, entry: Recorded, cls: type[Function], args: tuple[Any, ...]) -> None:
        called: type[Function] | Callable[..., Any] = cls
        if entry.operator:
            called, args = entry.operator.call(args)
        key = tuple([_key(a) for a in args])
        if key in entry.seen or len(entry.seen) >= SHAPES or entry.seconds > SECONDS:
            return
        if not any(t.requires_grad for t in tensors_in(args)):
            return
        entry.seen.add(key)
        shapes: list[Any] = []
        # Which tensors have equal shapes tells broadcasting from none.
        kind = tuple(_kind(a, shapes) for a in args), *((shapes.index(s), len(s)) for s in shapes)
        old = entry.kept.get(kind)
        if not old and len(entry.kept) >= KINDS:
            return
        tensors = [t for t in tensors_in(args) if t.requires_grad]
        distance = _distance(tensors)
        if old and old.rank <= (False, distance):
            return
        rank = all(map(_constant, tensors)), distance
        if old and old.rank <= rank:
            return
        start = time.perf_counter()
        try:
            copy, size = copied(args)
        except UncopyableError as reason:
            entry.reason = str(reason)
        else:
            freed = old.size if old else 0
            if self.bytes + size - freed <= MEMORY:
                self.bytes += size - freed
                entry.kept[kind] = Call(called, copy, size, rank)
            else:
                entry.reason = f"the copies of other calls take {MEMORY // 2**20} MiB, and more are not made"
        entry.seconds += time.perf_counter() - start


def _key(value: Any) -> Any:
    """What tells a call from those seen before; it is computed in each, so it is quick rather than thorough."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype, value.requires_grad, value.is_contiguous()
    if isinstance(value, list | tuple):
        return type(value), *map(_key, value[:16])
    return value if isinstance(value, bool | str | int | None) else type(value)


def _kind(value: Any, shapes: list[Any]) -> Any:
    """What distinguishes an argument from others, without its size; shapes of tensors are collected."""
    if isinstance(value, Tensor):
        shapes.append(value.shape)
        strided = value.layout is torch.strided and not value.is_contiguous()
        return value.dtype, value.requires_grad, value.device.type, strided
    if isinstance(value, list | tuple):
        return type(value), tuple(_kind(child, shapes) for child in value[:16])
    return _key(value)


def _distance(tensors: list[Tensor]) -> float:
    """How far some tensors are from having few numbers, but not too few."""
    return sum(abs(math.log2((t.numel() or 2**-20) / ELEMENTS)) for t in tensors) / len(tensors)


def _constant(tensor: Tensor) -> bool:
    if tensor.layout is not torch.strided or not 1 < tensor.numel() <= 2**16:
        return tensor.numel() == 0
    flat = tensor.detach().flatten()
    return bool((flat == flat[0]).all())


def _positional(cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call with keywords as forward gets them, without a context."""
    context = (None,) if cls.setup_context is function._SingleLevelFunction.setup_context else ()
    bound = inspect.signature(cls.forward).bind(*context, *args, **kwargs)
    bound.apply_defaults()
    return bound.args[len(context) :]


@contextlib.contextmanager
def _observed(saw: Callable[..., None]) -> Iterator[None]:
    """Have every call of ``apply`` told to ``saw`` first.

    Where ``Function.apply`` is in Python (torch 2.13), it looks up ``apply`` in its base each time that it runs, so
    what stands there is seen also by those who took ``X.apply`` long ago. Where it is in C (torch 2.15), it looks up
    nothing, and what takes its place is seen by those who take ``X.apply`` from now on. Inside of transforms of
    torch.func both call another function.
    """
    module: Any = function
    in_c = not isinstance(vars(Function)["apply"], classmethod)
    base: Any = Function if in_c else module._SingleLevelFunction
    before = vars(base).get("apply")
    transform = module.custom_function_call

    def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        try:
            if not in_c or not torch._C._are_functorch_transforms_active():
                saw(cls, _positional(cls, args, kwargs) if kwargs else args)
        except Exception:
            pass
        return super(base, cls).apply(*args, **kwargs)

    def custom_function_call(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            saw(cls, args, transformed=True)
        return transform(cls, *args, **kwargs)

    base.apply = classmethod(apply)
    module.custom_function_call = custom_function_call
    try:
        yield
    finally:
        if before is None:
            del base.apply
        else:
            base.apply = before
        module.custom_function_call = transform
