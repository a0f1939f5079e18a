"""It runs on the given sample, in the same way every time, with a graph or without."""

import contextlib
import copy
import functools
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from autograd_cookbook.auditing import forking
from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.diagnose import difference, explain, first_line, raised_by_audit, writes_to_leaf
from autograd_cookbook.auditing.domains import SYMMETRIC, may_be_symmetric
from autograd_cookbook.auditing.observe import same
from autograd_cookbook.auditing.report import Finding, Severity
from autograd_cookbook.auditing.state import random_states
from autograd_cookbook.auditing.subject import Outcome, Run, Subject, functions_of, is_differentiable, real, tensors_in
from autograd_cookbook.auditing.variation import Deviation, deviation

# The namespaces of torch's own operators, from 2.12 to 2.15, which are not the reader's to correct.
BUILT_IN = frozenset(
    "_c10d_functional _c10d_functional_autograd _dtensor _inductor_test _native _native_aot _quantized _test aten "  # noqa: SIM905
    "c10d c10d_functional coor debug_mode_ops debugprims export flex_gemm flex_lib fsdp higher_order inductor "
    "inductor_prims mkl mkldnn mkldnn_prepacked onednn onnx onnx_symbolic pippy prepacked prim prims profiler "
    "quantization quantized quantized_decomposed rngprims sparse static_runtime streams symm_mem".split()
)


class NoTensorError(TypeError):
    """The function returned nothing that could be differentiated or even compared."""


