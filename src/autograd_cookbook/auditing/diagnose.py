"""From a symptom to its likely cause: patterns in wrong numbers; exceptions are looked up in the error index."""

import math
import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from autograd_cookbook import errors
from autograd_cookbook.auditing.subject import Subject, is_differentiable, real, weights_of

# What torch raises where the audit gave another dtype or a conjugate, or left a tensor out, and why.
CHANGED: tuple[tuple[str, str, str], ...] = (
    (
        "view_as_real doesn't work on unresolved conjugated tensors",
        "The tensor is a conjugate that has not been written out yet, as x.conj() returns it, and torch.view_as_real "
        "has to share its memory.",
        "Call x.resolve_conj() before torch.view_as_real.",
    ),
    (
        r"expected scalar type|to have (?:the )?same dtype|must have the same dtype",
        "Tensors of two dtypes meet: one of them was created or cast without regard to the input's.",
        "Create tensors with dtype=input.dtype, and cast back what was cast.",
    ),
    (
        r"RuntimeError: no output requires grad",
        "autograd sees only the tensors that are passed to apply, so the output requires grad only if one of them "
        "does: parameters that backward differentiates by itself get no gradient without it.",
        "Pass the parameters to apply as arguments and return their gradients, or say that an input must require grad.",
    ),
    (
        r"UnboundLocalError",
        "A variable is assigned under a condition alone, such as that another input needs its gradient, and used in "
        "any case.",
        "Set every gradient to None first, and ask ctx.needs_input_grad for each one apart.",
    ),
    (
        r"'NoneType' object|unsupported operand type\(s\).*NoneType|got NoneType|not NoneType",
        "None arrived where a tensor was expected: an optional argument, a tensor that is saved only for some inputs, "
        "or with set_materialize_grads(False) the gradient of an output that nothing used.",
        "Handle None before computing with it.",
    ),
)
# All other messages are in the error index. Where several entries have one, it is this entry in an audit, which runs a
# function by itself, without a loop, a model or an optimizer around it.
ALONE: dict[str, str] = {
    "backward through the graph a second time": "backward_again",
    "does not require grad and does not have a grad_fn": "nothing_requires_grad",
    "has been modified by an inplace operation": "input_changed",
    "(input_is_complex == grad_is_complex) to be true": "gradient_complex",
    "Can't call numpy() on Tensor that requires grad": "numpy_on_parameter",
    "\" not implemented for '": "no_kernel_for_dtype",
}
NOT_ZERO = "are not zero, and should be"
PASSED_ON = "grad_output"
NEARLY = "it is off by less than a hundredth"
NOT_FINITE = (
    "Zero divided by zero, infinity minus infinity or zero times infinity: a factor is computed that is not finite at "
    "this point, though the values are.",
    "Guard the point: torch.where with a safe argument inside, or a form of the formula that has no such factor.",
)
CALLS = ("run", "inner", "together", "_dual")  # where the audit calls a function, which may have no frame of its own
INTERRUPTS = "look"  # the handler of the audit's timer
LOOK = "Repeat the call that the first line describes, under a debugger, or print the traceback."


def first_line(error: BaseException, limit: int = 240) -> str:
    """Type and message of an exception, cut short."""
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
    return text if len(text) <= limit else text[: limit - 1] + "…"


def known(error: BaseException) -> tuple[str, str] | None:
    """Cause and fix of an exception with a known cause; None if the code may have raised it itself."""
    text = f"{type(error).__name__}: {error}"
    for pattern, cause, fix in CHANGED:
        if re.search(pattern, text):
            return cause, fix
    found = errors.explain("".join(traceback.format_exception(error)))
    names = {name for message, name in ALONE.items() if message in text}
    # Where a reader is asked what else is so, an audit has nothing else. What only a library raises, it cannot know.
    alone = found.known == "yes" or (found.known == "maybe" and len(found.entries) == 1)
    alone = alone and not (found.known == "maybe" and found.entries[0].tell and found.entries[0].source)
    # The index answers a reader, who sees when the message is another one; an audit must not name a wrong cause.
    alone = alone and _says(found.entries[0], text)
    fitting = found.entries[:1] if alone else [e for e in errors.entries() if e.name in names]
    return next(((e.cause.replace("``", ""), e.remedy.replace("``", "")) for e in fitting), None)


