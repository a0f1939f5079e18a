"""Free activations after forward, and compute them again in backward."""

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
    """A snapshot of the random state and the autocast state. The result of a function can depend on both."""

    def __init__(self, *args: Any) -> None:
        self.cpu_state = torch.random.get_rng_state()
        self.devices, self.device_states = get_device_states(*args)
        kinds = {"cpu", *(a.device.type for a in args if isinstance(a, Tensor))} - {"meta"}
        self.autocast = [(k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in sorted(kinds)]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the snapshot inside ``with``, and the present state afterwards."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(self.devices))
            torch.random.set_rng_state(self.cpu_state)
            set_device_states(self.devices, self.device_states)
            for kind, enabled, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
            yield


class Place:
    """The empty object that the graph holds instead of a saved tensor."""

    __slots__ = ("__weakref__", "dtype", "shape", "version")

    def __init__(self, tensor: Tensor, version: int | None) -> None:
        self.shape, self.dtype, self.version = tensor.shape, tensor.dtype, version


class Promises:
    """The places of one call of a function, and the tensors that fill them when the call is repeated."""

    def __init__(self, *args: Any) -> None:
        # Store addresses, not tensors. The graph keeps this object, so its tensors would stay in memory.
        self.sources = {a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor)}
        self.places: list[weakref.ref[Place]] = []
        self.found: weakref.WeakKeyDictionary[Place, Tensor] = weakref.WeakKeyDictionary()

    def pack(self, tensor: Tensor) -> Place:
        """Return a place for a tensor. Store the version of a parameter, which must not change before backward."""
        owner = tensor if tensor._base is None else tensor._base
        parameter = owner.is_leaf and owner.requires_grad and tensor.untyped_storage().data_ptr() not in self.sources
        place = Place(tensor, tensor._version if parameter else None)
        # Only the graph keeps a place alive. If the graph has freed a place, nothing fills it again.
        self.places.append(weakref.ref(place))
        return place

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Fill the places with the tensors that the repeated call saves inside ``with``."""
        pending = iter(self.places)

        def fill(tensor: Tensor) -> None:
            reference = next(pending, None)
            if reference is None:
                raise RuntimeError(
                    f"a function saved more tensors when it was repeated than the {len(self.places)} of the first call"
                )
            place = reference()
            if place is None:
                return
            if (place.shape, place.dtype) != (tensor.shape, tensor.dtype):
                raise RuntimeError(
                    f"a function saved another tensor when it was repeated: {tuple(tensor.shape)} of {tensor.dtype}, "
                    f"expected {tuple(place.shape)} of {place.dtype}"
                )
            if place.version not in (None, tensor._version):
                raise RuntimeError(
                    f"a parameter of shape {tuple(tensor.shape)} was modified in place before backward "
                    f"(version {tensor._version}, expected {place.version})"
                )
            self.found[place] = tensor.detach()

        with torch.enable_grad(), saved_tensors_hooks(fill, _not_for_backward):
            yield

    def take(self, place: Place) -> Tensor:
        """Return the tensor of a place and remove it, so that a second backward runs the function again."""
        if place not in self.found:
            raise RuntimeError(
                f"a function saved fewer tensors when it was repeated than the {len(self.places)} of the first call"
            )
        return self.found.pop(place)


def _not_for_backward(_: Any) -> Tensor:
    raise RuntimeError("a repeated function must not call backward on its own intermediates")


class Replay:
    """A call of a function, which can be repeated with the same random state and autocast state."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args
        self.versions = [a._version if isinstance(a, Tensor) else None for a in args]
        self.surroundings = Surroundings(*args)

    def run(self, promises: Promises) -> None:
        """Call the function again, and fill the places of the first call."""
        for place, (value, version) in enumerate(zip(self.args, self.versions, strict=True)):
            if version is not None and value._version != version:
                raise RuntimeError(
                    f"argument {place} of a checkpointed function was modified in place after the call "
                    f"(version {value._version}, expected {version}), so the call cannot be repeated"
                )
        with self.surroundings.restored(), promises.kept():
            self.function(*self.args)


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    r"""Call a function and save only its arguments. Backward computes its activations again.

    .. math:: y = f(x; \theta), \qquad (\bar{x}, \bar{\theta}) = \bar{y}^\top\, \partial f(x; \theta)

    All tensors that ``function`` uses get their gradients: arguments, parameters of modules, and tensors in its
    closure. The second call uses the same random numbers and the same autocast state. Second derivatives work, too.

    Args:
        function: a function that does the same in each call with the same arguments and the same random state.
        args: the arguments of ``function``, of any type.

    Returns:
        The result of ``function``.

    Raises:
        RuntimeError: in backward, if the second call saves other tensors than the first call, or if an argument or a
            parameter was changed in place between the calls.

    Source: T. Chen et al., Training deep nets with sublinear memory cost, arXiv:1604.06174.

    >>> x = torch.zeros(2, requires_grad=True)
    >>> checkpoint(lambda x: x.exp().sin(), x).sum().backward()
    >>> x.grad
    tensor([0.5403, 0.5403])
    """
    if not torch.is_grad_enabled():
        return function(*args)
    replay, promises = Replay(function, args), Promises(*args)

    def unpack(place: Place) -> Tensor:
        if place not in promises.found:
            replay.run(promises)
        return promises.take(place)

    with saved_tensors_hooks(promises.pack, unpack):
        return function(*args)


def checkpoint_sequence(functions: Sequence[Callable[[Any], Any]], input: Any, segments: int | None = None) -> Any:
    r"""Call functions one after the other, in segments, and save only the inputs of the segments.

    With :math:`n` functions in :math:`\sqrt{n}` segments, about :math:`2\sqrt{n}` activations are in memory at the peak
    instead of :math:`n`. This costs at most one more forward.

    Args:
        functions: at least one function or module. Each one gets the result of the one before.
        input: the argument of the first function.
        segments: the number of segments, which have about equal lengths; :math:`\sqrt{n}` if None.

    Returns:
        The result of the last function.

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
    # Backward starts with the last segment and would compute it again immediately, so keep its activations.
    return chain(runs[-1])(input)


def _split(functions: Sequence[Any], segments: int) -> Iterator[Sequence[Any]]:
    bounds = [round(i * len(functions) / segments) for i in range(segments + 1)]
    for start, end in itertools.pairwise(bounds):
        yield functions[start:end]
