"""The audit's command line: ``python -m autograd_cookbook audit FILE.py:NAME --inputs EXPRESSION``."""

import argparse
import contextlib
import importlib
import importlib.util
import json
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from autograd_cookbook.auditing.arguments import ANYWHERE, GRADIENTS, capability_names
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.auditing.clock import BUDGET, TIMEOUT
from autograd_cookbook.auditing.diagnose import first_line
from autograd_cookbook.auditing.report import Report
from autograd_cookbook.auditing.runner import audit
from autograd_cookbook.auditing.state import seed_everything
from autograd_cookbook.auditing.subject import is_differentiable
from autograd_cookbook.cli import PROGRAM, UsageError, instead

FORMS = "expected FILE.py:NAME or package.module:NAME"
SLOW = 1.0
COLORS = {"✗ error": 31, "! warning": 33}
DESCRIPTION = "Find out what is wrong with a custom function, and how to fix it."
EPILOG = f"""\
example:
  {PROGRAM} audit square.py:Square --inputs "torch.randn(4, 3), 2"

exit status: 0 if nothing was found, 1 if something was, 2 if the command cannot be understood.
"""


class _List(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        checks = all_checks().values()
        name, family = (max(len(getattr(c, column)) for c in checks) for column in ("name", "family"))
        for c in checks:
            print(f"{c.name:{name}}  {c.family:{family}}  {c.purpose}")
        parser.exit()


class _Progress:
    """What runs now, on stderr: one line that is rewritten on a terminal, or a line for each check if asked for."""

    def __init__(self, verbose: bool) -> None:
        self.verbose, self.rewriting = verbose, sys.stderr.isatty() and not verbose
        self.name, self.start = "", 0.0

    def __call__(self, name: str, number: int, total: int) -> None:
        self.close()
        self.name, self.start = name, time.perf_counter()
        if self.verbose or self.rewriting:
            print(f"{number}/{total} {name}", end="" if self.rewriting else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        """The check is over: only one that took long leaves a trace."""
        if self.rewriting:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        seconds = time.perf_counter() - self.start
        if self.name and seconds > SLOW and (self.verbose or self.rewriting):
            print(f"{self.name} took {seconds:.1f} s", file=sys.stderr)
        self.name = ""


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what arguments there are."""
    add = parser.add_argument
    add("target", metavar="FILE.py:NAME", help="what to audit: an autograd.Function, a module, an operator, a function")
    add("--inputs", metavar="EXPRESSION", required=True, help="the arguments of a call: 'torch.randn(4, 3), 2'")
    add("--reference", metavar="NAME", help="a composition to compare with, in FILE")
    add("--gradient", choices=GRADIENTS, help="what the backward claims to be")
    add("--surrogate", metavar="NAME", help="the function whose gradient the backward declares, in FILE")
    add("--tolerance", type=_positive, metavar="X", help="largest relative error of an approximate gradient")
    add("--domain", metavar="NAME", help="what makes arguments valid, in FILE; any: all numbers are")
    add("--require", type=_names, action="extend", default=[], metavar="A,B", help="capabilities that must be there")
    add("--skip", type=_names, action="extend", default=[], metavar="A,B", help="checks to leave out")
    add("--only", type=_names, action="extend", default=[], metavar="A,B", help="the only checks to run")
    add("--seed", type=_seed, default=0, metavar="N", help="of all random numbers, those of --inputs too")
    add("--device", type=_device, help="where to audit: cpu, cuda, ...")
    add("--timeout", type=_positive, default=TIMEOUT, metavar="SECONDS", help="for one call; default: %(default)g")
    add("--budget", type=_positive, default=BUDGET, metavar="SECONDS", help="for all checks; default: %(default)g")
    add("--no-isolate", action="store_true", help="run the checks in this very process")
    add("--json", action="store_true", help="print the report as JSON")
    add("-v", "--verbose", action="store_true", help="say on stderr which check runs")
    add("--list", action=_List, nargs=0, help="print every check with its family and purpose")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < math.inf:
            return value
    raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")


def _seed(text: str) -> int:
    if text.isdecimal() and int(text) < 2**32:  # what NumPy takes, too
        return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer from 0 to 2**32 - 1, got {text!r}")


def _device(text: str) -> str:
    try:
        torch.ones(1, device=text).item()
    except Exception as error:
        raise argparse.ArgumentTypeError(f"expected a device with memory, got {text!r}: {first_line(error)}") from None
    return text


def run(options: argparse.Namespace) -> int:
    """Audit, print the report; return the exit status."""
    for option, known in (("only", all_checks()), ("skip", all_checks()), ("require", capability_names())):
        for name in getattr(options, option):
            if name not in known:
                kind = "capability" if option == "require" else "check"
                raise UsageError(f"--{option}: unknown {kind} {name!r}{instead(name, known)}")
    place, _, name = options.target.rpartition(":")
    words = [*name.split("."), *([] if place.endswith(".py") else place.split("."))]
    if not all(map(str.isidentifier, words)):
        raise UsageError(f"{FORMS}, got {options.target!r}")
    seed_everything(options.seed)
    # What the code under audit prints must not end up in the report.
    with contextlib.redirect_stdout(sys.stderr), _imported(place) as module:

        def find(wanted: str) -> Callable[..., Any]:
            return _function(module, place, wanted, options.device)

        function = find(name)
        reference = find(options.reference) if options.reference else None
        surrogate = find(options.surrogate) if options.surrogate else None
        domain = find(options.domain) if options.domain not in (None, ANYWHERE) else options.domain
        inputs, lent = _inputs(options.inputs, module, options.seed)
        with contextlib.closing(_Progress(options.verbose)) as progress:
            try:
                report = audit(
                    function,
                    inputs,
                    reference=reference,
                    gradient=options.gradient,
                    surrogate=surrogate,
                    tolerance=options.tolerance,
                    domain=domain,
                    require=options.require,
                    skip=options.skip,
                    only=options.only,
                    seed=options.seed,
                    device=options.device,
                    timeout=options.timeout,
                    budget=options.budget,
                    isolate=False if options.no_isolate else None,
                    progress=progress,
                )
            except (TypeError, ValueError) as error:
                raise UsageError(f"{options.target}: {error}") from error
    if lent:
        print("note: no tensor in --inputs requires grad; the audit lets each floating-point one do", file=sys.stderr)
    print(json.dumps(report.to_dict(), indent=2) if options.json else _colored(report))
    return 0 if report.ok else 1


def _colored(report: Report) -> str:
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return str(report)
    return re.sub(
        f"^({'|'.join(COLORS)})", lambda mark: f"\x1b[{COLORS[mark[1]]}m{mark[1]}\x1b[0m", str(report), flags=re.M
    )


# --- from names to things ---


@contextlib.contextmanager
def _imported(place: str) -> Iterator[ModuleType]:
    """The module of a name or a file, whose neighbors can be imported for as long as it is looked at."""
    if not place.endswith(".py"):
        with _explained(f"importing {place}", lambda error: _no_module(error, place)):
            module = importlib.import_module(place)
        yield module
        return
    file, path = Path(place), list(sys.path)
    if not file.is_file():
        raise UsageError(f"no file {place!r}{instead(file.name, (f.name for f in file.parent.glob('*.py')))}")
    name = file.stem.replace(".", "_")
    if name in sys.modules:  # it may be called what a module of Python is called
        name = f"audited_{name}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec
    assert spec.loader
    try:
        sys.path.insert(0, str(file.resolve().parent))
        sys.modules[name] = module = importlib.util.module_from_spec(spec)  # pickle looks here
        with _explained(f"importing {place}", _relative):
            spec.loader.exec_module(module)
        yield module
    finally:
        sys.modules.pop(name, None)
        sys.path[:] = path


@contextlib.contextmanager
def _explained(doing: str, hint: Callable[[BaseException], str] = lambda _: "") -> Iterator[None]:
    """What the user's code raises, in one line that says where."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise UsageError(f"{doing}: {first_line(error)}{_line(error)}{hint(error)}") from error


def _line(error: BaseException) -> str:
    """Where it came up in the first of the user's files; a syntax error says it by itself."""
    others = (__file__, importlib.__file__, str(Path(torch.__file__).parent), "<")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(others)]
    if not frames or isinstance(error, SyntaxError):
        return ""
    deepest = [f for f in frames if f.filename == frames[0].filename][-1]
    return f" ({Path(deepest.filename).name}, line {deepest.lineno})"


def _no_module(error: BaseException, place: str) -> str:
    missing = isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}.")
    return f"; {FORMS}" if missing else ""


