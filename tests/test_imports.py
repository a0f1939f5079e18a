"""Imports run one way: tests and benchmarks, then docs, then the package; and inside of it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# By folder, what nothing in it may import.
FORBIDDEN = {
    "src": "tests|benchmarks|docs|sphinx|matplotlib",
    "src/autograd_cookbook/recipes": r"autograd_cookbook\.(?!recipes\b)",
    "src/autograd_cookbook/auditing": r"autograd_cookbook\.(recipes|catalog|harvest)",
    "src/autograd_cookbook/harvest": r"autograd_cookbook\.(recipes|catalog)",
    "docs": "tests|benchmarks",
    "benchmarks": "tests",
    "tests": "benchmarks",
}


@pytest.mark.parametrize(("folder", "names"), FORBIDDEN.items())
def test_imports_run_one_way(folder: str, names: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Import | ast.ImportFrom)]
        found = [f"{getattr(n, 'module', '')}.{a.name}".removeprefix(".") for n in nodes for a in n.names]
        assert not [name for name in found if re.match(rf"({names})\b", name)], path


def test_what_the_tests_of_the_package_import_is_installed_for_them() -> None:
    """Their session has no Sphinx; those of the built site have one of their own."""
    for path in (p for p in (ROOT / "tests").rglob("*.py") if "site" not in p.relative_to(ROOT).parts):
        assert not re.search(r"^\s*(from|import) (docutils|sphinx|playwright)\b", path.read_text(), re.MULTILINE), path


def test_pages_do_not_import_tests_and_leave_the_path_alone() -> None:
    for path in (p for kind in ("md", "py") for p in (ROOT / "docs").rglob(f"*.{kind}")):
        assert not re.search(r"^(from|import) (tests|benchmarks)\b|\bsys\.path\b", path.read_text(), re.MULTILINE), path


def test_the_package_alone_imports_no_torch() -> None:
    code = "import sys, autograd_cookbook; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
