"""Copy a few calls that a program makes of its own functions, without changing how the program runs."""

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

KINDS = 8  # the most calls that are kept for each function
SHAPES = 256  # the number of different calls of each function that are examined
EVERY = 32  # after that, examine only every 32nd call
MEMORY = 2**28  # the most bytes of all copies
SECONDS = 0.5  # the most time for copying the arguments of one function
ELEMENTS = 16  # the best size of a tensor, because the audit compares derivatives element by element


@dataclass
class Call:
    """One recorded call. A smaller ``rank`` means that the call is better for an audit."""

    function: type[Function] | Callable[..., Any]
    args: tuple[Any, ...]
    size: int
    rank: tuple[bool, float]

    @property
    def target(self) -> Callable[..., Any]:
        """The function to call. For a class, this is its present ``apply``, which the recorder replaces for a while."""
        if isinstance(self.function, type) and issubclass(self.function, Function):
            return self.function.apply
        return self.function


@dataclass
class Recorded:
    """The recorded calls of one function."""

    place: Place
    operator: Operator | None = None
    calls: int = 0
    kept: dict[Any, Call] = field(default_factory=dict)
    seen: set[Any] = field(default_factory=set)
    seconds: float = 0.0
    reason: str = (
        "it was called without an input that requires grad, or without grad mode: under no_grad, or in the forward of "
        "another function"
    )

    def best(self, count: int) -> list[Call]:
        """Return the calls to audit, with the best first."""
        return sorted(self.kept.values(), key=lambda call: call.rank)[:count]


class Recorder:
    """Records calls inside of a ``with`` statement.

    Args:
        pattern: a pattern for the names of functions, as in a shell. A pattern can also be the last part of a name.
    """

    def __init__(self, pattern: str = "*") -> None:
        self.pattern = pattern
        self.functions: dict[Place, Recorded] = {}
        self.bytes = 0
        # Use ids, because a dictionary with weak keys would take as long as all other work of a call.
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
        """Whether to record a function of this name."""
        return fnmatch.fnmatchcase(name, self.pattern) or name.rpartition(".")[2] == self.pattern

    def _saw(self, cls: type[Function], args: tuple[Any, ...], *, transformed: bool = False) -> None:
        """Examine a call. The program must not notice any error here."""
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
            try:
                self._look(entry, cls, args)
            except Exception as error:
                entry.reason = f"its call could not be recorded: {type(error).__name__}: {' '.join(str(error).split())}"

    def _meet(self, cls: type[Function]) -> Recorded | None:
        """Register a new class. Forget the class when it is deleted, because another class can get its id."""
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
        # Equal shapes distinguish a call without broadcasting from a call with broadcasting.
        kind = tuple(_kind(a, shapes) for a in args), *((shapes.index(s), len(s)) for s in shapes)
        old = entry.kept.get(kind)
        if not old and len(entry.kept) >= KINDS:
            return
        tensors = [t for t in tensors_in(args) if t.requires_grad]
        distance = _distance(tensors)
        if old and old.rank <= (False, distance):
            return
        rank = all(map(_constant, tensors)) or not all(map(_finite, tensors)), distance
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
    """Return a key that distinguishes a call from earlier calls. Every call computes it, so it must be fast."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype, value.requires_grad, value.layout, _is_strided(value)
    if isinstance(value, list | tuple):
        return type(value), *map(_key, value[:16])
    return value if isinstance(value, bool | str | int | None) else type(value)


def _kind(value: Any, shapes: list[Any]) -> Any:
    """Return the kind of an argument, without its size. Append the shapes of its tensors to ``shapes``."""
    if isinstance(value, Tensor):
        shapes.append(value.shape)
        return value.dtype, value.requires_grad, value.device.type, value.layout, _is_strided(value)
    if isinstance(value, list | tuple):
        return type(value), tuple(_kind(child, shapes) for child in value[:16])
    return _key(value)


def _is_strided(tensor: Tensor) -> bool:
    """Whether a tensor has gaps or another order in memory. Sparse tensors have neither, and some raise if asked."""
    return tensor.layout is torch.strided and not tensor.is_contiguous()


def _distance(tensors: list[Tensor]) -> float:
    """Return how far the sizes of some tensors are from the best size for an audit."""
    return sum(abs(math.log2((t.numel() or 2**-20) / ELEMENTS)) for t in tensors) / len(tensors)


def _constant(tensor: Tensor) -> bool:
    if tensor.layout is not torch.strided or not 1 < tensor.numel() <= 2**16:
        return tensor.numel() == 0
    flat = tensor.detach().flatten()
    return bool((flat == flat[0]).all())


def _finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor are finite. Gradients at infinity are often NaN, and then nothing is compared."""
    if tensor.layout is not torch.strided or tensor.numel() > 2**16:
        return True
    return bool(tensor.detach().isfinite().all())


def _positional(cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a call with keywords as positional arguments of forward, without ctx."""
    context = (None,) if cls.setup_context is function._SingleLevelFunction.setup_context else ()
    bound = inspect.signature(cls.forward).bind(*context, *args, **kwargs)
    bound.apply_defaults()
    return bound.args[len(context) :]


@contextlib.contextmanager
def _observed(saw: Callable[..., None]) -> Iterator[None]:
    """Pass every call of ``apply`` to ``saw`` first.

    In torch 2.13, ``Function.apply`` is Python code that looks up ``apply`` in its base class at each call. So a
    replacement in the base class also works for code that took ``X.apply`` earlier. In torch 2.15, ``Function.apply``
    is C code without this look-up. So a replacement works only for code that takes ``X.apply`` afterwards. Inside of
    transforms of torch.func, both versions call another function.
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