def _says(entry: errors.Entry, text: str) -> bool:
    """Whether a message of the entry is in a text: every name in it, and half of its words."""
    present = set(re.findall(r"\w{3,}", text))
    for message in (entry.message, *(former.message for former in entry.former)):
        words = set(re.findall(r"\w{3,}", message))
        names = {word for word in words if "_" in word.strip("_")}
        if names <= present and len(words & present) >= len(words) / 2:
            return True
    return False


def raised_by_audit(error: BaseException) -> bool:
    """Whether it is an operation of the audit's own that failed, and not the function or what it calls."""
    package = __name__.rpartition(".")[0]
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    ours = [f.f_code.co_name if f.f_globals.get("__name__", "").startswith(package) else "" for f in frames]
    # What stands still is interrupted from outside: then it is about the frame that was interrupted.
    last = next((name for name in reversed(ours) if name != INTERRUPTS), "")
    return bool(last) and last not in CALLS


# Where the frames of torch and of the audit are.
NOT_ITS_OWN = str(Path(torch.__file__).parent), str(Path(__file__).parent)


def refused_on_purpose(error: BaseException | None) -> bool:
    """Whether the code itself raises it, by a ``raise`` with a message, and not an operation that it calls."""
    if error is None or not str(error).strip():
        return False
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return any((f.line or "").startswith("raise ") and not f.filename.startswith(NOT_ITS_OWN) for f in last)


def refuses_hooks(text: str) -> bool:
    """Whether torch says that its function transforms do not go together with hooks on saved tensors."""
    return "support saved tensor hooks" in text


def writes_to_leaf(error: BaseException) -> bool:
    """Whether torch says that the function changes a leaf in place: it has to be called on another tensor."""
    return "leaf Variable that requires grad" in str(error)


def explain(error: BaseException, fix: str = LOOK) -> tuple[str, str]:
    """Cause and fix of an exception that came out of a function; ``fix`` is for one of which no more is known."""
    raised = f"The code, or an operation in it, raises {first_line(error).removesuffix('.')}."
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(NOT_ITS_OWN)]
    place = [f" This happens in ``{f.line}`` ({Path(f.filename).name}, line {f.lineno})." for f in frames if f.line][
        -1:
    ]
    return known(error) or (raised + "".join(place), fix)


def factor(ratio: float, subject: Subject, slot: int) -> str:
    """What a constant factor may come from."""
    sizes: dict[int, str] = {}
    for name, tensor in [(subject.slots[i].name, subject.base[i]) for i in range(len(subject.slots))]:
        sizes.setdefault(tensor.numel(), f"the number of elements of {name}")
        for d, size in enumerate(tensor.shape):
            sizes.setdefault(size, f"the size of dim {d} of {name}")
    sizes.pop(1, None)
    sizes.pop(0, None)
    near = lambda a, b: math.isclose(a, b, rel_tol=1e-4)  # noqa: E731
    if near(ratio, -1):
        return "the sign is wrong"
    for constant, name in ((2, "2"), (0.5, "1/2"), (math.pi, "π"), (1 / math.pi, "1/π"), (math.log(2), "log 2")):
        if near(abs(ratio), constant):
            return (
                f"it is {name} times {'the negative of ' if ratio < 0 else ''}the right one: a factor was lost or added"
            )
    for n, name in sizes.items():
        sign = " and has the wrong sign" if ratio < 0 else ""
        if near(abs(ratio), n):
            return f"it is {n} times too large{sign}; {n} is {name}: a division by it is missing, as in a mean"
        if near(abs(ratio), 1 / n):
            return f"it is {n} times too small{sign}; {n} is {name}: it was divided by once too often"
    for name, number in _numbers(subject):
        if near(ratio, number):
            return f"it is {ratio:.10g} times the right one, which is {name}: that factor is there once too often"
        if number and near(ratio, 1 / number):
            return f"it is the right one divided by {number:.10g}, which is {name}: that factor is missing"
    return f"it is {ratio:.10g} times the right one: a constant factor is wrong"


