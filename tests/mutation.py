"""Would the tests notice a slip in a backward? Each slip is tried: a pytest plugin, run by ``nox -s mutation``.

A *mutant* is a backward, a ``jvp``, a ``vmap`` rule or a helper that one of these calls, with one thing changed: an
operator, a constant, a comparison, a term dropped, operands swapped, a transpose or a conjugate forgotten. For each,
the tests of its module and of its recipes run in a process of their own until one fails, those first that have found
other mutants of the same function. A mutant that no test fails on has *survived*; those that must (they compute the
same) are listed in ``survivors.json``, each with its reason.
"""

import ast
import copy
import functools
import inspect
import json
import mmap
import os
import resource
import signal
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch._dynamo  # noqa: F401  otherwise each of the processes imports it, for seconds
from torch.autograd import Function

from autograd_cookbook.catalog import BY_NAME, RECIPES

SURVIVORS = Path(__file__).with_name("survivors.json")
GOAL = 0.98
SECONDS = 120  # of a processor for the tests of one mutant: those that loop are noticed
PATIENCE = 1200  # seconds, for those that wait for ever
CHUNK = 20  # tests that run in one process without a change
METHODS = ("backward", "jvp", "vmap")
# These need a process or a compiler, and see nothing that the others do not.
PASSED_OVER = ("test_copied_source_runs_alone", "test_badges_hold", "test_catalog_entry_is_consistent")

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
}
FORGETTABLE = ("mT", "mH", "T", "H", "real")


