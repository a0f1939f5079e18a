"""What torch asks of a backward: what it returns, and for whom, in all situations that callers and the engine make."""

import contextlib
import functools
import inspect
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.checks.execution import MARKS, mark, mark_elsewhere
from autograd_cookbook.auditing.checks.gradients import (
    ITERATIONS,
    adds_to_zero,
    output_weights,
    repetitions,
    written_to_grad,
    zeros_for_none,
)
from autograd_cookbook.auditing.diagnose import refused_on_purpose
from autograd_cookbook.auditing.numeric import Derivative, largest_of, rounding
from autograd_cookbook.auditing.observe import is_freed, observing, same
from autograd_cookbook.auditing.report import Finding
from autograd_cookbook.auditing.roots import FIRST_DTYPE, WRITES_GRAD
from autograd_cookbook.auditing.subject import (
    Outcome,
    Run,
    Subject,
    is_differentiable,
    modules_of,
    real,
    tensors_in,
    weights_of,
)
from autograd_cookbook.auditing.surrogates import is_still
from autograd_cookbook.auditing.variation import Deviation, deviation

LOOK = 0.05  # seconds for an argument that the sample holds fixed


@check()
def returned(subject: Subject) -> Iterator[Finding]:
    """Backward returns gradients with the shapes and dtypes of the inputs, before the engine changes them.

    If an input could be expanded to the shape of its gradient, the engine silently sums the gradient. It also casts a
    gradient of another dtype. Sometimes this is intended. Often it hides a sum over the wrong dimensions, or a gradient
    that was rounded to float32.
    """
    with observing(subject.classes, saved=False) as record:
        subject.vjp()
    for call in record.backwards:
        if call.inputs is None:
            continue
        name = call.cls.__name__
        for i, (given, got) in enumerate(zip(call.inputs, call.returned, strict=False)):
            if not isinstance(given, Tensor) or not isinstance(got, Tensor):
                continue
            if got.shape != given.shape:
                yield finding(
                    "info",
                    f"{name}.backward returns shape {list(got.shape)} for argument {i} of shape {list(given.shape)}; "
                    "the engine sums it",
                    "The input was broadcast in forward, and its gradient was not summed over the broadcast dims. The "
                    "engine does that silently, and would do so too if the shape were wrong by mistake.",
                    "Sum it yourself: grad.sum_to_size(input.shape).",
                )
            elif got.dtype is not given.dtype:
                narrower = _digits(got) < _digits(given) or (given.is_complex() and not got.is_complex())
                yield finding(
                    "error" if narrower else "info",
                    f"{name}.backward returns {got.dtype} for argument {i} of {given.dtype}; the engine casts it",
                    "Something in the backward has another dtype: a buffer created without dtype=, or a cast that was "
                    "not undone." + (" Digits are lost on the way." if narrower else ""),
                    "Create buffers with dtype=input.dtype, and cast back what was cast.",
                )


def _digits(tensor: Tensor) -> float:
    return -torch.finfo(tensor.dtype).eps if is_differentiable(tensor) else -torch.inf


@check()
def subsets(subject: Subject) -> Iterator[Finding]:
    """If only some inputs require a gradient, their gradients are the same as if all inputs did.

    The caller decides which layers to freeze. A backward that assumes that every input needs its gradient crashes or
    returns another number if one input does not. If forward takes any number of tensors, as a solver takes parameters,
    the caller may leave the frozen ones out.

    The audit also lets each argument require grad that the sample holds fixed, such as a target or a weight of the
    loss. Backward may return None for it, but no wrong number.
    """
    yield from _held_fixed(subject)
    leaves = subject.leaves
    if len(leaves) < 2:
        return
    sizes = range(1, len(leaves)) if len(leaves) <= 4 else (1, len(leaves) - 1)
    expected = subject.expected
    for size in sizes:
        for chosen in itertools.combinations(leaves, size):
            requires = [s in chosen for s in range(len(subject.slots))]
            only = [g if r else None for g, r in zip(expected[1], requires, strict=True)]
            run = lambda requires=requires: subject.vjp(requires=requires)  # noqa: E731
            if found := _without_error(subject, chosen, deviation(subject, run, (expected[0], only))):
                names = ", ".join(subject.slots[s].name for s in chosen)
                advice = found.advice(
                    "What is computed or saved depends on which inputs need gradients, in the wrong way.",
                    "Ask ctx.needs_input_grad for each gradient apart, and save what each one needs.",
                )
                if listed := _differentiates_what_it_is_passed(subject, requires, found):
                    advice = PASSED
                elif found.error is not None and "does not require grad" in str(found.error):
                    advice = FROZEN
                yield finding(
                    "info" if listed else "error",
                    f"if only {names} requires grad, {_without_requires_grad(found) or found.text}",
                    *advice,
                )
                return


