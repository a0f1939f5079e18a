"""Turn recorded calls into results: choose the calls to audit and their order, and apply the project's options."""

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from autograd_cookbook import __version__
from autograd_cookbook.harvest.judging import Task
from autograd_cookbook.harvest.naming import shown
from autograd_cookbook.harvest.options import FunctionOptions, Options, OptionsError, is_pattern, matches, resolved
from autograd_cookbook.harvest.parallel import Progress, judged
from autograd_cookbook.harvest.recording import Recorded
from autograd_cookbook.harvest.reports import write_report
from autograd_cookbook.harvest.results import (
    FunctionResult,
    Harvest,
    accept_baseline,
    read_baseline,
    write_baseline,
)
from autograd_cookbook.harvest.settings import BUDGET, Settings
from autograd_cookbook.harvest.sources import functions_in, is_reached, line_of_class
from autograd_cookbook.policy import stale

CALLS = 3  # the number of calls of each function that are audited
SLOW = "compile"  # a check that takes longer than all others together, so it runs only for the first call


def available_jobs() -> int:
    """Return the number of processors that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def audited(
    recorded: Iterable[Recorded],
    options: Options,
    *,
    jobs: int | None = None,
    budget: float = BUDGET,
    progress: Progress | None = None,
) -> Harvest:
    """Audit the recorded calls of each function."""
    importlib.import_module("torch._dynamo")  # import it once here, not in each process
    entries = sorted(recorded, key=lambda each: each.place)
    problems: list[str] = []
    results, turns = [], []
    for number, entry in enumerate(entries):
        result = FunctionResult(*_of(entry), reached=True, calls=entry.calls)
        results.append(result)
        try:
            tasks = _tasks(number, entry, options.of(result.name))
        except OptionsError as error:
            problems.append(str(error))
            result.not_audited = str(error)
            continue
        if not tasks:
            result.not_audited = entry.reason
        turns += list(enumerate(tasks))
    # Audit the first call of every function, then the second calls, so that the budget covers every function.
    tasks = [task for _, task in sorted(turns, key=lambda turn: (turn[0], turn[1].function))]
    for task, verdict in zip(tasks, judged(tasks, jobs or available_jobs(), budget, progress), strict=True):
        result = results[task.function]
        if verdict.report is not None:
            result.add(verdict.report, verdict.programs or {})
            result.not_audited = ""
        elif not result.audited:
            result.not_audited = result.not_audited or verdict.reason
        else:
            result.notes.append(f"another call was not audited: {verdict.reason}")
    for result in results:
        accept = options.of(result.name).accept
        for found in result.findings:
            found.accepted = accept.get(found.check, "")
    return Harvest(results, problems, torch.__version__, __version__)


def _of(entry: Recorded) -> tuple[str, str, int]:
    place = entry.place
    line = place.line if "::" in place.name else line_of_class(place.file, place.name, place.line)
    return place.name, shown(place.file), line


def _tasks(number: int, entry: Recorded, said: FunctionOptions) -> list[Task]:
    options: dict[str, Any] = dict(said.audit)
    for key in ("surrogate", "domain"):
        if key in options:
            options[key] = resolved(options[key])
    calls = entry.best(CALLS)
    targets = [(call.target, call.args) for call in calls]
    if said.inputs and calls:
        args = resolved(said.inputs)()
        targets = [(calls[0].target, args if isinstance(args, tuple) else (args,))]
    skip = options.pop("skip", [])
    return [
        Task(number, entry.place.name, target, args, options | {"skip": [*skip, *([SLOW] if turn else [])]})
        for turn, (target, args) in enumerate(targets)
    ]


def add_stale(harvest: Harvest, options: Options) -> None:
    """Add a problem for each accepted check that ran for a function of its table and found nothing for any of them."""
    for name, said in options.functions.items():
        those = [each for each in harvest.functions if matches(each.name, name)]
        ran = {check for each in those for check in each.checks}
        found = {f.check for each in those for f in each.findings}
        harvest.problems += [
            f'[tool.autograd_cookbook.functions."{name}"] accepts {check!r}, which the audit does not find any '
            "more: remove it"
            for check in stale(said.accept, ran, found)
        ]


def add_unreached(harvest: Harvest, options: Options, *, whole: bool) -> None:
    """Add the functions of the sources that were not called, and a problem for each unknown function of the table.

    ``whole`` says whether the harvest records every function. If not, the functions of the table may be among those
    that it leaves out.
    """
    reached = {(each.file, each.name) for each in harvest.functions}
    listed = list(functions_in(options.sources)) if options.sources else []
    if whole:
        for file, line, name in listed:
            if not is_reached(file, name, reached):
                harvest.functions.append(FunctionResult(name, shown(str(Path(file).resolve())), line))
    names = {name for _, name in reached} | {name for _, _, name in listed}
    # The sources have the names of classes without their modules. The path is as good as the module for a pattern.
    paths = [".".join([*Path(file).with_suffix("").parts, name]) for file, _, name in listed]
    for name in options.functions if whole else ():
        known = any(matches(each, name) or name.endswith(f".{each}") for each in names)
        if not known and not (is_pattern(name) and any(matches(path, f"*.{name}") for path in paths)):
            harvest.problems.append(
                f'[tool.autograd_cookbook.functions."{name}"]: no such function was called, and none is in the sources'
            )
    harvest.functions.sort(key=lambda each: (each.name, each.file, each.line))


def finished(harvest: Harvest, options: Options, settings: Settings) -> None:
    """Add the functions that were not reached, compare with the baseline, and write the reports."""
    harvest.fail_on = settings.fail_on or options.fail_on
    add_stale(harvest, options)
    add_unreached(harvest, options, whole=settings.pattern == "*")
    if settings.baseline:
        if settings.update_baseline:
            write_baseline(settings.baseline, harvest)
        accept_baseline(harvest, read_baseline(settings.baseline))
    for path in settings.reports:
        write_report(path, harvest)
