"""``python -m autograd_cookbook audit``: what it takes, what it says, and its exit status."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from autograd_cookbook.auditing import cli
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.cli import main
from tests.support import HANG

FILE = '''
import sys
from types import SimpleNamespace

import torch
from neighbor import cube

print("printed by the file")


class Twice(torch.autograd.Function):
    """Wrong by a factor."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        print("printed by backward")
        return grad_output


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        return x * self.factor


class Sized(torch.nn.Module):
    def __init__(self, size):
        super().__init__()


class Plain:
    pass


@torch.library.custom_op("command::negative", mutates_args=())
def negative(x: torch.Tensor) -> torch.Tensor:
    return -x


negative.register_autograd(lambda ctx, grad_output: -grad_output)


class Round(torch.autograd.Function):
    """Its backward is that of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


def identity(x):
    return x.clone()


def square(x, power=2):
    return x**power


def second(data):
    return data[1] * 2


def text(x):
    return "no tensor"


def late(x):
    import other_neighbor

    return other_neighbor.double(x)


scale = Scale()
LENGTH = 3
X = torch.randn(LENGTH)
bag = SimpleNamespace(scale=scale)

if __name__ == "__main__":
    raise RuntimeError("it runs as a program")
'''


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


Audit = Callable[..., Outcome]


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Audit]:
    """Runs the command beside a file functions.py, with the checks that take no time."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "functions.py").write_text(FILE)
    (tmp_path / "work" / "neighbor.py").write_text("def cube(x):\n    return x**3\n")
    (tmp_path / "work" / "other_neighbor.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path), set(sys.modules)

    def run(name: str, inputs: str = "torch.randn(2)", *options: str) -> Outcome:
        target = name if ":" in name else f"work/functions.py:{name}"
        status = main(["audit", target, "--inputs", inputs, *options])
        return Outcome(status, *capsys.readouterr())

    yield run
    assert sys.path == before[0]
    assert "functions" not in sys.modules
    for name in ("neighbor", "other_neighbor"):
        sys.modules.pop(name, None)


FIRST = ("--only", "first_order")


# --- the target ---


@pytest.mark.parametrize(
    ("target", "inputs", "subject"),
    [
        pytest.param("square", "torch.randn(2)", "square", id="a function"),
        pytest.param("cube", "torch.randn(2)", "cube", id="what the file imports from its neighbor"),
        pytest.param("late", "torch.randn(2)", "late", id="a function that imports a neighbor when it is called"),
        pytest.param("Scale", "torch.randn(2)", "Scale", id="a module class, of which an instance is made"),
        pytest.param("scale", "torch.randn(2)", "Scale", id="a module"),
        pytest.param("bag.scale", "torch.randn(2)", "Scale", id="a dotted name"),
        pytest.param("negative", "torch.randn(2)", "negative", id="an operator"),
        pytest.param("torch:sigmoid", "torch.randn(2)", "sigmoid", id="a function of a module that can be imported"),
        pytest.param("torch.nn.functional:softplus", "torch.randn(2)", "softplus", id="one of a package"),
    ],
)
def test_what_can_be_audited(audit: Audit, target: str, inputs: str, subject: str) -> None:
    status, out, _ = audit(target, inputs, *FIRST)
    assert status == 0, out
    assert out.startswith(f"{subject}: ok (2 checks")


@pytest.mark.parametrize("name", ["Twice", "Twice.apply"])
def test_a_custom_function_with_a_mistake_has_status_1(audit: Audit, name: str) -> None:
    status, out, _ = audit(name, "torch.randn(2)", *FIRST)
    assert status == 1
    assert out.startswith("Twice: NOT ok (2 checks")
    assert "✗ error: first_order" in out


def test_a_module_of_the_file_can_be_pickled(audit: Audit) -> None:
    assert json.loads(audit("Scale", "X", "--only", "module_copies", "--json").out)["findings"] == []


def test_a_file_with_the_name_of_a_module_of_python(audit: Audit) -> None:
    Path("json.py").write_text("def double(x):\n    return 2 * x\n")
    assert audit("json.py:double", "torch.randn(2)", *FIRST).status == 0
    assert sys.modules["json"] is json


# --- the inputs ---


@pytest.mark.parametrize(
    ("target", "inputs"),
    [
        pytest.param("square", "torch.randn(2)", id="one value"),
        pytest.param("square", "torch.randn(2), 3", id="a tuple"),
        pytest.param("square", "(torch.randn(2), 3)", id="a tuple in parentheses"),
        pytest.param("square", "torch.full((2,), math.pi)", id="math"),
        pytest.param("square", "torch.from_numpy(np.random.rand(2))", id="np"),
        pytest.param("square", "torch.tensor(numpy.ones(2))", id="numpy"),
        pytest.param("square", "X, LENGTH", id="names of the file"),
        pytest.param("square", "-torch.rand(2) - 1, 2", id="a minus in front"),
        pytest.param("second", "[1, torch.randn(2)]", id="a list is one argument"),
        pytest.param("square", "torch.randn(2, dtype=torch.complex128)", id="complex numbers"),
    ],
)
def test_inputs(audit: Audit, target: str, inputs: str) -> None:
    assert audit(target, inputs, *FIRST).status == 0


@pytest.mark.parametrize(
    ("inputs", "lent"),
    [
        ("torch.randn(2)", True),
        ("X", True),
        ("torch.randn(2, requires_grad=True)", False),
        ("torch.randn(2), torch.tensor(2.0, requires_grad=True)", False),
    ],
)
def test_tensors_require_grad_if_none_does_and_a_note_says_so(audit: Audit, inputs: str, lent: bool) -> None:
    status, _, err = audit("square", inputs, "--only", "runs")
    assert status == 0
    assert ("note: no tensor in --inputs requires grad" in err) == lent


def test_the_random_numbers_are_those_of_the_seed(audit: Audit) -> None:
    seen = [
        json.loads(audit("square", inputs, "--surrogate", "cube", "--seed", seed, "--json", *FIRST).out)["findings"]
        for inputs, seed in [("torch.rand(2)", "1"), ("torch.rand(2)", "1"), ("X", "1"), ("torch.rand(2)", "2")]
    ]
    first, same, other_numbers, other_seed = (findings[0]["summary"] for findings in seen)
    assert first == same
    assert len({first, other_numbers, other_seed}) == 3


# --- the options ---


def test_reference(audit: Audit) -> None:
    assert audit("square", "X", "--reference", "torch.square", "--only", "reference").status == 0
    assert audit("square", "X", "--reference", "cube", "--only", "reference").status == 1


def test_surrogate(audit: Audit) -> None:
    undeclared = audit("Round", "X", *FIRST)
    assert undeclared.status == 0
    assert "looks like a surrogate: declare it" in undeclared.out
    assert audit("Round", "X", "--gradient", "surrogate", "--surrogate", "cube", *FIRST).status == 1
    assert audit("Round", "X", "--gradient", "surrogate", "--surrogate", "identity", *FIRST).status == 0


def test_require(audit: Audit) -> None:
    assert audit("Twice", "X", "--only", "vmap").status == 0
    status, out, _ = audit("Twice", "X", "--only", "vmap", "--require", "vmap")
    assert status == 1
    assert "vmap is required" in out


def test_lists_of_names_have_commas_and_add_up(audit: Audit) -> None:
    options = ("--only", "without_grad, repeatable", "--only", "first_order", "--skip", "first_order")
    assert json.loads(audit("square", "X", "--json", *options).out)["checks"] == ["runs", "repeatable", "without_grad"]


def test_json_is_all_that_is_on_stdout(audit: Audit) -> None:
    status, out, err = audit("Twice", "torch.randn(2)", "--json", "--no-isolate", *FIRST)
    report = json.loads(out)
    assert (status, report["ok"], report["subject"]) == (1, False, "Twice")
    assert [f["check"] for f in report["findings"]] == ["first_order"]
    assert "printed by the file" in err
    assert "printed by backward" in err


def test_the_command_is_quiet_unless_verbose(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit("square", "X.requires_grad_()", *FIRST).err == "printed by the file\n"
    monkeypatch.setattr(cli, "SLOW", 0.0)
    lines = audit("square", "X.requires_grad_()", "-v", *FIRST).err.splitlines()[1:]
    assert [re.sub(r"[\d.]+ s$", "... s", line) for line in lines] == [
        *("1/2 runs", "runs took ... s", "2/2 first_order", "first_order took ... s"),
    ]


def test_on_a_terminal_progress_is_one_line_and_marks_have_colors(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(cli, "SLOW", 60.0)
    monkeypatch.delenv("NO_COLOR", raising=False)
    _, out, err = audit("Twice", "X.requires_grad_()", *FIRST)
    clear = "\r\x1b[K"
    assert err == f"printed by the file\n{clear}1/2 runs{clear}2/2 first_order{clear}"
    assert "\x1b[31m✗ error\x1b[0m: first_order" in out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in audit("Twice", "X", *FIRST).out


def test_list_names_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(all_checks())
    for line, check in zip(lines, all_checks().values(), strict=True):
        assert line.split(maxsplit=2) == [check.name, check.family, check.purpose]


def test_help_shows_an_example_and_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--help"]) == 0
    shown = capsys.readouterr().out
    assert 'python -m autograd_cookbook audit square.py:Square --inputs "torch.randn(4, 3), 2"' in shown
    options = "inputs reference gradient surrogate tolerance domain require skip only seed device timeout budget"
    for option in [*options.split(), "no-isolate", "json", "list"]:
        assert f"--{option}" in shown


# --- bad usage: one line that names what was given and what was expected ---


def said(outcome: Outcome) -> str:
    """The line that an understandable refusal consists of."""
    lines = [line for line in outcome.err.splitlines() if line != "printed by the file"]
    assert (outcome.status, outcome.out, len(lines)) == (2, "", 1), outcome
    assert lines[0].startswith("python -m autograd_cookbook: error: ")
    return lines[0]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("work/function.py:square", ["no file 'work/function.py'", "functions.py"]),
        ("nowhere/functions.py:square", ["no file 'nowhere/functions.py'"]),
        ("Twise", ["no 'Twise' in work/functions.py", "did you mean Twice"]),
        ("Twice.aply", ["no 'aply' in Twice", "did you mean apply"]),
        ("zzzz", ["no 'zzzz' in work/functions.py", "there are", "Twice", "Scale"]),
        ("work/functions.py:", ["'work/functions.py:'", "FILE.py:NAME", "package.module:NAME"]),
        (":square", ["':square'", "FILE.py:NAME"]),
        ("work/functions:square", ["'work/functions:square'", "FILE.py:NAME"]),
        ("work/functions.py:square()", ["'work/functions.py:square()'", "FILE.py:NAME"]),
        ("no_such_package.module:f", ["no_such_package", "FILE.py:NAME or package.module:NAME"]),
        ("torch.nn.functionl:relu", ["'torch.nn.functionl'", "FILE.py:NAME or package.module:NAME"]),
        ("math:squareroot", ["no 'squareroot' in math", "there are acos"]),
        ("LENGTH", ["LENGTH", "int: 3", "expected a callable"]),
        ("X", ["X, a Tensor", "expected a callable"]),
        ("Plain", ["class Plain", "expected a function"]),
        ("Sized", ["Sized()", "missing 1 required positional argument: 'size'", "name an instance"]),
        ("text", ["returns a tensor", "got str"]),
    ],
)
def test_a_target_that_is_none(audit: Audit, target: str, words: list[str]) -> None:
    line = said(audit(target, "torch.randn(2)", "--only", "runs"))
    for word in words:
        assert word in line


def test_a_target_without_a_colon(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(main(["audit", "functions.py", "--inputs", "1"]), *capsys.readouterr())
    assert "expected FILE.py:NAME or package.module:NAME, got 'functions.py'" in said(outcome)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import torch\nx = (\n", ["SyntaxError: '(' was never closed", "file.py, line 2"]),
        ("import torch\n\n1 / 0\n", ["ZeroDivisionError: division by zero", "file.py, line 3"]),
        ("def f():\n    return {}[1]\nf()\n", ["KeyError: 1", "file.py, line 2"]),
        ("import torch\ntorch.einsum('i', 3)\n", ["TypeError: ", "file.py, line 2"]),
        ("import no_such_package", ["ModuleNotFoundError: No module named 'no_such_package'", "file.py, line 1"]),
        ("from . import x", ["relative import", "package.module:NAME"]),
        ("raise SystemExit('bye')", ["SystemExit: bye", "file.py, line 1"]),
        ("raise ValueError('two\\nlines')", ["ValueError: two", "file.py, line 1"]),
        ("x = '\0'", ["null bytes"]),
    ],
)
def test_a_file_that_cannot_be_imported(audit: Audit, source: str, words: list[str]) -> None:
    Path("file.py").write_text(source)
    line = said(audit("file.py:f"))
    for word in ("importing file.py: ", *words):
        assert word in line


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("torch.randn(2", ["--inputs 'torch.randn(2'", "SyntaxError", "never closed"]),
        ("", ["--inputs ''", "SyntaxError"]),
        ("x = 2", ["--inputs 'x = 2'", "SyntaxError"]),
        ("LENGHT", ["NameError: name 'LENGHT' is not defined", "did you mean LENGTH"]),
        ("1 / 0", ["--inputs '1 / 0': ZeroDivisionError: division by zero"]),
        ("sys.exit(3)", ["SystemExit: 3"]),
        ("3", ["floating", "got int"]),
        ("torch.arange(3), 'a'", ["floating", "got a torch.int64 tensor, str"]),
        ("()", ["floating", "got nothing"]),
    ],
)
def test_inputs_that_are_none(audit: Audit, inputs: str, words: list[str]) -> None:
    line = said(audit("square", inputs))
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--only frist_order", ["--only", "unknown check 'frist_order'", "did you mean first_order"]),
        ("--skip runs,compiled", ["--skip", "unknown check 'compiled'", "did you mean compile"]),
        ("--require vmapp", ["--require", "unknown capability 'vmapp'", "did you mean vmap"]),
        ("--require vmap --only runs", ["'vmap'", "not measured by the checks that were chosen"]),
        ("--gradient exakt", ["--gradient", "'exakt'", "exact", "surrogate", "approximate"]),
        ("--gradient surrogate", ["gradient='surrogate'", "needs surrogate="]),
        ("--gradient exact --surrogate cube", ["gradient='exact'", "surrogate"]),
        ("--surrogate cubed", ["no 'cubed' in work/functions.py", "did you mean cube"]),
        ("--reference cubed", ["no 'cubed' in work/functions.py", "did you mean cube"]),
        ("--reference LENGTH", ["LENGTH", "expected a callable"]),
        ("--tolerance -1 --gradient approximate", ["--tolerance", "a positive number", "'-1'"]),
        ("--domain nowhere", ["nowhere"]),
        ("--tolerance 0.1", ["tolerance", "gradient='approximate'", "0.1"]),
        ("--timeout soon", ["--timeout", "a positive number", "'soon'"]),
        ("--timeout nan", ["--timeout", "a positive number", "'nan'"]),
        ("--seed -1", ["--seed", "an integer from 0", "'-1'"]),
        ("--device abacus", ["--device", "'abacus'"]),
        ("--device meta", ["--device", "'meta'"]),
        ("--onyl=runs", ["unknown argument '--onyl=runs'", "did you mean --only"]),
        ("--verbos3", ["unknown argument '--verbos3'", "did you mean --verbose"]),
        ("another", ["unknown argument 'another'"]),
    ],
)
def test_options_that_are_none(audit: Audit, options: str, words: list[str]) -> None:
    line = said(audit("square", "X", *options.split()))
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["COMMAND"]),
        (["adit"], ["'adit'", "audit"]),
        (["audit"], ["FILE.py:NAME", "--inputs"]),
        (["audit", "functions.py:square"], ["--inputs"]),
        (["audit", "functions.py:square", "--inputs"], ["--inputs", "expected one argument"]),
    ],
)
def test_arguments_that_are_missing(argv: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = said(Outcome(main(argv), *capsys.readouterr()))
    for word in words:
        assert word in line


# --- as a process ---


def start(*arguments: str, **options: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "autograd_cookbook", "audit", *arguments]
    # Where the tests run in the background of a shell, Control-C is ignored, by all that they start too.
    default = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, text=True, encoding="utf-8", stderr=subprocess.PIPE, preexec_fn=default, **options)


