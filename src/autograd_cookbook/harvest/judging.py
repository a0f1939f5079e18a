"""Audit one recorded call, and decide which findings count for a call that a program has made."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from autograd_cookbook.auditing import Report, audit
from autograd_cookbook.auditing.checks.execution import prepare
from autograd_cookbook.auditing.state import preserved
from autograd_cookbook.auditing.subject import Subject, is_differentiable
from autograd_cookbook.harvest.callables import users, with_others
from autograd_cookbook.harvest.programs import program_for

TIMEOUT = 20.0  # seconds for one check
LARGE = 256  # with more elements than this in tensors that require grad, try a smaller call
SMALL = 5  # the size to which a dim is cut down
CUT_OFF = "it does not come back: cut off after"  # the words of the audit
LATE = f"called again, it was not done after {TIMEOUT:g} s"


@dataclass(frozen=True)
class Task:
    """One call to audit, with the project's options for its function."""

    function: int
    name: str
    target: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """The report as plain values, and a program for each check; or the reason why there is no report.

    ``stuck`` says that the reason can be the forked process, so that another process is worth a try.
    """

    report: dict[str, Any] | None = None
    programs: dict[str, str] | None = None
    reason: str = ""
    stuck: bool = False


@dataclass(frozen=True)
class _WithModules:
    """Turns a function of modules, their methods and their parameters into a function of the modules only.

    The audit passes other tensors for tensor arguments, but writes to the parameters of modules. Without this class, an
    argument that is a parameter would become another tensor than the parameter in its module.
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
    """Return the same call with modules instead of their methods and parameters."""
    owners = {i: getattr(arg, "__self__", arg) for i, arg in enumerate(args)}
    modules = {i: owner for i, owner in owners.items() if isinstance(owner, nn.Module)}
    methods = {i: args[i].__name__ for i, module in modules.items() if module is not args[i]}
    names = {id(p): (i, name) for i, module in modules.items() for name, p in module.named_parameters()}
    parameters = {i: names[id(arg)] for i, arg in enumerate(args) if id(arg) in names}
    if not methods and not parameters:
        return target, args
    words = (None if i in parameters else modules.get(i, arg) for i, arg in enumerate(args))
    return _WithModules(target, methods, parameters), tuple(words)


@dataclass(frozen=True)
class _WithCallables:
    """Calls a function so that its callable arguments use the tensors of this call, not the recorded tensors."""

    target: Callable[..., Any]
    recorded: tuple[Any, ...]
    places: list[int]

    def __call__(self, *args: Any) -> Any:
        words = list(args)
        pairs = zip(tree_leaves(self.recorded), tree_leaves(args), strict=True)
        twins = {id(old): new for old, new in pairs if isinstance(old, Tensor)}
        for place in self.places:
            words[place] = with_others(self.recorded[place], dict(twins))
        return self.target(*words)


def with_callables(target: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """Return the function. If a callable argument uses other arguments, let it use the tensors of each call."""
    places = users(args, {id(leaf) for leaf in tree_leaves(args) if isinstance(leaf, Tensor)})
    return _WithCallables(target, args, places) if places else target


def judge(task: Task) -> Verdict:
    """Audit a call."""
    target, recorded = with_modules(task.target, task.args)
    target = with_callables(target, recorded)
    args = cut_down(target, recorded)
    try:
        report = audit(target, args, timeout=TIMEOUT, **task.options)
    except (TypeError, ValueError) as error:
        return Verdict(reason=" ".join(str(error).split()))
    if reason := _not_audited(report) or _parted(report, recorded):
        return Verdict(reason=reason, stuck=reason == LATE)
    plain = report.to_dict()
    _forgive_slowness(plain)
    _forgive_containers(plain)
    said = {key: value for key, value in task.options.items() if isinstance(value, str | float)}
    programs = {f["check"]: program_for(task.name, args, f["check"], said) for f in plain["findings"]}
    if args is not recorded:
        plain["notes"] = [*plain["notes"], "large tensors of the recorded call were cut down"]
    return Verdict(plain, programs)


def _not_audited(report: Report) -> str:
    """Return why a call that worked in the program could not be audited. Empty if it was audited."""
    for each in report.findings:
        if each.check == "runs" and each.summary.startswith("forward raises"):
            return f"called again with copies of its arguments, {each.summary}"
        if each.check == "runs" and ("NotImplementedError" in each.summary or "no output requires" in each.summary):
            return each.summary
        if each.check == "runs" and "backward raises on the given sample: AssertionError" in each.summary:
            return "in the program its backward runs, and alone it asserts what other functions have done before"
        if each.check == "runs" and CUT_OFF in each.summary:
            return LATE
        if each.check == "repeatable" and "second, identical call" in each.summary:
            return f"it is not deterministic: {each.summary}"
    return ""


def _parted(report: Report, args: tuple[Any, ...]) -> str:
    """Return why a function is not audited, if a callable argument still uses the originals of copied tensors."""
    unused = any(f.check == "runs" and "not have been used in the graph" in f.summary for f in report.findings)
    if unused and any(map(callable, args)):
        return "one of its arguments is a callable that uses the original tensors, and the audit has copies of them"
    return ""


def _forgive_slowness(plain: dict[str, Any]) -> None:
    """Turn findings about checks that were cut off into a note, because only this machine may be too slow."""
    late = [f["check"] for f in plain["findings"] if CUT_OFF in f["summary"]]
    if late:
        plain["findings"] = [f for f in plain["findings"] if f["check"] not in late]
        plain["notes"] = [*plain["notes"], f"not measured within {TIMEOUT:g} s: {', '.join(late)}"]
        plain["ok"] = not any(f["severity"] != "info" for f in plain["findings"])


def _forgive_containers(plain: dict[str, Any]) -> None:
    """Make a finding about a changed dict an info, because the program calls the function through its own wrapper."""
    for found in plain["findings"]:
        if found["check"] == "inputs_unchanged" and " of the caller: a second call" in found["summary"]:
            found["severity"] = "info"
    plain["ok"] = not any(f["severity"] != "info" for f in plain["findings"])


def cut_down(target: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with equal large dims cut down to equal sizes, if the function accepts the result."""
    leaves = [t for t in tree_leaves(args) if isinstance(t, Tensor)]
    if sum(t.numel() for t in leaves if is_differentiable(t) and t.requires_grad) <= LARGE:
        return args
    if any(t.layout is not torch.strided for t in leaves):
        return args

    sizes = sorted({size for t in leaves for size in t.shape if size > SMALL})
    smaller = {size: SMALL + i for i, size in enumerate(sizes)}  # different sizes stay different

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
