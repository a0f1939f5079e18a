"""The build, tested as the software that it is: on a small copy of the project with two examples of its own."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from docs._ext import schedule

from tests.support import HANG

pytestmark = [pytest.mark.site, pytest.mark.xdist_group("build")]

ROOT = Path(__file__).parents[2]
LARGEST_SHARE = 0.3  # of the time of all examples that one may take; with fifty of them, the mean is 0.02

EXAMPLE = '''"""
{title}
=======

One sentence.
"""

# sphinx_gallery_tags = ["memory"]

import time

import matplotlib.pyplot as plt

from autograd_cookbook.recipes.{module} import {name}

plt.figure()
plt.plot([1, 2, {value}])
plt.title("A line that goes up")
print("ran at", {stamp})
'''

# A page with a cell.
START = """---
file_format: mystnb
kernelspec: {name: python3}
---

# Start

```{toctree}
cookbook/index
```

```{code-cell} python
import time
print("ran at", time.time_ns())
```
"""

# A build that ends in the middle of a page, where one is named.
DIES = """

def setup(app):
    def die(app, page, *_):
        if page == __import__("os").environ.get("DIE_WRITING"):
            Path(app.outdir, page + ".html").write_text("half a page")
            __import__("os")._exit(9)

    app.connect("html-page-context", die)