def _numbers(subject: Subject) -> Iterator[tuple[str, float]]:
    """The arguments that are one real number."""
    for name, value in zip(subject.arguments_names, subject.flat, strict=True):
        if isinstance(value, float) or (isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex()):
            yield name, float(value)


def pattern(subject: Subject, slot: int, actual: Tensor, expected: Tensor, outputs: Sequence[Tensor]) -> str:
    """What turns the expected gradient into the actual one, in words; empty if nothing is recognized."""
    a, e = actual.detach(), expected.detach()
    scale = float(e.abs().max()) if e.numel() else 0.0
    close = lambda x, y: x.shape == y.shape and torch.allclose(x, y, rtol=1e-4, atol=1e-7 * scale)  # noqa: E731
    if not a.isfinite().all():
        return "it is not finite: something divides by zero or overflows"
    if close(a, torch.zeros_like(a)):
        return "it is zero everywhere: nothing flows back here"
    if a.is_complex() and close(a, e.conj()):
        return "it is the complex conjugate of the right one: torch multiplies by the conjugate of the derivative"
    if scale:
        ratio = float((a * e.conj()).sum().real / (e * e.conj()).sum().real)
        # Next to one, any small error looks like a factor: it must be what is left when the factor is taken out.
        if close(a, ratio * e) and float((a - ratio * e).norm()) <= 0.1 * float((a - e).norm()):
            return factor(ratio, subject, slot)
    if a.dim() == 2 and a.shape[0] == a.shape[1] and close(a, e.mT):
        return "it is the transpose of the right one"
    if a.dim() and close(a.flip(-1), e):
        return "it is the right one in reverse order"
    if a.numel() and close(a, e.mean().expand_as(e)):
        return "every entry is the mean of the right ones"
    for name, other in _companions(subject, slot, e, outputs):
        if name.startswith(PASSED_ON) and close(a, other) and not torch.isclose(a, e, rtol=1e-4).any():
            return f"it is {name} itself"
        safe = torch.where(other.abs() < 1e-8, torch.ones_like(other), other)
        if close(a, e * other):
            return f"it is the right one times {name} once too often"
        if close(a, e / safe):
            return f"{name} is missing as a factor"
        if close(a, e * other * other):
            return f"it is the right one times the square of {name}"
        difference = a - e
        if scale and other.numel() > 1 and float(difference.abs().max()) > 1e-6 * scale:
            ratio = float((difference * other.conj()).sum().real / (other * other.conj()).sum().real.clamp(min=1e-30))
            if close(difference, ratio * other) and abs(ratio) > 1e-6:
                return f"it differs from the right one by {ratio:.4g} times {name}: a term is missing or added"
    if torch.allclose(a, e, rtol=1e-2, atol=1e-3 * scale):
        return NEARLY
    if a.numel() > 1 and not a.is_complex() and close(*(t.flatten().sort().values for t in (a, e))):
        return "the right numbers are there, but at other indices"
    constant = (a - e).reshape(-1)
    if constant.numel() > 1 and torch.allclose(constant, constant[0].expand_as(constant), rtol=1e-4, atol=1e-7 * scale):
        amount = float(constant[0].real)
        return f"it differs from the right one by {amount:.4g} everywhere: a sum over the whole is missing or added"
    return ""


