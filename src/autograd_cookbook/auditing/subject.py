"""The function under audit: how to call it, and what of it can be differentiated."""

import contextlib
import dis
import functools
import inspect
import itertools
import math
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeGuard

import torch
from torch import Generator, Tensor, nn
from torch.autograd import Function
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from autograd_cookbook.auditing.domains import Domain, recognized
from autograd_cookbook.auditing.observe import same
from autograd_cookbook.auditing.state import seed_everything
from autograd_cookbook.layouts import parts

Values = Sequence[Tensor]
Outcome = tuple[Values, Sequence[Tensor | None]]  # outputs, and gradients by slot
Change = Callable[[Tensor], Tensor]


class Refused(Exception):  # noqa: N818 (an answer, not an error)
    """The function, or torch on its behalf, declines with an exception.

    Args:
        reason: what it says.
        advice: cause and fix, where the check knows more than the message tells.
    """

    def __init__(self, reason: str, advice: tuple[str, str] | None = None) -> None:
        super().__init__(reason)
        self.advice = advice


class Unmeasured(Exception):  # noqa: N818 (an answer, not an error)
    """The check cannot tell, for the reason that it gives."""


class Wrong(Exception):  # noqa: N818 (an answer, not an error)
    """The capability is there and gives a wrong number, whatever the severity of that."""


@dataclass
class Slot:
    """A tensor that the function depends on: in its arguments, or in what it carries along."""

    name: str
    place: int | None  # among the flattened arguments; None for a tensor that is carried along
    tensor: Tensor
    leaf: bool
    packs: Callable[[Tensor], Tensor] | None = None  # makes of its numbers the sparse tensor that is the argument

    @property
    def hidden(self) -> bool:
        """Whether the tensor is a parameter or in a closure, and so the same object in every call."""
        return self.place is None


@dataclass
class Run:
    """One call: the leaves that it was made with (None where no gradient is wanted), and its output tensors."""

    leaves: list[Tensor | None]
    passed: list[Tensor]
    outputs: list[Tensor]
    raw: Any = field(repr=False)

    def leaves_of(self, slots: Sequence[int]) -> list[Tensor]:
        """The leaves of some slots, of which all want a gradient."""
        return [leaf for s in slots if (leaf := self.leaves[s]) is not None]

    def gradients(self, weights: Sequence[Tensor | None] | None = None, **options: Any) -> list[Tensor | None]:
        """Run the backward; what arrived at each leaf. ``weights`` go to the outputs that require grad."""
        active = [o for o in self.outputs if o.requires_grad]
        if not active:
            raise RuntimeError("no output requires grad")
        weights = weights_of(active) if weights is None else list(weights)
        kept = [(o, w) for o, w in zip(active, weights, strict=True) if w is not None]
        for leaf in self.leaves:
            if leaf is not None:
                leaf.grad = None
        torch.autograd.backward([o for o, _ in kept], [w for _, w in kept], **options)
        return [None if leaf is None else leaf.grad for leaf in self.leaves]

    def outcome(self, weights: Sequence[Tensor | None] | None = None) -> tuple[list[Tensor], list[Tensor | None]]:
        """The outputs as forward returned them, which backward can overwrite or free, and the gradients."""
        return [o.detach().clone() for o in self.outputs], self.gradients(weights)


def is_differentiable(value: Any) -> TypeGuard[Tensor]:
    """Whether a value is a tensor through which autograd can flow."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def is_plain(tensor: Tensor) -> bool:
    """Whether the audit can move the numbers of a tensor and give it other sizes; others are passed on as they are."""
    arithmetic = not tensor.is_floating_point() or tensor.element_size() > 1
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested and arithmetic


def members(value: Any) -> dict[str, Any]:
    """What is in an object that is no more than a record: a dataclass or a namespace."""
    if isinstance(value, types.SimpleNamespace):
        return vars(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    return {}


def tensors_in(raw: Any) -> list[Tensor]:
    """All tensors in what a function returns, those in dataclasses and namespaces included."""
    found: list[Tensor] = []
    for value in tree_leaves(raw):
        if isinstance(value, Tensor):
            found.append(value)
        else:
            found += [t for child in members(value).values() for t in tensors_in(child)]
    return found


def weights_of(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Numbers between 0.5 and 1.5 for each tensor that differ from place to place, computed alike on every call."""
    return [_weights(output, k) for k, output in enumerate(outputs)]


