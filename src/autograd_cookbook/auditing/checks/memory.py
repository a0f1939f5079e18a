"""What a function keeps, for how long, and what it computes in vain."""

import gc
import itertools
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.kept import Kept
from autograd_cookbook.auditing.leaving import leaves_torch
from autograd_cookbook.auditing.observe import observing, same
from autograd_cookbook.auditing.report import Finding, enumerated
from autograd_cookbook.auditing.subject import (
    Subject,
    Unmeasured,
    is_differentiable,
    is_plain,
    nodes_of,
    own_nodes_of,
)
from autograd_cookbook.layouts import parts


def _tensors_in(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Tensors in an attribute, and in lists, dicts, objects and closures that it leads to."""
    if isinstance(value, Tensor):
        yield name, value
    elif depth < 3:
        if isinstance(value, dict):
            for key, child in value.items():
                yield from _tensors_in(child, f"{name}[{key!r}]", depth + 1)
        elif isinstance(value, list | tuple | set):
            for i, child in enumerate(value):
                yield from _tensors_in(child, f"{name}[{i}]", depth + 1)
        elif callable(value) and getattr(value, "__closure__", None):
            for cell in value.__closure__:
                yield from _tensors_in(cell.cell_contents, f"{name} (closure)", depth + 1)
        elif type(value).__module__ == "types" or hasattr(value, "__dataclass_fields__"):
            yield from _tensors_in(vars(value), name, depth + 1)


NAMED = 4  # tensors on ctx, at most


@check()
def tensors_on_ctx(subject: Subject) -> Iterator[Finding]:
    """Save tensors for backward with save_for_backward, and not as attributes of ctx.

    An attribute of ctx has no version check, so a later in-place write silently makes the gradient wrong. Saved-tensor
    hooks and checkpointing do not see it, and it is freed late. An output on ctx makes a reference cycle. Only the
    state of a random generator, which is stored as a tensor, may stay on ctx.
    """
    run = subject.run()
    state_size = torch.get_rng_state().numel()
    parameters = {id(s.tensor) for s in subject.slots if s.hidden}

    def named(tensor: Tensor) -> str:
        if any(tensor is o for o in run.outputs):
            return "the output"
        storage = tensor.untyped_storage().data_ptr() if is_plain(tensor) and tensor.numel() else None
        for s, passed in enumerate(run.passed):
            if passed.untyped_storage().data_ptr() == storage:
                return subject.describe(s) if tensor.shape == passed.shape else f"a view of {subject.describe(s)}"
        return f"a tensor of shape {list(tensor.shape)}"

    for node in own_nodes_of(run.outputs, subject.classes):
        kept = {}
        for name, tensor in _tensors_in(dict(vars(node)), "ctx"):
            is_state = tensor.dtype is torch.uint8 and tensor.numel() == state_size
            if not is_state and id(tensor) not in parameters:
                kept[name.replace("ctx['", "ctx.", 1).replace("']", "", 1)] = named(tensor)
        if kept:
            told = [f"{what} as {where}" for where, what in kept.items()]
            told[NAMED:] = [f"{len(told) - NAMED} more"] * (len(told) > NAMED)
            cycle = ", which it keeps alive itself: a reference cycle." if "the output" in kept.values() else "."
            yield finding(
                "info",
                f"{node._forward_cls.__name__} keeps {enumerated(told)}",
                "A tensor on ctx has no version check, is not seen by saved-tensor hooks, and lives as long as the "
                f"graph{cycle}",
                "Pass it to ctx.save_for_backward and read it from ctx.saved_tensors.",
            )


CYCLE = "A reference cycle: ctx refers to its output, or to something that refers to ctx."
LAST_CALL = "An attribute or a global holds what the last call computed."
WAIT = 0.1  # seconds for a thread of the function to drop what it holds
HELD = "A global list, dict or class attribute holds them."


@check()
def freed_at_once(subject: Subject) -> Iterator[Finding]:
    """When the graph is gone, nothing stays in memory: no reference cycle holds it, and no global grows.

    PyTorch should free tensors when the last reference to the result goes. A reference cycle keeps them until Python's
    garbage collector runs, and a GPU may be out of memory before. What remains after a collection is a leak. An
    evaluation, which runs no backward, must leave nothing behind either.
    """
    for _ in range(2):  # caches and lazily created constants are filled by now
        subject.vjp()
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        for with_backward in (True, False):
            run = subject.run()
            callers = {id(t) for t in (*subject.flat, *subject.carried)}
            watched = [weakref.ref(o) for o in run.outputs if id(o) not in callers]
            nodes = [weakref.ref(n) for n in nodes_of(run.outputs) if hasattr(n, "_forward_cls")]
            watched += [weakref.ref(t) for t, s in zip(run.passed, subject.slots, strict=True) if not s.hidden]
            if with_backward:
                run.gradients()
            del run
            when = "after backward" if with_backward else "if backward never runs"

            def alive(references: Sequence[weakref.ref[Any]] = (*watched, *nodes)) -> bool:
                return any(reference() is not None for reference in references)

            if alive():
                time.sleep(WAIT)
            if alive():
                gc.collect()
                until, cause = "until the garbage collector comes by", CYCLE
                if alive():
                    subject.run()
                    replaced = not alive()
                    until, cause = ("until the next one", LAST_CALL) if replaced else ("for good", HELD)
                    if any(_holds_output(w()) for w in nodes):
                        cause = CYCLE  # through the engine, where Python's collector does not see it
                yield finding(
                    "warning",
                    f"{when}, tensors or graph of a call are kept alive {until}",
                    cause,
                    "Keep nothing of a call outside of ctx; save outputs with save_for_backward.",
                )
                return
    finally:
        if enabled:
            gc.enable()
    for grows, when in ((subject.vjp, ""), (_evaluated(subject), " under torch.no_grad()")):
        growth = _growth(subject, grows)
        if growth <= 0:
            continue
        yield finding(
            "warning",
            f"every call{when} leaves {growth} bytes behind",
            "A global list, dict or class attribute collects tensors, or a cache has no limit.",
            "Keep nothing of a call outside of ctx, and limit caches.",
        )
        return


def _holds_output(node: Any) -> bool:
    """Whether a node that is still there has an output of its own as an attribute of ctx."""
    return node is not None and any(t.grad_fn is node for _, t in _tensors_in(dict(vars(node)), "ctx"))


def _evaluated(subject: Subject) -> Callable[[], Any]:
    def call() -> Any:
        with torch.no_grad():
            return subject.run(requires=subject.without_graph)

    return call


def _memory(value: Any) -> list[Tensor]:
    """The tensors that have memory, those that sparse ones consist of among them."""
    return [part for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, Tensor) for part in parts(t)]


class _Storages(TorchDispatchMode):
    """Weak references to all memory that operations allocate."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in _memory((args, kwargs))}
        for t in _memory(result):
            storage = t.untyped_storage()
            if storage._cdata not in given:  # a view allocates nothing
                self.seen[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return result

    def alive(self) -> int:
        """Bytes that have not been freed."""
        return sum(size for reference, size in self.seen.values() if not reference.expired())


def _growth(subject: Subject, call: Callable[[], Any], calls: int = 5) -> int:
    """Bytes that each call leaves behind for good; 0 if not all do, as when a cache is filled once."""
    left = []
    for _ in range(calls):
        with _Storages() as storages:
            call()
        left.append(storages)
    for slot in subject.slots:
        slot.tensor.grad = None
    gc.collect()
    return min(storages.alive() for storages in left[1:])


# --- saved tensors ---


def _elsewhere(subject: Subject) -> list[list[Tensor]]:
    """The sample, and points around it where other branches may be taken; none that the function refuses."""
    points = [subject.copies()]
    for change in (lambda v: -v, lambda v: 8 * v + 0.5, lambda v: 100 * v, lambda v: v / 16):
        try:
            values = subject.valid(subject.copies(change))
            subject.vjp(values)
        except (Exception, SystemExit):
            continue
        points.append(values)
    return points


def _everything(subject: Subject) -> list[bool]:
    """Everything requires grad: what is saved for the gradient of a frozen input is not saved in vain."""
    return [s.leaf or (is_differentiable(s.tensor) and not s.hidden and not subject.in_place) for s in subject.slots]


def _influential(altered: Kept, values: list[Tensor], graph: bool) -> bool:
    """Whether the gradients are others when what is saved is altered, or cannot be computed then."""
    try:
        expected = Kept(altered.subject, {}).run(values, _everything(altered.subject), graph)
    except (Exception, SystemExit):
        return False  # there is no gradient here either way
    try:
        found = altered.run(values, _everything(altered.subject), graph)
    except (Exception, SystemExit):
        return True
    return any(a is not b if a is None or b is None else not same(a, b) for a, b in zip(found, expected, strict=True))


def _disturbances(tensor: Tensor) -> list[Any]:
    if tensor.dtype is torch.bool:
        return [torch.logical_not]
    if is_differentiable(tensor):
        return [lambda t: torch.full_like(t, torch.nan), lambda t: -3 * t - 1]
    return [lambda t: t.flip(0) if t.dim() else t + 1, torch.zeros_like]


@check(alters_saved=True)
def unused_saved(subject: Subject) -> Iterator[Finding]:
    """Save only tensors that have an influence on the gradient.

    A saved tensor stays in memory from forward to backward. If NaN in its place does not change the gradient, do not
    save it. If backward needs only its shape or its dtype, save only these. The same holds for tensors that forward
    keeps as attributes of ctx: if backward returns the same gradient without an attribute, do not keep it.
    """
    if subject.gradient == "approximate" or not subject.classes:
        return
    subject.needs_dense()
    if any(v.numel() == 0 for v in (*subject.base, *subject.expected[0])):
        return  # nothing has an influence on nothing
    plain = Kept(subject, {})
    try:
        plain.run(None, _everything(subject))
    except Exception:
        return  # it has no gradient for something that is frozen here, and says so
    if not subject.isolated and leaves_torch(subject):
        raise Unmeasured(
            "code outside of PyTorch, which may trust its saved tensors, could end your process if they were changed"
        )
    points = _elsewhere(subject)
    for k, tensor in plain.things.items():
        if not isinstance(k, int) or tensor.numel() == 0:
            continue
        ways = itertools.product(points, (False, True), _disturbances(tensor))
        used = any(_influential(Kept(subject, {k: change}), values, graph) for values, graph, change in ways)
        if not used and not same(_disturbances(tensor)[0](tensor), tensor):
            yield finding(
                "info",
                f"saved tensor {k} (shape {list(tensor.shape)}, {tensor.numel() * tensor.element_size()} bytes here) "
                "has no influence on any gradient",
                "It is saved for a formula that no longer needs it, or for its shape alone.",
                "Do not save it; keep a shape or dtype as an attribute of ctx.",
            )
            return
    yield from _attributes_in_vain(subject, points)


TIMES = 4  # as large as the largest argument: then it is more than a forgotten line


def _attributes_in_vain(subject: Subject, points: Sequence[list[Tensor]]) -> Iterator[Finding]:
    """Nothing, if backward fails or changes without each attribute of ctx that holds tensors of its own."""
    run = subject.run()
    known = {t.untyped_storage().data_ptr() for t in (*run.passed, *run.outputs)}
    largest = max((p.untyped_storage().nbytes() for p in run.passed), default=0)
    kept: dict[str, dict[int, int]] = {}
    for node in own_nodes_of(run.outputs, subject.classes):
        for name, value in vars(node).items():
            storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for _, t in _tensors_in(value, "")}
            kept.setdefault(name, {}).update({k: v for k, v in storages.items() if k not in known})
    for name, storages in kept.items():
        size = sum(storages.values())
        without, ways = Kept(subject, {}, removed=name), itertools.product(points, (False, True))
        if size and not any(_influential(without, values, graph) for values, graph in ways):
            yield finding(
                "warning" if size > TIMES * largest else "info",
                f"ctx.{name} keeps {size} bytes here, and has no influence on any gradient",
                "Forward keeps it on ctx, and backward does not need it: it stays in memory until the backward.",
                "Do not keep it on ctx.",
            )


@check()
def saved_copies(subject: Subject) -> Iterator[Finding]:
    """Do not save a copy of an input, an output or another saved tensor.

    The input is in memory anyway, so saving it costs nothing. Saving ``input.clone()`` or ``input.float()`` costs the
    memory of the copy.
    """
    if subject.nonleaf or not subject.classes:
        return
    subject.needs_dense()
    found = [set(_copies(subject, values)) for values in _elsewhere(subject)]
    for size, how, name in sorted(set.intersection(*found)):  # what is equal on one sample may be so by chance
        yield finding(
            "warning",
            f"a {how} of {name} is saved ({size} bytes here)",
            "A clone, a cast or a contiguous() that copied is saved instead of the tensor itself.",
            "Save the input or output itself: it costs nothing more.",
        )
        return


def _copies(subject: Subject, values: list[Tensor]) -> Iterator[tuple[int, str, str]]:
    """Saved tensors that are copies of what is there anyway: bytes, how they are a copy, and of what."""
    mine: list[Tensor] = []
    with observing(subject.classes, saved=False) as record:

        def pack(tensor: Tensor) -> tuple[bool, Tensor]:
            return bool(record.inside), tensor  # by a backward that computes forward again

        def unpack(packed: tuple[bool, Tensor]) -> Tensor:
            again, tensor = packed
            if record.inside and not again:
                mine.append(tensor)
            return tensor

        with saved_tensors_hooks(pack, unpack):
            run = subject.run(values)
            run.gradients()
    given = [a for call in record.forwards for a in call.inputs if isinstance(a, Tensor)]
    storages = {t.untyped_storage().data_ptr() for t in (*run.passed, *run.outputs, *given)}
    known = [(slot.name, p) for slot, p in zip(subject.slots, run.passed, strict=True)]
    known += [(f"output {i}", o) for i, o in enumerate(run.outputs)]
    for tensor in mine:
        if tensor.numel() < 2 or tensor.untyped_storage().data_ptr() in storages:
            continue
        for name, other in known:
            if is_differentiable(other) and (how := _copied(tensor.detach(), other.detach())):
                yield tensor.numel() * tensor.element_size(), how, name


def _copied(tensor: Tensor, other: Tensor) -> str | None:
    """How one tensor is a copy of another, if it is."""
    if tensor.numel() != other.numel() or tensor.dim() != other.dim() or tensor.dim() > 4 or not tensor.any():
        return None
    for order in itertools.permutations(range(tensor.dim())):
        if same(tensor, other.permute(order)):
            return "copy" if order == tuple(range(tensor.dim())) else "transposed copy"
    return None


# --- work in vain ---

HEAVY = frozenset(
    [
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "mv",
        "addmv",
        "dot",
        "matmul",
        "linear",
        "einsum",
        "tensordot",
        "convolution",
        "convolution_backward",
        "mkldnn_convolution",
        "_linalg_solve_ex",
        "linalg_inv_ex",
        "_linalg_svd",
        "_linalg_eigh",
        "linalg_cholesky_ex",
        "cholesky_solve",
        "linalg_solve_triangular",
        "linalg_lu_factor_ex",
        "linalg_qr",
        "_fft_r2c",
        "_fft_c2c",
        "_fft_c2r",
        "_cdist_forward",
        "_cdist_backward",
        "_scaled_dot_product_flash_attention_for_cpu",
    ]
)
# So many cheap operations, and one of them so often, are a walk through steps and no formula.
MANY, LOOP = 25, 10


class _Operations(TorchDispatchMode):
    """Which operation made which tensor out of which others."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, tuple[str, list[int]]] = {}
        self.kept: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        self.kept.append((inputs, result))
        name = func.overloadpacket.__name__
        for t in torch.utils._pytree.tree_leaves(result):
            if isinstance(t, Tensor):
                parents = [id(i) for i in inputs if i is not t]
                if id(t) in self.made:  # written to in place: what it was made of before counts, too
                    parents += self.made[id(t)][1]
                self.made[id(t)] = (name, parents)
        return result

    def behind(self, tensor: Tensor) -> set[int]:
        """The tensors that were made on the way to one."""
        pending, found = [id(tensor)], set()
        while pending:
            t = pending.pop()
            if t in self.made and t not in found:
                found.add(t)
                pending += self.made[t][1]
        return found


@check()
def unneeded_gradients(subject: Subject) -> Iterator[Finding]:
    """Do not compute a gradient for an input that needs none, unless that is cheap.

    Half of the work in the backward of a linear layer is the gradient of its input. The first layer of a network does
    not need this gradient, and neither does a layer that has only frozen layers before it. ``ctx.needs_input_grad``
    says which gradients are needed.
    """
    leaves = [s for s in subject.leaves if not subject.slots[s].hidden]
    for frozen in leaves:
        requires = [s in subject.leaves and s != frozen for s in range(len(subject.slots))]
        if not any(requires):
            continue
        try:
            with observing(subject.classes, saved=False) as record:
                run = subject.run(requires=requires)
                operations = _Operations()
                with operations:
                    run.gradients()
        except (Exception, SystemExit):
            continue  # the check on subsets speaks of that
        for call in record.backwards:
            if call.inputs is None:
                continue
            pairs = list(zip(call.ctx.needs_input_grad, call.returned, strict=False))
            needed: set[int] = set()
            for wanted, grad in pairs:
                if wanted and isinstance(grad, Tensor):
                    needed |= operations.behind(grad)
            for i, (wanted, grad) in enumerate(pairs):
                if wanted or not isinstance(grad, Tensor):
                    continue
                names = [operations.made[t][0] for t in operations.behind(grad) - needed]
                heavy = [n for n in names if n in HEAVY]
                if heavy or (len(names) > MANY and max(Counter(names).values()) > LOOP):
                    yield finding(
                        "warning",
                        f"{call.cls.__name__}.backward computes the gradient of argument {i}, which needs none, by "
                        + (f"{heavy[0]}" if heavy else f"{len(names)} operations"),
                        "Every gradient is computed, whether or not it is asked for.",
                        f"Compute it only if ctx.needs_input_grad[{i}], and return None otherwise.",
                    )
                    return


def saved_beyond_inputs(subject: Subject) -> int:
    """Bytes that autograd keeps for the backward beyond arguments and parameters, each storage "
    ""
    "once.
    """
    held = {slot.tensor.untyped_storage().data_ptr() for slot in subject.slots if slot.hidden}
    saved: dict[int, tuple[int, Tensor]] = {}
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda t: t):
        run = subject.run()
    held |= {p.untyped_storage().data_ptr() for p in run.passed}
    kept = [t for n in nodes_of(run.outputs) for _, t in _tensors_in(dict(getattr(n, "__dict__", {})), "ctx")]
    for tensor in (*packed, *kept):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            saved[storage.data_ptr()] = (storage.nbytes(), tensor)
    return sum(size for size, _ in saved.values())