@dataclass(frozen=True)
class Mutant:
    """One function of the package with one thing changed; without code it stands for tests of what is right."""

    module: str
    function: str
    change: str
    code: ast.FunctionDef | None

    def __str__(self) -> str:
        return f"{self.module}.{self.function}: {self.change}"

    def install(self) -> None:
        """Put the changed function in the place of the right one, wherever it is known."""
        if self.code is None:
            return
        module = import_module(f"autograd_cookbook.{self.module}")
        made: dict[str, Any] = {}
        exec(compile(ast.Module([self.code], []), f"<{self}>", "exec"), vars(module), made)
        owner, _, name = self.function.rpartition(".")
        if owner:
            setattr(getattr(module, owner), name, made[name])
            return
        right = getattr(module, name)
        for other in [m for n, m in sys.modules.items() if n.startswith(("autograd_cookbook", "tests"))]:
            for key, value in list(vars(other).items()):
                if value is right:
                    setattr(other, key, made[name])


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Every way to get this one expression wrong."""
    match node:
        case ast.BinOp(left, op, right):
            yield left
            yield right
            if type(op) in OPERATORS:
                yield ast.BinOp(left, OPERATORS[type(op)](), right)
            if isinstance(op, ast.Sub | ast.Div | ast.Pow | ast.MatMult):
                yield ast.BinOp(right, op, left)
        case ast.UnaryOp(ast.USub() | ast.Invert(), operand):
            yield operand
        case ast.Compare(left, [op], [right]) if type(op) in OPERATORS:
            yield ast.Compare(left, [OPERATORS[type(op)]()], [right])
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
            if value:
                yield ast.UnaryOp(ast.USub(), ast.Constant(value))
        case ast.Call(ast.Attribute(receiver, _), [], []):
            yield receiver
        case ast.Attribute(receiver, name) if name in FORGETTABLE:
            yield receiver


class Replace(ast.NodeTransformer):
    """Puts one node in the place of another, counted in the order of a walk."""

    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self.target, self.replacement = target, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        return self.replacement if node is self.target else self.generic_visit(node)


def mutants_of(module: str, function: str, code: ast.FunctionDef) -> Iterator[Mutant]:
    """All mutants of one function; annotations, defaults and docstrings are no arithmetic."""
    code = copy.deepcopy(code)
    for node in ast.walk(code):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    nodes = list(ast.walk(code))
    # Defaults and messages are no arithmetic, and zip's strict=True only guards what it is told.
    spared = [code.args, *(n for n in nodes if isinstance(n, ast.Raise))]
    spared += [n for n in nodes if isinstance(n, ast.keyword) and n.arg == "strict"]
    outside = {id(leaf) for node in spared for leaf in ast.walk(node)}
    # Counted from the end an index or a dimension is mostly the same one; another one is tried in any case.
    holders = [n.slice if isinstance(n, ast.Subscript) else n for n in nodes if isinstance(n, ast.Subscript | ast.Call)]
    held = [part for n in holders for part in (n.args if isinstance(n, ast.Call) else [n])]
    places = {id(leaf) for part in held for leaf in (part, *getattr(part, "elts", [])) if is_index(leaf)}
    # Of nested statements the innermost comes last in a walk, and stays.
    lines = {id(leaf): ast.unparse(node) for node in nodes if isinstance(node, ast.stmt) for leaf in ast.walk(node)}
    seen: set[str] = set()
    for position, node in enumerate(nodes):
        if id(node) in outside:
            continue
        for change in changes(node):
            if id(node) in places and isinstance(change, ast.UnaryOp):
                continue
            mutated = copy.deepcopy(code)  # transformers write into the tree
            mutated = Replace(list(ast.walk(mutated))[position], copy.deepcopy(change)).visit(mutated)
            text = ast.unparse(ast.fix_missing_locations(mutated))
            if text not in seen:
                seen.add(text)
                place = lines[id(node)].partition("\n")[0]
                label = f"{ast.unparse(node)} -> {ast.unparse(change)} in {place}"
                yield Mutant(module, function, label, mutated)


def is_index(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def functions_of(module: str) -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """The backward functions of a module, and what they call: (module, name, code)."""
    found = import_module(f"autograd_cookbook.{module}")
    for name, owner in vars(found).items():
        if inspect.isclass(owner) and issubclass(owner, Function) and owner.__module__ == found.__name__:
            for method in METHODS:
                if method in vars(owner):
                    code = parsed(getattr(owner, method))
                    yield module, f"{name}.{method}", code
                    yield from helpers_of(found, code, {name})


def helpers_of(module: Any, code: ast.FunctionDef, seen: set[str]) -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """Functions of the package that a function calls by name, and what these call."""
    names = [leaf for leaf in ast.walk(code) if isinstance(leaf, ast.Name)]
    called = {leaf.id for leaf in names} - {leaf.id for leaf in names if isinstance(leaf.ctx, ast.Store)}
    for name in sorted(called):
        helper = vars(module).get(name)
        own = isinstance(helper, FunctionType) and helper.__module__.startswith("autograd_cookbook.")
        if own and name not in seen:
            seen.add(name)
            inner = parsed(helper)
            yield helper.__module__.partition(".")[2], helper.__name__, inner
            yield from helpers_of(import_module(helper.__module__), inner, seen)


def parsed(function: Callable[..., Any]) -> ast.FunctionDef:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]


def all_mutants(modules: list[str]) -> list[Mutant]:
    """Of all recipes, or of those in some modules; a helper that several backwards call counts once."""
    known = dict.fromkeys(r.module.partition(".")[2] for r in RECIPES)
    chosen = modules or list(known)
    functions = {(m, f): code for module in chosen for m, f, code in functions_of(module)}
    return [mutant for (m, f), code in functions.items() for mutant in mutants_of(m, f, code)]


@functools.cache
def sources() -> dict[str, str]:
    """What readers copy, by recipe."""
    return {recipe.name: recipe.source for recipe in RECIPES}


def install_from_environment() -> None:
    """For processes that a test starts: they import the package afresh."""
    module, function, source = json.loads(os.environ["MUTANT"])
    Mutant(module, function, "of the environment", ast.parse(source).body[0]).install()


def tests_for(mutant: Mutant, items: list[pytest.Item]) -> list[pytest.Item]:
    """Those of each recipe whose source it is in, then those of its module."""
    name = mutant.function.partition(".")[0]
    recipes = [recipe for recipe, source in sources().items() if f"class {name}(" in source or f"def {name}(" in source]
    modules = {mutant.module, *(BY_NAME[recipe].module.removeprefix("autograd_cookbook.") for recipe in recipes)}
    files = {f"test_{module.partition('.')[0]}.py" for module in modules}

    def rank(item: pytest.Item) -> int | None:
        if item.originalname in PASSED_OVER or item.path.name == "test_benchmarks.py":
            return None
        if item.path.name in files:
            return 1
        recipe = getattr(item, "callspec", None) and item.callspec.params.get("recipe")
        return 0 if getattr(recipe, "name", recipe) in recipes else None  # some tests take its name

    return sorted((item for item in items if rank(item) is not None), key=rank)


def start(mutant: Mutant, items: list[pytest.Item]) -> tuple[int, mmap.mmap]:
    """Try a mutant in a process of its own, which exits with 0 if it survives and with 1 if a test fails.

    Returns the process, and where it will have left the number of that test.
    """
    place = mmap.mmap(-1, 4)
    if pid := os.fork():
        return pid, place
    # The default action of either signal ends the process.
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, resource.RLIM_INFINITY))
    signal.alarm(PATIENCE)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    if items:
        items[0].config.pluginmanager.unregister(name="terminalreporter")
    try:
        mutant.install()
        if mutant.code is not None:
            os.environ["MUTANT"] = json.dumps([mutant.module, mutant.function, ast.unparse(mutant.code)])
        for number, item in enumerate(items):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)  # with the warnings that the test allows
            if item.session.testsfailed:
                place[:] = number.to_bytes(len(place), "big")
                os._exit(1)
    except BaseException:  # a mutant that cannot even be installed, or ends the test run, is noticed
        os._exit(2)
    os._exit(0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--modules", nargs="*", default=[], help="try the mutants of these modules alone")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """In place of running the tests once: run them on every mutant, as many at a time as there are processors."""
    chosen = session.config.getoption("--modules")
    mutants = all_mutants(chosen)
    tests = {mutant: tests_for(mutant, session.items) for mutant in mutants}
    # Tests that fail on what is right would kill everything.
    all_tests = list(dict.fromkeys(item for chosen_for in tests.values() for item in chosen_for))
    right = {}
    for first in range(0, len(all_tests), CHUNK):
        part = all_tests[first : first + CHUNK]
        right[Mutant(part[0].nodeid, part[-1].nodeid, "unchanged", None)] = part
    running: dict[int, tuple[Mutant, list[pytest.Item], mmap.mmap]] = {}
    killers: dict[tuple[str, str], Counter[pytest.Item]] = defaultdict(Counter)
    survived: list[Mutant] = []
    failing: list[Mutant] = []

    def await_one() -> None:
        pid, status = os.wait()
        mutant, order, place = running.pop(pid)
        if os.waitstatus_to_exitcode(status) == 1:
            killers[mutant.module, mutant.function][order[int.from_bytes(place[:], "big")]] += 1
        if mutant.code is None:
            failing.extend([mutant] * (status != 0))
        elif status == 0:
            survived.append(mutant)
            print(f"survived: {mutant}", flush=True)
        elif os.WIFSIGNALED(status):  # it hung, or crashed: noticed, and worth a look
            print(f"ended by signal {os.WTERMSIG(status)}: {mutant}", flush=True)

    for number, (mutant, chosen_for) in enumerate((right | tests).items()):
        if number % 200 == 0:
            print(f"{number} of {len(right) + len(tests)} tried", flush=True)
        if len(running) >= (os.cpu_count() or 1):
            await_one()
        # The sort is stable: those that have found nothing yet keep their order.
        order = sorted(chosen_for, key=killers[mutant.module, mutant.function].__getitem__, reverse=True)
        pid, place = start(mutant, order)
        running[pid] = mutant, order, place
    while running:
        await_one()
    for mutant in failing:
        print(f"a test fails without a change, from {mutant.module} to {mutant.function}")
    verdict = judge([str(m) for m in mutants], sorted(str(m) for m in survived), not chosen)
    session.testsfailed = len(failing) + verdict
    return True


def judge(mutants: list[str], survived: list[str], complete: bool) -> int:
    """Print the figure; return how many things are wrong with it."""
    reasons = json.loads(SURVIVORS.read_text())
    share = 1 - len(survived) / max(len(mutants), 1)
    wrong = [f"no reason given for {name}" for name in survived if name not in reasons]
    wrong += [f"listed, and did not survive: {name}" for name in reasons if name in mutants and name not in survived]
    if complete:
        wrong += [f"listed, and there is no such mutant: {name}" for name in reasons if name not in mutants]
        wrong += [f"expected {GOAL:.0%} killed or more"] * (share < GOAL)
    print(*wrong, f"{len(mutants)} mutants, {len(survived)} survived: {share:.1%} killed", sep="\n")
    return len(wrong)