def in_some(subject: Subject, slot: int, actual: Tensor, expected: Tensor) -> str:
    """Which entries of a gradient are wrong, and by what factor; empty if no entry is right."""
    a, e = actual.detach(), expected.detach()
    scale = float(e.abs().max()) if e.numel() else 0.0
    good = torch.isclose(a, e, rtol=1e-4, atol=1e-7 * scale)
    if not (good & (e.abs() > 1e-7 * scale)).any() or not a.dim():  # that a triangle has zeros in both says nothing
        return ""
    bad = (~good).nonzero()
    fixed = [f"dim {d} is {int(bad[0, d])}" for d in range(a.dim()) if a.shape[d] > 1 and len(bad[:, d].unique()) == 1]
    where = f"; all of them where {' and '.join(fixed)}" if fixed and len(bad) < a.numel() else ""
    if not where and (alone := _right_alone(a, good)):
        where = f"; of those that are not zero, only the ones where {alone} are right"
    wrong, right = a[~good], e[~good]
    if bool((right.abs() <= 1e-12 * scale).all()):
        return f"{len(bad)} of {a.numel()} entries {NOT_ZERO}{where}"
    ratio = float((wrong * right.conj()).sum().real / (right * right.conj()).sum().real)
    if len(bad) > 1 and abs(ratio) > 1e-6 and torch.allclose(wrong, ratio * right, rtol=1e-4, atol=1e-7 * scale):
        return f"{len(bad)} of {a.numel()} entries are wrong{where}; for each of them, {factor(ratio, subject, slot)}"
    return f"{len(bad)} of {a.numel()} entries are wrong{where}"


def _right_alone(gradient: Tensor, good: Tensor) -> str:
    """The one index of a dim at which a gradient is right, as where its first entry stands for all; or nothing."""
    seen = good & (gradient != 0)
    for d in range(gradient.dim()):
        at = seen.movedim(d, 0).reshape(gradient.shape[d], -1)
        if gradient.shape[d] > 2 and int(at.any(1).sum()) == 1 and bool(at[at.any(1)].all()):
            return f"dim {d} is {int(at.any(1).nonzero()[0, 0])}"
    return ""


def _companions(subject: Subject, slot: int, e: Tensor, outputs: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Tensors that a gradient may have been multiplied with: what broadcasts to its shape."""
    candidates = [
        *((subject.slots[i].name, v) for i, v in enumerate(subject.base) if is_differentiable(v)),
        *((f"output {i}", o) for i, o in enumerate(outputs) if is_differentiable(o)),
        *((f"grad_output {i}", weights_of(outputs)[i]) for i, o in enumerate(outputs) if is_differentiable(o)),
    ]
    for name, tensor in candidates:
        if tensor.is_complex() and not e.is_complex():
            continue
        try:
            yield name, tensor.detach().to(e.dtype).expand(e.shape)
        except RuntimeError:
            continue


def difference(actual: Tensor, expected: Tensor, rtol: float, scale: float = 0.0) -> str | None:
    """Where two tensors differ most, in words; None if they agree relative to the largest entry or ``scale``."""
    if actual.shape != expected.shape:
        return f"shape {list(actual.shape)} instead of {list(expected.shape)}"
    a, e = real([actual]), real([expected])
    if a.numel() == 0:
        return None
    finite = e[e.isfinite()]
    atol = rtol * max(scale, float(finite.abs().max()) if finite.numel() else 0.0)
    good = torch.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
    if good.all():
        return None
    distance = torch.where(good, -1.0, torch.nan_to_num((a - e).abs(), nan=math.inf))
    worst = int(distance.argmax())
    index = [
        int(i) for i in torch.unravel_index(torch.tensor(worst // (2 if actual.is_complex() else 1)), actual.shape)
    ]
    count = f"{int((~good).sum())} of {a.numel()} differ"
    ours, wanted = (f"{float(v[worst]):.6g}" for v in (a, e))
    if ours == wanted:
        ours, wanted = (f"{float(v[worst]):.17g}" for v in (a, e))
    return f"{ours} instead of {wanted} at {index} ({count})"
