"""``pytest --audit-functions``: record calls while the tests run, and audit the calls after the tests.

With pytest-xdist, the workers record. When all workers have finished, the first worker that called a function audits
this function, with the calls of all workers that can be pickled. If Ctrl-C or a crash ends a worker earlier, the
process that distributes the tests audits the calls that this worker has stored.
"""

import json
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from autograd_cookbook.cli import UsageError
from autograd_cookbook.harvest.harvesting import audited, available_jobs, finished
from autograd_cookbook.harvest.naming import Place
from autograd_cookbook.harvest.options import OptionsError, options_of
from autograd_cookbook.harvest.recording import Call, Recorded, Recorder
from autograd_cookbook.harvest.results import Harvest, read_baseline
from autograd_cookbook.harvest.settings import Settings, settings_from
from autograd_cookbook.harvest.terminal import lines_of

PATIENCE = 600.0  # seconds that a worker waits for the others to finish their tests
SHARE = 0.02  # of the time of the tests, to store calls in case the worker is ended
GRACE = 0.5  # seconds for that at the start
ENDED = "its worker was ended before the audits, and its calls cannot be sent to another process"

Published = dict[Place, tuple[int, dict[Any, bytes]]]


def settings_of(config: pytest.Config) -> Settings:
    """Return the settings for the options of this run."""
    try:
        settings = settings_from(
            config.option.audit_functions,
            config.option.audit_budget,
            config.option.audit_jobs,
            config.option.audit_report,
            config.option.audit_baseline,
            config.option.audit_update_baseline,
            config.option.audit_fail_on,
        )
        if settings.baseline and not settings.update_baseline:
            read_baseline(settings.baseline)
    except (UsageError, ValueError) as error:
        raise pytest.UsageError(f"--audit-functions: {error}") from None
    return settings


class Harvester:
    """The plugin of a run without workers, and the base class of the other two plugins."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.settings = config, settings_of(config)
        try:
            self.options = options_of(config.rootpath)
        except OptionsError as error:
            raise pytest.UsageError(str(error)) from None
        self.harvest: Harvest | None = None
        self.recorder = Recorder(self.settings.pattern)
        self.recorder.__enter__()

    def audit(self, recorded: Iterable[Recorded], jobs: int | None, budget: float) -> Harvest:
        """Audit, with progress on the terminal."""
        reporter = self.config.pluginmanager.getplugin("terminalreporter")

        def progress(name: str, done: int, total: int) -> None:
            if reporter and reporter.isatty and reporter.verbosity >= 0:
                reporter.rewrite(f"audited {done} of {total} calls: {name}"[:100], erase=True)

        if reporter and reporter.verbosity >= 0:
            reporter.ensure_newline()
        return audited(recorded, self.options, jobs=jobs, budget=budget, progress=progress)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Audit, and let the run fail if a finding counts."""
        self.recorder.__exit__()
        self.conclude(session, self.audit(self.recorder.functions.values(), self.settings.jobs, self.settings.budget))

    def conclude(self, session: pytest.Session, harvest: Harvest) -> None:
        """Write the reports, and decide whether the run fails."""
        finished(harvest, self.options, self.settings)
        self.harvest = harvest
        if not harvest.ok and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the report."""
        if self.harvest is not None:
            terminalreporter.section("audit of custom functions")
            for line in lines_of(self.harvest):
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Stop recording, in case the session did not finish."""
        self.recorder.__exit__()