class _Operators(TorchDispatchMode):
    """Collects the operators of others that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Any, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace not in BUILT_IN:
            self.found[func] = None
        return func(*args, **(kwargs or {}))


KEEPS_GRAPH = (
    "The function keeps a tensor of its first call, and with it the graph, in a global, an attribute or a closure, and "
    "uses it again. The first backward has freed that graph.",
    "Compute it anew in each call, or keep it detached.",
)


def prepare(subject: Subject) -> Finding | None:
    """Find out how the function wants to be called; an error if it cannot be."""
    if subject.isolated and any(isinstance(a, float) for a in (*subject.flat, *subject.defaults.values())):
        # Nothing has called the function yet in this process, and so nothing in the one that is forked from it.
        subject.fresh = forking.status_of(functools.partial(mark_elsewhere, subject), forking.PATIENCE)
    if subject.isolated:
        _try_first_calls(subject)
    try:
        run = _first_run(subject)
    except NoTensorError:
        raise
    except (Exception, SystemExit) as error:
        cause, fix = explain(error)
        return finding("error", f"forward raises on the given sample: {first_line(error)}", cause, fix)
    subject.active = [i for i, o in enumerate(run.outputs) if o.requires_grad]
    subject.in_place = any(not same(p, b) for p, b in zip(run.passed, subject.base, strict=True))
    subject.classes = [c for c in functions_of(run.outputs) if c.__module__.partition(".")[0] != "torch"]
    if not subject.active:
        return finding(
            "error",
            "no output requires grad, though an input does",
            "The output was computed under no_grad, detached, made by NumPy, or marked as non-differentiable; or "
            "forward was called directly, and not by apply.",
            "Call the class by its apply method, and keep what is to be differentiated attached.",
        )
    with _Operators() as operators:
        try:
            subject.run()
        except (Exception, SystemExit):
            subject.stateful = True  # it takes something out of what it is given, which each call gets back
            subject.reset_buffers()
            try:
                subject.run()
            except (Exception, SystemExit) as error:
                return _only_once(error)
    subject.operators = list(operators.found)
    try:
        run.gradients()
    except (Exception, SystemExit) as error:
        cause, fix = explain(error)
        return finding("error", f"backward raises on the given sample: {first_line(error)}", cause, fix)
    try:
        _find_state(subject)
        subject.asks = _asks(subject)
        subject.random = _random(subject)
    except (Exception, SystemExit) as error:
        if raised_by_audit(error):
            raise
        return _only_once(error)
    if subject.recognizes:
        subject.recognized |= {s: SYMMETRIC for s in subject.leaves if _reads_as_symmetric(subject, s)}
    return None


def _only_once(error: BaseException) -> Finding:
    advice = KEEPS_GRAPH if "backward through the graph a second time" in str(error) else explain(error)
    return finding("error", f"the first call works, and a later one raises {first_line(error)}", *advice)


SHORT = 0.3  # seconds for two calls
MARKS = 10  # below them are the exit statuses of a process that failed
RAISES = 9


def mark(subject: Subject) -> int:
    """A number from 10 to 255 that tells outputs apart, as an exit status can."""
    numbers = real([o for o in subject.run().outputs if is_differentiable(o)])
    return MARKS + zlib.crc32(numbers.numpy().tobytes()) % (256 - MARKS)


def mark_elsewhere(subject: Subject) -> int:
    """The same for other numbers among the arguments."""
    with subject.other_settings():
        return mark(subject)


def _try_first_calls(subject: Subject) -> None:
    """Find out, in processes that have not called the function either, what its first call leaves behind."""
    for dtype in (subject.dtype, torch.bfloat16):
        subject.after[dtype] = forking.status_of(functools.partial(_mark_after, subject, dtype), SHORT)
        if subject.after[dtype] is None:
            return  # it hangs, or takes long
    status = forking.status_of(functools.partial(_raises_after_inference, subject), SHORT)
    subject.after_inference = status == RAISES


def _mark_after(subject: Subject, dtype: torch.dtype) -> int:
    """The same for its own numbers, behind a call in one dtype or another."""
    with subject.in_dtype(dtype):
        subject.run(subject.converted(subject.copies(), dtype))
    return mark(subject)


def _raises_after_inference(subject: Subject) -> int:
    """Whether a call that is differentiated raises behind one in inference mode, as an exit status."""
    try:
        with torch.inference_mode():
            subject.run(requires=subject.without_graph)
    except (Exception, SystemExit):
        return MARKS  # refused
    try:
        subject.run().gradients()
    except RuntimeError as error:
        return RAISES if "inference tensor" in str(error).lower() else MARKS
    return MARKS


def _reads_as_symmetric(subject: Subject, slot: int) -> bool:
    """Whether the function takes a matrix for a symmetric one, and its gradient is that of one.

    A sample of zeros, or a diagonal one, does not show it. But forward reads one triangle alone, or refuses matrices
    that are not symmetric, and the gradient is symmetric.
    """
    if subject.slots[slot].hidden or not may_be_symmetric(subject.base[slot]):
        return False
    base = subject.base[slot]
    generator = torch.Generator().manual_seed(8)
    noise = torch.rand(base.shape, generator=generator, dtype=torch.float64).triu(1).to(base)

    def point(step: Tensor) -> list[Tensor]:
        return [base + 1e-2 * step if s == slot else v for s, v in enumerate(subject.copies())]

    def moved(step: Tensor) -> Tensor | None:
        try:
            return subject.value(point(step))
        except (Exception, SystemExit):
            return None

    here, both = subject.value(subject.copies()), moved(noise + noise.mT)
    if both is None or torch.equal(both, here):
        return False
    # Next to the sample: the gradient at a diagonal matrix is often diagonal, too, which says nothing.
    try:
        gradient = subject.vjp(point(noise + noise.mT))[1][slot]
    except (Exception, SystemExit):
        return False
    if gradient is None or not gradient.isfinite().all() or not torch.allclose(gradient, gradient.mT):
        return False
    if not (gradient - torch.diag_embed(gradient.diagonal(dim1=-2, dim2=-1))).any():
        return False
    one_side = [moved(noise), moved(noise.mT)]
    unread = [side is not None and torch.equal(side, here) for side in one_side]
    return all(side is None for side in one_side) or unread in ([True, False], [False, True])


DRAWS = 8  # that must all be equal: where most probabilities are next to zero or one, two often are


def _random(subject: Subject) -> bool:
    """Whether the result or the gradient is another one after other seeds."""
    subject.rewind()
    before = random_states()
    usual = results(subject, 0)
    offsets = range(1, DRAWS if random_states() != before else 2)
    return any(not torch.equal(usual, results(subject, offset)) for offset in offsets)


def _asks(subject: Subject) -> bool:
    """Whether forward gives other values if no argument requires grad, or none."""
    outputs = subject.run().outputs
    try:
        return not same(subject.value(subject.copies()), real([outputs[i] for i in subject.active]))
    except (Exception, SystemExit):
        return True


def _find_state(subject: Subject) -> None:
    """Whether calls differ by what earlier ones left: the buffers of a power iteration, or a solver's first guess."""

    def differ() -> bool:
        first = results(subject, 0)
        if torch.equal(first, second := results(subject, 0)):
            with contextlib.suppress(Exception):  # other values may be out of the domain
                subject.vjp(subject.valid([v * 1.01 if is_differentiable(v) else v for v in subject.copies()]))
            second = results(subject, 0)
        return not torch.equal(first, second)

    subject.reset_buffers()
    if not subject.stateful and not differ():
        return
    subject.stateful = True
    subject.stateful = not differ()
    if subject.stateful:
        subject.notes.append(
            "each call goes on from what the call before has left in buffers or objects: the audit resets them"
        )


