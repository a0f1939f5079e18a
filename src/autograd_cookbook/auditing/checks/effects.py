"""What a function may not do on the side: write to tensors of others, seed generators, turn global switches."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_structure

from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.diagnose import difference, first_line
from autograd_cookbook.auditing.observe import ForwardCall, Record, is_freed, observing, same
from autograd_cookbook.auditing.report import Finding
from autograd_cookbook.auditing.state import preserved, random_states, restore, seed_everything, settings
from autograd_cookbook.auditing.subject import Run, Subject, is_differentiable, own_nodes_of, tensors_in, weights_of
from autograd_cookbook.auditing.variation import other_flags

WRITTEN = "forward writes to it: in place, through .data, or through a NumPy array that shares its memory."
COPIED = "Work on a copy."
RESIZED = "It resizes the storage of the tensor to 0."


def _statistic(call: ForwardCall, i: int) -> bool:
    """Whether forward writes to an argument where torch notices it, and returns what it returns without it."""
    if any(isinstance(a, Tensor) and is_freed(a) for a in call.inputs):
        return False
    args = [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in call.inputs]
    if call.inputs[i].requires_grad or not args[i].is_floating_point():
        return False
    args[i] = statistic = 0.5 * args[i] + 0.25
    try:
        again = tensors_in(call.cls.apply(*args))
    except (Exception, SystemExit):
        return False
    returned = tensors_in(call.returned)
    return statistic._version > 0 and len(again) == len(returned) and all(map(same, again, returned))


def _unchanged_with_other_flags(subject: Subject) -> Iterator[Finding]:
    """Nothing, if forward writes to no input with flags, numbers and masks that the sample does not have, either."""
    for name, other in other_flags(subject):
        try:
            with other:
                run = subject.run()
        except (Exception, SystemExit):
            continue  # refused
        returned = {id(o) for o in run.outputs}
        for s in subject.leaves:
            if not (same(run.passed[s], subject.base[s]) or id(run.passed[s]) in returned or subject.slots[s].hidden):
                yield finding("error", f"with {name}, the function changes {subject.describe(s)}", WRITTEN, COPIED)
                return


@check()
def inputs_unchanged(subject: Subject) -> Iterator[Finding]:
    """Do not write to an input in forward. If you must, call ``ctx.mark_dirty`` on the input and return it.

    Otherwise, code that uses the tensor afterwards, such as the backward of another function, gets wrong numbers.
    Autograd does not notice writes through ``.data``, NumPy or a kernel. Do not change a list or a dict of the caller
    either: a second call with the same list must return the same numbers.
    """
    with observing(subject.classes, saved=False) as record:
        values = subject.copies()
        before = [v.clone() for v in values]
        run = subject.run(values)
        after_forward = [same(p, b) for p, b in zip(run.passed, before, strict=True)]
    # Running statistics are there to be written to: those that a module passes on, and others that nothing depends on.
    state = {id(buffer) for _, _, buffer, _ in subject.buffers}
    state |= {id(call.inputs[i]) for call in record.forwards for i in call.changed if _statistic(call, i)}
    for call in record.forwards:
        for i in call.changed:
            if is_freed(call.inputs[i]):
                yield finding(
                    "error",
                    f"{call.cls.__name__}.forward frees the memory of argument {i}",
                    f"{RESIZED} Code that reads the tensor before backward has computed it again reads memory that is "
                    "gone, and the process can die.",
                    "Let the caller drop the argument. If that is not possible, document that it must not be used "
                    "after the call.",
                )
                return
            if i not in call.dirty and id(call.inputs[i]) not in state:
                yield finding(
                    "error",
                    f"{call.cls.__name__}.forward changes argument {i} and does not mark it dirty",
                    WRITTEN,
                    "Work on a copy; or call ctx.mark_dirty on the input and return it.",
                )
                return
    returned = {id(o) for o in run.outputs}
    for s, unchanged in enumerate(after_forward):
        dirty = id(run.passed[s]) in returned
        buffer = subject.slots[s].hidden and not subject.slots[s].leaf
        if not unchanged and not dirty and not buffer and id(run.passed[s]) not in state:
            yield finding("error", f"the function changes {subject.describe(s)}", WRITTEN, COPIED)
            return
    yield from _containers_unchanged(subject)
    for s, tensor in enumerate(run.passed):
        if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
            yield finding(
                "error",
                f"forward leaves a hook on {subject.describe(s)}, which belongs to the caller",
                "register_hook was called on the input itself: the hook stays, and every call adds another one.",
                "Register it on a tensor of the function's own, such as input.view_as(input), or write a Function.",
            )
            return
    mid = [p.detach().clone() for p in run.passed]
    outputs, _ = run.outcome()
    for s, (p, b) in enumerate(zip(run.passed, mid, strict=True)):
        if not same(p, b):
            yield finding(
                "error",
                f"backward changes {subject.describe(s)}",
                "backward writes to it, or to a saved tensor that shares its memory: as scratch memory, or to update "
                "it on purpose.",
                "Compute out of place. An update on purpose, such as that of a memory bank, belongs after the "
                "backward, in the code that calls it.",
            )
            return
    for i, (o, b) in enumerate(zip(run.outputs, outputs, strict=True)):
        if is_freed(o):
            yield finding(
                "error",
                f"backward frees the memory of output {i}",
                f"{RESIZED} Code that reads the output after backward, to print it or to measure an accuracy, reads "
                "memory that is gone, and the process can die.",
                "Free only what forward has made and not returned, or document that backward ends the life of the "
                "output.",
            )
            return
        if not same(o, b):
            yield finding(
                "error",
                f"backward changes output {i}",
                "backward writes its intermediate results into a saved output, which the caller still has.",
                "Compute out of place.",
            )
            return
    # Last, because a call without gradients freezes the parameters that the function holds, and the backward above
    # may read these.
    yield from () if subject.in_place else _unchanged_with_other_flags(subject)


def _containers_unchanged(subject: Subject) -> Iterator[Finding]:
    """Nothing, if a second call with the very lists and dicts that the first one got comes to the same numbers."""
    if subject.in_place or subject.random or not any(isinstance(a, list | dict) for a in subject.packed(subject.base)):
        return
    seen: list[tuple[Any, ...]] = []

    def kept(*args: Any) -> Any:
        seen.append(args)
        return subject.function(*args)

    outputs = subject.run(function=kept).outputs
    (args,) = seen
    fresh = subject.packed(subject.base)
    changed = [i for i, (a, b) in enumerate(zip(args, fresh, strict=True)) if tree_structure(a) != tree_structure(b)]
    if not changed:
        return
    try:
        subject.rewind()
        again = tensors_in(subject.function(*args))
        what = "" if len(again) == len(outputs) and all(map(same, again, outputs)) else "gives other numbers"
    except (Exception, SystemExit) as error:
        what = f"raises {first_line(error)}"
    if what:
        kind = type(args[changed[0]]).__name__
        yield finding(
            "warning",
            f"forward changes input {changed[0]}, a {kind} of the caller: a second call with it {what}",
            "Entries are taken out of it, put into it or replaced, as by pop, append or update.",
            f"Work on a copy: options = {kind}(options).",
        )


@check()
def grad_output_unchanged(subject: Subject) -> Iterator[Finding]:
    """Do not write to grad_output or to saved tensors in backward.

    The tensor grad_output may also be the gradient of another branch, or a hook may have kept it.
    ``grad_output.mul_(...)`` changes the numbers there, too. If backward changes a saved tensor, the next backward is
    wrong.
    """
    for layout in (torch.clone, lambda w: w.mT.contiguous().mT if w.dim() > 1 else w.clone()):
        with observing(subject.classes) as record:
            run = subject.run()
            active = [o for o in run.outputs if o.requires_grad]
            weights = [layout(w) for w in weights_of(active)]
            before = [w.clone() for w in weights]
            with contextlib.suppress(Exception):  # a layout that it cannot take is another check's
                run.gradients(weights)
        changed = [i for i, (w, b) in enumerate(zip(weights, before, strict=True)) if not same(w, b)]
        for call in record.backwards:
            name = call.cls.__name__
            if call.freed:
                yield finding(
                    "error",
                    f"{name}.backward frees the memory of grad_output {call.freed[0]}",
                    f"{RESIZED} The same tensor can be the gradient of another branch, and a hook can have kept it: a "
                    "read then reads memory that is gone, and the process can die.",
                    "Leave it to PyTorch, which frees grad_output after backward, unless something else needs it.",
                )
                return
            if call.changed_received:
                changed.append(call.changed_received[0])
            elif call.changed_saved:
                harmless = " Outputs and a second backward are not affected." if _repeats(subject) else ""
                yield finding(
                    "info" if harmless else "error",
                    f"{name}.backward changes saved tensor {call.changed_saved[0]}",
                    f"An in-place operation on a saved tensor, possibly through .data or .numpy().{harmless}",
                    "Compute out of place.",
                )
                return
        if changed:
            yield finding(
                "error",
                f"backward changes grad_output {changed[0]}",
                "backward writes to grad_output in place. The same tensor may be the gradient of another branch.",
                "Compute out of place: grad_output * x, not grad_output.mul_(x).",
            )
            return


def _repeats(subject: Subject) -> bool:
    """Whether a first backward leaves the outputs and the gradients of a second one as they are."""
    run = subject.run()
    outputs = [o.detach().clone() for o in run.outputs]
    rounds: list[list[Tensor]] = []
    for _ in range(2):
        subject.rewind()
        try:
            rounds.append([g.clone() for g in run.gradients(retain_graph=True) if g is not None])
        except (Exception, SystemExit):
            return False
    return all(map(same, [*outputs, *rounds[0]], [*run.outputs, *rounds[1]]))


@check()
def global_random_state(subject: Subject) -> Iterator[Finding]:
    """Do not call ``torch.manual_seed`` in a function, and draw random numbers only if the function is random.

    After each call of the function, the whole program draws the same sequence again, so dropout masks, shuffles and
    initializations repeat. To draw the same numbers again in backward, use your own generator, or restore the state of
    the global generator.
    """
    for phase in ("forward", "backward"):
        after, moved = [], False
        for seed in (11, 12):
            subject.rewind()
            if phase == "forward":
                seed_everything(seed)
                before = random_states()
                subject.run(rewind=False)
            else:
                run = subject.run()
                seed_everything(seed)
                before = random_states()
                run.gradients()
            after.append(random_states())
            moved = moved or before != after[-1]
        for library in after[0]:
            if after[0][library] == after[1][library]:
                yield finding(
                    "error",
                    f"{phase} sets the global random state of {library}: afterwards, it is the same for any seed",
                    "The function calls manual_seed or set_rng_state and does not restore the state.",
                    "Use a torch.Generator of your own, or put the call in a block with torch.random.fork_rng.",
                )
                return
        if moved and phase == "forward" and not subject.random:
            yield finding(
                "warning",
                "forward draws from a global random generator, but its result is not random",
                "forward draws numbers that change nothing here, for example to fill a tensor that it overwrites. So "
                "all later random numbers of the program change.",
                "If the numbers are never used, do not draw them; otherwise use a torch.Generator of your own.",
            )
            return
        if moved and phase == "backward" and subject.gradient == "exact" and not subject.random:
            yield finding(
                "warning",
                "backward draws from a global random generator",
                "The gradient is random, or backward draws numbers that it does not use.",
                "Draw in forward and save the numbers. If the gradient is a random estimate, pass "
                "gradient='approximate'.",
            )
            return


def _autocast() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


@check()
def global_settings(subject: Subject) -> Iterator[Finding]:
    """If you change grad mode, default dtype or another global switch, change it back before you return.

    Otherwise, the switch affects code that has nothing to do with the function.
    """
    places: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]]
    places = {"": torch.enable_grad, " under no_grad": torch.no_grad, " under autocast": _autocast}
    for phase, (where, context) in itertools.product(("forward", "backward"), places.items()):
        with preserved(), context():
            before = settings()
            with contextlib.suppress(Exception):  # whether it works there is the question of others
                run = subject.run(requires=None if torch.is_grad_enabled() else subject.without_graph)
                if phase == "backward":
                    before = settings()
                    run.gradients()
            after = settings()
            restore(before)
        changed = [name for name in before if before[name] != after[name] and name != "warnings filters"]
        # Filters are compared inside of the guard, which has installed none of its own.
        if len(after["warnings filters"]) > len(before["warnings filters"]):
            changed.append("warnings filters")
        if changed:
            yield finding(
                "error",
                f"{phase}{where} leaves {changed[0]} at {after[changed[0]]}, where it was {before[changed[0]]}"[:240],
                "The function sets a global switch and does not restore it.",
                "Use the context manager (torch.no_grad, warnings.catch_warnings, ...), which restores the switch even "
                "after an error.",
            )
            return


UNNOTICED = (
    "A tensor that the backward needs is kept on ctx or in a closure, where PyTorch checks no version. Or the saved "
    "tensor shares the memory of the input or output, but not its version, as with .data, .numpy() and "
    "torch.sparse_coo_tensor.",
    "Keep inputs and outputs themselves with ctx.save_for_backward.",
)
HIDDEN = (
    "PyTorch notices the write: ctx.saved_tensors raises. But backward catches the exception, and returns another "
    "gradient.",
    "Read ctx.saved_tensors outside of the try, and catch only the exceptions that you expect.",
)


@check()
def later_writes(subject: Subject) -> Iterator[Finding]:
    """Save tensors so that PyTorch notices if the caller writes to an input or the output after forward.

    PyTorch counts the writes to a tensor (its version). If the version of a tensor in ``save_for_backward`` has
    changed, backward raises. PyTorch does not check tensors on ctx, in a closure or behind ``.data``, so an in-place
    operation of the caller silently makes the gradient wrong.
    """
    if subject.gradient == "approximate":
        return
    expected = subject.expected_inside[1]

    noticed: list[int | None] = []

    def gradients_after(written: int | None) -> list[Tensor | None] | None:
        """The gradients, if one input, or else all outputs, are written to before the backward."""
        run = subject.run(through=torch.clone)
        targets = [o for o in run.outputs if o.requires_grad] if written is None else [run.passed[written]]
        if any(map(is_freed, targets)):
            return None  # there is nothing to write to: another check tells so
        try:
            with torch.no_grad():
                for t in targets:
                    t.mul_(1.5)
            try:
                for node in own_nodes_of(run.outputs, subject.classes):
                    _ = node.saved_tensors
            except RuntimeError:
                noticed.append(written)
            return run.gradients()
        except (Exception, SystemExit):
            return None  # refused, as it should be

    # Who writes to a constant that is handed down in a dict of options?
    tensors = [
        s
        for s, slot in enumerate(subject.slots)
        if not slot.hidden and is_differentiable(slot.tensor) and (slot.leaf or "[" not in slot.name)
    ]
    for written in (*tensors, None):
        grads = gradients_after(written)
        if grads is None:
            continue
        what = "the outputs" if written is None else subject.describe(written)
        for s in subject.leaves:
            zero = torch.zeros_like(subject.base[s])
            ours, theirs = (zero if g is None else g for g in (grads[s], expected[s]))
            if problem := difference(ours, theirs, 1e-9):
                hidden = written in noticed
                yield finding(
                    "error",
                    f"after a later in-place operation on {what}, the gradient of {subject.describe(s)} is {problem}, "
                    f"and {'backward hides the error that torch raises' if hidden else 'torch does not notice'}",
                    *(HIDDEN if hidden else UNNOTICED),
                )
                return


@check()
def in_place_consumer(subject: Subject) -> Iterator[Finding]:
    """Return an output that the caller can change in place, for example by ``y += residual`` or ``y.relu_()``.

    If the output is a view, PyTorch raises an error for such a write. The audit reports this as info, because some
    functions return a view on purpose, for example gradient reversal. If PyTorch does not notice the write, the audit
    reports an error.
    """
    if subject.nonleaf:
        return
    for i in subject.active:
        with observing(subject.classes, saved=False) as record:
            run = subject.run(through=torch.clone)
        output = run.outputs[i]
        try:
            output.mul_(2.0)
            grads = run.gradients()
        except (Exception, SystemExit) as error:
            if "is a view and is being modified inplace" in str(error) and subject.custom:
                yield _refused_in_place(i, run, record, error)
            continue  # refused because the output was saved: as for torch's own sigmoid
        if len(subject.active) > 1 or subject.gradient == "custom":
            continue  # what another grad_output gives cannot be told
        doubled = subject.vjp(through=torch.clone, change=functools.partial(torch.mul, other=2.0))[1]
        for s in subject.leaves:
            zero = torch.zeros_like(subject.base[s])
            ours, theirs = (zero if g is None else g for g in (grads[s], doubled[s]))
            if problem := difference(ours, theirs, 1e-8):
                yield finding(
                    "error",
                    f"if output {i} is doubled in place, the gradient of {subject.describe(s)} is {problem}",
                    "The backward reads the output, or shares memory with it, without save_for_backward.",
                    "Save the output with ctx.save_for_backward, so that torch notices; or return a copy.",
                )
                return


def _refused_in_place(i: int, run: Run, record: Record, error: BaseException) -> Finding:
    """What an output is a view of."""
    output, passed = run.outputs[i], run.passed
    itself = any(
        r is a for call in record.forwards for r in call.returned for a in call.inputs if isinstance(a, Tensor)
    )
    storage = output.untyped_storage().data_ptr()
    of_input = any(p.numel() and p.untyped_storage().data_ptr() == storage for p in passed)
    what = "the input itself" if itself else f"a view of {'the input' if of_input else 'a tensor made inside of it'}"
    return finding(
        "info",  # torch says so at once, and an identity on purpose loses nothing by it
        f"output {i} cannot be written to in place: {first_line(error, 120)}",
        f"forward returns {what}, and torch refuses in-place operations on views that come out of a custom function.",
        "Return a tensor that is no view: call clone(), or allocate a result in its final shape. If forward must share "
        "the memory of the input, return input.view_as(input); the caller then cannot write to it in place.",
    )
