"""What tests of gradients share: outputs with gradients in one call, comparison relative to the largest entry, and a
file's tests run again on Triton's interpreter."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from packaging.version import Version
from torch import Tensor

from autograd_cookbook.auditing.subject import is_differentiable

Args = tuple[Any, ...]
HANG = 1200.0  # seconds, only to stop what hangs: no test waits for so long, however busy the machine


def since(release: str) -> bool:
    """Whether the installed torch is that release or a later one, where only its behavior tells them apart."""
    return Version(torch.__version__).release >= Version(release).release


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


def gradients(
    function: Callable[..., Any], args: Args, change: Callable[[Tensor], Tensor] = torch.clone
) -> tuple[Tensor, ...]:
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


def at(where: Sequence[int], function: Callable[..., Any], args: Args) -> Callable[..., tuple[Tensor, ...]]:
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
    """Fail unless the tensors agree in shape and, relative to the largest entry, in value.

    Below 1e-15 is the rounding of gradients that are 0, as that of the sum of a softmax.
    """
    for a, e in zip(actual, expected, strict=True):
        assert a.shape == e.shape
        finite = e[e.isfinite()]
        scale = float(finite.abs().max()) if finite.numel() else 0.0
        torch.testing.assert_close(a.to(e.dtype), e, rtol=rtol, atol=rtol * scale + 1e-15, equal_nan=True)


def assert_gradients_agree_at_special_points(ours: Callable[..., Tensor], theirs: Callable[..., Tensor]) -> None:
    """Where an element-wise function has its zeros, tails and infinities, and with gradients that are not finite."""
    infinity, nan = float("inf"), float("nan")
    points = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 100.0, -100.0, infinity, -infinity, nan], dtype=torch.float64)
    for upstream in (1.0, infinity, nan):
        grads = []
        for function in (ours, theirs):
            x = points.clone().requires_grad_()
            function(x).backward(torch.full_like(x, upstream))
            grads.append(x.grad)
        torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-300, equal_nan=True)


def assert_passes_on_the_interpreter(file: str, tests: str = "test") -> None:
    """Run the tests of a file that have a word in their names in another process: Triton decides when imported."""
    chosen = f"{tests} and not interpreter"
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", file, "-k", chosen]
    env = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr


def is_real(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64, the same in each run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_agrees_with_float64(
    ours: Callable[..., Tensor],
    args: Sequence[Any],
    dtype: torch.dtype,
    theirs: Callable[..., Tensor],
    rtol: float,
    grads: Any = 1.0,
) -> None:
    """Outputs and gradients of a function are those of a formula in float64, each row to a share of its largest number.

    The gradient of the output is a number, or a tensor like it.
    """
    given = [a.detach().to(dtype).double().requires_grad_(a.requires_grad) if is_real(a) else a for a in args]

    def both(function: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [a.detach().to(dtype).requires_grad_(a.requires_grad) if is_real(a) else a for a in given]
        output = function(*leaves)
        grad = torch.as_tensor(grads, dtype=dtype).expand(output.shape)
        inputs = [leaf for leaf in leaves if is_real(leaf) and leaf.requires_grad]
        return [t.detach().double() for t in (output, *torch.autograd.grad(output, inputs, grad))]

    for mine, exact in zip(both(ours, dtype), both(theirs, torch.float64), strict=True):
        rows, truth = (t.reshape(-1, t.shape[-1] if t.dim() else 1) for t in (mine, exact))
        off = (rows - truth).abs().amax(1) / truth.abs().amax(1).clamp(min=torch.finfo(dtype).smallest_normal)
        assert off.max() <= rtol, f"{dtype}: {off.max():.3g} of its size off"
