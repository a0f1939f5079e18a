"""Programs that make PyTorch say what it says around custom gradients: the error index is made of them.

Each module here is one group of the index. A program is the body of a decorated function, shown on the site as a file
of its own, and it really runs as one: in a fresh process, until it raises. The fixed program stands next to it.
"""

import ast
import importlib
import inspect
import linecache
import multiprocessing
import os
import re
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from docs._ext.alone import alone

# The modules, in the order of the site, with the titles of their pages.
GROUPS = {
    "writing": "Writing and calling a Function",
    "engine": "Running backward",
    "changed_in_place": "In-place changes, views and inference mode",
    "grad_and_hooks": "Hooks, .grad and requires_grad",
    "training": "The training loop, losses and modules",
    "optimizers": "Optimizers, schedulers and clipping",
    "libraries": "Lightning, Opacus, PEFT and other libraries",
    "numerics": "nan, and derivatives of decompositions",
    "saving": "Saved tensors, hooks and checkpoints",
    "verification": "gradcheck and gradgradcheck",
    "transforms": "torch.func, vmap and forward mode",
    "compiling": "torch.compile",
    "exporting": "Export, TorchScript, ONNX and control flow",
    "precision": "Autocast, GradScaler and dtypes",
    "distributed": "DataParallel, DDP and collectives",
    "sharding": "FSDP, ZeRO, DTensor and pipelines",
    "devices": "CUDA kernels, CUDA graphs and Triton",
    "operators": "torch.library and custom operators",
}
SECONDS = 1200.0  # only to stop what hangs
# Processes that know nothing of what happened in this one: whoever has compiled a function has patched torch, and its
# tracebacks have other lines. What takes long to import is imported once; older releases have not all of it.
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(
    ["torch._dynamo", "torch.export", "torch._functorch.aot_autograd", "torch.fx.experimental.symbolic_shapes"]
)
FILE = "program.py"  # what tracebacks call a program


@dataclass(frozen=True)
class Raised:
    """What came out of a program: the exception's type and text, and the traceback as a reader would have it."""

    kind: str
    message: str
    traceback: str


@dataclass(frozen=True)
class Program:
    """One message of PyTorch, with a program that provokes it.

    Args:
        function: its body is the program.
        title: what happened, in plain words: one line, unique, without the message itself.
        cause: why PyTorch says this. Whole sentences, ``code`` in double backquotes.
        fix: what to do. The same.
        see: pages that explain it: "guide/ctx", "cookbook/01_first_steps/template", or "check:tensors_on_ctx".
        group: the module that it is in.
        fixed: a function whose body is the program without the mistake; it runs to its end.
        warning: whether the message is a warning. It is made an exception to catch it, and only in such programs.
    """

    function: Callable[[], Any]
    title: str
    cause: str
    fix: str
    see: tuple[str, ...] = ()
    group: str = ""
    warning: bool = False
    fixed: Callable[[], Any] | None = field(default=None)

    @property
    def name(self) -> str:
        """Its unique name."""
        return self.function.__name__

    @property
    def source(self) -> str:
        """The program as a file."""
        return file_of(self.function)

    @property
    def fixed_source(self) -> str:
        """The fixed program as a file."""
        assert self.fixed is not None, f"{self.name} has no fixed program"
        return file_of(self.fixed)


PROGRAMS: dict[str, Program] = {}


def raises(
    title: str, *, cause: str, fix: str, see: tuple[str, ...] = (), warning: bool = False
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function whose body makes PyTorch raise, or warn."""

    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        assert function.__name__ not in PROGRAMS, f"two programs are called {function.__name__}"
        group = function.__module__.rpartition(".")[2]
        cause_, fix_ = (" ".join(text.split()) for text in (cause, fix))
        PROGRAMS[function.__name__] = Program(function, title, cause_, fix_, see, group, warning)
        return function

    return register


def fixes(broken: Callable[[], Any]) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register the fixed version of a program."""

    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        name = broken.__name__
        PROGRAMS[name] = replace(PROGRAMS[name], fixed=function)
        return function

    return register


def load() -> dict[str, Program]:
    """All programs, by name, in the order of the site."""
    for group in GROUPS:
        importlib.import_module(f"{__name__}.{group}")
    return PROGRAMS


def file_of(function: Callable[[], Any]) -> str:
    """The body of a function as a file that runs alone: with those imports of its module that it needs."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    (definition,) = ast.parse("\n".join(lines)).body
    statement = definition.body[0]
    first = min([statement, *getattr(statement, "decorator_list", [])], key=lambda node: node.lineno)
    body = textwrap.dedent("\n".join(lines[first.lineno - 1 :]))
    body = re.sub(r"(\n [^\n]*)\n\n(?=\S)", r"\1\n\n\n", body)  # as is usual at the top level of a file
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    imports = [
        ast.unparse(type(node)(**{**vars(node), "names": kept}))
        for node in imports_of(Path(inspect.getfile(function)))
        if (kept := [a for a in node.names if (a.asname or a.name.partition(".")[0]) in used])
    ]
    return "\n".join([*imports, "", "", body.strip(), ""]).lstrip()


@cache
def imports_of(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a module of programs, but for what registers them."""
    found = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return [node for node in found if getattr(node, "module", None) != __name__]


@cache
def run(source: str, warning: bool = False) -> Raised | None:
    """Run a program in a fresh process, and say what it raised."""
    try:
        return alone(partial(_run, source, warning), SECONDS, FRESH)
    except TimeoutError:
        raise TimeoutError(f"the program does not end within {SECONDS:.0f} s:\n{source}") from None
    except EOFError:
        raise RuntimeError(f"the program ends its process:\n{source}") from None


def _run(source: str, warning: bool) -> Raised | None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.modules["program"] = module = ModuleType("program")
    module.__file__ = FILE
    # Tracebacks show its lines, and the compiler reads them.
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if warning else "ignore")
        try:
            exec(compile(source, FILE, "exec"), vars(module))
        except Exception as error:
            shown = error.with_traceback(error.__traceback__.tb_next)  # from the program on
            text = "".join(traceback.format_exception(shown))
            return Raised(type(error).__name__, _anywhere(str(error)), _anywhere(text))
    return None


def _anywhere(text: str) -> str:
    """Without what is true of this machine or of this run alone."""
    text = re.sub(r"0x[0-9a-f]{6,}", "0x…", text.replace(str(Path(torch.__file__).parents[1]), "site-packages"))
    # A set of dtypes, whose order depends on where they lie in memory.
    text = re.sub(
        r"\{(torch\.\w+(?:, torch\.\w+)+)\}", lambda found: f"{{{', '.join(sorted(found[1].split(', ')))}}}", text
    )
    # Places in C++, which each build has elsewhere.
    text = re.sub(r"(?:\nException raised from [^\n]+|<omitting python frames>)(?:\nframe #[^\n]*)+\n?", "", text)
    # What ran the program, where a message lists the calls it came through.
    return re.sub(rf"({re.escape(FILE)}\(\d+\): <module>\n)(?:[^\n]+\(\d+\): [^\n]+\n)+", r"\1", text)