FIXED = (
    "The formula for this argument is wrong, or backward returns the gradients of two arguments in each other's place. "
    "A caller who lets the argument require grad gets these numbers silently.",
    "Correct the formula: pass the argument with requires_grad=True to have each entry checked. If it is not to be "
    "differentiated, return None.",
)


def _held_fixed(subject: Subject) -> Iterator[Finding]:
    """Nothing, if no argument that the sample holds fixed makes a gradient wrong once it requires grad."""
    if subject.gradient != "exact" or not (subject.custom and subject.right) or subject.rough:
        return
    for s, slot in enumerate(subject.slots):
        if slot.leaf or slot.hidden or not is_differentiable(subject.base[s]) or not subject.base[s].numel():
            continue
        if (grads := _if_it_requires_grad(subject, s)) is None or is_still(subject, s, subject.copies()):
            continue
        if problems := list(_compared(subject, s, grads)):
            yield from problems
            return


def _compared(subject: Subject, slot: int, grads: list[Tensor | None]) -> Iterator[Finding]:
    """Nothing, if the other gradients are as without that of an argument that is held fixed, and that one is right."""
    name, (outputs, expected) = subject.slots[slot].name, subject.expected
    usual = [e if g is not None else None for g, e in zip(grads, expected, strict=True)]
    others = [g if k != slot else None for k, g in enumerate(grads)]
    if found := deviation(subject, lambda: (outputs, others), (outputs, usual)):
        yield finding(
            "error",
            f"if {name} requires grad, too, which the sample holds fixed, {found.text}",
            *found.advice(
                "What backward returns for one argument depends on whether another one requires grad: the two "
                "gradients share memory and one of them is written to, or they are in each other's place.",
                "Compute each gradient apart and out of place.",
            ),
        )
        return
    numeric = Derivative(subject.value, subject.base, [slot], subject.coarsest, budget=LOOK)
    floor, weights = rounding(outputs, subject.base[slot]), output_weights(outputs, subject.active)
    actual = real(zeros_for_none(subject, grads, [slot]))
    if numeric.center.isfinite().all() and (off := numeric.compare(actual, weights, subject.accuracy, floor)):
        yield finding(
            "warning",
            f"if {name} requires grad, which the sample holds fixed, the gradient of "
            f"{subject.describe(slot, off.index)} is {off.actual:.6g}, but the values change by {off.expected:.6g}",
            *FIXED,
        )


def _if_it_requires_grad(subject: Subject, slot: int) -> list[Tensor | None] | None:
    """All gradients where an argument requires grad that the sample holds fixed; None if a backward declines it."""
    requires = [s in (slot, *subject.leaves) for s in range(len(subject.slots))]
    with observing(subject.classes, saved=False) as record:
        try:
            grads = subject.vjp(requires=requires)[1]
        except (Exception, SystemExit):
            return None
    declined = any(
        needed and (got is None or not got.any())
        for call in record.backwards
        for needed, got in zip(call.ctx.needs_input_grad, call.returned, strict=False)
    )
    grad = grads[slot]
    return None if declined or grad is None or not grad.any() else grads