def _weights(output: Tensor, k: int) -> Tensor:
    # Other numbers for each output: y and -y must not cancel.
    steps = torch.arange(output.numel(), device=output.device, dtype=torch.float64).reshape(output.shape)
    weights = 1 + 0.5 * torch.sin(1 + k + (1 + 0.3 * k) * steps)
    if output.is_complex():
        weights = torch.complex(weights, 0.5 * torch.cos(2 * steps + k))
    return weights.to(output.dtype)


def real(tensors: Sequence[Tensor]) -> Tensor:
    """All numbers of some tensors in one float64 vector, complex ones as pairs."""
    parts = [torch.view_as_real(t.detach().resolve_conj()) if t.is_complex() else t.detach() for t in tensors]
    return torch.cat([p.reshape(-1).double().cpu() for p in parts]) if parts else torch.zeros(0, dtype=torch.float64)


def _sparse_like(tensor: Tensor) -> Callable[[Tensor], Tensor]:
    """Makes a sparse tensor with the indices of another one, of a copy of its values, with a gradient back to them."""
    *indices, _ = (part.detach() for part in parts(tensor))
    size, layout = tensor.shape, tensor.layout
    # Values of another number than there are indices for are refused, and not read from beyond their end.
    if layout is torch.sparse_coo:
        (places,), coalesced = indices, tensor.is_coalesced()
        return lambda values: torch.sparse_coo_tensor(
            places, values.clone(), size, is_coalesced=coalesced, check_invariants=True
        )
    rows, columns = indices
    return lambda values: torch.sparse_compressed_tensor(
        rows, columns, values.clone(), size, layout=layout, check_invariants=True
    )


def _is_whole(value: Any) -> bool:
    """Whether an argument stays in one piece: a shape that is taken apart comes back as a tuple, without ``numel``."""
    return value is None or isinstance(value, torch.Size)


def dense(tensor: Tensor) -> Tensor:
    """A copy that is contiguous, with neither view nor lazy conjugate."""
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


