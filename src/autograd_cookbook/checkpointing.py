"""Forget activations after forward, compute them again in backward."""

import contextlib
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import get_device_states, set_device_states


class Surroundings:
    """What a function may depend on beside its arguments, as it is now: random numbers and autocast."""

    def __init__(self, *args: Any) -> None:
        self.cpu_state = torch.random.get_rng_state()
        self.devices, self.device_states = get_device_states(*args)
        kinds = {"cpu", *(a.device.type for a in args if isinstance(a, Tensor))} - {"meta"}
        self.autocast = [(k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in sorted(kinds)]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """As it was; afterwards as before."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(self.devices))
            torch.random.set_rng_state(self.cpu_state)
            set_device_states(self.devices, self.device_states)
            for kind, enabled, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
            yield


class Replay:
    """One call of a function that can be made again as it was."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args
        self.versions = [a._version if isinstance(a, Tensor) else None for a in args]
        self.surroundings = Surroundings(*args)

    def run(self, pack: Callable[[Tensor], Any]) -> None:
        """Call the function again and hand every tensor that autograd would save to ``pack``."""
        for place, (value, version) in enumerate(zip(self.args, self.versions, strict=True)):
            if version is not None and value._version != version:
                raise RuntimeError(
                    f"argument {place} of a checkpointed function was modified in place after the call "
                    f"(version {value._version}, expected {version}), so the call cannot be repeated"
                )
        with self.surroundings.restored(), torch.enable_grad(), saved_tensors_hooks(pack, _not_for_backward):
            self.function(*self.args)


def _not_for_backward(_: Any) -> Tensor:
    raise RuntimeError("a checkpointed function must not call backward on its own intermediates")


class Place:
    """What autograd holds instead of a tensor: nothing but the right to ask for it."""

    __slots__ = ("__weakref__", "dtype", "shape")

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.dtype = tensor.shape, tensor.dtype


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    r"""Call a function and save only its arguments; its activations are computed again when backward needs them.

    .. math:: y = f(x; \theta), \qquad (\bar{x}, \bar{\theta}) = \bar{y}^\top\, \partial f(x; \theta)

    Everything that ``function`` uses gets its gradient: arguments, parameters of modules, tensors in its closure.
    Random numbers and autocast are the same the second time, and gradients of gradients work.

    Args:
        function: must do the same whenever it is called with the same arguments and random state.
        args: passed on; of any type.

    Returns:
        What ``function`` returns.

    Raises:
        RuntimeError: in backward, if the second call saves other tensors than the first did, or if an argument
            was modified in place in between.

    Source: T. Chen et al., Training deep nets with sublinear memory cost, arXiv:1604.06174.

    >>> x = torch.zeros(2, requires_grad=True)
    >>> checkpoint(lambda x: x.exp().sin(), x).sum().backward()
    >>> x.grad
    tensor([0.5403, 0.5403])
    """
    if not torch.is_grad_enabled():
        return function(*args)
    replay = Replay(function, args)
    places: list[weakref.ref[Place]] = []
    computed: weakref.WeakKeyDictionary[Place, Tensor] = weakref.WeakKeyDictionary()

    def pack(tensor: Tensor) -> Place:
        place = Place(tensor)
        # Only the graph keeps a place alive. One that the graph has dropped is not filled again.
        places.append(weakref.ref(place))
        return place

    def unpack(place: Place) -> Tensor:
        if place not in computed:
            pending = iter(places)

            def fill(tensor: Tensor) -> None:
                reference = next(pending, None)
                if reference is None:
                    raise RuntimeError(
                        f"a checkpointed function saved {len(places)} tensors when it was called first, "
                        "and more when it was repeated"
                    )
                wanted = reference()
                if wanted is None:
                    return
                if (wanted.shape, wanted.dtype) != (tensor.shape, tensor.dtype):
                    raise RuntimeError(
                        "a checkpointed function saved another tensor when it was repeated: "
                        f"{tuple(tensor.shape)} of {tensor.dtype}, "
                        f"expected {tuple(wanted.shape)} of {wanted.dtype}"
                    )
                computed[wanted] = tensor.detach()

            replay.run(fill)
            if place not in computed:
                raise RuntimeError(
                    f"a checkpointed function saved {len(places)} tensors when it was called first, "
                    "and fewer when it was repeated"
                )
        # Given away and not kept: a second backward runs the function once more.
        return computed.pop(place)

    with saved_tensors_hooks(pack, unpack):
        return function(*args)


def checkpoint_sequence(functions: Sequence[Callable[[Any], Any]], input: Any, segments: int | None = None) -> Any:
    r"""Call functions one after the other and save only what passes from segment to segment.

    With :math:`n` functions in :math:`\sqrt{n}` segments, about :math:`2\sqrt{n}` activations are alive at the
    peak in place of :math:`n`, for at most one more forward.

    Args:
        functions: at least one; each gets what the one before returned. Modules are functions, too.
        input: for the first.
        segments: into how many runs of about equal length the sequence is cut; :math:`\sqrt{n}` if None.

    Returns:
        What the last function returns.

    Raises:
        ValueError: if ``segments`` is not between 1 and the number of functions.

    Source: T. Chen et al., Training deep nets with sublinear memory cost, arXiv:1604.06174.

    >>> x = torch.zeros(2, requires_grad=True)
    >>> checkpoint_sequence([torch.sin] * 16, x).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """
    count = len(functions)
    if segments is None:
        segments = max(round(math.sqrt(count)), 1)
    if not 1 <= segments <= max(count, 1):
        raise ValueError(f"expected segments between 1 and {count}, got {segments}")

    def chain(run: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
        def call(value: Any) -> Any:
            for function in run:
                value = function(value)
            return value

        return call

    runs = list(_split(functions, segments))
    for run in runs[:-1]:
        input = checkpoint(chain(run), input)
    # Backward begins with the last run: to forget it would be to compute it again at once.
    return chain(runs[-1])(input)


def _split(functions: Sequence[Any], segments: int) -> Iterator[Sequence[Any]]:
    bounds = [round(i * len(functions) / segments) for i in range(segments + 1)]
    for start, end in itertools.pairwise(bounds):
        yield functions[start:end]