PASSED = (
    "backward differentiates with respect to all tensors at the end of the arguments, of which a caller passes those "
    "that require grad.",
    "Nothing, if every caller leaves frozen tensors out; otherwise ask ctx.needs_input_grad.",
)
FROZEN = (
    "backward calls torch.autograd.grad or backward() for a tensor that requires no grad here, because the caller has "
    "frozen an input.",
    "In backward, detach the tensors that you differentiate and call requires_grad_() on the results, or ask "
    "ctx.needs_input_grad before you differentiate.",
)


def _without_requires_grad(found: Deviation) -> str:
    """What the audit sees where the function raises nothing, and nothing can be differentiated."""
    return "no output does" if found.error is not None and "no output requires grad" in str(found.error) else ""


def _differentiates_what_it_is_passed(subject: Subject, requires: Sequence[bool], found: Deviation) -> bool:
    """Whether forward takes any number of tensors, as a solver takes parameters, and backward asks for all of them.

    A parameter that backward finds in a module, which is an argument, is none that a caller could leave out.
    """
    if found.error is None or "Tensors does not require grad" not in str(found.error):
        return False
    with observing(subject.classes, saved=False) as record:
        run = subject.run(requires=requires)
    frozen = [tensor for tensor, leaf in zip(run.passed, run.leaves, strict=True) if leaf is None]
    return all(
        any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in inspect.signature(call.cls.forward).parameters.values())
        and all(any(tensor is given for given in call.inputs) for tensor in frozen if is_differentiable(tensor))
        for call in record.forwards
    )


def _without_error(subject: Subject, chosen: tuple[int, ...], found: Deviation | None) -> Deviation | None:
    """Nothing, where the function need not run because no gradient goes to the chosen inputs anyway."""
    missing = all((g := subject.expected[1][s]) is None or not bool(torch.count_nonzero(g)) for s in chosen)
    return None if found and found.error is not None and missing else found


@check()
def unused_outputs(subject: Subject) -> Iterator[Finding]:
    """If a loss does not use some of the outputs, the gradients are still right.

    A loss may use only one of several outputs. The backward then gets zeros for the others, or None if the function
    calls ``set_materialize_grads(False)``.
    """
    if len(subject.active) < 2:
        return

    def using(kept: int, undefined: bool) -> tuple[list[Tensor], list[Tensor | None]]:
        run = subject.run()
        weights = weights_of([o for o in run.outputs if o.requires_grad])
        others = (lambda w: None) if undefined else torch.zeros_like
        return run.outcome([w if k == kept else others(w) for k, w in enumerate(weights)])

    outputs, _ = subject.expected
    for kept in range(len(subject.active)):
        try:
            expected = using(kept, undefined=False)
        except (Exception, SystemExit):
            return
        if found := deviation(subject, functools.partial(using, kept, undefined=True), expected):
            yield finding(
                "error",
                f"if only output {subject.active[kept]} of {len(outputs)} is used, {found.text}",
                *found.advice(
                    "The backward takes the gradient of every output for granted.",
                    "Treat None as zero for each grad_output, or leave materialize_grads on.",
                ),
            )
            return


