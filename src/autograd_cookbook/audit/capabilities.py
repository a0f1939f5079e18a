"""What a differentiable function can do, found out by running it.

Each capability is one small function below. It answers by returning (yes), by raising :class:`Wrong` (a
number came back and it is not the right one), or by raising anything else (no: somebody refuses).
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.utils.checkpoint import checkpoint as torch_checkpoint

Function = Callable[..., Any]
Args = tuple[Any, ...]


class Wrong(AssertionError):  # noqa: N818 (a verdict, not an error)
    """The capability is there and gives a wrong number."""


def is_differentiable(value: Any) -> bool:
    """Whether a value is a tensor through which autograd can flow."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def differentiable(result: Any) -> tuple[Tensor, ...]:
    """The tensors in a result that can carry a gradient."""
    return tuple(r for r in (result if isinstance(result, tuple | list) else (result,)) if is_differentiable(r))


def outputs_of(result: Any) -> tuple[Tensor, ...]:
    """The tensors in a result that do carry one."""
    return tuple(r for r in differentiable(result) if r.requires_grad)


def places(args: Args) -> tuple[int, ...]:
    """Where the arguments are that one differentiates with respect to."""
    return tuple(i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad)


def leaves(args: Args) -> tuple[Tensor, ...]:
    """The arguments that one differentiates with respect to."""
    return tuple(args[i] for i in places(args))


def copies(args: Args, change: Callable[[Tensor], Tensor] = torch.clone) -> Args:
    """The same arguments with fresh leaves, each floating one put through ``change``."""
    return tuple(
        change(a.detach()).detach().requires_grad_(a.requires_grad) if is_differentiable(a) else a for a in args
    )


def gradients(function: Function, args: Args, change: Callable[[Tensor], Tensor] = torch.clone) -> tuple[Tensor, ...]:
    """Outputs, and gradients of them weighted by fixed uneven numbers.

    ``change`` is applied to each of the weights: a layout that the backward must cope with.
    """
    outputs = outputs_of(function(*args))
    if not outputs:
        raise RuntimeError("no output requires grad")
    grads = torch.autograd.grad(
        outputs,
        leaves(args),
        [change(weights_like(o)) for o in outputs],
        allow_unused=True,
        materialize_grads=True,
    )
    return (*(o.detach() for o in outputs), *grads)


def at(where: Sequence[int], function: Function, args: Args) -> Callable[..., tuple[Tensor, ...]]:
    """``function`` as a map from the arguments at some places alone to its differentiable outputs."""

    def inner(*values: Tensor) -> tuple[Tensor, ...]:
        full = list(args)
        for i, value in zip(where, values, strict=True):
            full[i] = value
        return differentiable(function(*full))

    return inner


def weights_like(output: Tensor) -> Tensor:
    """Numbers between 0.5 and 1.5 that differ from place to place, computed alike on every call."""
    steps = torch.arange(output.numel(), device=output.device, dtype=torch.float64).reshape(output.shape)
    return (1 + 0.5 * torch.sin(1 + steps)).to(output.dtype)


def expect_close(actual: Sequence[Tensor], expected: Sequence[Tensor], rtol: float = 1e-9) -> None:
    """Raise :class:`Wrong` unless the tensors agree in shape and, relative to the largest entry, in value."""
    for a, e in zip(actual, expected, strict=True):
        if a.shape != e.shape:
            raise Wrong(f"shape {tuple(a.shape)}, expected {tuple(e.shape)}")
        finite = e[e.isfinite()]
        scale = float(finite.abs().max()) if finite.numel() else 0.0
        if not torch.allclose(a.to(e.dtype), e, rtol=rtol, atol=rtol * scale, equal_nan=True):
            raise Wrong(f"values differ by up to {float((a.to(e.dtype) - e).abs().max()):.3g}")


# --- The capabilities: each takes the function and a sample's arguments in float64 ---


def first_order(function: Function, args: Args) -> None:
    """The gradient agrees with finite differences."""
    _gradcheck(gradcheck, function, args)


