"""What a type checker knows of the package: a project that uses it, under mypy's strict mode. Run by nox -s lint."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IMPORTS = """
import torch
import autograd_cookbook
from autograd_cookbook import audit
from autograd_cookbook.catalog import BY_NAME, RECIPES
from autograd_cookbook.errors import explain
from autograd_cookbook.recipes.template import linear
x = torch.ones(2, requires_grad=True)
"""
# Without the modules that the classes are in.
TYPES = {
    "audit(torch.sin, (x,))": "Report",
    "autograd_cookbook.audit(torch.sin, x, gradient='exact', require=['vmap']).ok": "bool",
    "audit(torch.sin, (x,)).findings": "tuple[Finding, ...]",
    "audit(torch.sin, (x,)).capabilities": "dict[str, str]",
    "RECIPES": "tuple[Recipe, ...]",
    "BY_NAME['linear'].source": "str",
    "explain('')": "Explanation",
    "explain('').entries[0].fix": "str",
    "linear(x, x)": "Tensor",
}
MISTAKES = {
    "audit(torch.sin)": "call-arg",
    "audit(torch.sin, (x,), gradient='exact ')": "arg-type",
    "audit(torch.sin, (x,)).finding": "attr-defined",
    "autograd_cookbook.adit": "attr-defined",
}


@pytest.mark.slow("src/autograd_cookbook")
def test_the_public_names_have_their_types_and_mistakes_are_seen(tmp_path: Path) -> None:
    lines = [*IMPORTS.splitlines(), *(f"reveal_type({expression})" for expression in TYPES), *MISTAKES]
    (tmp_path / "project.py").write_text("\n".join(lines) + "\n")
    # torch takes mypy a quarter of a minute, the first time: the cache is that of nox -s lint.
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), "project.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = dict(re.findall(r"^project\.py:(\d+): (.*)$", said.stdout, re.MULTILINE))
    revealed = [f'note: Revealed type is "{type_}"' for type_ in TYPES.values()]
    for number, expected in enumerate(revealed, len(IMPORTS.splitlines()) + 1):
        assert re.sub(r"(\w+\.)+(?=\w)", "", found.pop(str(number))) == expected, said.stdout
    assert [message.rpartition("  ")[2] for message in found.values()] == [f"[{code}]" for code in MISTAKES.values()]
    assert not said.stderr
