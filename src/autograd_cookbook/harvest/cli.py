"""``python -m autograd_cookbook harvest``: run a program, then audit the functions that it called."""

import argparse
import contextlib
import importlib.util
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from autograd_cookbook.cli import PROGRAM, UsageError
from autograd_cookbook.harvest.harvesting import audited, finished
from autograd_cookbook.harvest.options import OptionsError, options_of
from autograd_cookbook.harvest.recording import Recorder
from autograd_cookbook.harvest.results import read_baseline
from autograd_cookbook.harvest.settings import add_settings, settings_from
from autograd_cookbook.harvest.terminal import lines_of

DESCRIPTION = """\
Run a program as Python does. Then audit every custom function that the program
called, on the inputs of these calls."""
EPILOG = f"""\
examples:
  {PROGRAM} harvest train.py --epochs 1
  {PROGRAM} harvest --report audit.html -m package.module

exit status:
  if the program fails, its own exit status; otherwise
  0  no finding counts
  1  a finding counts, or the configuration has a problem
  2  the arguments are wrong
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = (
        f"{PROGRAM} harvest [options] SCRIPT [ARGS...]\n       {PROGRAM} harvest [options] -m MODULE [ARGS...]"
    )
    parser.add_argument(
        "--functions", default="*", metavar="PATTERN", help="audit only functions whose names match, as in a shell"
    )
    add_settings(parser.add_argument)
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module, as python -m does"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the program, with its arguments")


def run(options: argparse.Namespace) -> int:
    """Run the program, audit, print the report; return the exit status."""
    words = options.module or options.program
    if not words:
        raise UsageError("expected SCRIPT or -m MODULE")
    settings = settings_from(
        options.functions,
        options.budget,
        options.jobs,
        options.report,
        options.baseline,
        options.update_baseline,
        options.fail_on,
    )
    root = Path.cwd()
    try:
        said = options_of(root)
        if settings.baseline and not settings.update_baseline:
            read_baseline(settings.baseline)
    except (OptionsError, ValueError) as error:
        raise UsageError(str(error)) from None
    with _as_main(words, is_module=options.module is not None) as (code, main):
        with Recorder(settings.pattern) as recorder:
            status = _execute(code, main)
        sys.stdout.flush()
        show = _Progress()
        harvest = audited(recorder.functions.values(), said, jobs=settings.jobs, budget=settings.budget, progress=show)
        show.clear()
    finished(harvest, said, settings)
    print("\n".join(lines_of(harvest)))
    return status or (0 if harvest.ok else 1)


class _Progress:
    """Prints the progress of the audits to stderr, if stderr is a terminal."""

    def __init__(self) -> None:
        self.shows = sys.stderr.isatty()
        self.start = time.monotonic()

    def __call__(self, name: str, done: int, total: int) -> None:
        if self.shows:
            line = f"audited {done} of {total} calls in {time.monotonic() - self.start:.0f} s: {name}"
            print(f"\r\x1b[K{line[:100]}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line of the progress."""
        if self.shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _as_main(words: list[str], *, is_module: bool) -> Iterator[tuple[CodeType, ModuleType]]:
    """Set up the program as module ``__main__``, with its arguments and path. At the end, restore the old state."""
    main, argv, path = sys.modules["__main__"], sys.argv, list(sys.path)
    try:
        module = ModuleType("__main__")
        if is_module:
            sys.path.insert(0, str(Path.cwd()))
            code = _found(words[0], module)
        else:
            code = _read(words[0], module)
            sys.path.insert(0, str(Path(words[0]).resolve().parent))
        sys.modules["__main__"], sys.argv = module, [str(module.__file__) if is_module else words[0], *words[1:]]
        yield code, module
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = main, argv, path


def _read(place: str, module: ModuleType) -> CodeType:
    file = Path(place)
    if not file.is_file():
        raise UsageError(f"no file {place!r}; options of the harvest come before it")
    try:
        code = compile(file.read_bytes(), str(file.absolute()), "exec")  # the path that Python shows
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{place}: {error}") from None
    module.__dict__.update(__file__=str(file.absolute()), __builtins__=__builtins__)
    return code


def _found(name: str, module: ModuleType) -> CodeType:
    """Return the code that ``python -m`` would run."""
    try:
        spec = importlib.util.find_spec(name)
        if spec and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        loader: Any = spec.loader if spec else None
        code = loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None
    except (ImportError, ValueError) as error:
        raise UsageError(f"-m {name}: {error}") from None
    if not (spec and code):
        raise UsageError(f"-m {name}: no module that can be run")
    module.__dict__.update(__file__=spec.origin, __spec__=spec, __package__=spec.parent, __loader__=loader)
    module.__dict__["__builtins__"] = __builtins__
    return code


def _execute(code: CodeType, module: ModuleType) -> int:
    """Run the program and return its exit status. Print an exception as Python does."""
    try:
        exec(code, module.__dict__)
    except SystemExit as finished:
        if isinstance(finished.code, int | None):
            return finished.code or 0
        print(finished.code, file=sys.stderr)
        return 1
    except BaseException as error:
        shown = error.__traceback__.tb_next if error.__traceback__ else None  # without this file
        traceback.print_exception(type(error), error, shown)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0