def results(subject: Subject, offset: int, *, gradients: bool = True) -> Tensor:
    """Outputs, and gradients unless they are not asked for, after seeding the generators in one way or another."""
    subject.rewind(offset)
    run = subject.run(rewind=False)
    outputs, grads = run.outcome() if gradients else (run.outputs, [])
    return torch.nan_to_num(real([*(outputs[i] for i in subject.active), *(g for g in grads if g is not None)]))


def _first_run(subject: Subject) -> Run:
    try:
        run = subject.run()
    except RuntimeError as error:
        if not writes_to_leaf(error):
            raise
        subject.nonleaf = True  # it works in place: it cannot be called on a leaf
        run = subject.run()
    if not run.outputs:
        raise NoTensorError(f"expected a function that returns a tensor or several, got {type(run.raw).__name__}")
    for output in run.outputs:
        try:
            real([output])
        except (Exception, SystemExit) as error:  # of a subclass of Tensor that stands for others
            said = f"got {type(output).__name__}, which raises {first_line(error)}"
            raise NoTensorError(
                f"expected a function that returns tensors whose numbers can be read, {said}"
            ) from error
    return run


@check()
def runs(subject: Subject) -> Iterator[Finding]:
    """Forward and backward run on the sample, and finite inputs give finite numbers.

    If the function raises on the given sample, or returns NaN, fix this first. Until then, the audit skips all other
    checks.
    """
    outputs, _ = subject.vjp()
    finite = all(v.isfinite().all() for v in subject.base if is_differentiable(v))
    numbers = real([outputs[i] for i in subject.active])
    if finite and not numbers.isfinite().all() and all(v.numel() for v in subject.base):
        kind = "NaN" if numbers.isnan().any() else "infinite"
        yield finding(
            "error" if kind == "NaN" else "warning",
            f"finite inputs give {int((~numbers.isfinite()).sum())} outputs of {numbers.numel()} that are {kind}",
            "The sample lies outside of the function's domain, an intermediate overflows, or memory is never written.",
            "Choose a sample inside of the domain; if it is, guard the formula.",
        )


@check()
def repeatable(subject: Subject) -> Iterator[Finding]:
    """The same call with the same random seed gives the same numbers, whatever the call before was.

    If a second call gives another gradient, the audit cannot check the gradient, and you cannot repeat a training run.
    If the function draws from a random generator, use a global one, or pass the generator as an argument. If a tensor
    is updated in place between two calls, as optimizers update parameters, the second call must use the new values.
    """
    first, grads = subject.vjp()
    first = [o.clone() for o in first]
    second, again = subject.vjp()
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        if what := difference(b, a, 1e-12):
            yield finding(
                "error",
                f"output {i} of a second, identical call is {what}",
                "The function remembers something from the call before, draws numbers from a generator of its own, or "
                "reads memory that was never written.",
                "Keep no state between calls; take random numbers from a generator that the caller can seed.",
            )
            return
    for slot, (grad, other) in enumerate(zip(grads, again, strict=True)):
        if grad is not None and other is not None and (what := difference(other, grad, 1e-12)):
            yield finding(
                "error",
                f"the gradient of {subject.describe(slot)} in a second, identical call is {what}",
                "backward depends on more than its inputs: state from the call before, unseeded random numbers, "
                "or memory that was never written.",
                "Compute the gradient from grad_output and saved tensors alone.",
            )
            return
    # In two places at once: of one alone, the function may have the usual values from a call before.
    values, elsewhere = (subject.valid(subject.copies(lambda v: v * (1 - 2**-7))) for _ in range(2))
    try:
        there = subject.vjp(elsewhere)
    except (Exception, SystemExit):  # other values need not lie in the domain
        return
    found = deviation(subject, lambda: subject.vjp(values), there)
    for value, usual in zip(values, subject.base, strict=True):
        value.copy_(usual)
    found = found or deviation(subject, lambda: subject.vjp(values), subject.expected)
    if found := found or _with_the_same_tensors(subject):
        yield finding(
            "error",
            f"after a call with other values in the same memory, {found.text}",
            "The function keeps what it computed from an input, and finds it again by the tensor, its address or its "
            "shape, which are the same when the values are not.",
            "Compute it anew in each forward, or compare the values.",
        )


