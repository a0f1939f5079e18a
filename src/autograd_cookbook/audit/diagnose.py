"""From a symptom to its likely cause: patterns in wrong numbers, and messages of torch."""

import math
import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from autograd_cookbook.audit.subject import Subject, is_differentiable, real, weights_of

# Messages that torch raises around custom functions: what they mean, and what to do.
MESSAGES: tuple[tuple[str, str, str], ...] = (
    (
        r"returned an incorrect number of gradients \(expected (\d+), got (\d+)\)",
        "backward must return one value for each argument of forward, in order, without counting ctx.",
        "Return a gradient or None for each of them.",
    ),
    (
        r"returned an invalid gradient at index (\d+) - got \[(.*?)\] but expected shape compatible with \[(.*?)\]",
        "The gradient has another shape than its input: a transpose is missing, or a sum over broadcast dimensions, "
        "or the order of the gradients is not that of the arguments.",
        "Bring it into the shape of the input: transpose, or sum over the broadcast dimensions.",
    ),
    (
        r"returned an invalid gradient at index (\d+) - expected device",
        "The gradient is on another device than its input.",
        "Create buffers with device=input.device.",
    ),
    (
        r"isFloatingType\(grad\.scalar_type\(\)\)",
        "The gradient of a real input is complex: the imaginary part, which does not count, was not dropped.",
        "Return grad.real for an input that is real.",
    ),
    (
        r"expected Variable or None",
        "backward returns something that is no tensor, such as a number.",
        "Return a tensor of the shape of the input, or None.",
    ),
    (
        r"returned a gradient different than None at position (\d+), but the corresponding forward input was not",
        "backward returned a gradient for an argument that is no tensor.",
        "Return None in its place.",
    ),
    (
        r"Legacy autograd function with non-static forward",
        "forward and backward are ordinary methods: the old style, which torch no longer runs.",
        "Make them static methods (@staticmethod), and call the class's apply.",
    ),
    (
        r"leaf Variable that requires grad (?:is being|has been) used in an in-place",
        "The function writes to its input, and a leaf that requires grad must not be written to.",
        "Write to a copy; or mark the input with ctx.mark_dirty and call the function on tensors that are not leaves.",
    ),
    (
        r"one of the variables needed for gradient computation has been modified by an inplace",
        "A tensor that was saved for the backward was written to later, which torch noticed by its version.",
        "Do not write to it, or save a copy.",
    ),
    (
        r"save_for_backward can only save variables, but argument (\d+) is of type (\w+)",
        "save_for_backward takes tensors alone.",
        "Keep numbers, shapes and flags as attributes of ctx.",
    ),
    (
        r"view size is not compatible with input tensor's size and stride",
        "view was called on a tensor whose memory is not in order.",
        "Use reshape, which copies where it must, or call contiguous() first.",
    ),
    (
        r"expected scalar type|to have (?:the )?same dtype|must have the same dtype",
        "Tensors of two dtypes meet: one of them was created or cast without regard to the input's.",
        "Create tensors with dtype=input.dtype, and cast back what was cast.",
    ),
    (
        r"'NoneType' object|unsupported operand type\(s\).*NoneType|got NoneType|not NoneType",
        "None arrived where a tensor was expected: an optional argument, or the undefined gradient of an output that "
        "nobody used (with set_materialize_grads(False)).",
        "Handle None before computing with it.",
    ),
    (
        r"does not require grad and does not have a grad_fn",
        "Something is differentiated that has no graph: it was computed under no_grad, detached, or without tensors "
        "that require grad.",
        "Wrap it in torch.enable_grad(), or do not ask for that gradient.",
    ),
    (
        r"Trying to backward through the graph a second time",
        "Saved tensors are freed by the first backward, and something reads them again.",
        "Do not run a backward over the caller's graph inside of forward or backward.",
    ),
    (
        r"Unpack is being triggered for a tensor that was already unpacked",
        "Checkpointing hands out each saved tensor once, and ctx.saved_tensors was read twice.",
        "Read ctx.saved_tensors once: a, b = ctx.saved_tensors.",
    ),
    (
        r"is a view and is being modified inplace",
        "The output is a view that was made inside a custom function; torch forbids in-place operations on those.",
        "Return a tensor of its own (clone the view).",
    ),
    (
        r"in order to use it with functorch transforms|setup_context",
        "forward takes ctx: transforms need a forward without it, and setup_context beside it.",
        "Split forward(ctx, ...) into forward(...) and setup_context(ctx, inputs, output).",
    ),
    (
        r"generate_vmap_rule|vmap staticmethod",
        "The class has no rule for vmap.",
        "Set generate_vmap_rule = True if forward, setup_context and backward use torch operations alone; otherwise "
        "write the vmap static method.",
    ),
    (
        r"implement the jvp function|has not been implemented|does not support it because",
        "There is no jvp static method.",
        "Write one if forward mode is needed; mind that torch.compile(fullgraph=True) then refuses the class.",
    ),
    (
        r"not implemented for '(\w+)'",
        "An operation that the function uses does not exist for this dtype.",
        "Compute that part in float32 and cast back.",
    ),
    (
        r"can't be cast|result type .* can't",
        "A result of one dtype was written into a buffer of another.",
        "Create the buffer with the dtype of the result.",
    ),
    (
        r"can't call numpy\(\) on tensor that requires grad|requires grad\. Use tensor\.detach\(\)\.numpy",
        "NumPy was reached for on a tensor that has a graph.",
        "Mark backward with once_differentiable, or write it in torch operations.",
    ),
)


