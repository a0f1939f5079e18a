"""What gradcheck and the audit say of a broken function and of the fixed one: the last cell of each pitfall."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.autograd.gradcheck import GradcheckError

from autograd_cookbook.auditing import audit

# The pages by what a reader meets; the others of their folder are by what the audit checks.
GROUPS = ("wrong_numbers", "crashes", "waste", "transformed")
WIDTH = 100
LABELED_TITLE = re.compile(r"^\(pitfall-(?P<name>[a-z0-9-]+)\)=\n## (?P<title>.+)$", re.MULTILINE)


# --- What the four pages say ---


@dataclass(frozen=True)
class Pitfall:
    """One section of a page of pitfalls."""

    name: str
    title: str
    text: str

    @property
    def label(self) -> str:
        return f"pitfall-{self.name}"

    @property
    def checks(self) -> list[str]:
        """The checks of the audit that the section links, by their names."""
        linked = re.findall(r"\{ref\}`check-([a-z0-9-]+)`", self.text)
        return [check.replace("-", "_") for check in dict.fromkeys(linked)]


def pitfalls_of(page: Path) -> list[Pitfall]:
    """The sections of a page that have a label of their own."""
    text = page.read_text().partition("\n## Sources\n")[0]
    titles = list(LABELED_TITLE.finditer(text))
    ends = [following.start() for following in titles[1:]] + [len(text)]
    return [
        Pitfall(title["name"], title["title"], text[title.end() : end]) for title, end in zip(titles, ends, strict=True)
    ]


# --- What was found ---


@dataclass(frozen=True)
class Verdict:
    """Four sentences, the names of the checks that alarm, and of those that saw something in the broken function."""

    lines: tuple[str, ...]
    alarms: dict[str, tuple[str, ...]]
    seen: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)


GIVEN: list[Verdict] = []


def verdict(
    broken: Callable[..., Any],
    fixed: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    fixed_inputs: Sequence[Any] | None = None,
    check: Callable[..., bool] = gradcheck,
    skip: Sequence[str] = ("compile",),
    **options: Any,
) -> Verdict:
    """Ask both of both.

    Args:
        broken: the function with the mistake.
        fixed: the function without.
        inputs: the arguments of one call. These are not written to: each question gets copies.
        fixed_inputs: those of the fixed function, where its signature is another one.
        check: ``gradcheck``, or ``gradgradcheck`` where the second derivative is the matter.
        skip: checks of the audit to leave out.
        options: others of ``audit``.
    """
    calls = {"broken": (broken, inputs), "fixed": (fixed, inputs if fixed_inputs is None else fixed_inputs)}
    said = {}
    for name, (function, arguments) in calls.items():
        said[f"{check.__name__}, {name}"] = checked(check, function, copies(arguments))
    alarms, seen = {}, {}
    for name, (function, arguments) in calls.items():
        said[f"audit, {name}"], alarms[name], seen[name] = audited(function, copies(arguments), skip, options)
    width = max(map(len, said)) + 2
    GIVEN.append(Verdict(tuple(f"{label + ':':{width}}{text}" for label, text in said.items()), alarms, seen["broken"]))
    return GIVEN[-1]


def copies(value: Any) -> Any:
    """The same leaves in memory of their own, since a broken function may write to what it gets."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return type(value)(map(copies, value)) if isinstance(value, list | tuple) else value


def checked(check: Callable[..., bool], function: Callable[..., Any], inputs: Sequence[Any]) -> str:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check(function, tuple(inputs))
        except GradcheckError as error:
            return f"fails: {first_line(error)}"
        except Exception as error:  # whatever a broken function raises
            return f"raises {type(error).__name__}: {first_line(error)}"
    return "passes"


def audited(
    function: Callable[..., Any], inputs: Sequence[Any], skip: Sequence[str], options: dict[str, Any]
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    try:
        report = audit(function, tuple(inputs), skip=skip, **options)
    except (TypeError, ValueError) as error:
        return f"refuses: {first_line(error)}", (), ()
    alarming = report.of("error", "warning")
    found = tuple(dict.fromkeys(check for finding in alarming for check in (finding.check, *finding.also)))
    noted = ", ".join(check for check in report.seen if check not in found)
    return (", ".join(found) or "ok") + (f" (noted: {noted})" if noted else ""), found, report.seen


def first_line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0]
    return line if len(line) <= WIDTH else line[: WIDTH - 1].rstrip() + "…"


def disagreements(page: Path | str) -> Iterator[str]:
    """Where the sections of a page link other checks than those that alarm in their verdicts, in the order of both."""
    sections = pitfalls_of(Path(page))
    if len(sections) != len(GIVEN):
        yield f"{len(sections)} sections and {len(GIVEN)} verdicts"
    for section, given in zip(sections, GIVEN, strict=False):
        alarms = given.alarms["broken"]
        if strange := set(section.checks) - set(given.seen):
            yield f"{section.name}: links {sorted(strange)}, and the audit sees {given.seen}"
        if alarms and not section.checks:
            yield f"{section.name}: links no check, and the audit alarms for {alarms}"
        if given.alarms["fixed"]:
            yield f"{section.name}: the fixed function is not right: {given.alarms['fixed']}"
