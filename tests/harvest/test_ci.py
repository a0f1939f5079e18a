"""What the guide offers for CI parses, and the commands in it do what it says."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from autograd_cookbook.auditing.checks import all_checks
from tests.harvest.sarif_schema import LOG

pytestmark = pytest.mark.slow("docs/guide", "src/autograd_cookbook", "tests/harvest")
GUIDE = Path(__file__).parents[2] / "docs" / "guide"
SUITE = """
import torch

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output

def test_it_runs():
    Wrong.apply(torch.randn(3, requires_grad=True))
"""


@pytest.fixture
def project(tmp_path):
    skip = [name for name in all_checks() if name not in ("runs", "first_order")]
    table = f'[tool.autograd_cookbook.functions."test_suite.Wrong"]\nskip = {json.dumps(skip)}\n'
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "test_suite.py").write_text(SUITE)
    return tmp_path


def run(command, folder):
    """As a shell would, with this Python."""
    program, *words = shlex.split(command)
    assert program == "python"
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)


def test_the_workflow_uploads_what_its_command_writes(project):
    workflow = yaml.safe_load((GUIDE / "audit_workflow.yml").read_text())
    assert workflow["permissions"]["security-events"] == "write"
    steps = workflow["jobs"]["audit"]["steps"]
    (command,) = [step["run"] for step in steps if "--audit-functions" in step.get("run", "")]
    done = run(command, project)
    assert done.returncode == 1, done.stdout
    uploads = {step["uses"].partition("@")[0]: step for step in steps if "upload" in step.get("uses", "")}
    assert all(step["if"] == "always()" for step in uploads.values())
    log = json.loads((project / uploads["github/codeql-action/upload-sarif"]["with"]["sarif_file"]).read_text())
    jsonschema.validate(log, LOG)
    assert "first_order" in {result["ruleId"] for result in log["runs"][0]["results"]}
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "test_suite.py"}, "region": {"startLine": 4}}
    report = project / uploads["actions/upload-artifact"]["with"]["path"]
    assert "test_suite.Wrong" in report.read_text()


def test_the_hook_fails_at_an_error_and_passes_without_one(project):
    (hook,) = yaml.safe_load((GUIDE / "audit_hook.yaml").read_text())["repos"][0]["hooks"]
    assert {"id", "name", "entry", "language"} <= hook.keys()
    assert not hook["pass_filenames"]
    assert run(hook["entry"], project).returncode == 1
    (project / "test_suite.py").write_text(SUITE.replace("return grad_output", "return 2 * grad_output"))
    assert run(hook["entry"], project).returncode == 0
