"""A program for each finding, which fails as long as the function is as it is."""

import dis
import inspect
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_unflatten

from autograd_cookbook.auditing.forking import status_of

LINES = 20  # without code of the reader's that cannot be imported
FAILED = 17  # exit status
PATIENCE = 5.0  # seconds for trying a program out, without those that it waits for a processor
WRITTEN = 64  # so many numbers of a tensor are written out

# What stands before each experiment: a number that depends on every entry of every output.
LOSS = """\
def total(ys):
    ys = [torch.view_as_real(y.resolve_conj()) if y.is_complex() else y for y in ys if isinstance(y, torch.Tensor)]
    return sum((y * torch.linspace(1, 2, y.numel()).to(y).reshape(y.shape)).sum() for y in ys)
def loss(*args):
    torch.manual_seed(0)
    return total(torch.utils._pytree.tree_leaves(f(*args)))
"""
# The gradient, or that of a weighted gradient, next to what the values say along a direction.
SLOPES = """\
grads = torch.autograd.grad({loss}(*args), leaves, allow_unused=True)
for x, g in zip(leaves, grads):
    v = torch.cos(torch.arange(x.numel())).to(x).reshape(x.shape)
    x.data += 1e-5 * v; up = {loss}(*args).item()
    x.data -= 2e-5 * v; down = {loss}(*args).item(); x.data += 1e-5 * v
    claimed, measured = (0.0 if g is None else (g * v).real.sum().item()), (up - down) / 2e-5
    assert abs(claimed - measured) <= 1e-5 * (1 + abs(measured)), f"gradient: {{claimed}}, values: {{measured}}"
"""
SLOPE = """\
def slope(*args):
    grads = torch.autograd.grad(loss(*args), leaves, create_graph=True, allow_unused=True)
    return total(grads) + 0 * leaves[0].real.sum()
"""
EXPERIMENTS: dict[str, str] = {
    "first_order": LOSS + SLOPES.format(loss="loss"),
    "second_order": LOSS + SLOPE + SLOPES.format(loss="slope"),
    "later_writes": """\
tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
def gradients(written):
    copies = [a.clone() if i in tensors else a for i, a in enumerate(args)]
    torch.manual_seed(0)
    ys = [y for y in torch.utils._pytree.tree_leaves(f(*copies)) if isinstance(y, torch.Tensor) and y.requires_grad]
    with torch.no_grad():
        [t.mul_(1.5) for t in (ys if written == "outputs" else [copies[i] for i in tensors if i == written])]
    return torch.autograd.grad(ys, leaves, [torch.ones_like(y) for y in ys], allow_unused=True)
right = gradients(None)
for written in [*tensors, "outputs"]:
    try:
        grads = gradients(written)
    except RuntimeError:
        continue  # torch has noticed
    assert all(g is r or torch.allclose(g, r) for g, r in zip(grads, right)), f"{grads}, without a write {right}"
""",
    "inputs_unchanged": """\
before = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]
copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
y = f(*copies)
for a, b in zip(copies, before):
    assert not isinstance(a, torch.Tensor) or torch.equal(a, b), f"forward has changed {b} to {a.detach()}"
""",
    "repeatable": LOSS
    + """\
first, *others = (loss(*args).item() for _ in range(5))
assert all(other == first for other in others), f"{first} in one call, {others} in the next ones"
""",
    "without_grad": LOSS
    + """\
with_graph = loss(*args).item()
frozen = [a.detach() if isinstance(a, torch.Tensor) else a for a in args]
with torch.no_grad():
    without = [loss(*args).item(), loss(*frozen).item()]
assert without == [with_graph, with_graph], f"{with_graph} with a graph, {without} without"
""",
    "backward_twice": LOSS
    + """\
value = loss(*args)
first = torch.autograd.grad(value, leaves, retain_graph=True, allow_unused=True)
first = [None if g is None else g.clone() for g in first]
try:
    second = torch.autograd.grad(value, leaves, allow_unused=True)
except Exception as error:
    raise AssertionError("the second time it raises") from error
assert all(a is b or torch.allclose(a, b) for a, b in zip(first, second)), f"first {first}, then {second}"
""",
    "tensors_on_ctx": """\
ys = [y for y in torch.utils._pytree.tree_leaves(f(*args)) if isinstance(y, torch.Tensor) and y.grad_fn is not None]
kept = {k: v for y in ys for k, v in getattr(y.grad_fn, "__dict__", {}).items() if isinstance(v, torch.Tensor)}
assert not kept, f"on ctx: {kept}"
""",
}