"""


class Project:
    """A copy that can be changed and built."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def lay_out(self) -> None:
        root = self.root
        caches = shutil.ignore_patterns("__pycache__")  # which other processes write to meanwhile
        shutil.copytree(ROOT / "src", root / "src", ignore=caches)
        shutil.copytree(ROOT / "benchmarks/results", root / "benchmarks/results")
        pages = shutil.ignore_patterns("__pycache__", "*.md", "cookbook", "reference", "jupyter_execute")
        shutil.copytree(ROOT / "docs", root / "docs", ignore=pages)
        shutil.copytree(ROOT / "wild", root / "wild", ignore=caches)
        for name in ("constraints.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, root / name)
        (root / "docs/index.md").write_text(START)
        with (root / "docs/conf.py").open("a") as conf:
            conf.write(DIES)
        (root / "examples/section").mkdir(parents=True)
        (root / "examples/GALLERY_HEADER.rst").write_text("Gallery\n=======\n\nAll.\n")
        (root / "examples/section/GALLERY_HEADER.rst").write_text(
            "Section\n=======\n\nSome.\n\n.. In this order: first second\n"
        )
        self.example("first", "matmul", "matmul")
        self.example("second", "elementwise", "gelu")

    def example(self, title: str, module: str, name: str, value: object = 3, stamp: str = "time.time_ns()") -> Path:
        path = self.root / f"examples/section/{title}.py"
        path.write_text(EXAMPLE.format(title=title, module=module, name=name, value=value, stamp=stamp))
        return path

    def build(self, **environment: str) -> subprocess.CompletedProcess:
        env = os.environ | {"PYTHONPATH": str(self.root / "src"), "OMP_NUM_THREADS": "1"} | environment
        command = [sys.executable, "-m", "sphinx", "-nW", "--keep-going", "docs", "site"]
        # Into a file and in a session of its own: what a killed build leaves running neither holds a pipe open nor
        # stays behind.
        with (self.root / "log").open("w") as log:
            build = subprocess.Popen(command, cwd=self.root, env=env, stdout=log, stderr=log, start_new_session=True)
            try:
                status = build.wait(timeout=HANG)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(build.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(command, status, stdout=(self.root / "log").read_text(), stderr="")

    def pages(self) -> dict[str, str]:
        # Without the checksums behind style sheets: MyST-NB writes its own after the pages that name it.
        return {
            str(path.relative_to(self.root / "site")): re.sub(r"\.css\?v=\w+", ".css", path.read_text())
            for path in (self.root / "site").rglob("*.html")
        }

    def stamp(self, title: str) -> str:
        return self.stamp_of_page(f"cookbook/section/{title}.html")

    def stamp_of_page(self, page: str = "index.html") -> str:
        (found,) = re.findall(r"ran at (\d+)", self.pages()[page])
        return found


def succeed(done: subprocess.CompletedProcess) -> None:
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A built project, and a copy to restore it from: at the same place, since Sphinx keeps paths."""
    folder = tmp_path_factory.mktemp("build")
    project = Project(folder / "project")
    project.lay_out()
    succeed(project.build())
    shutil.copytree(project.root, folder / "copy", symlinks=True)
    return project.root, folder / "copy"


@pytest.fixture
def project(first_build: tuple[Path, Path]) -> Project:
    """As the first build has left it."""
    root, copy = first_build
    shutil.rmtree(root)
    shutil.copytree(copy, root, symlinks=True)
    return Project(root)


def test_a_second_build_rewrites_nothing(project: Project) -> None:
    before = {path: path.stat().st_mtime_ns for path in (project.root / "site").rglob("*.html")}
    stamps = project.stamp("first"), project.stamp("second")
    succeed(project.build())
    after = {path: path.stat().st_mtime_ns for path in (project.root / "site").rglob("*.html")}
    kept = {path for path in before if before[path] == after[path]}
    # Sphinx writes the search page and the index on every build.
    changed = {path.name for path in set(before) - kept}
    assert changed <= {"search.html", "genindex.html", "404.html"}, changed
    assert stamps == (project.stamp("first"), project.stamp("second"))


def test_a_change_in_the_package_runs_the_examples_that_use_it_and_all_pages_with_code(project: Project) -> None:
    first, second, page = project.stamp("first"), project.stamp("second"), project.stamp_of_page()
    module = project.root / "src/autograd_cookbook/recipes/matmul.py"
    module.write_text(module.read_text() + "\n# changed\n")
    succeed(project.build())
    assert project.stamp("first") != first, "the example still shows what the old code printed"
    assert project.stamp("second") == second, "an example ran again though nothing that it uses has changed"
    assert project.stamp_of_page() != page, "the page still shows what the old code printed"


def test_an_edited_example_runs_again(project: Project) -> None:
    first, second = project.stamp("first"), project.stamp("second")
    project.example("second", "elementwise", "gelu", value=7)
    succeed(project.build())
    assert project.stamp("first") == first
    assert project.stamp("second") != second


BROKEN = {  # in the text of an example, and what is said of it
    ":doc:`/no/such/page`": "/no/such/page",
    ":func:`torch.no_such_name`": "torch.no_such_name",
    ".. recipe:: nonsense": "'nonsense'",
    ".. recipe:: relu": "page 'template'",
}


@pytest.fixture(scope="module")
def failed_build(first_build: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is said of an example that raises, one with dead links and unknown names, and a cell that raises."""
    project = Project(tmp_path_factory.mktemp("failed") / "project")
    shutil.copytree(first_build[1], project.root, symlinks=True)
    first, second = (project.root / f"examples/section/{name}.py" for name in ("first", "second"))
    first.write_text(first.read_text() + "\n1 / 0\n")
    second.write_text(second.read_text() + "".join(f"\n# %%\n# {text}\n" for text in BROKEN))
    page = project.root / "docs/index.md"
    page.write_text(page.read_text() + "\n```{code-cell} python\nraise KeyError('here')\n```\n")
    done = project.build()
    assert done.returncode != 0
    return done.stdout


def test_an_example_that_raises_fails_the_build_with_its_place(failed_build: str) -> None:
    assert re.search(r"first\.py(.|\n)*ZeroDivisionError", failed_build), failed_build


def test_a_snippet_that_raises_fails_the_build_with_its_place(failed_build: str) -> None:
    assert re.search(r"index\.md.*(WARNING|ERROR)", failed_build), failed_build
    assert "KeyError" in failed_build


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_dead_or_unknown_is_a_warning_with_its_place(text: str, failed_build: str) -> None:
    """And a warning fails the build."""
    warnings = [line for line in failed_build.splitlines() if "second.rst" in line and re.search("WARNING|ERROR", line)]
    assert any(BROKEN[text] in warning for warning in warnings), failed_build


def test_an_interrupted_build_leaves_nothing_that_the_next_takes_for_good(project: Project) -> None:
    good = project.pages()
    project.example("second", "elementwise", "gelu", value=5, stamp="42")
    assert project.build(DIE_WRITING="cookbook/section/second").returncode == 9
    assert project.pages()["cookbook/section/second.html"] == "half a page"
    succeed(project.build())
    healed = project.pages()
    assert "ran at 42" in healed["cookbook/section/second.html"]
    assert healed["cookbook/section/first.html"] == good["cookbook/section/first.html"]


def test_each_example_is_quick() -> None:
    """Beside the others, by what each took when a build of the site last ran it."""
    seconds = {name: took for name, took in schedule.seconds().items() if name.endswith(".py")}
    assert len(seconds) >= len(list((ROOT / "examples").glob("*/*.py")))
    slow = {file: took for file, took in seconds.items() if took > LARGEST_SHARE * sum(seconds.values())}
    assert not slow
