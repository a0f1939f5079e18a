"""Would the tests notice a slip in a backward? Each slip is tried: a pytest plugin, run by ``nox -s mutation``.

The slips are the mutants of :mod:`tests.mutants`. On each, the tests of its page run in a process of their own until
one fails, those first that found most other mutants of the same function. A mutant on which no test fails has
*survived*. Those that must, because they compute the same, stand with the reason in the dictionary ``SURVIVORS`` of the
page's tests, by function and change::

    SURVIVORS = {"GELUFunction.backward: input.clamp(-40, {40 -> 41})": "beyond any such limit the density is 0"}

Any expression around the change will do, up to its statement, as long as only one place in the function has it.
"""

import functools
import gc
import mmap
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest
import torch._dynamo  # noqa: F401  otherwise each of the processes imports it, for seconds

from autograd_cookbook.catalog import RECIPES, Recipe
from tests.mutants import Mutant, all_mutants, named, pages_of

GOAL = 0.98
SECONDS = 10  # of a processor that a test has beyond a multiple of what it needs without a change: those that loop
PATIENCE = 300  # the same on the clock: those that wait for ever
MULTIPLE = 20
CHUNK = 20  # tests that run in one process without a change
# These need a process or a compiler, and see nothing that the others do not; or they look at no gradient.
PASSED_OVER = (
    *("test_copied_source_runs_alone", "test_badges_hold"),
    *("test_catalog_entry_is_consistent", "test_it_has_tests_of_its_own"),
)