class _Unwritable(Exception):  # noqa: N818 (an answer, not an error)
    """The call cannot be written out."""


def program_for(
    function: Callable[..., Any], flat: list[Any], spec: Any, check: str, options: dict[str, Any], try_out: bool = True
) -> str:
    """A file that fails with an assertion where the finding is; empty if the call cannot be written out.

    Where there is no experiment in plain PyTorch, or where it has been tried out and shows nothing, the program asks
    the audit itself, for this one check.
    """
    if check in EXPERIMENTS and not options:
        program = _written_for(function, flat, spec, check, options, EXPERIMENTS[check])
        if program and (not try_out or _fails(program)):
            return program
    return _written_for(function, flat, spec, check, options, "")


def _fails(program: str) -> bool:
    """Whether a program fails by an assertion, in a process of its own."""

    def run() -> int:
        try:
            exec(compile(program, "<program>", "exec"), {"__name__": "program"})
        except AssertionError:
            return FAILED
        return 0

    return status_of(run, PATIENCE) == FAILED


def _written_for(
    function: Callable[..., Any], flat: list[Any], spec: Any, check: str, options: dict[str, Any], experiment: str
) -> str:
    """The program with an experiment, or that of the audit if it is empty."""
    lines: list[str] = []
    try:
        imports, target = _target(function)
        words = [_written(value, lines, bool(experiment)) for value in flat]
        args = _expression(tree_unflatten([_Name(w) for w in words], spec))
    except Exception:  # _Unwritable, or what the reader's own objects raise when they are asked for a name or a value
        return ""
    names = [line.partition(" ")[0] for line in lines if "requires_grad=True" in line]
    drawn = isinstance(function, nn.Module) or any("torch.randn(" in line for line in lines)
    seeded = ["torch.manual_seed(0)"] if drawn else []
    start = ["import torch", *imports, *seeded, *lines]
    if experiment:
        leaves = f"[{', '.join(names)}]"
        call = [f"f, args, leaves = {target}, {args}, {leaves}"]
        if isinstance(function, nn.Module):
            call = [f"f, args = {target}, {args}", f"leaves = [*{leaves}, *f.parameters()]"]
        whole = [*start, *call, *experiment.splitlines()]
        return "\n".join([*whole, ""]) if len(whole) <= LINES + len(imports) else ""
    said = "".join(f", {key}={value!r}" for key, value in options.items())
    body = [
        f"f, args = {target}, {args}",
        f"report = audit(f, args, only=[{check!r}]{said})",
        f"assert not any(f.check == {check!r} for f in report.findings), report",
    ]
    return "\n".join(["from autograd_cookbook import audit", *start, *body, ""])


def _target(function: Callable[..., Any]) -> tuple[list[str], str]:
    """How to import a function, and the expression for it."""
    owner = getattr(function, "__self__", None)
    thing, ending = function, ""
    if isinstance(owner, type):
        thing, ending = owner, f".{function.__name__}"
    elif isinstance(function, nn.Module):
        thing, ending = type(function), "()"
        parameters = list(inspect.signature(thing).parameters.values())
        if any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise _Unwritable
    module, path = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if isinstance(thing, types.BuiltinFunctionType) and getattr(torch, thing.__name__, None) is thing:
        return [], f"torch.{thing.__name__}"
    if not module or not path or "<lambda>" in path:
        raise _Unwritable
    if module != "__main__" and "<locals>" not in path:
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is thing:
            return [f"from {module} import {path.partition('.')[0]}"], f"{path}{ending}"
    if getattr(thing, "__closure__", None):
        raise _Unwritable
    return _pasted(thing), f"{thing.__name__}{ending}"