def second_order(function: Function, args: Args) -> None:
    """The gradient of the gradient agrees with finite differences of the gradient."""
    if _refuses_second_order(function, args):
        raise RuntimeError("the backward is marked once_differentiable")
    _gradcheck(gradgradcheck, function, args)


def _refuses_second_order(function: Function, args: Args) -> bool:
    """Whether ``once_differentiable`` stands in the way: it puts a node named Error into the new graph.

    The node raises only if the engine comes by; ``gradgradcheck`` sees no more than zeros.
    """
    args = copies(args)
    outputs = outputs_of(function(*args))
    weights = [weights_like(o).requires_grad_() for o in outputs]
    grads = torch.autograd.grad(outputs, leaves(args), weights, create_graph=True, allow_unused=True)
    pending, seen = [g.grad_fn for g in grads if g is not None and g.grad_fn is not None], set()
    while pending:
        node = pending.pop()
        if node.name().rpartition("::")[2] == "Error":
            return True
        if node not in seen:
            seen.add(node)
            pending += [n for n, _ in node.next_functions if n is not None]
    return False


def forward_mode(function: Function, args: Args) -> None:
    """Forward-mode differentiation works and agrees with finite differences."""
    _gradcheck(gradcheck, function, args, check_forward_ad=True, check_backward_ad=False)


def _gradcheck(check: Callable[..., bool], function: Function, args: Args, **options: Any) -> None:
    try:
        # Tight enough to see a factor of 0.9999; gradcheck's own rtol of 1e-3 is not.
        check(at(places(args), function, args), leaves(copies(args)), atol=1e-6, rtol=1e-5, **options)
    except GradcheckError as error:
        if "not implemented" in str(error):  # forward mode missing altogether
            raise RuntimeError(str(error)) from error
        raise Wrong(str(error)) from error


def _vjp(function: Function, args: Args, where: Sequence[int]) -> tuple[Tensor, ...]:
    """What :func:`gradients` returns, by ``torch.func`` instead of ``backward``."""
    outputs, pull_back = torch.func.vjp(at(where, function, args), *(args[i] for i in where))
    return (*outputs, *pull_back(tuple(map(weights_like, outputs))))


def func_grad(function: Function, args: Args) -> None:
    """``torch.func.vjp`` returns the same gradients as ``backward``."""
    detached = tuple(a.detach() if is_differentiable(a) else a for a in args)
    expect_close(_vjp(function, detached, places(args)), gradients(function, copies(args)))


def vmap(function: Function, args: Args) -> None:
    """Mapping value and gradient over a new leading dimension equals a loop over it."""
    batches = [copies(args, change) for change in (torch.clone, lambda t: t * 0.5, torch.neg)]
    looped = [gradients(function, batch) for batch in batches]
    in_dims = tuple(0 if is_differentiable(a) else None for a in args)
    stacked = tuple(
        a if dim is None else torch.stack([batch[i].detach() for batch in batches])
        for i, (a, dim) in enumerate(zip(args, in_dims, strict=True))
    )
    mapped = torch.func.vmap(lambda *values: _vjp(function, values, places(args)), in_dims=in_dims)(*stacked)
    expect_close(mapped, [torch.stack(column) for column in zip(*looped, strict=True)])


def batched_grad(function: Function, args: Args) -> None:
    """Many backwards in one, by ``torch.autograd.grad(is_grads_batched=True)``, equal a loop of them."""
    args = copies(args)
    outputs = outputs_of(function(*args))
    weights = [torch.stack([weights_like(o), weights_like(o).neg(), weights_like(o) ** 2]) for o in outputs]
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    batched = torch.autograd.grad(outputs, leaves(args), weights, is_grads_batched=True, **options)
    loop = [torch.autograd.grad(outputs, leaves(args), [w[i] for w in weights], **options) for i in range(3)]
    expect_close(batched, [torch.stack(column) for column in zip(*loop, strict=True)])


def compile(function: Function, args: Args) -> None:
    """``torch.compile(fullgraph=True)`` takes the function whole, and its gradients stay the same."""
    torch._dynamo.reset()
    try:
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        expect_close(gradients(compiled, copies(args)), gradients(function, copies(args)))
    finally:
        torch._dynamo.reset()


