"""The audit of one recorded call, and what of its report counts for a call that a program has made."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from autograd_cookbook.auditing import Report, audit
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.auditing.checks.execution import prepare
from autograd_cookbook.auditing.state import preserved
from autograd_cookbook.auditing.subject import Subject, is_differentiable
from autograd_cookbook.harvest.programs import program_for

TIMEOUT = 20.0  # seconds for one check
LARGE = 256  # elements of all tensors that require grad, from which on a smaller call is tried
SMALL = 5  # what a dim is cut down to
CUT_OFF = "it does not come back: cut off after"  # as the audit says it
PROBES = 1e-6, -1e-6


@dataclass(frozen=True)
class Task:
    """One call to audit, with what the project says of its function."""

    function: int
    name: str
    target: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """The report as plain values, and programs by check; or the reason why there is none."""

    report: dict[str, Any] | None = None
    programs: dict[str, str] | None = None
    reason: str = ""


@dataclass(frozen=True)
class _WithModules:
    """A function as one that takes modules alone, and no methods and parameters of them.

    So the audit, which gives other tensors as arguments but writes to those of modules, leaves what is one tensor one.
    """

    target: Callable[..., Any]
    methods: dict[int, str]
    parameters: dict[int, tuple[int, str]]

    def __call__(self, *args: Any) -> Any:
        words = list(args)
        for place, (owner, name) in self.parameters.items():
            words[place] = args[owner].get_parameter(name)
        for place, name in self.methods.items():
            words[place] = getattr(args[place], name)
        return self.target(*words)


def with_modules(target: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The same call, with the modules in place of their methods and of their parameters."""
    owners = {i: getattr(arg, "__self__", arg) for i, arg in enumerate(args)}
    modules = {i: owner for i, owner in owners.items() if isinstance(owner, nn.Module)}
    methods = {i: args[i].__name__ for i, module in modules.items() if module is not args[i]}
    names = {id(p): (i, name) for i, module in modules.items() for name, p in module.named_parameters()}
    parameters = {i: names[id(arg)] for i, arg in enumerate(args) if id(arg) in names}
    if not methods and not parameters:
        return target, args
    words = (None if i in parameters else modules.get(i, arg) for i, arg in enumerate(args))
    return _WithModules(target, methods, parameters), tuple(words)


def judge(task: Task) -> Verdict:
    """Audit a call."""
    target, recorded = with_modules(task.target, task.args)
    args = cut_down(target, recorded)
    try:
        report = audit(target, args, timeout=TIMEOUT, **task.options)
    except (TypeError, ValueError) as error:
        return Verdict(reason=" ".join(str(error).split()))
    if reason := _not_audited(report):
        return Verdict(reason=reason)
    plain = report.to_dict()
    _forgive_slowness(plain)
    declared = {"gradient", "surrogate"} & task.options.keys()
    if not declared and _wrong(report) and looks_like_surrogate(target, args):
        _excuse(plain, report)
    said = {key: value for key, value in task.options.items() if isinstance(value, str | float)}
    programs = {f["check"]: program_for(task.name, args, f["check"], said) for f in plain["findings"]}
    if args is not recorded:
        plain["notes"] = [*plain["notes"], "large tensors of the recorded call were cut down"]
    return Verdict(plain, programs)


def _not_audited(report: Report) -> str:
    """Why a call that worked in the program could not be audited."""
    for each in report.findings:
        if each.check == "runs" and each.summary.startswith("forward raises"):
            return f"called again with copies of its arguments, {each.summary}"
        if each.check == "runs" and ("NotImplementedError" in each.summary or "no output requires" in each.summary):
            return each.summary
        if each.check == "runs" and CUT_OFF in each.summary:
            return f"called again, it was not done after {TIMEOUT:g} s"
        if each.check == "repeatable" and "second, identical call" in each.summary:
            return f"it is not deterministic: {each.summary}"
    return ""


def _wrong(report: Report) -> bool:
    return any(f.check == "first_order" and f.severity == "error" for f in report.findings)


def looks_like_surrogate(target: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether for some input the value does not move, to neither side, while there is a gradient."""
    with preserved(), contextlib.suppress(Exception):
        subject = Subject(target, args)
        if prepare(subject) is not None:
            return False
        here = subject.value(subject.copies())
        _, grads = subject.expected
        for slot in subject.leaves:
            grad = grads[slot]
            if grad is None or not bool((grad != 0).any()):
                continue
            moved = []
            for step in PROBES:
                values = subject.copies()
                values[slot] = values[slot] + step * (1 + values[slot].abs())
                moved.append(subject.value(values) != here)
            if not bool((moved[0] & moved[1]).any()):  # at a step, the value moves to one side
                return True
    return False


def _forgive_slowness(plain: dict[str, Any]) -> None:
    """What was cut off is not measured: it may be slow on this machine alone."""
    late = [f["check"] for f in plain["findings"] if CUT_OFF in f["summary"]]
    if late:
        plain["findings"] = [f for f in plain["findings"] if f["check"] not in late]
        plain["notes"] = [*plain["notes"], f"not measured within {TIMEOUT:g} s: {', '.join(late)}"]
        plain["ok"] = not any(f["severity"] != "info" for f in plain["findings"])


def _excuse(plain: dict[str, Any], report: Report) -> None:
    """Say that it looks like a surrogate instead of what follows from that."""
    family = {name for name, check in all_checks().items() if check.family == "gradients"}
    first = next(f for f in report.findings if f.check == "first_order")
    plain["findings"] = [f for f in plain["findings"] if f["check"] not in family]
    plain["findings"].append(
        {
            "check": "first_order",
            "severity": "info",
            "summary": "looks like a surrogate: declare it. The value does not move when the input does, but backward "
            "returns a gradient",
            "cause": "The backward is the gradient of another function on purpose, as that of a straight-through "
            "estimator is. Until you declare which, the audit cannot judge the numbers.",
            "fix": 'Set surrogate = "package.module:function" in pyproject.toml, the function whose gradient it is.',
            "url": first.url,
        }
    )
    plain["capabilities"] = {k: v for k, v in plain["capabilities"].items() if v != "wrong" or k not in _names(family)}
    plain["ok"] = not any(f["severity"] != "info" for f in plain["findings"])


def _names(family: set[str]) -> set[str | None]:
    return {all_checks()[name].capability for name in family}


def cut_down(target: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with all large dims narrowed alike, if the function accepts that."""
    leaves = [t for t in tree_leaves(args) if isinstance(t, Tensor)]
    if sum(t.numel() for t in leaves if is_differentiable(t) and t.requires_grad) <= LARGE:
        return args
    if any(t.layout is not torch.strided for t in leaves):
        return args

    sizes = sorted({size for t in leaves for size in t.shape if size > SMALL})
    smaller = {size: SMALL + i for i, size in enumerate(sizes)}  # what differs goes on to differ

    def narrowed(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        index = tuple(slice(min(smaller.get(size, size), size)) for size in value.shape)
        with torch.no_grad():
            return value.detach()[index].clone().requires_grad_(value.requires_grad)

    less = tree_map(narrowed, args)
    with preserved(), torch.enable_grad(), contextlib.suppress(Exception):
        subject = Subject(target, less)
        if prepare(subject) is None:
            return less
    return args