def _pasted(thing: Any) -> list[str]:
    """The source of something that cannot be imported, after what it reads of its module: imports and plain values."""
    try:
        source = inspect.cleandoc("\n" + inspect.getsource(thing))
        read = _names_read(compile(source, "<pasted>", "exec", dont_inherit=True))
    except (OSError, TypeError, SyntaxError):
        raise _Unwritable from None
    scope = vars(sys.modules.get(thing.__module__, types.ModuleType("")))
    before: list[str] = []
    for name in sorted(read & scope.keys() - {thing.__name__, "torch"}):
        value = scope[name]
        if isinstance(value, types.ModuleType):
            before.append(f"import {value.__name__} as {name}")
        elif isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            if value.__module__ in (None, "__main__", thing.__module__) or "<" in value.__qualname__:
                raise _Unwritable
            before.append(f"from {value.__module__} import {value.__qualname__} as {name}")
        elif isinstance(value, Tensor):
            if value.numel() > WRITTEN:
                raise _Unwritable  # drawn anew it would be another constant
            before.append(f"{name} = {_tensor(value, promote=False)}")
        else:
            before.append(f"{name} = {_written(value, [], promote=False)}")
    return [*before, *source.splitlines()]


def _names_read(code: types.CodeType) -> set[str]:
    """The names that code reads from its module, its functions and classes included; arguments are not among them."""
    read = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return read.union(*(_names_read(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


class _Name(str):
    """An expression that is written as it is."""

    __slots__ = ()

    __repr__ = str.__str__


def _expression(value: Any) -> str:
    return repr(value) if not isinstance(value, tuple) else f"({', '.join(map(_expression, value))},)"


def _written(value: Any, lines: list[str], promote: bool) -> str:
    """An expression for an argument; tensors get a line and a name."""
    if isinstance(value, Tensor):
        lines.append(f"x{len(lines)} = {_tensor(value, promote)}")
        return f"x{len(lines) - 1}"
    if type(value) is float and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or type(value) in (bool, int, float, complex, str, bytes, torch.Size):
        return repr(value)
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, types.FunctionType) and "<" not in value.__qualname__ and value.__module__ != "__main__":
        return f"__import__({value.__module__!r}, fromlist=['_']).{value.__qualname__}"
    raise _Unwritable


def _tensor(tensor: Tensor, promote: bool) -> str:
    if tensor.layout is not torch.strided or type(tensor) not in (Tensor, nn.Parameter):
        raise _Unwritable
    values, kind = tensor.detach(), tensor.dtype
    if kind is torch.float32 and promote:  # as the audit does
        values, kind = values.double(), torch.float64
    grad = ", requires_grad=True" if tensor.requires_grad else ""
    if 0 < tensor.numel() <= WRITTEN and (not tensor.is_floating_point() or values.isfinite().all()):
        return f"torch.tensor({values.tolist()!r}, dtype={kind}{grad})"
    if not tensor.is_floating_point():
        raise _Unwritable
    return f"torch.randn({tuple(tensor.shape)}, dtype={kind}{grad})"


# --- the lines of the reader's own code ---


def source_of(function: Callable[..., Any], classes: list[type], check: str, summary: str) -> str:
    """The lines of the function that a finding is most likely about, with their numbers; empty without source."""
    owner: Any = classes[0] if classes else getattr(function, "__self__", function)
    if isinstance(owner, type):
        kept = check in ("tensors_on_ctx", "later_writes", "saved_copies", "unused_saved", "saved_tensor_hooks")
        back = "gradient" in summary or "backward" in summary or "derivative" in summary
        method = "setup_context" if kept and _own(owner, "setup_context") else "backward" if back and not kept else ""
        thing = _own(owner, method or "forward") or _own(owner, "backward")
        wanted = ("ctx.",) if kept else ("return",)
    else:
        thing, wanted = owner.forward if isinstance(owner, nn.Module) else owner, ("return",)
    try:
        lines, first = inspect.getsourcelines(thing)
    except (OSError, TypeError):
        return ""
    hits = [i for i, line in enumerate(lines) if any(word in line for word in wanted)]
    last = hits[0] if hits and wanted == ("ctx.",) else hits[-1] if hits else len(lines) - 1
    begin = max(1, last - 1) if last > 1 else 0
    shown = lines[begin : begin + 3]
    return "\n".join(f"{first + begin + i}: {line.rstrip()}" for i, line in enumerate(shown))


def _own(owner: type, name: str) -> Any:
    """A method that the reader wrote."""
    found = getattr(owner, name, None)
    return found if found is not getattr(torch.autograd.Function, name, None) else None
