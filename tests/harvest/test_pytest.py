"""``pytest --audit-functions``: the suite as ever, and the audit of what it called after it."""

import json

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import torch

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output

apply = Wrong.apply

def test_one():
    apply(torch.randn(3, requires_grad=True))

def test_two():
    class Local(Wrong):
        pass
    Local.apply(torch.randn(3, 2, requires_grad=True))
    apply(torch.randn(3, 2, requires_grad=True))
"""


@pytest.fixture
def suite(pytester):
    from autograd_cookbook.auditing.checks import all_checks

    skip = [name for name in all_checks() if name not in ("runs", "first_order")]
    names = "test_suite.Wrong", "test_suite.test_two.<locals>.Local"
    tables = [f'[tool.autograd_cookbook.functions."{name}"]\nskip = {json.dumps(skip)}\n' for name in names]
    pytester.makepyprojecttoml("\n".join(tables))
    pytester.makepyfile(test_suite=SUITE)
    return pytester


def test_the_flag_takes_no_file_for_a_pattern_and_the_run_fails_by_the_audit(suite):
    result = suite.runpytest_subprocess("--audit-functions", "test_suite.py", "--audit-report=r.json")
    result.assert_outcomes(passed=2)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*audit of custom functions*", "test_suite.py:3 test_suite.Wrong: NOT ok (2 of 2 calls *", "NOT ok: 2 of 2 *"]
    )
    functions = json.loads((suite.path / "r.json").read_text())["functions"]
    assert [f["name"].rpartition(".")[2] for f in functions] == ["Wrong", "Local"]


@pytest.mark.slow("src/autograd_cookbook/harvest", "src/autograd_cookbook/pytest_plugin.py", "tests/harvest")
def test_with_workers_it_finds_the_same(suite):
    result = suite.runpytest_subprocess("--audit-functions", "-n2", "--audit-report=r.json")
    result.assert_outcomes(passed=2)
    assert result.ret == 1
    functions = json.loads((suite.path / "r.json").read_text())["functions"]
    assert [(f["name"].rpartition(".")[2], f["calls"], f["audited"]) for f in functions] == [
        ("Wrong", 2, 2),
        ("Local", 1, 1),
    ]
    assert [[g["check"] for g in f["findings"]] for f in functions] == [["first_order"]] * 2


@pytest.mark.slow("src/autograd_cookbook/harvest", "src/autograd_cookbook/pytest_plugin.py", "tests/harvest")
@pytest.mark.parametrize("end", ["os.kill(os.getppid(), signal.SIGINT); time.sleep(60)", "os._exit(3)"])
def test_the_calls_of_a_worker_that_is_ended_are_audited(suite, end):
    last = f"\nimport os, signal, time\ndef test_three():\n    {end}\n"
    suite.makepyfile(test_suite=SUITE + last)
    result = suite.runpytest_subprocess("--audit-functions=*Wrong", "-n1", "--max-worker-restart=0")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["test_suite.py:3 test_suite.Wrong: NOT ok (* audited *", "NOT ok: 1 of 1 *"])


def test_a_suite_that_fails_fails_and_is_audited(suite):
    suite.makepyfile(test_suite=SUITE + "\ndef test_three():\n    assert 1 == 2, 'told'\n")
    result = suite.runpytest_subprocess("--audit-functions=*Wrong")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: told*", "*test_suite.Wrong: NOT ok*", "NOT ok: 1 of 1 *"])


def test_bad_options_stop_the_run_before_it_begins(suite):
    for option, message in (
        ("--audit-report=r.txt", "*must end with one of*"),
        ("--audit-baseline=none.json", "*no baseline*"),
        ("--audit-update-baseline", "*name its file*"),
    ):
        result = suite.runpytest_inprocess("--audit-functions", option)
        assert result.ret == 4
        result.stderr.fnmatch_lines([message])
    suite.makepyprojecttoml("[tool.autograd_cookbook]\nfuncs = 1\n")
    result = suite.runpytest_inprocess("--audit-functions")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*unknown key 'funcs'*"])


def test_without_the_flag_torch_is_not_imported(suite):
    suite.makepyfile(test_suite="import sys\ndef test_light():\n    assert 'torch' not in sys.modules\n")
    suite.runpytest_subprocess().assert_outcomes(passed=1)