def first_line(error: BaseException, limit: int = 240) -> str:
    """Type and message of an exception, cut short."""
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
    return text if len(text) <= limit else text[: limit - 1] + "…"


def explain(error: BaseException) -> tuple[str, str]:
    """Cause and fix for an exception that came out of a custom function."""
    text = f"{type(error).__name__}: {error}"
    for pattern, cause, fix in MESSAGES:
        if re.search(pattern, text):
            return cause, fix
    return (
        f"The code raised it itself: {first_line(error)}.",
        "Run the call of the summary under a debugger, or print the traceback.",
    )


def factor(ratio: float, subject: Subject, slot: int) -> str:
    """What a constant factor may come from."""
    sizes = {}
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
    return f"it is {ratio:.10g} times the right one, everywhere: a constant factor is wrong"


def pattern(subject: Subject, slot: int, actual: Tensor, expected: Tensor, outputs: Sequence[Tensor]) -> str:
    """What turns the expected gradient into the actual one, in words; empty if nothing is recognized."""
    a, e = actual.detach(), expected.detach()
    close = lambda x, y: x.shape == y.shape and torch.allclose(x, y, rtol=1e-4, atol=1e-7 * scale)  # noqa: E731
    scale = float(e.abs().max()) if e.numel() else 0.0
    if not a.isfinite().all():
        return "it is not finite: something divides by zero or overflows"
    if close(a, torch.zeros_like(a)):
        return "it is zero everywhere: nothing flows back here"
    if a.is_complex() and close(a, e.conj()):
        return "it is the complex conjugate of the right one: torch multiplies by the conjugate of the derivative"
    if scale:
        ratio = float((a * e.conj()).sum().real / (e * e.conj()).sum().real)
        if close(a, ratio * e):
            return factor(ratio, subject, slot)
    if a.dim() == 2 and a.shape[0] == a.shape[1] and close(a, e.mT):
        return "it is the transpose of the right one"
    if a.dim() and close(a.flip(-1), e):
        return "it is the right one in reverse order"
    if a.numel() and close(a, e.mean().expand_as(e)):
        return "every entry is the mean of the right ones"
    for name, other in _companions(subject, slot, e, outputs):
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
    good = torch.isclose(a, e, rtol=1e-4, atol=1e-7 * scale)
    if good.any() and a.dim():
        bad = (~good).nonzero()
        fixed = [
            f"dim {d} is {int(bad[0, d])}" for d in range(a.dim()) if a.shape[d] > 1 and len(bad[:, d].unique()) == 1
        ]
        where = f"; all of them where {' and '.join(fixed)}" if fixed and len(bad) < a.numel() else ""
        return f"{len(bad)} of {a.numel()} entries are wrong{where}"
    constant = (a - e).reshape(-1)
    if constant.numel() > 1 and torch.allclose(constant, constant[0].expand_as(constant), rtol=1e-4, atol=1e-7 * scale):
        amount = float(constant[0].real)
        return f"it differs from the right one by {amount:.4g} everywhere: a sum over the whole is missing or added"
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
        return f"shape {list(actual.shape)} in place of {list(expected.shape)}"
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
    actual, wanted = (f"{float(v[worst]):.6g}" for v in (a, e))
    if actual == wanted:
        actual, wanted = (f"{float(v[worst]):.17g}" for v in (a, e))
    return f"{actual} in place of {wanted} at {index} ({count})"
