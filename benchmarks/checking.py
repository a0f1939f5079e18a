"""What it costs to check a recipe. ``nox -s refresh`` runs and stores it."""

import resource
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import audit
from autograd_cookbook.auditing.subject import is_differentiable
from autograd_cookbook.catalog import Recipe

SECONDS = 0.1  # for the runs of one of torch's checks on one recipe
FEWEST, MOST = 3, 20  # of these runs, the first of which only warms up


def problem(recipe: Recipe) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[Any, ...]]:
    """The recipe without outputs that have no derivative, and the arguments of its typical call, as fresh leaves."""

    def function(*args: Any) -> tuple[Tensor, ...]:
        result = recipe.function(*args)
        return tuple(filter(is_differentiable, result if isinstance(result, tuple | list) else (result,)))

    def fresh(value: Any) -> Any:
        return value.detach().clone().requires_grad_(value.requires_grad) if is_differentiable(value) else value

    return function, tuple(map(fresh, recipe.calls[0].args))


def processor_seconds() -> float:
    """Processor time of this process and of those that it has waited for: what others do does not count."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def timed(run: Callable[[], Any], fewest: int = 1, most: int = 1) -> float:
    """Median of some runs, the first left out where there are more."""
    times: list[float] = []
    while len(times) < fewest or (len(times) < most and sum(times) < SECONDS):
        start = processor_seconds()
        run()
        times.append(processor_seconds() - start)
    return median(times[1:] or times)


def verdict(check: Callable[[], bool]) -> str:
    """That it "passes" or "fails", or what is raised in place of an answer."""
    try:
        return "passes" if check() else "fails"
    except Exception as error:  # such as: a second derivative is refused
        return type(error).__name__


def measure(recipe: Recipe) -> dict[str, Any]:
    """Seconds of each check, its verdict unless it passes, and how often torch's checks call the function."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of samples that are float32 on purpose, and of what torch maps by a loop
        return _measured(recipe)


def _measured(recipe: Recipe) -> dict[str, Any]:
    function, args = problem(recipe)
    calls = 0

    def counted(*args: Any) -> tuple[Tensor, ...]:
        nonlocal calls
        calls += 1
        return function(*args)

    row: dict[str, Any] = {
        "inputs": sum(a.numel() for a in args if isinstance(a, Tensor) and a.requires_grad),
        "outputs": sum(o.numel() for o in function(*args) if o.requires_grad),
        "seconds": {},
        "calls": {},
    }
    verdicts = {}
    checks = {
        "gradcheck": lambda f: gradcheck(f, args, raise_exception=False),
        "fast mode": lambda f: gradcheck(f, args, raise_exception=False, fast_mode=True),
        "gradgradcheck": lambda f: gradgradcheck(f, args, raise_exception=False),
    }
    for name, check in checks.items():
        calls = 0
        verdicts[name] = verdict(lambda check=check: check(counted))
        row["calls"][name] = calls
        row["seconds"][name] = timed(lambda check=check: verdict(lambda: check(function)), FEWEST, MOST)
    # Once, for it takes longest. Its check of compilation would add the same two seconds to all of them.
    reports = []
    row["seconds"]["audit"] = timed(
        lambda: reports.append(audit(recipe.function, args, **recipe.audit_options, skip=["compile"], timeout=600))
    )
    verdicts["audit"] = "passes" if reports[0].ok else "fails"
    row["seconds"] = {name: float(f"{seconds:.3g}") for name, seconds in row["seconds"].items()}
    faults = {name: said for name, said in verdicts.items() if said != "passes"}
    return row | {"faults": faults} if faults else row