def _with_the_same_tensors(subject: Subject) -> Deviation | None:
    """What is otherwise in a second call with the very same tensors, whose contents have changed in between."""
    if subject.random or subject.in_place or subject.stateful:
        return None
    changed = subject.valid(subject.copies(lambda v: v * (1 - 2**-7)))
    values = [b if slot.hidden else v for b, v, slot in zip(subject.base, changed, subject.slots, strict=True)]
    expected = subject.vjp([v.clone() for v in values])
    run = subject.run()  # the last call that a cache knows of
    with torch.no_grad():
        for tensor, value, slot in zip(run.passed, values, subject.slots, strict=True):
            if not slot.hidden:
                tensor.copy_(value)

    def again() -> Outcome:
        raw = subject.function(*subject.packed(run.passed))
        return Run(run.leaves, run.passed, tensors_in(raw), raw).outcome()

    found = deviation(subject, again, expected)
    return found if found and found.error is None else None


FROZEN = (
    "Forward differentiates with respect to its parameters, whether or not they require grad. A caller who freezes "
    "them gets this exception.",
    "In forward, differentiate only with respect to the tensors that require grad.",
)


@check()
def without_grad(subject: Subject) -> Iterator[Finding]:
    """Under no_grad, and with inputs that need no gradient, the function returns the same values.

    Every evaluation loop runs under ``torch.no_grad()``, and the inputs of a frozen layer require no gradient. The
    values must not depend on whether the caller differentiates them. If a module is evaluated, trained and evaluated
    again, it must use the new parameters.
    """
    expected, _ = subject.expected
    none = [False] * len(subject.slots)
    for where, context, requires in (
        ("under torch.no_grad()", torch.no_grad, None),  # where parameters still say that they require grad
        ("where no input requires grad", torch.enable_grad, none),
    ):
        try:
            with context():
                run = subject.run(requires=requires)
        except (Exception, SystemExit) as error:
            frozen = (
                requires is not None
                and "does not require grad" in str(error)
                and any(subject.slots[s].hidden for s in subject.leaves)
            )
            severity: Severity = "error" if subject.custom else "info"
            advice = FROZEN if frozen else explain(error)
            yield finding(severity, f"forward raises {where}: {first_line(error)}", *advice)
            continue
        for i in subject.active:
            what = difference(run.outputs[i], expected[i], 1e-12) if i < len(run.outputs) else "missing"
            if what:
                yield finding(
                    "error",
                    f"{where}, output {i} is {what}",
                    "forward asks whether a gradient is needed, and computes something else if not.",
                    "Let forward compute the same values in every mode.",
                )
                break
    yield from _evaluated_after_a_step(subject)


def _evaluated_after_a_step(subject: Subject) -> Iterator[Finding]:
    """Nothing, if a module that was evaluated and then trained on is evaluated as one that is new."""
    module = subject.function
    parameters = [s for s, slot in enumerate(subject.slots) if slot.hidden and slot.leaf]
    if not isinstance(module, nn.Module) or not parameters or subject.random or subject.stateful:
        return
    modes = {each: each.training for each in module.modules()}
    none = [False] * len(subject.slots)
    try:
        with torch.no_grad():
            subject.run(requires=none)  # with the parameters of the sample
            fresh = copy.deepcopy(module)
            subject.run(requires=none, function=module.eval())
            module.train()
            values = subject.copies()
            for s in parameters:
                values[s] = 1.25 * values[s]
                subject.slots[s].tensor.copy_(values[s])
            for ours, theirs in zip(module.parameters(), fresh.parameters(), strict=True):
                theirs.copy_(ours)
            again = subject.run(values, none, function=module.eval()).outputs
            expected = subject.run(values, none, function=fresh.eval()).outputs
    except (Exception, SystemExit):
        return  # it cannot be copied, which is another check's, or has no such mode
    finally:
        for each, training in modes.items():
            each.training = training
    for i, (a, e) in enumerate(zip(again, expected, strict=True)):
        if what := difference(a, e, 1e-9):
            yield finding(
                "error",
                f"evaluated, trained for a step and evaluated again, output {i} of the module is {what}",
                "The module keeps in eval mode what it computed from its parameters, and goes on with that when they "
                "have changed.",
                "Compute it anew in each call, or drop it in train().",
            )
            return