@dataclass
class Trial:
    """A process, started with this, that runs tests until one fails: on a mutant or, without one, on what is right."""

    tests: Sequence[pytest.Item]
    limits: Sequence[float]
    mutant: Mutant | None
    seconds: "memoryview[float]" = field(init=False)  # of each test that has passed
    pid: int = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = memoryview(mmap.mmap(-1, 8 * max(len(self.tests), 1))).cast("d")
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.run()
            except BaseException:  # a mutant that cannot even be installed, or ends the test run, is noticed
                os._exit(2)
            os._exit(0)

    def run(self) -> None:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        if self.mutant:
            self.mutant.install()
            os.environ["MUTANT"] = self.mutant.for_other_processes()
        for number, (test, limit) in enumerate(zip(self.tests, self.limits, strict=True)):
            # The default action of either signal ends the process.
            signal.setitimer(signal.ITIMER_PROF, SECONDS + MULTIPLE * limit)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE + MULTIPLE * limit)
            started = time.monotonic()
            # With the next test, fixtures of the whole session stay; ranks are started once.
            following = self.tests[number + 1] if number + 1 < len(self.tests) else None
            test.ihook.pytest_runtest_protocol(item=test, nextitem=following)  # with the warnings that it allows
            self.seconds[number] = time.monotonic() - started

    @property
    def failed(self) -> pytest.Item:
        """The test that ended it."""
        return self.tests[sum(passed > 0 for passed in self.seconds)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """In a trial: a failure ends it, and what it looks like nobody reads."""
    if call.excinfo and not call.excinfo.errisinstance(pytest.skip.Exception):
        os._exit(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--modules", nargs="*", default=[], help="try the mutants of these pages alone")


def wanted(config: pytest.Config) -> list[Mutant]:
    """Of the pages asked for, with the helpers that they import."""
    chosen = set(config.getoption("--modules"))
    if unknown := chosen.difference(*(pages_of(mutant.module) for mutant in all_mutants())):
        raise pytest.UsageError(f"no mutants of {', '.join(sorted(unknown))}")
    return [mutant for mutant in all_mutants() if not chosen or chosen & pages_of(mutant.module)]


def page_of(path: Path) -> str | None:
    return path.stem.removeprefix("test_") if path.parent.name == "recipes" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the files of pages only those that have a say."""
    page = page_of(collection_path)
    if page is None or collection_path.suffix != ".py":
        return None
    return not any(page in pages_of(module) for module in {mutant.module for mutant in wanted(config)}) or None


def tests_of(module: str, function: str, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those of its pages, and the catalog's of their recipes that have this function in what readers copy."""
    pages = pages_of(module)
    definition = re.compile(rf"^(class|def) {function.partition('.')[0]}\b", re.M)
    recipes = {r for r in RECIPES if r.page in pages and definition.search(source_of(r))}

    def belongs(item: pytest.Item) -> bool:
        of_a_recipe = hasattr(item, "callspec") and item.callspec.params.get("recipe") in recipes
        return (page_of(item.path) in pages or of_a_recipe) and item.originalname not in PASSED_OVER

    return [item for item in items if belongs(item)]


@functools.cache
def source_of(recipe: Recipe) -> str:
    return recipe.source


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """In place of running the tests once: run them on every mutant, as many at a time as there are processors."""
    if session.testsfailed:
        raise session.Interrupted("a file of tests could not be read")
    mutants = wanted(session.config)
    tests = {key: tests_of(*key, session.items) for key in dict.fromkeys((m.module, m.function) for m in mutants)}
    gc.collect()
    gc.freeze()  # otherwise each process copies what its collector looks at
    wrong = []

    # Tests that fail on what is right would kill everything.
    needed: dict[pytest.Item, float] = {}
    all_tests = list(dict.fromkeys(item for group in tests.values() for item in group))
    chunks = [all_tests[first : first + CHUNK] for first in range(0, len(all_tests), CHUNK)]
    for trial, status in side_by_side(Trial(chunk, [PATIENCE] * len(chunk), None) for chunk in chunks):
        needed |= dict(zip(trial.tests, trial.seconds, strict=True))
        if status:
            wrong.append(f"it fails without a change: {trial.failed.nodeid}")

    kills: Counter[object] = Counter()  # by a test in a function, and by tests of a name anywhere

    def trials() -> Iterator[Trial]:
        for number, mutant in enumerate(mutants):
            if number % 200 == 0:
                print(f"{number} of {len(mutants)} tried", flush=True)
            where = mutant.module, mutant.function

            def promise(item: pytest.Item, where: tuple[str, str] = where) -> tuple[float, ...]:
                return -kills[where, item], -kills[item.originalname], round(needed[item], 2)  # or as collected

            order = sorted(tests[where], key=promise)
            yield Trial(order, [needed[item] for item in order], mutant)

    survived = []
    for trial, status in side_by_side(trials()):
        if status == 0:
            survived.append(trial.mutant)
            print(f"survived: {trial.mutant}", flush=True)
        elif os.WIFSIGNALED(status):  # it hung, or crashed: noticed, and worth a look
            print(f"ended by signal {os.WTERMSIG(status)}: {trial.mutant}", flush=True)
        elif os.waitstatus_to_exitcode(status) == 2:
            print(f"ended by what no test catches: {trial.mutant}", flush=True)
        else:
            where = trial.mutant.module, trial.mutant.function
            kills.update([(where, trial.failed), trial.failed.originalname])
    share = 1 - len(survived) / max(len(mutants), 1)
    if len(mutants) == len(all_mutants()) and share < GOAL:
        wrong.append(f"expected {GOAL:.0%} killed or more")
    wrong += judged(mutants, survived, {item.module for item in session.items if page_of(item.path)})
    print(*wrong, f"{len(mutants)} mutants, {len(survived)} survived: {share:.1%} killed", sep="\n")
    session.testsfailed = len(wrong)
    return True


def side_by_side(trials: Iterator[Trial]) -> Iterator[tuple[Trial, int]]:
    """Each trial as it ends, with its status; the next is started when a processor is free."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    running: dict[int, Trial] = {}
    more = True
    while more or running:
        if more and len(running) < processors:
            trial = next(trials, None)
            more = trial is not None
            running |= {trial.pid: trial} if trial else {}
        else:
            pid, status = os.wait()
            yield running.pop(pid), status


def judged(tried: list[Mutant], survived: list[Mutant], files: set[ModuleType]) -> Iterator[str]:
    """What is wrong with the survivors, or with what is said of them."""
    excused = set()
    for file in sorted(files, key=lambda file: file.__name__):
        for entry in getattr(file, "SURVIVORS", {}):
            match named(entry, file.__name__.rpartition(".test_")[2]):
                case [mutant]:
                    excused.add(mutant)
                    if mutant in tried and mutant not in survived:
                        yield f"listed in {file.__name__}, and did not survive: {entry}"
                case found:
                    yield f"listed in {file.__name__}, and the name of {len(found)} mutants: {entry}"
    yield from (f"no reason given for {mutant.module}, {mutant}" for mutant in survived if mutant not in excused)
