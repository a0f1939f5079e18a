"""``harvest`` runs a program as Python does, and reports whatever became of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autograd_cookbook.cli import main

PROGRAM = """
import sys
import torch


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


print("arguments", *sys.argv[1:], __name__)
Wrong.apply(torch.randn(3, requires_grad=True))
"""
QUICK = """
[tool.autograd_cookbook.functions."__main__.Wrong"]
skip = [{skip}]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    from autograd_cookbook.auditing.checks import all_checks

    monkeypatch.chdir(tmp_path)
    skip = ", ".join(f'"{name}"' for name in all_checks() if name not in ("runs", "first_order"))
    Path("pyproject.toml").write_text(QUICK.format(skip=skip))
    Path("program.py").write_text(PROGRAM)
    return tmp_path


def test_a_script_gets_its_arguments_and_the_report_follows(project, capsys):
    assert main(["harvest", "--report", "r.json", "program.py", "--epochs", "1", "-m"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "arguments --epochs 1 -m __main__"
    assert lines[1].startswith("program.py:6 __main__.Wrong: NOT ok (1 of 1 call audited in ")
    assert lines[2] == "  ✗ error: first_order"
    assert lines[-1].startswith("NOT ok: 1 of 1 custom function audited, 1 reached: 1 error (torch ")
    report = json.loads(Path("r.json").read_text())
    assert {"functions", "torch", "version"} <= set(report)
    (function,) = report["functions"]
    assert {"name", "file", "line", "reached", "calls", "seconds", "findings", "capabilities"} <= set(function)
    assert set(function["findings"][0]) >= {"check", "severity", "summary", "cause", "fix", "url", "program"}


def test_a_module_runs_as_with_python_m(project, capsys):
    Path("package").mkdir()
    Path("package/__main__.py").write_text(PROGRAM + "print(__package__)\n")
    assert main(["harvest", "-m", "package", "--flag"]) == 1
    out = capsys.readouterr().out
    assert "arguments --flag __main__\npackage\n" in out
    assert "package/__main__.py:6 __main__.Wrong" in out


@pytest.mark.parametrize(
    ("end", "status", "shown"),
    [
        ("raise ValueError('broken')", 1, "ValueError: broken"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('why')", 1, "why"),
    ],
)
def test_a_program_that_fails_fails_in_the_same_way_with_the_report_after_it(project, capsys, end, status, shown):
    Path("program.py").write_text(f"{PROGRAM}\n{end}\n")
    assert main(["harvest", "program.py"]) == status
    captured = capsys.readouterr()
    assert "error: first_order" in captured.out
    assert shown in captured.err
    assert "autograd_cookbook" not in captured.err


def test_a_baseline_lets_what_is_known_pass(project, capsys):
    assert main(["harvest", "--baseline", "known.json", "--update-baseline", "program.py"]) == 0
    assert main(["harvest", "--baseline", "known.json", "program.py"]) == 0
    assert "1 accepted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected SCRIPT or -m MODULE"),
        (["no_such.py"], "no file 'no_such.py'"),
        (["-m", "no_such_module"], "-m no_such_module: no module that can be run"),
        (["--report", "r.txt", "program.py"], "must end with one of .json, .html, .sarif"),
        (["--budget", "soon", "program.py"], "expected a positive number of seconds, got 'soon'"),
        (["--jobs", "0", "program.py"], "expected a positive integer, got '0'"),
        (["--update-baseline", "program.py"], "to update the baseline, name its file"),
        (["--baseline", "none.json", "program.py"], "no baseline"),
        (["broken.py"], "broken.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_line(project, capsys, words, message):
    Path("broken.py").write_text("def (")
    assert main(["harvest", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_table_that_makes_no_sense_is_found_before_the_program_runs(project, capsys):
    Path("pyproject.toml").write_text("[tool.autograd_cookbook]\nfunktions = 1\n")
    assert main(["harvest", "program.py"]) == 2
    assert "did you mean functions" in capsys.readouterr().err


def test_the_process_ends_with_the_status(project):
    command = [sys.executable, "-m", "autograd_cookbook", "harvest", "program.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, capture_output=True, check=False, env=environment).returncode == 1
