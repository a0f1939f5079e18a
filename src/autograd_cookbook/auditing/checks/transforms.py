"""What is built upon functions: checkpoints, hooks, torch.func, vmap, custom operators, the compiler."""

import contextlib
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import UnsupportedOperatorException
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.checks.execution import BUILT_IN
from autograd_cookbook.auditing.diagnose import difference, explain, first_line, known, refused_on_purpose
from autograd_cookbook.auditing.numeric import Derivative
from autograd_cookbook.auditing.report import Finding
from autograd_cookbook.auditing.subject import (
    Outcome,
    Refused,
    Subject,
    Wrong,
    is_differentiable,
    real,
    tensors_in,
    weights_of,
)
from autograd_cookbook.auditing.variation import deviation, other_flags

# What a failed test of opcheck means, where its message does not say.
OPCHECK = {
    "test_schema": (
        "The operator writes to an argument, or returns one, against its declaration.",
        "Declare it in mutates_args, or work on a copy.",
    ),
    "test_faketensor": (
        "The fake kernel promises another shape, stride, dtype or device than the real one has.",
        "Let register_fake return an empty tensor like the real result.",
    ),
}
# torch.compile and torch.export have no other way to learn the shape of a result.
WITHOUT_FAKE = (
    "The operator has no fake kernel, so compilers cannot know the shape and dtype of its result.",
    "Write one with torch.library.register_fake: it returns an empty tensor like the real result.",
)
# How torch says that a compiler meets a question that only the numbers in a tensor answer.
DATA_DEPENDENT = re.compile(r"data[- ]?dependent", re.IGNORECASE)
LOOKS_AT_NUMBERS = (
    "The code asks for numbers in a tensor, as .item(), an if or a range over them does, and a compiler has none.",
    "Compute with tensors alone, as torch.where and masks do; or make an operator of that part, with a fake kernel.",
)
LARGEST_BATCH = 8  # of those that have the size of a dim of the sample


def _clone(value: Any) -> Any:
    return value.clone() if is_differentiable(value) else value


@check(capability="checkpoint")
def checkpoint(subject: Subject) -> Iterator[Finding]:
    """Value and gradients are the same under ``torch.utils.checkpoint``.

    Large models run in checkpoints. A checkpoint runs forward again when backward needs it, and returns each saved
    tensor only once.
    """
    if subject.generators and subject.random:
        raise Refused("it draws from a generator of its own, and checkpointing restores the global ones alone")
    if subject.stateful:
        raise Refused("it updates buffers in each call, and a checkpoint calls it twice")
    for reentrant in (False, True):

        def outcome(reentrant: bool = reentrant) -> Outcome:
            def inner(*args: Any) -> Any:  # what works in place must not do so on what the checkpoint keeps
                # Lists and dicts are new ones for each call, as they are where the caller writes the call down.
                fresh = _clone if subject.in_place else lambda value: value
                # tree_map makes a plain tuple of a size.
                return subject.function(*tree_map(fresh, args, is_leaf=lambda value: isinstance(value, torch.Size)))

            def checkpointed(*args: Any) -> Any:
                return torch_checkpoint(inner, *args, use_reentrant=reentrant)

            return subject.vjp(function=checkpointed)

        found = deviation(subject, outcome, subject.expected)
        if found is None:
            continue
        if reentrant and (found.error is not None or any(s.hidden for s in subject.slots)):
            continue  # the old kind refuses much, and looks only at tensors that are arguments
        if found.error is not None and not subject.custom:
            raise Refused(found.text)
        yield finding(
            "error",
            f"under torch.utils.checkpoint, {found.text}",
            *found.advice(
                "Forward runs twice and does not do the same both times, or the backward does not use what the second "
                "run saved: a tensor on ctx, state between calls.",
                "Keep no state between calls, and save tensors with save_for_backward.",
            ),
        )
        return


