"""Watching custom functions from inside: what they are given, return, save and change."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass
class ForwardCall:
    """One forward: its arguments, and which tensors among them came back with other contents."""

    cls: type[Function]
    inputs: tuple[Any, ...]
    changed: list[int] = field(default_factory=list)
    dirty: list[int] = field(default_factory=list)
    constant: tuple[Any, ...] = ()  # of what is returned: marked as not differentiable
    returned: list[Any] = field(default_factory=list)


@dataclass
class BackwardCall:
    """One backward: what it received, what it returned, and what it changed on the way."""

    cls: type[Function]
    ctx: Any
    received: tuple[Any, ...]
    returned: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] | None = None  # of the forward it belongs to
    changed_received: list[int] = field(default_factory=list)
    changed_saved: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)  # of what it received; ``received`` has copies of these


@dataclass
class Record:
    """Everything seen during :func:`observing`."""

    forwards: list[ForwardCall] = field(default_factory=list)
    backwards: list[BackwardCall] = field(default_factory=list)
    inside: list[type[Function]] = field(default_factory=list)  # backwards that are running now


@contextlib.contextmanager
def observing(
    classes: Sequence[type[Function]],
    *,
    saved: bool = True,
    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Iterator[Record]:
    """Record each forward and backward of some classes while inside.

    ``saved`` reads the saved tensors before each backward to see whether it changes them. The code of forward and
    backward runs within ``around()``.
    """
    record = Record()
    # ctx is one object from forward to backward; a reference keeps its id from being used again.
    calls: dict[int, tuple[Any, ForwardCall]] = {}

    def within(wrap: Callable[..., Any], function: Callable[..., Any]) -> Any:
        def inner(*args: Any, **kwargs: Any) -> Any:
            with around():
                return function(*args, **kwargs)

        return wrap(function if around is contextlib.nullcontext else inner)

    with contextlib.ExitStack() as stack:
        for cls in classes:
            modern = cls.setup_context is not Function.setup_context
            wraps = {"forward": functools.partial(_forward, cls=cls, modern=modern, record=record, calls=calls)}
            if modern:
                wraps["setup_context"] = functools.partial(_setup_context, record=record, calls=calls)
            name = "vjp" if cls.vjp is not Function.vjp and cls.backward is Function.backward else "backward"
            wraps[name] = functools.partial(_backward, cls=cls, record=record, calls=calls, saved=saved)
            for name, wrap in wraps.items():
                stack.enter_context(_replaced(cls, name, functools.partial(within, wrap)))
        yield record


@contextlib.contextmanager
def _replaced(
    cls: type[Function], name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Put a static method of a class, which it may have inherited, into another one while inside."""
    own = cls.__dict__.get(name)
    setattr(cls, name, staticmethod(wrap(getattr(cls, name))))
    try:
        yield
    finally:
        if own is None:
            delattr(cls, name)
        else:
            setattr(cls, name, own)


@contextlib.contextmanager
def saving_copies(classes: Sequence[type[Function]]) -> Iterator[None]:
    """Let ``save_for_backward`` copy what it gets, so that backward does not see what forward writes afterwards."""

    def copying(function: Callable[..., Any]) -> Callable[..., Any]:
        def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
            save = ctx.save_for_backward
            ctx.save_for_backward = lambda *tensors: save(
                *(t.clone() if isinstance(t, Tensor) and t.layout is torch.strided else t for t in tensors)
            )
            try:
                return function(ctx, *args, **kwargs)
            finally:
                del ctx.save_for_backward

        return forward

    with contextlib.ExitStack() as stack:
        for cls in classes:
            if cls.setup_context is Function.setup_context:  # otherwise forward has ended before something is saved
                stack.enter_context(_replaced(cls, "forward", copying))
        yield


def _forward(
    function: Callable[..., Any],
    cls: type[Function],
    modern: bool,
    record: Record,
    calls: dict[int, tuple[Any, ForwardCall]],
) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        inputs = args if modern else args[1:]
        before = {i: a.detach().clone() for i, a in enumerate(inputs) if isinstance(a, Tensor) and not is_freed(a)}
        call = ForwardCall(cls, tuple(inputs))
        record.forwards.append(call)
        result = function(*args, **kwargs)
        call.returned = list(result) if isinstance(result, tuple | list) else [result]
        call.changed = [i for i, copy in before.items() if not same(inputs[i], copy)]
        if not modern:
            calls[id(args[0])] = (args[0], call)
            _note_marks(args[0], call)
        return result

    return forward


def _setup_context(
    function: Callable[..., Any], record: Record, calls: dict[int, tuple[Any, ForwardCall]]
) -> Callable[..., Any]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        result = function(ctx, inputs, output)
        call = record.forwards[-1]
        calls[id(ctx)] = (ctx, call)
        _note_marks(ctx, call)
        return result

    return setup_context


def _note_marks(ctx: Any, call: ForwardCall) -> None:
    marked = getattr(ctx, "dirty_tensors", None) or ()
    call.dirty = [i for i, a in enumerate(call.inputs) if any(a is m for m in marked)]
    call.constant = tuple(getattr(ctx, "non_differentiable", None) or ())


def _backward(
    function: Callable[..., Any],
    cls: type[Function],
    record: Record,
    calls: dict[int, tuple[Any, ForwardCall]],
    saved: bool,
) -> Callable[..., Any]:
    def backward(ctx: Any, *grads: Any) -> Any:
        kept = calls.get(id(ctx))
        call = BackwardCall(cls, ctx, grads, inputs=kept[1].inputs if kept else None)
        record.backwards.append(call)
        received = {i: g.detach().clone() for i, g in enumerate(grads) if isinstance(g, Tensor) and not is_freed(g)}
        tensors = [t for t in ctx.saved_tensors if t is not None] if saved else []
        copies = {i: t.detach().clone() for i, t in enumerate(tensors) if not is_freed(t)}
        record.inside.append(cls)
        try:
            result = function(ctx, *grads)
        finally:
            record.inside.pop()
        call.returned = tuple(result) if isinstance(result, tuple | list) else (result,)
        call.changed_received = [i for i, copy in received.items() if not same(grads[i], copy)]
        call.freed = [i for i in received if is_freed(grads[i])]
        call.received = tuple(received[i] if i in call.freed else g for i, g in enumerate(grads))
        call.changed_saved = [i for i, copy in copies.items() if not same(tensors[i], copy)]
        return result

    return backward


def is_freed(tensor: Tensor) -> bool:
    """Whether the memory of a tensor was given back, for example by ``resize_(0)`` of its storage: a read crashes."""
    with contextlib.suppress(NotImplementedError):  # a wrapper of torch.func, or a sparse tensor, has no storage
        return tensor.numel() > 0 == tensor.untyped_storage().nbytes() and tensor.device.type != "meta"
    return False


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same numbers, NaN being equal to itself."""
    if is_freed(a) or is_freed(b):
        return False
    a, b = (t.detach() if t.layout is torch.strided else t.detach().to_dense() for t in (a, b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a, b) or (
        (a.is_floating_point() or a.is_complex()) and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    )


class _Bits(TorchDispatchMode):
    fewest = 64

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for t in tree_leaves(result):
            if isinstance(t, Tensor) and (t.is_floating_point() or t.is_complex()):
                self.fewest = min(self.fewest, 8 * t.itemsize // (1 + t.is_complex()))
        return result


def fewest_bits(call: Callable[[], Any]) -> int:
    """The bits of the narrowest floating number that an operation returns while something is called."""
    with _Bits() as watched:
        call()
    return watched.fewest
