"""What the audit is asked for: valid, or refused with an error that names what was given and what was expected."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.auditing.checks import Check, all_checks
from autograd_cookbook.auditing.diagnose import first_line
from autograd_cookbook.auditing.subject import is_differentiable, is_plain, tensors_of

GRADIENTS = ("exact", "surrogate", "approximate", "custom")
ANYWHERE = "any"  # the domain of a function that takes all numbers
FIRST = "runs"  # the check without which no other can be


def capability_names() -> tuple[str, ...]:
    """Everything that ``report.capabilities`` may list, in order."""
    return tuple(dict.fromkeys(c.capability for c in all_checks().values() if c.capability))


def selected(only: Sequence[str], skip: Sequence[str]) -> tuple[Check, ...]:
    """The checks to run, in order."""
    known = all_checks()
    for option, names in (("only", only), ("skip", skip)):
        if isinstance(names, str):
            raise ValueError(f"{option} must be a sequence of check names, got the string {names!r}")
        for name in names:
            if name not in known:
                raise ValueError(f"{option}: unknown check {name!r}; there are {', '.join(known)}")
    chosen = [c for c in known.values() if (not only or c.name in only) and c.name not in skip]
    chosen = chosen if any(c.name == FIRST for c in chosen) else [known[FIRST], *chosen]
    return tuple(chosen)


def required(require: Sequence[str], checks: Sequence[Check]) -> tuple[str, ...]:
    """The capabilities that must be there."""
    names = (require,) if isinstance(require, str) else tuple(require)
    known, measured = capability_names(), {c.capability for c in checks}
    for name in names:
        if name not in known:
            raise ValueError(f"require: unknown capability {name!r}; there are {', '.join(known)}")
        if name not in measured:
            raise ValueError(f"require: capability {name!r} is not measured by the checks that were chosen")
    return names


def arguments(fn: Any, inputs: Any) -> tuple[Any, ...]:
    """The arguments of a call, in which there is something to differentiate with respect to."""
    if isinstance(fn, type):
        hint = f"pass {fn.__name__}.apply" if issubclass(fn, torch.autograd.Function) else "pass an instance of it"
        raise TypeError(f"expected a function, got the class {fn.__name__}: {hint}")
    if not callable(fn):
        raise TypeError(f"expected a callable, got {type(fn).__name__}: {' '.join(repr(fn).split())}"[:200])
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, tuple | list):
        raise TypeError(f"inputs must be a tuple of the function's arguments, got {type(inputs).__name__}")
    tensors = tensors_of(fn, tuple(inputs))
    if not any(is_differentiable(t) and t.requires_grad and is_plain(t) for t in tensors):
        given = ", ".join(_shown(a) for a in inputs) or "nothing"
        raise TypeError(
            "inputs must hold a dense floating or complex tensor that requires grad (or the function parameters that "
            f"do), got {given}"
        )
    return tuple(inputs)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        kind = "" if value.layout is torch.strided else f"{value.layout} ".removeprefix("torch.")
        return f"a {kind}{value.dtype} tensor{' that requires grad' if value.requires_grad else ''}"
    return type(value).__name__


def subject_options(
    reference: Callable[..., Any] | None,
    gradient: str | None,
    surrogate: Callable[..., Any] | None,
    tolerance: float | None,
    seed: int,
    device: torch.device | str | None,
    domain: Callable[..., Sequence[Any]] | str | None = None,
) -> dict[str, Any]:
    """What the audit has to know about the function."""
    gradient = gradient or ("exact" if surrogate is None else "surrogate")
    if gradient not in GRADIENTS:
        raise ValueError(f"gradient must be one of {', '.join(GRADIENTS)}, got {gradient!r}")
    if (gradient == "surrogate") != (surrogate is not None):
        raise ValueError(
            f"gradient={gradient!r} with surrogate={surrogate!r}: a surrogate gradient, and no other, needs "
            "surrogate=, the function whose gradient the backward declares"
        )
    if tolerance is not None and (gradient != "approximate" or not tolerance > 0):
        raise ValueError(
            f"tolerance must be positive and belongs to gradient='approximate', got {tolerance!r} with {gradient!r}"
        )
    if isinstance(domain, str) and domain != ANYWHERE:
        raise ValueError(f"domain must be a callable or {ANYWHERE!r}, got {domain!r}")
    valid = domain if domain != ANYWHERE else None
    for name, value in (("reference", reference), ("surrogate", surrogate), ("domain", valid)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable, got {type(value).__name__}")
    if not isinstance(seed, int) or not 0 <= seed < 2**32 - 100:
        raise ValueError(f"seed must be an int between 0 and 2**32 - 100, got {seed!r}")
    if device is not None:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, TypeError, ValueError) as error:
            raise ValueError(f"device must be one that is there, got {device!r}: {first_line(error)}") from None
    return {
        "reference": reference,
        "gradient": gradient,
        "surrogate": surrogate,
        "tolerance": tolerance,
        "seed": seed,
        "device": device,
        "domain": valid,
        "recognize": domain is None,
    }