@check(capability="saved_tensor_hooks")
def saved_tensor_hooks(subject: Subject) -> Iterator[Finding]:
    """The gradients stay the same if saved tensors are packed away and come back as copies.

    With ``torch.autograd.graph.save_on_cpu``, or with compression, backward gets another tensor with the same contents.
    """

    def outcome() -> Outcome:
        with saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            return subject.vjp()

    found = deviation(subject, outcome, subject.expected)
    if found is None:
        return
    if found.error is not None and not subject.custom:
        raise Refused(found.text)
    yield finding(
        "error",
        f"with hooks on saved tensors, {found.text}",
        *found.advice(
            "The backward relies on getting the very object that was saved.",
            "Use the contents of saved tensors alone.",
        ),
    )


def _arguments(subject: Subject) -> list[int]:
    places = [s for s in subject.leaves if not subject.slots[s].hidden]
    if not places:
        raise Refused("no input can be differentiated, only parameters")
    return places


def _at(subject: Subject, where: list[int], base: list[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """The function of the tensors in some slots alone, returning its differentiable outputs."""

    def inner(*values: Tensor) -> tuple[Tensor, ...]:
        tensors = [subject.slots[s].tensor if subject.slots[s].hidden else v for s, v in enumerate(base)]
        for s, value in zip(where, values, strict=True):
            tensors[s] = value.clone() if subject.nonleaf else value
        raw = subject.function(*subject.arguments(tensors))
        outputs = tensors_in(raw)
        return tuple(outputs[i] for i in subject.active)

    return inner


def _vjp(subject: Subject, where: list[int], base: list[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """Outputs and gradients by ``torch.func``."""

    def inner(*values: Tensor) -> tuple[Tensor, ...]:
        function = _at(subject, where, base)
        outputs, pull_back = torch.func.vjp(function, *values)  # type: ignore[misc]  # torch's type allows for has_aux
        return (*outputs, *pull_back(tuple(weights_of(outputs))))

    return inner


def _expected(subject: Subject, where: list[int], values: list[Tensor] | None = None) -> list[Tensor]:
    outputs, grads = subject.expected if values is None else subject.vjp(values)
    filled = [torch.zeros_like(subject.base[s]) if (g := grads[s]) is None else g.clone() for s in where]
    return [*(outputs[i].clone() for i in subject.active), *filled]


def _first_difference(actual: Sequence[Tensor], expected: list[Tensor], names: list[str], rtol: float) -> str | None:
    for a, e, name in zip(actual, expected, names, strict=True):
        if what := difference(a.detach(), e, rtol):
            return f"{name} is {what}"
    return None


def _names(subject: Subject, where: list[int]) -> list[str]:
    return [*(f"output {i}" for i in subject.active), *(f"the gradient of {subject.describe(s)}" for s in where)]


@check(capability="func_grad")
def func_grad(subject: Subject) -> Iterator[Finding]:
    """``torch.func.vjp`` returns the same values and gradients as ``backward``.

    ``torch.func`` needs the modern style: a forward without ctx, and setup_context.
    """
    where = _arguments(subject)
    subject.rewind()
    try:
        actual = _vjp(subject, where, subject.copies())(*(subject.base[s].clone() for s in where))
    except (Exception, SystemExit) as error:
        raise Refused(first_line(error)) from error
    if what := _first_difference(actual, _expected(subject, where), _names(subject, where), subject.rounding):
        yield finding(
            "error",
            f"by torch.func, {what}",
            "Inside of torch.func, requires_grad is False in Function.forward, so code there that reads it takes the "
            "other branch. Or the function calls an operator without an autograd formula: then PyTorch records the "
            "operations inside of its kernel, but not under torch.func.",
            "In forward, do not read requires_grad: compute what backward may need, and read ctx.needs_input_grad in "
            "backward. Call such an operator in a Function of your own, with setup_context and a formula in backward.",
        )


@check(capability="vmap")
def vmap(subject: Subject) -> Iterator[Finding]:
    """``torch.vmap`` returns the values and gradients of a loop, for any choice of inputs and dims to map over.

    A rule for vmap is a second implementation. It must use ``in_dims``, which says which inputs are batched, and along
    which dimension. A batch of one is also a batch. The check also tries your rule with other flags and dims. A rule
    may refuse a call with a ``raise`` of its own, but no operation in it may raise.
    """
    where = _arguments(subject)
    three = _multiples(subject, where)
    rules = [c.vmap for c in subject.classes if c.vmap is not Function.vmap and not c.generate_vmap_rule]
    kinds = {"value and gradient": _vjp, "value": _at}
    refusal: BaseException | None = None
    variants = [dict.fromkeys(where, 0), dict.fromkeys(where, -1), dict.fromkeys(where, 1)]
    if len(where) > 1:
        variants += [{s: 0} for s in where]
        variants += [{s: dims[k % 2] for k, s in enumerate(where)} for dims in ((0, -1), (-1, 0))]
    sized = [*((batched, three) for batched in variants), (variants[0], three[:1])]  # a batch of one at last
    # A rule that mixes up the batch with a dim of the sample raises nothing where the two are of one size.
    small = _small_sizes(subject, where) if rules else []
    sized[1:1] = [(batched, (three * n)[:n]) for batched in variants[:2] for n in small]
    for number, (batched, factors) in enumerate(sized):
        if any(dim and subject.base[s].dim() < 1 for s, dim in batched.items()):
            continue
        expected, stacked = _looped(subject, where, batched, factors)
        in_dims = tuple(batched.get(s) for s in where)
        mapped = None
        for kind, function in list(kinds.items()):
            subject.rewind()
            try:
                mapped = torch.func.vmap(function(subject, where, subject.copies()), in_dims=in_dims)(*stacked)
                break
            except (Exception, SystemExit) as error:
                if kind == "value" and not number and _raised_in(error, rules):
                    yield finding(
                        "error",
                        f"vmap of the value with in_dims={in_dims} and a batch of {len(factors)} raises "
                        f"{first_line(error)}",
                        "An operation in the rule for vmap raises: the rule does not expect the batch dimension.",
                        "Use in_dims to move each batched dim to the front, and compute for the whole batch; or set "
                        "generate_vmap_rule = True instead of a rule by hand.",
                    )
                    return
                if not number:
                    del kinds[kind]  # it is refused in the plainest case: no code relies on it
                    refusal = refusal or error
                elif subject.custom:
                    yield finding(
                        "error",
                        f"vmap of the {kind} works for all inputs batched along dim 0, but with in_dims={in_dims} "
                        f"and a batch of {len(factors)} it raises {first_line(error)}",
                        "The rule for vmap takes it for granted which inputs are batched, and where.",
                        "Heed in_dims: None is an input without the dimension; move the others to the front.",
                    )
                    return
        if mapped is None:
            break
        names = _names(subject, where)[: len(mapped)]
        if what := _first_difference(mapped, expected[: len(mapped)], names, subject.rounding * 10):
            said = f"mapped by vmap with in_dims={in_dims} over a batch of {len(factors)}, {what}"
            yield finding("error", said, *RULE)
            return
    if rules and len(kinds) == 2:
        yield from _mapped_with_other_flags(subject, where, three)
    if refusal is not None:
        also = "values can be mapped, gradients cannot: " if kinds else ""
        raise Refused(also + first_line(refusal)) from refusal


RULE = (
    "The rule for vmap does not do what a loop does: it ignores in_dims, an input that is not batched, or the dim of "
    "its result; or forward mixes up the elements of the batch.",
    "Set generate_vmap_rule = True instead of a rule by hand, or move each batched dim to the front and return "
    "out_dims for it.",
)
OTHER_DIM = (
    "The rule for vmap ignores this argument, or passes it on as it is. A dim that counts from the front is another "
    "one where the batch has come to the front.",
    "Pass the argument on, and count dims for the batched tensor: dim + 1 for dim >= 0. Or set generate_vmap_rule = "
    "True.",
)


MULTIPLES = (1.0, 0.9, 1.1), (1.0, 0.9, 0.8), (1.0, 1.1, 1.2)


def _multiples(subject: Subject, where: list[int]) -> tuple[float, ...]:
    """Of the sample, which are in the function's domain: one that refuses numbers above one may refuse larger ones."""
    for factors in MULTIPLES:
        with contextlib.suppress(Exception, SystemExit):
            _looped(subject, where, dict.fromkeys(where, 0), factors)
            return factors
    return MULTIPLES[0]


def _looped(
    subject: Subject, where: list[int], batched: dict[int, int], factors: Sequence[float]
) -> tuple[list[Tensor], list[Tensor]]:
    """What a loop over multiples of the sample gives, stacked, and the inputs for vmap."""
    looped, inputs = [], []
    for f in factors:
        values = subject.copies()
        for s in batched:
            values[s] = values[s] * f
        each = subject.valid(values)
        inputs.append(each)
        looped.append(_expected(subject, where, each))
    try:
        expected = [torch.stack(column) for column in zip(*looped, strict=True)]
    except Exception as error:  # tensors of a class that cannot be stacked
        raise Refused(f"its outputs cannot be stacked: {first_line(error)}") from error
    return expected, [
        torch.stack([each[s] for each in inputs], batched[s]) if s in batched else subject.base[s] for s in where
    ]


def _mapped_with_other_flags(subject: Subject, where: list[int], three: Sequence[float]) -> Iterator[Finding]:
    """Nothing, if a rule for vmap is right for flags and dims that the sample does not have, too, or refuses them."""
    for name, other in other_flags(subject, guess=False):
        with other:
            try:
                expected, stacked = _looped(subject, where, dict.fromkeys(where, 0), three)
                mapped = torch.func.vmap(_vjp(subject, where, subject.copies()))(*stacked)
            except (Exception, SystemExit):
                continue
        if what := _first_difference(mapped, expected, _names(subject, where), subject.rounding * 10):
            yield finding("error", f"mapped by vmap, with {name}, {what}", *OTHER_DIM)
            return


def _small_sizes(subject: Subject, where: Sequence[int]) -> list[int]:
    """The smallest sizes of dims of the inputs, which a batch may have, too."""
    return sorted({n for s in where for n in subject.base[s].shape if 1 < n <= LARGEST_BATCH} - {3})[:2]


def _raised_in(error: BaseException, rules: Sequence[Callable[..., Any]]) -> bool:
    """Whether an operation in one of the rules raises, and the code does not refuse on purpose."""
    codes = [getattr(rule, "__code__", None) for rule in rules]
    inside = any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))
    return inside and not refused_on_purpose(error)


@check(capability="batched_grad")
def batched_grad(subject: Subject) -> Iterator[Finding]:
    """One backward with ``is_grads_batched=True`` returns the gradients of a loop of backwards.

    ``torch.autograd.functional.jacobian`` uses this option if you pass ``vectorize=True``. The backward then runs
    under vmap.
    """
    run = subject.run()
    active = [o for o in run.outputs if o.requires_grad]
    leaves = [leaf for leaf in run.leaves if leaf is not None]
    weights = [torch.stack([w, w.neg(), w**2]) for w in weights_of(active)]
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    subject.rewind()
    try:
        # Copies: what backward writes to is another check's.
        loop = [torch.autograd.grad(active, leaves, [w[i].clone() for w in weights], **options) for i in range(3)]
        subject.rewind()
        batched = torch.autograd.grad(active, leaves, weights, is_grads_batched=True, **options)
    except (Exception, SystemExit) as error:
        raise Refused(first_line(error)) from error
    names = [f"the gradient of {subject.describe(s)}" for s in subject.leaves]
    expected = [torch.stack(column) for column in zip(*loop, strict=True)]
    # torch gives a gradient that is None in every run as one plain zero.
    filled = [b.expand(e.shape) if b.dim() < e.dim() else b for b, e in zip(batched, expected, strict=True)]
    if what := _first_difference(filled, expected, names, subject.rounding):
        yield finding(
            "error",
            f"with gradients in a batch, {what}",
            "The backward leaves torch, or changes what it saved, so that the backwards of the loop are not alike.",
            "Compute in torch operations, out of place, with dims counted from the end.",
        )


@check(capability="complex128", needs="first_order")
def complex128(subject: Subject) -> Iterator[Finding]:
    """The function refuses complex inputs, or their gradient is right.

    In PyTorch's convention, grad_input is grad_output times the conjugate of the derivative. A formula for real numbers
    lacks this conjugate, so a function that uses one should refuse complex inputs. If the given sample is real, a
    finding of this check is only an info.
    """
    if any(subject.base[s].is_complex() for s in subject.leaves):
        return  # the other checks were about nothing else
    if subject.gradient != "exact":
        raise Refused(f"{subject.otherwise}, so the audit has no complex gradient to compare with")
    if subject.dtype is not torch.float64 or any(s.hidden for s in subject.slots):
        raise Refused("the function uses tensors or a dtype that only fit real numbers")
    generator = torch.Generator().manual_seed(0)

    def complexify(v: Tensor) -> Tensor:
        return torch.complex(v, torch.randn(v.shape, generator=generator, dtype=v.dtype).to(v.device))

    values = [complexify(v) if v.dtype is torch.float64 else v.clone() for v in subject.base]
    try:
        run = subject.run([v.clone() for v in values])
        grads = run.gradients()
        if any(not g.is_complex() for g in grads if g is not None):
            raise Refused("the gradient of a complex input is real")
        weights = real(weights_of([run.outputs[i] for i in subject.active]))
        numeric = [Derivative(subject.value, values, [s]) for s in subject.leaves]
    except (Exception, SystemExit) as error:
        raise Refused(first_line(error)) from error
    for s, derivative in zip(subject.leaves, numeric, strict=True):
        grad = torch.zeros_like(values[s]) if (g := grads[s]) is None else g
        if derivative.center.isfinite().all() and derivative.compare(real([grad]), weights) is not None:
            yield finding(
                "info",
                f"complex inputs are accepted, and the gradient of {subject.describe(s)} is wrong for them",
                "The formula is that for real numbers; torch multiplies grad_output by the conjugate of the "
                "derivative.",
                "Take the conjugate (input.conj()), or refuse complex input in forward.",
            )
            raise Wrong


ALL_TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@check()
def opcheck(subject: Subject) -> Iterator[Finding]:
    """Operators made with ``torch.library`` pass ``torch.library.opcheck``.

    ``opcheck`` tests the registration, the schema and the fake kernel. It differentiates the sum of the output, and
    compares the backward in eager mode with the backward that the compiler traces, not with the true derivative. So it
    does not see a wrong formula. The other checks test the formula. The audit runs ``opcheck`` with other flags, too.
    """
    samples: dict[tuple[Any, str], tuple[tuple[Any, ...], dict[str, Any]]] = {}

    class Collect(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self, where: str = "") -> None:
            super().__init__()
            self.where = where

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.namespace in BUILT_IN:
                return func(*args, **(kwargs or {}))
            given = tree_map(_clone, (args, kwargs or {}))  # copies: the operator may write to what it is given
            result = func(*args, **(kwargs or {}))
            samples.setdefault((func, self.where), given)  # which it does not refuse
            return result

    # The positions of the arguments that autograd sees. What a forward calls is called without a graph.
    watched: dict[Any, set[int]] = {}

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
                seen = watched.setdefault(getattr(func, "overloadpacket", func), set())
                if torch.is_grad_enabled():
                    seen |= {k for k, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad}
            return func(*args, **(kwargs or {}))

    with Collect(), Watch():
        subject.run()
    for name, other in other_flags(subject) if samples else ():
        with other, contextlib.suppress(Exception), Collect(f", with {name}"):
            subject.run()
    for dtype in (torch.float32, torch.bfloat16) if samples else ():
        with subject.in_dtype(dtype), contextlib.suppress(Exception), Collect(f" in {str(dtype).partition('.')[2]}"):
            subject.run(subject.converted(subject.copies(), dtype))
    failed: set[Any] = set()
    for (operator, given), (args, kwargs) in samples.items():
        if operator in failed:
            continue
        seen = watched.get(operator.overloadpacket, set(range(len(args))))  # all, if C++ has called it
        fresh = tuple(
            a.detach().clone().requires_grad_(k in seen and is_differentiable(a)) if isinstance(a, Tensor) else a
            for k, a in enumerate(args)
        )
        tests = ("test_schema", "test_faketensor") if given.startswith(" in ") else ALL_TESTS
        results = torch.library.opcheck(operator, fresh, kwargs, test_utils=tests, raise_exception=False)
        for test, outcome in results.items():
            if isinstance(outcome, BaseException):
                looks = LOOKS_AT_NUMBERS if DATA_DEPENDENT.search(f"{type(outcome).__name__}: {outcome}") else None
                lacks = WITHOUT_FAKE if isinstance(outcome, UnsupportedOperatorException) else None
                cause, fix = looks or lacks or known(outcome) or OPCHECK.get(test) or explain(outcome)
                failed.add(operator)
                yield finding("error", f"{operator}: opcheck's {test} fails{given}: {first_line(outcome)}", cause, fix)


@check(capability="compile")
def compile(subject: Subject) -> Iterator[Finding]:
    """``torch.compile(fullgraph=True)`` compiles the whole function, and values and gradients stay the same.

    A graph break, or code that the compiler cannot trace, counts as a missing capability. A wrong number is an error.
    If the compiled code calls a transform of ``torch.func``, the compiler can differentiate forward itself instead of
    calling your backward. If you pass ``gradient=`` or ``surrogate=``, the audit tests this, and the report says so.
    """
    torch._dynamo.reset()

    def compiled(**options: Any) -> Outcome:
        return subject.vjp(function=torch.compile(subject.function, backend="aot_eager", **options))

    try:
        if subject.random:
            raise Refused("random numbers are drawn in another order")
        refusal = None
        try:
            outcome = compiled(fullgraph=True)
        except (Exception, SystemExit) as error:
            refusal = error
            torch._dynamo.reset()
            try:
                outcome = compiled()
            except (Exception, SystemExit):
                raise Refused(first_line(error)) from error
        found = deviation(subject, lambda: outcome, subject.expected, 1e-7)
        if found:
            yield finding(
                "error",
                f"compiled, {found.text}",
                "The compiler traces other code than eager mode runs: a fake kernel with another result, a write that "
                "is not declared, or a value or a branch that the compiler has stored as a constant.",
                "Compare with TORCH_LOGS=aot_graphs; make the function free of side effects.",
            )
        elif refusal is not None:
            raise Refused(first_line(refusal)) from refusal
        elif subject.gradient != "exact":
            yield from _dropped_rule(subject)
    finally:
        torch._dynamo.reset()


def _dropped_rule(subject: Subject) -> Iterator[Finding]:
    """Whether ``torch.compile`` around ``torch.func`` replaces a declared backward by the derivative of forward."""
    where = _arguments(subject)
    if not where:
        return

    def difference_of(function: Callable[..., Any]) -> str | None:
        subject.rewind()
        actual = function(*(subject.base[s].clone() for s in where))
        return _first_difference(actual, _expected(subject, where), _names(subject, where), subject.rounding)

    transformed = _vjp(subject, where, subject.copies())
    torch._dynamo.reset()
    beat, subject.beat = subject.beat, lambda: None  # the compiler cannot trace a look at the clock
    try:
        if difference_of(transformed):
            return  # which func_grad reports
        what = difference_of(torch.compile(transformed, backend="aot_eager"))
    except (Exception, SystemExit):
        return  # what raises is not silent
    finally:
        subject.beat = beat
    if what:
        yield finding(
            "info",
            f"torch.compile around torch.func.vjp or grad replaces the backward by the derivative of forward: {what}; "
            "compiled code without torch.func uses the backward",
            "There the compiler believes that the input needs no gradient, takes forward as ordinary code, and "
            "differentiates that.",
            "Call the function inside of one that is decorated with torch.compiler.allow_in_graph, if compiled code "
            "uses torch.func.",
        )