def test_the_process(tmp_path: Path) -> None:
    """The package has a __main__, its exit status is that of the audit, and any encoding of stdout will do."""
    (tmp_path / "twice.py").write_text("import torch\n" + FILE[FILE.index("class Twice") : FILE.index("class Scale")])
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    run = start(f"{tmp_path / 'twice.py'}:Twice", "--inputs", "torch.randn(2)", *FIRST, stdout=-1, env=environment)
    out, err = run.communicate(timeout=HANG)
    assert run.returncode == 1, err
    assert out.startswith("Twice: NOT ok (2 checks")
    assert "\\u2717 error: first_order" in out
    assert err == "note: no tensor in --inputs requires grad; the audit lets each floating-point one do\n"


def test_control_c_ends_it_quietly_with_status_130(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ndef f(x):\n    time.sleep(10 * 60)\n")
    run = start(f"{tmp_path / 'slow.py'}:f", "--inputs", "torch.randn(2)", "-v", stdout=-1)
    assert run.stderr.readline() == f"1/{len(all_checks())} runs\n"
    run.send_signal(signal.SIGINT)
    assert run.communicate(timeout=HANG) == ("", "")
    assert run.returncode == 130


def test_a_reader_that_goes_away_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = start("--list", stdout=writer)
    os.close(writer)
    assert run.communicate(timeout=HANG)[1] == ""
    assert run.returncode == 128 + signal.SIGPIPE