class Worker(Harvester):
    """The plugin in a worker of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(config)
        given = config.workerinput  # type: ignore[attr-defined]
        self.folder, self.name, self.count = Path(given["audit_folder"]), given["workerid"], given["workercount"]
        self.start = time.monotonic()
        self.stored, self.spent = 0, 0.0  # the number of calls that were stored last, and the time for storing so far

    def pytest_runtest_logfinish(self) -> None:
        """Store the calls so far, because Ctrl-C or a crash can end this process before its tests are done."""
        start, seen = time.monotonic(), sum(len(each.seen) for each in self.recorder.functions.values())
        if seen == self.stored or self.spent > GRACE + SHARE * (start - self.start):
            return
        self.stored = seen
        _write(self.folder / f"{self.name}.partial", pickle.dumps((sys.path, self._published())))
        self.spent += time.monotonic() - start

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Pass the recorded calls to the other workers, and audit this worker's share."""
        self.recorder.__exit__()
        self._publish()
        self._wait()
        share = self._share()
        jobs = max(1, (self.settings.jobs or available_jobs()) // self.count)
        harvest = self.audit(share, jobs, self.settings.budget)
        _write(self.folder / f"{self.name}.results", json.dumps(harvest.to_dict()).encode())

    def _publish(self) -> None:
        """Write the recorded calls for the other workers."""
        _write(self.folder / f"{self.name}.calls", pickle.dumps(self._published()))

    def _published(self) -> Published:
        """Return the recorded calls that can be pickled, each call by itself."""
        published = {}
        for entry in self.recorder.functions.values():
            kept = {key: _pickled(call) for key, call in entry.kept.items()}
            published[entry.place] = entry.calls, {key: pickled for key, pickled in kept.items() if pickled}
        return published

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while len([*self.folder.glob("*.calls"), *self.folder.glob("*.down")]) < self.count and time.monotonic() < end:
            time.sleep(0.05)

    def _share(self) -> list[Recorded]:
        """Return the functions that no worker with a smaller number has, with the calls of all workers."""
        others = {
            path.stem: pickle.loads(path.read_bytes())
            for path in sorted(self.folder.glob("*.calls"))
            if path.stem != self.name
        }
        share = []
        for entry in self.recorder.functions.values():
            having = {name: known[entry.place] for name, known in others.items() if entry.place in known}
            if any(_number(name) < _number(self.name) for name in having):
                continue
            for name in sorted(having, key=_number):
                _add(entry, *having[name])
            share.append(entry)
        return share

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print nothing, because the controller prints."""


class Controller(Harvester):
    """The plugin in the process that distributes the tests. It records nothing."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(config)
        self.folder = Path(tempfile.mkdtemp(prefix="audit-functions-"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker the folder for exchanging calls and results."""
        node.workerinput["audit_folder"] = str(self.folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Mark a worker that has ended, so that the others do not wait for it."""
        if not (self.folder / f"{node.gateway.id}.calls").exists():
            _write(self.folder / f"{node.gateway.id}.down", b"")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Join the results of the workers."""
        self.recorder.__exit__()
        parts = [Harvest.from_dict(json.loads(p.read_bytes())) for p in sorted(self.folder.glob("*.results"))]
        path = list(sys.path)
        try:
            rescued = self._rescued({f.name for part in parts for f in part.functions})
            whole = self.audit(rescued, self.settings.jobs, self.settings.budget)
        finally:
            sys.path[:] = path
        parts.append(whole)
        whole.functions = sorted((f for part in parts for f in part.functions), key=lambda f: (f.name, f.file, f.line))
        whole.problems = list(dict.fromkeys(p for part in parts for p in part.problems))
        self.conclude(session, whole)

    def _rescued(self, audited_names: set[str]) -> list[Recorded]:
        """Return the calls of workers that were ended before their audits, for functions that no worker has audited.

        Leave in ``sys.path`` where the workers found the modules, because the audits import them, too.
        """
        rescued: dict[Place, Recorded] = {}
        for file in sorted(self.folder.glob("*.partial"), key=lambda file: _number(file.stem)):
            if file.with_suffix(".results").exists():
                continue
            places, published = pickle.loads(file.read_bytes())
            sys.path += [place for place in places if place not in sys.path]
            for place, (calls, kept) in published.items():
                if place.name not in audited_names:
                    _add(rescued.setdefault(place, Recorded(place, reason=ENDED)), calls, kept)
        return list(rescued.values())

    def pytest_unconfigure(self) -> None:
        """Remove the folder."""
        super().pytest_unconfigure()
        shutil.rmtree(self.folder, ignore_errors=True)


def harvester_for(config: pytest.Config) -> Harvester:
    """Return the plugin for this process."""
    if hasattr(config, "workerinput"):
        return Worker(config)
    return Controller(config) if getattr(config.option, "numprocesses", None) else Harvester(config)


def _number(worker: str) -> int:
    return int("".join(filter(str.isdigit, worker)) or 0)


def _add(entry: Recorded, calls: int, kept: dict[Any, bytes]) -> None:
    """Add the calls of another worker, if this process can read them and they are better."""
    entry.calls += calls
    for key, pickled in kept.items():
        call = _unpickled(pickled)
        if call and (key not in entry.kept or call.rank < entry.kept[key].rank):
            entry.kept[key] = call


def _pickled(call: Call) -> bytes:
    try:
        return pickle.dumps(call)
    except Exception:  # for example, its class is defined inside of a function
        return b""


def _unpickled(pickled: bytes) -> Call | None:
    try:
        return pickle.loads(pickled)
    except Exception:  # this worker does not have its module
        return None


def _write(path: Path, content: bytes) -> None:
    """Write a file in one step, because other processes wait for it."""
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)