class _Drop(Function):
    """Passes values on, and returns no gradient at all."""

    @staticmethod
    def forward(ctx: Any, input: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        return input.clone()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> None:
        return None


@check()
def undefined_gradient(subject: Subject) -> Iterator[Finding]:
    """If no gradient arrives at the outputs, backward neither crashes nor returns a number other than zero.

    A later node may return None for its input. The engine still runs the backward before it, with zeros or, after
    ``set_materialize_grads(False)``, with None.
    """
    run = subject.run()
    dropped = [_Drop.apply(o) for o in run.outputs if o.requires_grad]
    nothing = [None] * len(subject.slots)
    # What a solver leaves of zeros is rounding, compared with the gradients that it returns otherwise.
    least = subject.rounding * largest_of(g for g in subject.expected[1] if g is not None)

    for leaf in run.leaves:
        if leaf is not None:
            leaf.grad = None

    def outcome() -> tuple[list[Tensor], list[Tensor | None]]:
        torch.autograd.backward(dropped, weights_of(dropped))
        grads = [None if leaf is None else leaf.grad for leaf in run.leaves]
        return [], [None if g is None or bool((g.abs() <= least).all()) else g for g in grads]

    if found := deviation(subject, outcome, ([], nothing)):
        added = found.error is None and adds_to_zero(subject)
        iterates = added and repetitions(subject, backward=True) >= ITERATIONS
        yield finding(
            "info" if added and subject.gradient == "custom" and not subject.undeclared else "error",
            f"if the gradient of the output is undefined, {found.text}",
            *found.advice(*(LEFT if iterates else ADDED if added else UNDEFINED)),
        )


UNDEFINED = (
    "The backward takes the None that stands for zeros after set_materialize_grads(False) for something else.",
    "Return None if grad_output is None.",
)
LEFT = (
    "Backward repeats an operation, from a start that is not zero, and stops before the result for a grad_output of "
    "zeros is zero.",
    "Start from zeros, or repeat until the change is small.",
)
ADDED = (
    "The backward returns something for a grad_output of zeros, too: a constant, a penalty or noise that it adds.",
    "Multiply what backward returns by grad_output. If the part is meant to be added, it is added also where no loss "
    "depends on the output, and a gradient scaler divides it by a scale that it does not have. Make a penalty "
    "a term of the loss instead.",
)


CHANGED = (
    "The first backward changed something that the second reads: a saved tensor, an attribute of ctx or of the class, "
    "grad_output.",
    "Compute out of place, and leave ctx as forward left it.",
)


@check()
def backward_twice(subject: Subject) -> Iterator[Finding]:
    """A second backward through the same graph gives the same gradients as the first.

    With ``retain_graph=True``, a caller may run backward any number of times. A Jacobian, for example, takes many
    backwards.
    """
    if subject.random and subject.gradient == "approximate":
        return
    run = subject.run()
    subject.rewind()  # what backward draws, too, is to be the same each time
    first = [None if g is None else g.clone() for g in run.gradients(retain_graph=True)]

    def again() -> tuple[list[Tensor], list[Tensor | None]]:
        subject.rewind()
        return [], run.gradients(retain_graph=True)

    for time in ("second", "third"):  # what two calls share, such as a flag, may show in the third alone
        if (found := deviation(subject, again, ([], first))) is None:
            continue
        # A function may free what it kept, as torch does without retain_graph, if it says so or cannot go on.
        freed = isinstance(found.error, AttributeError) and "Backward' object has no attribute" in str(found.error)
        yield finding(
            "info" if freed or refused_on_purpose(found.error) else "error",
            f"in a {time} backward through the same graph, {found.text}",
            # Between the two nothing ran but the first backward: a version that moved was moved by it.
            *(CHANGED if "modified by an inplace operation" in str(found.error) else found.advice(*CHANGED)),
        )
        return


FORGOTTEN = (
    "with another number among the arguments, forward returns what it returned for the first one, and in a new process "
    "something else",
    "The function keeps what it has computed from a number among its arguments, in a cache or a global, and finds it "
    "again for another number.",
    "Let the key of the cache contain each argument that the value depends on.",
)


FIRST_IN_INFERENCE = (
    "after a first call in inference mode, a call that is differentiated raises",
    "The function keeps a tensor of its first call. One made in inference mode cannot be saved for backward.",
    "Make what is kept under torch.inference_mode(False), or anew in each call.",
)


@check()
def independent_calls(subject: Subject) -> Iterator[Finding]:
    """Other calls of the function between forward and backward do not change the gradients.

    If a network uses a layer twice, or a loss is evaluated on two batches, the second forward runs before the first
    backward. A value that is kept on the class, in a global or in a cache then belongs to the wrong call. Backward may
    also run in another thread than forward, as it does on a GPU, or after ``eval()``, as where a validation comes
    first. And where the checks run in a forked process, the first call may be one in bfloat16 or in inference mode,
    whose constants the function must not keep for others.
    """
    hidden = [slot.hidden for slot in subject.slots]

    def disturb(factor: float) -> Run | None:
        """Another call, on other values; parameters are one object for both calls, and stay."""
        values = [
            factor * v.flip(tuple(range(v.dim()))) if is_differentiable(v) and not h else v
            for v, h in zip(subject.copies(), hidden, strict=True)
        ]
        try:
            return subject.run(values)
        except (Exception, SystemExit):
            return None  # outside of its domain

    for factor, settings in ((-0.6, False), (0.6, False), (1.0, False), (1.0, True)):
        run = subject.run()
        with subject.other_settings() if settings else contextlib.nullcontext():
            disturbing = disturb(factor)

        found = deviation(subject, run.outcome, subject.expected)
        found = found or deviation(subject, subject.vjp, subject.expected)
        del disturbing
        if found:
            yield finding(
                "error",
                f"with another call between forward and backward, {found.text}",
                *found.advice(
                    "Something is kept outside of ctx, on the class, in a global or a cache, where the other call "
                    "overwrites it or is taken for this one.",
                    "Keep everything that belongs to a call on its ctx.",
                ),
            )
            return
    modules = modules_of(subject.function)
    in_the_other_mode = functools.partial(_in_the_other_mode, subject, modules)
    found = deviation(subject, in_the_other_mode, subject.expected) if modules else None
    if found and found.error is None:  # a checkpoint that computes again notices, and raises
        yield finding(
            "error",
            f"with eval() or train() called between forward and backward, {found.text}",
            *found.advice(
                "Backward asks the module for its mode, which is that of another call by then.",
                "Decide in forward, and keep the decision on ctx.",
            ),
        )
        return
    if found := deviation(subject, functools.partial(_in_a_thread, subject), subject.expected):
        yield finding(
            "error",
            f"with backward in another thread than forward, {found.text}",
            *found.advice(
                "Something is kept in a threading.local or under the name of the thread: the engine runs backward in "
                "threads of its own, one for each device.",
                "Keep everything that belongs to a call on its ctx.",
            ),
        )
        return
    plain = [s for s in subject.leaves if not hidden[s]]
    run = subject.run()
    active = [o for o in run.outputs if o.requires_grad]
    try:
        kept = torch.autograd.grad(active, run.leaves_of(plain), weights_of(active), allow_unused=True)
    except (Exception, SystemExit):
        return  # the check of torch.autograd.grad speaks of that
    named = [(f"the gradient of {subject.describe(s)}", g) for s, g in zip(plain, kept, strict=True) if g is not None]
    named += [(f"output {i}", run.outputs[i]) for i in subject.active if not is_freed(run.outputs[i])]
    before = [t.detach().clone() for _, t in named]
    for factor in (-0.6, 0.6):
        if other := disturb(factor):
            with contextlib.suppress(Exception):
                other.gradients()
    for (name, tensor), contents in zip(named, before, strict=True):
        if not same(tensor, contents):
            yield finding(
                "error",
                f"{name} of a call changes when another call is made",
                "The function returns a buffer that it keeps and uses again.",
                "Return a tensor that belongs to the caller: allocate it in each call, or clone it.",
            )
            return
    if subject.random or subject.stateful:
        return
    if subject.after_inference:
        yield finding("error", *FIRST_IN_INFERENCE)
        return
    if min(after := [status or 0 for status in subject.after.values()], default=0) >= MARKS and len({*after}) > 1:
        after_another = "after a first call in bfloat16, forward returns something else than after one in its own dtype"
        yield finding("error", after_another, *FIRST_DTYPE)
        return
    if (subject.fresh or 0) < MARKS:
        return
    try:
        usual, elsewhere = mark(subject), mark_elsewhere(subject)
    except (Exception, SystemExit):
        return  # outside of its domain
    if elsewhere == usual != subject.fresh:
        yield finding("error", *FORGOTTEN)


def _in_the_other_mode(subject: Subject, modules: Sequence[nn.Module]) -> Outcome:
    """Forward in one mode of the modules, backward in the other."""
    run = subject.run()

    def switch() -> None:
        for module in modules:
            module.training = not module.training

    switch()
    try:
        return run.outcome()
    finally:
        switch()


def _in_a_thread(subject: Subject) -> Outcome:
    """Forward here, backward in a thread of its own."""
    run = subject.run()
    done: list[Outcome] = []
    failed: list[BaseException] = []

    def backward() -> None:
        try:
            done.append(run.outcome())
        except (Exception, SystemExit) as error:
            failed.append(error)

    thread = threading.Thread(target=backward)
    thread.start()
    thread.join()
    for error in failed:
        raise error
    return done[0]


@check()
def same_tensor_twice(subject: Subject) -> Iterator[Finding]:
    """One tensor passed for two arguments gets the sum of both gradients.

    Calls such as ``f(x, x)`` are common. Self-attention is an example.
    """
    if subject.nonleaf or subject.gradient != "exact":
        return
    plain = [s for s in subject.leaves if not subject.slots[s].hidden]
    for a, b in itertools.combinations(plain, 2):
        if subject.base[a].shape != subject.base[b].shape or subject.base[a].dtype != subject.base[b].dtype:
            continue
        values = subject.copies()
        values[b] = values[a].clone()
        try:
            _, apart = subject.vjp(values)
        except (Exception, SystemExit):
            continue
        filled = [torch.zeros_like(subject.base[s]) if g is None else g for s, g in enumerate(apart)]
        summed = filled[a] + filled[b]

        def together(a: int = a, b: int = b) -> tuple[list[Tensor], list[Tensor | None]]:
            leaf = subject.base[a].clone().requires_grad_()
            tensors = subject.copies()
            for s in subject.leaves:
                tensors[s].requires_grad_()
            tensors = [subject.slots[s].tensor if subject.slots[s].hidden else t for s, t in enumerate(tensors)]
            tensors[a] = tensors[b] = leaf
            subject.rewind()
            raw = subject.function(*subject.arguments(tensors))
            outputs = [o for o in tensors_in(raw) if o.requires_grad]
            torch.autograd.backward(outputs, weights_of(outputs))
            grads: list[Tensor | None] = [None] * len(subject.slots)
            grads[a] = leaf.grad
            return [], grads

        expected: list[Tensor | None] = [None] * len(subject.slots)
        expected[a] = summed
        rtol = subject.rounding
        if summed.isfinite().all() and (found := deviation(subject, together, ([], expected), rtol)):
            names = f"{subject.slots[a].name} and {subject.slots[b].name}"
            yield finding(
                "error",
                f"with one tensor for {names}, {found.text}",
                *found.advice(
                    "The function tells its arguments apart by identity, or writes to one of them.",
                    "Treat each argument on its own.",
                ),
            )
            return


@check()
def grad_attribute(subject: Subject) -> Iterator[Finding]:
    """``torch.autograd.grad`` returns what ``backward`` accumulates, and leaves ``.grad`` of the inputs alone.

    The caller decides where the gradient goes. If your backward writes to ``.grad`` itself, the gradient counts twice,
    or reaches the wrong tensor.
    """
    run = subject.run()
    plain = [s for s in subject.leaves if not subject.slots[s].hidden]
    if not plain:
        return
    active = [o for o in run.outputs if o.requires_grad]
    leaves = run.leaves_of(plain)

    def outcome() -> tuple[list[Tensor], list[Tensor | None]]:
        found = torch.autograd.grad(active, leaves, weights_of(active), allow_unused=True)
        grads: list[Tensor | None] = [None] * len(subject.slots)
        for s, g in zip(plain, found, strict=True):
            grads[s] = g
        return [], grads

    expected = [g if s in plain else None for s, g in enumerate(subject.expected[1])]
    found = deviation(subject, outcome, ([], expected))
    written = [subject.describe(s) for s in written_to_grad(subject)]
    if not written and found and found.error is not None and "checkpoint" in str(found.error).lower():
        yield finding(
            "info",
            f"torch.autograd.grad is refused: {found.text}",
            "Reentrant checkpointing works with backward() alone.",
            "Use use_reentrant=False.",
        )
        return
    seen = f"backward writes to .grad of {', '.join(written)}" if written else ""
    seen = seen or (f"with torch.autograd.grad, {found.text}" if found else "")
    if seen:
        yield finding("error", seen, *(found.advice(*WRITES_GRAD) if found and not written else WRITES_GRAD))