class Subject:
    """The function with its sample, promoted to float64.

    Args:
        function: what is audited.
        args: its arguments; the tensors among them that require grad are the leaves.
        seed: what the global generators are set to before each call.
        gradient: "exact", "surrogate", "approximate" or "custom".
        surrogate: the function whose gradient the backward declares.
        reference: a composition to compare values and gradients with.
        tolerance: largest relative error of an approximate gradient.
        device: where the inputs are moved to.
        domain: maps arguments to valid ones.
        recognize: without a domain, keep to the sets that the sample visibly belongs to.
        beat: called when a call begins.
        isolated: whether the process is forked for the audit, and may fork again.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        seed: int = 0,
        gradient: str = "exact",
        surrogate: Callable[..., Any] | None = None,
        reference: Callable[..., Any] | None = None,
        tolerance: float | None = None,
        device: torch.device | str | None = None,
        domain: Callable[..., Sequence[Any]] | None = None,
        recognize: bool = True,
        beat: Callable[[], None] = lambda: None,
        isolated: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.function, self.seed, self.gradient = function, seed, gradient
        self.surrogate, self.reference, self.tolerance = surrogate, reference, tolerance
        self.dtype, self.beat, self.isolated = dtype, beat, isolated
        self.flat, self.spec = tree_flatten(args, is_leaf=_is_whole)
        if device is not None:
            self.flat = [
                a.detach().to(device).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in self.flat
            ]
        carried = list(_carried(self.function, self.flat))
        self.carried = [v for _, v in carried if is_differentiable(v)]
        self.arguments_names: list[str] = []
        self.slots = [*self._argument_slots({id(t) for t in self.carried}), *self._hidden_slots(carried)]
        self.given = {slot.tensor.dtype.to_real() for slot in self.slots if slot.leaf}
        for given in self.given - {dtype}:
            self.cast_carried(given, dtype)
            self.flat = self.in_other_dtype(given, dtype)
        generators = {id(g): g for g in (*self.flat, *(v for _, v in carried)) if isinstance(g, Generator)}
        self.generators = [(g, g.get_state()) for g in generators.values()]
        self.buffers = list(_buffers(self.function))
        objects = [v for _, v in carried if not isinstance(v, Tensor | Generator)]
        self.contents = [(c, _entries(c)) for a in (*self.flat, *objects) for c in _containers(a)]
        self.stateful = False  # whether each call goes on from the buffers that the call before left
        self.nonleaf = False  # whether leaves are cloned on their way in, as a function that works in place needs it
        self.asks = False  # whether its values are others if no argument requires grad, or it raises
        self.in_place = False  # whether it writes to an argument
        self.base = [self.promoted(slot) for slot in self.slots]
        self.domain = domain
        self.recognizes = recognize and domain is None
        self.recognized = self._recognized() if recognize else {}
        self.along_domain = False  # whether what is made from the arguments goes through the domain, with its gradient
        with torch.no_grad():
            self.base = self._projected(self.base)
        self._expected: dict[tuple[bool, bool], tuple[list[Tensor], list[Tensor | None]]] = {}
        self.classes: list[type[Function]] = []
        self.operators: list[Any] = []
        self.active: list[int] = []  # which outputs can be differentiated
        self.fresh: int | None = None  # what tells its outputs for other numbers, in a process that never called it
        # The same for its own numbers, after a first call in its own dtype, and after one in another dtype.
        self.after: dict[torch.dtype, int | None] = {}
        self.after_inference = False  # whether its first call must not be one in inference mode
        self.random = False
        self.undeclared = False  # whether the gradient is that of a surrogate that the caller did not declare
        self.inside = dtype  # in which the function computes, as far as is known
        self.lossy = False  # whether it computes in float32 even if its arguments are in float64
        self.right = True  # until the first derivative turns out to be wrong
        self.accuracy: float | None = None  # of derivatives, where it is that of a solver
        self.rough = False  # whether the values come in steps, as those of a solver that stops early
        self.notes: list[str] = []  # what could not be measured
        self.measured = ""  # what an approximate gradient is like

    def promoted(self, slot: Slot) -> Tensor:
        """The sample's tensor as a dense copy; in the dtype of the audit if it had that of the leaves."""
        value = dense(slot.tensor)
        if is_differentiable(value) and value.dtype.to_real() in self.given and not slot.hidden:
            value = value.to(self.dtype.to_complex() if value.is_complex() else self.dtype)
        return value

    def cast_carried(self, given: torch.dtype, wanted: torch.dtype) -> None:
        """Bring parameters, buffers and closure tensors from one dtype to another, as ``module.to`` does."""
        for tensor in self.carried:
            if tensor.dtype.to_real() is given:
                tensor.data = tensor.data.to(wanted.to_complex() if tensor.is_complex() else wanted)
                tensor.grad = None

    def in_other_dtype(self, given: torch.dtype, wanted: torch.dtype) -> list[Any]:
        """The arguments, of which a dtype that is that of the tensors becomes another one with them."""
        return [wanted if value is given else value for value in self.flat]

    @contextlib.contextmanager
    def in_dtype(self, dtype: torch.dtype) -> Iterator[None]:
        """Parameters, buffers and closure tensors are in another dtype while inside."""
        kept = [t.data for t in self.carried]
        self.cast_carried(self.dtype, dtype)
        try:
            with self.settings(self.in_other_dtype(self.dtype, dtype)):
                yield
        finally:
            for tensor, data in zip(self.carried, kept, strict=True):
                tensor.data, tensor.grad = data, None

    def converted(self, values: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        """Copies of tensors, in another dtype if they have that of the audit."""
        wanted = {True: dtype if dtype is torch.bfloat16 else dtype.to_complex(), False: dtype}
        return [
            v.to(wanted[v.is_complex()]) if is_differentiable(v) and v.dtype.to_real() is self.dtype else v.clone()
            for v in values
        ]

    # --- what it depends on ---

    def _argument_slots(self, carried: set[int]) -> Iterator[Slot]:
        names = self.arguments_names = _argument_names(self.flat, self.spec)
        for place, (name, value) in enumerate(zip(names, self.flat, strict=True)):
            if isinstance(value, Tensor) and is_plain(value):
                leaf = is_differentiable(value) and value.requires_grad
                # A leaf that a closure or module holds as well stays that very tensor: a copy would part the two.
                held = leaf and value.is_leaf and id(value) in carried
                yield Slot(name, None if held else place, value, leaf)
            elif isinstance(value, Tensor) and is_differentiable(value) and value.requires_grad and parts(value):
                yield Slot(f"{name}.values()", place, parts(value)[-1].detach(), True, _sparse_like(value))

    def _hidden_slots(self, carried: list[tuple[str, Any]]) -> Iterator[Slot]:
        seen = {id(a) for a in self.flat}
        for name, value in carried:
            if not is_differentiable(value) or not is_plain(value):
                continue
            if value.is_leaf and value.requires_grad and id(value) not in seen:
                seen.add(id(value))
                yield Slot(name, None, value, True)

    @property
    def leaves(self) -> list[int]:
        """Which slots can be differentiated with respect to."""
        return [i for i, slot in enumerate(self.slots) if slot.leaf]

    @property
    def judged(self) -> list[int]:
        """The leaves whose gradient is compared with the values.

        Without a custom gradient, those that are passed in are compared: the others are torch's own, and a module may
        keep the part of a buffer out of the gradient of its parameters.
        """
        return [s for s in self.leaves if self.custom or not self.slots[s].hidden]

    @property
    def otherwise(self) -> str:
        """Why a gradient is not compared with the values digit by digit, in words."""
        if self.gradient == "approximate":
            return "backward estimates the derivative of forward"
        return "backward is no derivative of forward, on purpose"

    @property
    def sparse(self) -> bool:
        """Whether the gradient of a sparse argument is audited as that of its values."""
        return any(slot.packs for slot in self.slots)

    def needs_dense(self) -> None:
        """End a check that moves or reads the numbers of all arguments, as it cannot do with sparse ones."""
        if any(isinstance(a, Tensor) and a.layout is not torch.strided for a in self.flat):
            raise Unmeasured("the audit takes sparse arguments as they are")

    @property
    def derivative(self) -> bool:
        """Whether the gradient claims to be the derivative of the function, or of its surrogate."""
        return self.gradient in ("exact", "surrogate")

    @property
    def custom(self) -> bool:
        """Whether a gradient that the user wrote takes part, and not torch's alone."""
        return bool(self.classes or self.operators)

    # --- calling it ---

    def copies(self, change: Callable[[Tensor], Tensor] = torch.clone) -> list[Tensor]:
        """The sample's values, each differentiable one put through ``change``."""
        return [change(v) if is_differentiable(v) else v.clone() for v in self.base]

    def _recognized(self) -> dict[int, Domain]:
        """The sets that arguments visibly belong to."""
        found = {s: recognized(slot.tensor, slot.leaf) for s, slot in enumerate(self.slots) if not slot.hidden}
        return {s: domain for s, domain in found.items() if domain is not None}

    def valid(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors brought into the domain of the function, differentiably; the sample stays where it is."""
        result = []
        for given, t, base in zip(tensors, self._projected(tensors), self.base, strict=True):
            if t is not given and given.dtype is base.dtype and same(given, base):  # to the last digit
                t = given.detach() + (t - t.detach()) if t.requires_grad else given
            result.append(t)
        return result

    def _projected(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if self.domain is None:
            ways = [self.recognized[s].project if s in self.recognized else None for s in range(len(tensors))]
            return [t if way is None else way(self._wide(t)).to(t.dtype) for t, way in zip(tensors, ways, strict=True)]
        wide = [self._wide(t) for t in tensors]
        flat = tree_leaves(tuple(self.domain(*self.packed(wide))), is_leaf=_is_whole)
        projected = [t if s.place is None else flat[s.place] for s, t in zip(self.slots, wide, strict=True)]
        return [t.to(given.dtype) for given, t in zip(tensors, projected, strict=True)]

    @property
    def coarsest(self) -> torch.dtype:
        """Of the dtypes of computation and outputs, that with the fewest digits: it sets the steps of differences."""
        outputs, _ = self.expected
        found = (self.inside, *(outputs[i].dtype.to_real() for i in self.active))
        return max(found, key=lambda dtype: torch.finfo(dtype).eps)

    def _wide(self, tensor: Tensor) -> Tensor:
        return tensor.to(torch.promote_types(tensor.dtype, self.dtype)) if is_differentiable(tensor) else tensor

    def rewind(self, offset: int = 0) -> None:
        """Bring all random generators, and buffers that calls go on from, where they are before the first call."""
        seed_everything(self.seed + offset)
        for generator, state in self.generators:
            generator.set_state(state)
            if offset:
                generator.manual_seed(self.seed + offset)
        if self.stateful:
            self.reset_buffers()

    def reset_buffers(self) -> None:
        """Give buffers of modules their first values, in the dtype that they have now, and objects what they held."""
        for container, entries in self.contents:
            if [[*map(id, e)] for e in _entries(container)] != [[*map(id, e)] for e in entries]:
                container.clear()
                if isinstance(container, dict):
                    container.update(entries)
                else:
                    (container.update if isinstance(container, set) else container.extend)(e for (e,) in entries)
        with torch.no_grad():
            for module, name, buffer, value in self.buffers:
                module._buffers[name] = buffer
                if buffer is not None and value is not None:
                    buffer.data = value.to(buffer.dtype, copy=True)

    def arguments(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """The arguments with these tensors in their slots, brought into the domain."""
        return self.packed(self.valid(tensors) if self.along_domain else tensors)

    @contextlib.contextmanager
    def other_settings(self) -> Iterator[None]:
        """Numbers among the arguments that are no tensors are other ones while inside; if there is none, a default."""
        flat = [1.5 * a if isinstance(a, float) and math.isfinite(a) else a for a in self.flat]
        left = next(((n, 1.5 * d) for n, d in self.defaults.items() if isinstance(d, float) and math.isfinite(d)), None)
        given = any(isinstance(a, float) for a in flat)
        with self.option(*left) if left and not given else self.settings(flat):
            yield

    @contextlib.contextmanager
    def settings(self, flat: list[Any]) -> Iterator[None]:
        """These are the arguments while inside; the tensors among them are those of the slots, as ever."""
        kept, self.flat = self.flat, flat
        try:
            yield
        finally:
            self.flat = kept

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The arguments that the sample leaves to their defaults, by name."""
        owner: Any = getattr(self.function, "__self__", None)
        applied = isinstance(owner, type) and issubclass(owner, Function)
        try:
            signature = inspect.signature(owner.forward if applied else self.function)
            with_ctx = applied and owner.setup_context is Function.setup_context
            given = signature.bind(*([None] if with_ctx else []), *tree_unflatten(self.flat, self.spec)).arguments
        except (TypeError, ValueError):
            return {}  # it has no signature, as an operator written in C++ has none
        left = {n: p.default for n, p in signature.parameters.items() if n not in given}
        return {n: value for n, value in left.items() if value is not inspect.Parameter.empty}

    @contextlib.contextmanager
    def option(self, name: str, value: Any) -> Iterator[None]:
        """One of the defaults is another value while inside."""
        kept, others = self.function, self.defaults
        before = [others[n] for n in itertools.takewhile(lambda n: n != name, others)]

        def function(*args: Any) -> Any:
            # By position, because apply takes no names in older releases.
            return kept(*args, *before, value) if hasattr(kept, "__self__") else kept(*args, **{name: value})

        self.function = function
        try:
            yield
        finally:
            self.function = kept

    def packed(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """The arguments with these very tensors in their slots, for a call that begins."""
        self.beat()
        flat = list(self.flat)
        for slot, tensor in zip(self.slots, tensors, strict=True):
            if slot.place is not None:
                flat[slot.place] = tensor if slot.packs is None else slot.packs(tensor)
        return tree_unflatten(flat, self.spec)

    def run(
        self,
        values: Values | None = None,
        requires: Sequence[bool] | None = None,
        *,
        function: Callable[..., Any] | None = None,
        through: Callable[[Tensor], Tensor] | None = None,
        rewind: bool = True,
    ) -> Run:
        """Call the function (or another in its place) on these values, with gradients for some of the leaves.

        The tensors among the arguments go ``through`` a differentiable function first, if there is one.
        """
        values = self.copies() if values is None else values
        requires = [slot.leaf for slot in self.slots] if requires is None else requires
        leaves: list[Tensor | None] = []
        passed: list[Tensor] = []
        for slot, value, wanted in zip(self.slots, values, requires, strict=True):
            if slot.hidden:
                tensor = slot.tensor
                with torch.no_grad():
                    if tensor.shape == value.shape and not torch.equal(tensor, value):
                        tensor.copy_(value)
                tensor.requires_grad_(wanted)
            else:
                tensor = value.detach()
                if wanted:
                    tensor.requires_grad_()
            leaves.append(tensor if wanted else None)
            passed.append(tensor)
        if self.along_domain:
            passed = self.valid(passed)
        if through or self.nonleaf:
            change = through or torch.clone
            passed = [t if slot.hidden else change(t) for slot, t in zip(self.slots, passed, strict=True)]
        if rewind:
            self.rewind()
        raw = (self.function if function is None else function)(*self.packed(passed))
        return Run(leaves, passed, tensors_in(raw), raw)

    @property
    def without_graph(self) -> list[bool] | None:
        """Which slots require grad in a call under ``no_grad``: none, unless forward does something else then."""
        return None if self.asks else [False] * len(self.slots)

    def value(self, values: Values, function: Callable[..., Any] | None = None) -> Tensor:
        """The outputs that can be differentiated, as one real vector, computed without a graph."""
        with torch.no_grad():
            outputs = self.run(values, self.without_graph, function=function).outputs
        return real([outputs[i] for i in self.active])

    def vjp(
        self,
        values: Values | None = None,
        requires: Sequence[bool] | None = None,
        *,
        function: Callable[..., Any] | None = None,
        change: Callable[[Tensor], Tensor] | None = None,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Outputs, and the gradient of each slot for weighted outputs: None where there is none.

        The weights, which are the grad_outputs, are put through ``change``.
        """
        run = self.run(values, requires, function=function, through=through)
        outputs = [o for o in run.outputs if o.requires_grad]
        weights = weights_of(outputs)
        if requires is not None and len(outputs) < len(run.outputs):
            # An output keeps its weight where others, that depend on frozen inputs alone, have none.
            candidates = [run.outputs[i] for i in self.active]
            weights = [w for w, o in zip(weights_of(candidates), candidates, strict=True) if o.requires_grad]
        return run.outcome(weights if change is None else [change(w) for w in weights])

    def affordable(self, elements: int, seconds: float = 0.3) -> bool:
        """Whether one call on so many numbers should take no longer than this, by what the sample took."""
        # Up to a few thousand numbers it is the calls that cost, not the numbers.
        return self.cost * max(1.0, elements / max(1000, sum(v.numel() for v in self.base))) ** 1.5 < seconds

    @functools.cached_property
    def cost(self) -> float:
        """Seconds for one call with its backward, on the sample."""
        start = time.process_time()
        self.vjp()
        return time.process_time() - start

    @property
    def rounding(self) -> float:
        """How far results may differ, relative to the largest, where the same operations run in another order."""
        return max(1e-9, 20 * torch.finfo(self.coarsest).eps)

    @functools.cached_property
    def amplified(self) -> float:
        """:meth:`amplification` on the sample."""
        return self.amplification(self.expected, lambda rounded: self.vjp(self.copies(rounded)))

    def amplification(self, usual: Outcome, moved: Callable[[Change], Outcome]) -> float:
        """How far results move at least, relative to the largest, if each input is off by rounding.

        An ill-conditioned solve amplifies rounding, so that another order of summation shows. Of several ways, the one
        that counts is the one on which they move least: on another, a number may have passed a threshold.
        """
        eps = torch.finfo(self.coarsest).eps

        def numbers(outputs: Values, grads: Sequence[Tensor | None]) -> list[Tensor]:
            return [real([t]) for t in (*outputs, *grads) if t is not None and t.numel()]

        def rounded(value: Tensor, k: int) -> Tensor:
            waves = torch.sin(k * torch.arange(value.numel()) + 1).reshape(value.shape)
            return value * (1 + eps * waves.sign().to(value))

        there, moves = numbers(*usual), []
        for k in (1, 2, 3):
            try:
                pairs = zip(numbers(*moved(functools.partial(rounded, k=k))), there, strict=True)
                moves.append(max(float((a - b).abs().max() / (b.abs().max() + 1e-300)) for a, b in pairs))
            except (Exception, SystemExit):
                return 0.0  # at the edge of the domain
        return min(moves) if math.isfinite(sum(moves)) else 0.0

    @property
    def expected(self) -> tuple[list[Tensor], list[Tensor | None]]:
        """Outputs and gradients on the sample, with everything contiguous: the measure for all variations."""
        return self._measure(through=None)

    @property
    def expected_inside(self) -> tuple[list[Tensor], list[Tensor | None]]:
        """The same where the inputs are no leaves, as within a model: the measure for what makes other tensors of them.

        A backward that writes to ``.grad`` of a leaf does something else there.
        """
        return self._measure(through=torch.clone)

    def _measure(self, through: Callable[[Tensor], Tensor] | None) -> tuple[list[Tensor], list[Tensor | None]]:
        key = self.along_domain, through is not None
        if key not in self._expected:
            outputs, grads = self.vjp(through=through)
            self._expected[key] = [o.clone() for o in outputs], [None if g is None else g.clone() for g in grads]
        return self._expected[key]

    def describe(self, slot: int, index: int | None = None) -> str:
        """Name of a slot, with the place of an entry: "input 1 at [2, 0]"."""
        name = self.slots[slot].name
        if index is None:
            return name
        value = self.base[slot]
        if value.is_complex():
            part, index = (" (imaginary part)", index // 2) if index % 2 else (" (real part)", index // 2)
        else:
            part = ""
        place = [int(i) for i in torch.unravel_index(torch.tensor(index), value.shape)] if value.dim() else []
        return f"{name} at {place}{part}" if place else f"{name}{part}"


def _argument_names(flat: list[Any], spec: Any) -> list[str]:
    numbers = tree_unflatten(list(range(len(flat))), spec)
    names = [""] * len(flat)

    def walk(node: Any, name: str) -> None:
        if isinstance(node, int):
            names[node] = name
        elif isinstance(node, dict):
            for key, child in node.items():
                walk(child, f"{name}[{key!r}]")
        elif isinstance(node, list | tuple):
            for i, child in enumerate(node):
                walk(child, f"{name}[{i}]")

    for i, node in enumerate(numbers):
        walk(node, f"input {i}")
    return [name or f"input {i}" for i, name in enumerate(names)]


def _carried(function: Any, flat: list[Any]) -> Iterator[tuple[str, Any]]:
    """What a callable carries in parameters, closures, bound arguments and globals: tensors, generators and objects."""
    seen: set[int] = set()

    def walk(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
        if id(value) in seen or depth > 4:
            return
        if isinstance(value, Tensor | Generator):
            seen.add(id(value))
            yield name, value
        elif isinstance(value, nn.Module):
            seen.add(id(value))
            yield from ((f"parameter {parameter}", tensor) for parameter, tensor in value.named_parameters())
            yield from ((f"buffer {buffer}", tensor) for buffer, tensor in value.named_buffers())
            for path, module in value.named_modules():
                for key, child in vars(module).items():
                    if isinstance(child, Generator):
                        yield f"{path}.{key}".lstrip("."), child
        elif isinstance(value, functools.partial):
            for child in (value.func, *value.args, *value.keywords.values()):
                yield from walk(name, child, depth + 1)
        elif isinstance(value, types.MethodType | types.BuiltinMethodType):
            if isinstance(value.__self__, type | nn.Module):
                yield from walk(name, value.__self__, depth)
        elif isinstance(value, type):
            seen.add(id(value))
            for method in ("forward", "setup_context") if issubclass(value, Function) else ():
                yield from walk(name, inspect.getattr_static(value, method, None), depth + 1)
        elif isinstance(value, staticmethod):
            yield from walk(name, value.__func__, depth)
        elif isinstance(value, types.FunctionType):
            seen.add(id(value))
            if (value.__module__ or "").partition(".")[0] == "torch":
                return
            for cell_name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                try:
                    content = cell.cell_contents
                except ValueError:  # not filled yet
                    continue
                yield from walk(f"closure variable {cell_name}", content, depth + 1)
            for global_name in _globals_of(value.__code__):
                content = value.__globals__.get(global_name)
                yield from walk(f"global variable {global_name}", content, depth + 1)
        elif isinstance(value, list | tuple) and len(value) <= 64:
            for i, child in enumerate(value):
                yield from walk(f"{name}[{i}]", child, depth + 1)
        elif isinstance(value, dict) and len(value) <= 64:
            for key, child in value.items():
                yield from walk(f"{name}[{key!r}]", child, depth + 1)
        elif kept := members(value):
            seen.add(id(value))
            for key, child in kept.items():
                yield from walk(f"{name}.{key}", child, depth + 1)
        elif not callable(value) and not isinstance(value, types.ModuleType) and hasattr(value, "__dict__"):
            seen.add(id(value))
            yield name, value

    yield from walk("function", function, 0)
    for i, value in enumerate(flat):
        if not isinstance(value, Tensor):
            yield from walk(f"input {i}", value, 1)


def _globals_of(code: types.CodeType) -> list[str]:
    """The global variables that code reads; ``co_names`` holds the names of attributes, too."""
    return list(dict.fromkeys(i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"))


def modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """A module, or the module that has a method, and all modules in it."""
    owner = getattr(function, "__self__", function)
    return list(owner.modules()) if isinstance(owner, nn.Module) else []


def _buffers(function: Callable[..., Any]) -> Iterator[tuple[nn.Module, str, Tensor | None, Tensor | None]]:
    """The buffers of a module or a module's method: where they are, and a copy of each."""
    for module in modules_of(function):
        for name, buffer in module._buffers.items():
            yield module, name, buffer, None if buffer is None else buffer.detach().clone()


def _entries(container: Any) -> list[tuple[Any, ...]]:
    """What a dict, a list or a set holds: pairs, or single ones."""
    return list(container.items()) if isinstance(container, dict) else [(entry,) for entry in container]


def _containers(value: Any, depth: int = 0) -> Iterator[Any]:
    """The dicts, lists and sets that an object holds, its attributes among them; not those of a module or a type."""
    if isinstance(value, dict | list | set | deque):
        yield value
        children = list(value.values()) if isinstance(value, dict) else list(value)
    elif isinstance(value, Tensor | nn.Module | types.ModuleType | type) or callable(value):
        return
    elif isinstance(attributes := getattr(value, "__dict__", None), dict):
        yield attributes
        children = list(attributes.values())
    else:
        return
    if depth < 3 and len(children) <= 64:
        for child in children:
            yield from _containers(child, depth + 1)


def tensors_of(function: Callable[..., Any], args: tuple[Any, ...]) -> list[Tensor]:
    """Every tensor that belongs to the caller: in the arguments, and carried along by the function."""
    flat = tree_leaves(args)
    return [v for v in (*flat, *(v for _, v in _carried(function, flat))) if isinstance(v, Tensor)]


def functions_of(outputs: Sequence[Tensor]) -> list[type[Function]]:
    """The classes of custom functions in the graph behind some outputs, those nearest to the outputs first."""
    found: dict[type[Function], None] = {}
    for node in nodes_of(outputs):
        if (cls := getattr(node, "_forward_cls", None)) is not None:
            found[cls] = None
    return list(found)


def own_nodes_of(outputs: Sequence[Tensor], classes: Sequence[type[Function]]) -> list[Any]:
    """The nodes of some custom functions in the graph behind some outputs."""
    return [node for node in nodes_of(outputs) if getattr(node, "_forward_cls", None) in classes]


def nodes_of(outputs: Sequence[Tensor]) -> list[Any]:
    """All nodes of the graph behind some outputs."""
    pending = [o.grad_fn for o in outputs if o.grad_fn is not None]
    seen: dict[Any, None] = {}
    while pending:
        node = pending.pop(0)
        if node not in seen:
            seen[node] = None
            pending += [n for n, _ in node.next_functions if n is not None]
    return list(seen)
