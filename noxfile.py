#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.5"]
# ///
"""Everything that a person runs here; ``nox -l`` is the menu."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.sessions = ["docs", "tests"]
nox.options.reuse_existing_virtualenvs = True

CONSTRAINTS = "constraints.txt"
SITE = Path("build/site")
# Tests and examples run side by side: each with one thread, they do not fight for the cores.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONFAULTHANDLER": "1"}


def install(session: nox.Session, *groups: str) -> None:
    """The package and some of its dependency groups, in the pinned versions."""
    wanted = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *groups)
    # torch first and alone: a range, asked for by another package, would take a build with CUDA.
    session.install("-c", CONSTRAINTS, "torch")
    session.install("-c", CONSTRAINTS, *wanted, "-e", ".")


def pytest(session: nox.Session, *args: str) -> None:
    """Run pytest; a test that hangs prints its stacks after five minutes."""
    session.run("pytest", "-o", "faulthandler_timeout=300", *args, *session.posargs, env=ONE_THREAD)


def build_site(session: nox.Session, *options: str) -> None:
    """Run every example and page that has changed, or whose code has; warnings are errors."""
    session.run(
        *("python", "-m", "sphinx", "-nW", "--keep-going", "-j", "2", "-b", "html", *options, "docs", str(SITE)),
        env=ONE_THREAD,
    )


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/site, running everything on it."""
    install(session, "docs")
    build_site(session, *session.posargs)
    command = ("python", "-m", "http.server", "--directory", str(SITE), "--bind", "127.0.0.1", "8000")
    print(f"\nThe site is in {SITE}. To read it: {' '.join(command)}")
    if sys.stdin.isatty() and sys.stdout.isatty() and input("Serve it at http://127.0.0.1:8000 now? [y/N] ") == "y":
        session.run(*command)


@nox.session(default=False)
def serve(session: nox.Session) -> None:
    """Build the site and show it at http://127.0.0.1:8000, again after every change."""
    install(session, "serve")
    session.run(
        *("sphinx-autobuild", "--watch", "src", "--watch", "examples", "--ignore", "*/docs/cookbook/*"),
        *("--ignore", "*/docs/reference/generated/*", "docs", str(SITE), *session.posargs),
        env=ONE_THREAD,
    )


@nox.session
def tests(session: nox.Session) -> None:
    """Test all recipes and tools, in a quarter of an hour on two processors."""
    install(session, "test")
    pytest(session, "-n", "2", "--dist", "loadgroup", "--ignore=tests/site", "tests")


@nox.session(default=False)
def doctest(session: nox.Session) -> None:
    """Run the examples in docstrings and in Markdown files."""
    install(session, "test")
    pytest(session, "--doctest-modules", "src", "tests/test_snippets.py")


@nox.session(default=False)
def gradcheck(session: nox.Session) -> None:
    """Verify the whole catalog slowly and strictly; with --update-verified, renew the badges."""
    install(session, "test")
    session.run("python", "-m", "autograd_cookbook.native")
    pytest(session, "-n", "2", "-m", "slow", "tests/test_thorough.py", "tests/test_catalog.py")
    pytest(session, "tests/test_catalog.py", "-k", "badges")


@nox.session(default=False)
def mutation(session: nox.Session) -> None:
    """Break every backward in every small way, and see that a test fails; --modules NAME for some alone."""
    install(session, "test")
    # As a module, so that the plugin is found in this folder.
    options = ("-q", "-p", "tests.mutation", "--ignore=tests/audit", "--ignore=tests/site", "tests")
    session.run("python", "-m", "pytest", *options, *session.posargs, env=ONE_THREAD)


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """Compile the CUDA kernels; run their tests and Triton's where a GPU is, and again with memory checked."""
    install(session, "test")
    options = ["--check-cuda"] if shutil.which("nvcc") else []
    if not options:
        session.warn("no nvcc here: the C++ kernels are built and the CUDA kernels are not even compiled")
    session.run("python", "-m", "autograd_cookbook.native", *options, env=ONE_THREAD)
    pytest(
        session, "-m", "gpu", *(f"tests/test_{name}.py" for name in ("native", "triton_softmax", "triton_attention"))
    )
    if shutil.which("nvidia-smi") and shutil.which("compute-sanitizer"):
        checked = ("compute-sanitizer", "--error-exitcode", "1", "python", "-m", "pytest")
        session.run(*checked, "-m", "gpu", "tests/test_native.py", env=ONE_THREAD, external=True)
    else:
        session.warn("no GPU or no compute-sanitizer here: the CUDA kernels' accesses of memory are not checked")


@nox.session(default=False)
def sanitize(session: nox.Session) -> None:
    """Run the C++ kernels with every access of memory and every undefined operation checked."""
    install(session, "test")
    cxx = os.environ.get("CXX", "c++")
    # The sanitizer has to be loaded before Python, and the library whose exceptions it watches with it.
    preloaded = [
        str(session.run(cxx, f"-print-file-name={name}", external=True, silent=True)).strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    env = ONE_THREAD | {
        "XDG_CACHE_HOME": tempfile.mkdtemp(dir=session.create_tmp()),
        "CXXFLAGS": "-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all -g1",
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps much until the end
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    compile_only = "from autograd_cookbook.native import LIBRARIES as them; [library.compile() for library in them]"
    session.run("python", "-c", compile_only, env=env)
    libraries = list(Path(env["XDG_CACHE_HOME"]).rglob("*.so"))
    if not libraries or any(b"__asan_report" not in library.read_bytes() for library in libraries):
        session.error("the kernels were compiled without the sanitizer")
    session.run("pytest", "tests/test_native.py", *session.posargs, env=env | {"LD_PRELOAD": " ".join(preloaded)})


@nox.session(default=False)
def browser(session: nox.Session) -> None:
    """Test the built site in headless Chromium, and the build itself."""
    install(session, "browser", "docs")
    if not (SITE / "index.html").exists():
        build_site(session)
    pytest(session, "-m", "site", "-n", "2", "tests/site")


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure the recipes, or those named, and without a name what the audit finds, into benchmarks/results."""
    install(session, "test")
    session.run("python", "benchmarks/costs.py", *session.posargs, env=ONE_THREAD)
    session.run("python", "benchmarks/checking.py", *session.posargs, env=ONE_THREAD)
    if not session.posargs:
        session.run("python", "-m", "benchmarks.findings", env=ONE_THREAD)


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Check style and types."""
    session.install("-c", CONSTRAINTS, *nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session(default=False)
def newest(session: nox.Session) -> None:
    """Run the tests on the newest torch, by hand or nightly."""
    session.install(*nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test"))
    session.install("--upgrade", "torch", "-e", ".")
    # Which messages are other ones; the tests fail on each.
    session.run("python", "-m", "tests.errors", env=ONE_THREAD, success_codes=[0, 1])
    pytest(session, "-n", "2", "--dist", "loadgroup", "--ignore=tests/site", "tests", "-W", "default")


@nox.session(default=False)
def lock(session: nox.Session) -> None:
    """Pin the newest versions of everything but torch in constraints.txt."""
    header = [line for line in Path(CONSTRAINTS).read_text().splitlines() if line.startswith(("#", "torch=="))]
    session.install(header[-1])
    groups = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test", "serve", "browser", "lint")
    session.install("--upgrade", *groups)
    frozen = session.run("python", "-m", "pip", "freeze", silent=True, external=False)
    pins = [line for line in str(frozen).splitlines() if "==" in line and not line.startswith("torch==")]
    Path(CONSTRAINTS).write_text("\n".join([*header, *pins]) + "\n")


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    nox.main()