def checkpoint(function: Function, args: Args) -> None:
    """Value and gradients survive ``torch.utils.checkpoint``."""

    def checkpointed(*inner: Any) -> Any:
        return torch_checkpoint(function, *inner, use_reentrant=False)

    expect_close(gradients(checkpointed, copies(args)), gradients(function, copies(args)))


def non_contiguous(function: Function, args: Args) -> None:
    """Strided inputs, and strided gradients of the outputs, change nothing."""

    def strided(tensor: Tensor) -> Tensor:
        # Twice the room, every other element: same shape and values, no two neighbors in memory.
        room = tensor.new_empty((*tensor.shape, 2))
        room[..., 0] = tensor
        room[..., 1] = torch.nan
        return room[..., 0]

    expected = gradients(function, copies(args))
    strided_args = tuple(
        strided(a.detach()).requires_grad_(a.requires_grad) if is_differentiable(a) else a for a in args
    )
    expect_close(gradients(function, strided_args), expected)
    expect_close(gradients(function, copies(args), change=strided), expected)


def _dtype(dtype: torch.dtype, rtol: float) -> Callable[[Function, Args], None]:
    def holds(function: Function, args: Args) -> None:
        # Compare with float64 run on the rounded inputs, so that rounding them is not counted as an error.
        rounded = tuple(a.detach().to(dtype).requires_grad_(a.requires_grad) if is_differentiable(a) else a
                        for a in args)  # fmt: skip
        results = gradients(function, rounded)
        for result in results:
            if result.dtype is not dtype:
                raise Wrong(f"a result has dtype {result.dtype}, expected {dtype}")
        exact = tuple(a.detach().double().requires_grad_(a.requires_grad) if is_differentiable(a) else a
                      for a in rounded)  # fmt: skip
        expect_close([r.double() for r in results], gradients(function, exact), rtol)

    holds.__doc__ = f"The function keeps {dtype} and agrees with float64 to {rtol:g}."
    return holds


float32 = _dtype(torch.float32, 1e-5)
float16 = _dtype(torch.float16, 1e-2)
bfloat16 = _dtype(torch.bfloat16, 8e-2)


def complex128(function: Function, args: Args) -> None:
    """Complex inputs are accepted and gradcheck holds for them."""
    generator = torch.Generator().manual_seed(0)

    def to_complex(tensor: Tensor) -> Tensor:
        imaginary = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.device)
        return torch.complex(tensor.double(), imaginary)

    _gradcheck(gradcheck, function, copies(args, to_complex))


CAPABILITIES: dict[str, Callable[[Function, Args], None]] = {
    f.__name__: f
    for f in (
        first_order,
        second_order,
        forward_mode,
        func_grad,
        vmap,
        batched_grad,
        compile,
        checkpoint,
        non_contiguous,
    )
} | {"float32": float32, "float16": float16, "bfloat16": bfloat16, "complex128": complex128}


def capabilities(function: Function, *samples: Args) -> dict[str, str]:
    """Run ``function`` through everything and say what it can do.

    Args:
        function: returns a tensor or several, differentiable in at least one argument.
        samples: argument tuples in float64, the typical one first. First and second order are checked on all
            of them, the rest on the first.

    Returns:
        For each name in ``CAPABILITIES``: "yes"; "no" if it is refused; "wrong" if a wrong number came back.

    Raises:
        ValueError: if there is no sample.
    """
    if not samples:
        raise ValueError("expected at least one sample, got none")
    verdicts = {}
    for name, check in CAPABILITIES.items():
        everywhere = name in ("first_order", "second_order")
        verdicts[name] = _verdict(check, function, samples if everywhere else samples[:1])
    return verdicts


def _verdict(check: Callable[[Function, Args], None], function: Function, samples: Sequence[Args]) -> str:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in samples:
            torch.manual_seed(0)
            try:
                check(function, args)
            except Wrong:
                return "wrong"
            except Exception:
                return "no"
    return "yes"