def _relative(error: BaseException) -> str:
    return "; give a module of a package as package.module:NAME" if "relative import" in str(error) else ""


def _function(module: ModuleType, place: str, dotted: str, device: str | None) -> Callable[..., Any]:
    """What a name stands for, in a form that can be called."""
    value: Any = module
    for part in dotted.split("."):
        if not hasattr(value, part):
            known = sorted(
                dir(value),
                key=lambda name: getattr(vars(module).get(name), "__module__", "") != module.__name__,
            )
            where = place if value is module else getattr(value, "__name__", type(value).__name__)
            raise UsageError(f"no {part!r} in {where}{instead(part, known)}")
        value = getattr(value, part)
    if isinstance(value, type) and issubclass(value, torch.autograd.Function):
        return value.apply
    if isinstance(value, type) and issubclass(value, nn.Module):
        with _explained(f"{dotted}()", lambda _: "; name an instance of it instead"):
            value = value()
    if isinstance(value, type):
        raise UsageError(f"expected a function, got the class {dotted}: name an instance of it instead")
    if not callable(value):
        raise UsageError(f"expected a callable, got {dotted}, a {type(value).__name__}: {value!r}"[:200])
    return value.to(device) if isinstance(value, nn.Module) and device else value


def _inputs(expression: str, module: ModuleType, seed: int) -> tuple[tuple[Any, ...], bool]:
    """The arguments that an expression stands for, and whether they had to be made to require grad."""
    scope = {"torch": torch, "math": math}
    with contextlib.suppress(ImportError):
        scope["np"] = scope["numpy"] = importlib.import_module("numpy")
    scope |= vars(module)
    torch.manual_seed(seed)  # of other devices, too
    seed_everything(seed)

    def hint(error: BaseException) -> str:
        return instead(str(error.name), scope) if isinstance(error, NameError) else ""

    with _explained(f"--inputs {expression!r}", hint):
        value = eval(expression, scope)
    args = value if isinstance(value, tuple) else (value,)
    lent = [leaf for leaf in tree_leaves(args) if is_differentiable(leaf)]
    if not lent or any(tensor.requires_grad for tensor in lent):
        return args, False
    return tree_map(lambda leaf: leaf.detach().requires_grad_() if is_differentiable(leaf) else leaf, args), True
