"""The list of functions in sources, made without importing them."""

import json
from pathlib import Path

import pytest

from autograd_cookbook.cli import main
from autograd_cookbook.harvest.sources import functions_in

SOURCE = """
raise RuntimeError("imported")
import torch
import torch as t
from torch import autograd
from torch.autograd import Function as F
from torch.library import custom_op
from base import Base

class A(torch.autograd.Function): ...
class B(t.autograd.Function): ...
class C(autograd.Function): ...
class D(F):
    class Inner(F): ...
class E(D): ...
class G(Base): ...
class No(torch.nn.Module): ...

def make():
    class Local(F): ...
    return Local

@custom_op("my::with_gradient", mutates_args=())
def with_gradient(x: torch.Tensor) -> torch.Tensor: ...

with_gradient.register_autograd(lambda ctx, g: g)

@custom_op("my::without", mutates_args=())
def without(x: torch.Tensor) -> torch.Tensor: ...

torch.library.register_autograd("my::elsewhere", lambda ctx, g: g)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "code.py").write_text(SOURCE)
    (tmp_path / "base.py").write_text("from torch.autograd import Function\nclass Base(Function): ...\n")
    (tmp_path / "broken.py").write_text("class Function(:\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "code.py").write_text(SOURCE)
    return tmp_path


def test_every_function_and_operator_is_found_with_its_line(folder):
    found = {name: line for file, line, name in functions_in([str(folder)]) if file.endswith("code.py")}
    names = ["A", "B", "C", "D", "D.Inner", "E", "G", "make.<locals>.Local", "my::elsewhere", "my::with_gradient"]
    assert sorted(found) == names
    lines = SOURCE.splitlines()
    assert lines[found["D.Inner"] - 1] == "    class Inner(F): ..."
    assert lines[found["my::with_gradient"] - 1].startswith("def with_gradient")
    assert [name for file, _, name in functions_in([str(folder)]) if file.endswith("base.py")] == ["Base"]


def test_the_command_marks_what_was_reached(folder, capsys):
    report = folder / "report.json"
    reached = {"functions": [{"file": str(folder / "code.py"), "name": "code.D.Inner", "reached": True}]}
    report.write_text(json.dumps(reached))
    assert main(["functions", str(folder / "code.py"), "--reached", str(report)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("✓")] == [f"✓ {folder}/code.py:14  D.Inner"]
    assert lines[-1] == "9 functions, 1 reached"


def test_bad_input_is_one_line(folder, capsys):
    assert main(["functions", "no_such_folder"]) == 2
    assert "no file or folder 'no_such_folder'" in capsys.readouterr().err
    Path(folder, "report.json").write_text("[]")
    assert main(["functions", str(folder), "--reached", str(folder / "report.json")]) == 2
    assert "not a report" in capsys.readouterr().err
