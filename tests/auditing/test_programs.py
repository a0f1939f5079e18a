"""The program of a finding fails, for the reason that the finding gives, and passes once the function is fixed."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from docs.pitfalls.programs import BROKEN, RIGHT, Specimen

from autograd_cookbook.auditing import Finding, audit, programs
from autograd_cookbook.auditing.programs import EXPERIMENTS, LINES
from autograd_cookbook.auditing.report import TASTE
from tests.auditing import corpus
from tests.support import HANG

corpus.load()


def _execute(program: str, answer: Connection) -> None:
    """In a process of its own: how the program ends."""
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        torch.set_num_threads(1)
        try:
            exec(compile(program, "<program>", "exec"), {"__name__": "program"})
            answer.send("passes")
        except AssertionError:
            answer.send("fails")
        except BaseException as error:
            answer.send(f"raises {type(error).__name__}: {error}")
    os._exit(0)


def ended(program: str) -> str:
    """How a program ends: "passes", "fails" by an assertion, or with an exception."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_execute, args=(program, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(HANG) else "hangs"
    except EOFError:
        return "dies"
    finally:
        process.kill()
        process.join()


def findings(specimen: Specimen) -> list[Finding]:
    """What counts against a specimen."""
    torch.manual_seed(0)
    report = audit(specimen.function, specimen.inputs(), only=specimen.checks, **specimen.options)
    return [f for f in report.findings if f.severity != "info" or f.check in TASTE]


@pytest.mark.slow("src/autograd_cookbook/auditing", "tests/auditing", "docs/pitfalls/programs")
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_the_programs_of_broken_functions_fail(name: str) -> None:
    for found in findings(BROKEN[name]):
        if not found.program:
            continue
        assert ended(found.program) == "fails", found.program


def shown(name: str) -> Finding:
    return findings(BROKEN[name])[0]


SHOWN = {
    check: next(s.name for s in BROKEN.values() if s.checks[0] == check and s.thing.__module__.startswith("docs."))
    for check in EXPERIMENTS
}


@pytest.mark.parametrize("check", EXPERIMENTS)
def test_an_experiment_in_plain_torch_passes_once_the_function_is_fixed(check: str) -> None:
    name = SHOWN[check]
    program = shown(name).program
    assert len(program.splitlines()) <= LINES + 1, program
    assert "autograd_cookbook" not in program
    fixed = next(s for s in RIGHT.values() if s.fixes == name)
    assert ended(program) == "fails", program
    if fixed.inputs is BROKEN[name].inputs:
        program = program.replace(name, fixed.name)
        assert ended(program) == "passes", program


def test_the_source_of_a_finding_is_the_readers_own() -> None:
    found = shown(SHOWN["first_order"])
    file = Path(sys.modules[BROKEN[SHOWN["first_order"]].thing.__module__].__file__).read_text(encoding="utf-8")
    lines = file.splitlines()
    assert 2 <= len(found.source.splitlines()) <= 3
    for line in found.source.splitlines():
        number, _, text = line.partition(": ")
        assert lines[int(number) - 1] == text


SCRIPT = """
import math
import torch
from autograd_cookbook import audit

x = torch.ones(3, dtype=torch.float64, requires_grad=True)  # forward's argument has this name, too
SHIFT, WEIGHT = 0.5, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return WEIGHT * x**2 + math.pi + SHIFT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2.5 * WEIGHT * x * grad_output


report = audit(Square.apply, (x,), only=["first_order"])
(found,) = report.findings
print(found.summary)
print("---")
print(found.program)
"""


def test_a_script_with_global_tensors_gets_the_finding_and_a_program_that_runs_alone(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=HANG, check=False)
    summary, _, program = done.stdout.partition("---\n")
    assert "the gradient of input 0 at" in summary, done.stdout + done.stderr
    assert "x = " not in program.partition("class Square")[0], "a tensor is written along that nothing reads"
    assert "SHIFT = 0.5" in program
    assert "WEIGHT = torch.tensor([1.0, 2.0, 3.0]" in program
    assert "import math" in program
    assert ended(program.strip()) == "fails", program


def test_what_an_object_raises_when_it_is_written_out_costs_the_program_and_not_the_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(programs, "_target", fail)
    found = shown(SHOWN["first_order"])
    assert "gradient of input 0" in found.summary
    assert found.program == ""
