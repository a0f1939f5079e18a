#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.5"]
# ///
"""Everything that a person runs here; ``nox -l`` is the menu."""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.sessions = ["docs", "tests"]
nox.options.reuse_existing_virtualenvs = True

CONSTRAINTS = "constraints.txt"
SITE = Path("build/site")
# Tests and examples run side by side: each with one thread, they do not fight for the cores.
# Many processes are started: each would compile our modules again on a machine whose Python keeps no bytecode.
ONE_THREAD = {
    **{"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
    **{"PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": ""},
}

# Releases of torch whose messages the error index knows, besides the pinned one's.
RELEASES = ("1.13.1", "2.0.1", "2.2.2", "2.4.1", "2.6.0", "2.8.0", "2.11.0", "2.12.1", "2.14.1", "2.15.0")
# Releases of torch on which everything here has to work.
VERSIONS = ("2.12.1", "2.13.0", "2.14.1", "2.15.0")
OF_TORCH = ("torch==", "triton==", "sympy==", "networkx==")  # each release has versions of its own
NATIVE_TESTS = [f"tests/recipes/test_{name}.py" for name in ("native", "cuda_extension", "row_reduction")]

os.chdir(Path(__file__).parent)
PROJECT = nox.project.load_toml("pyproject.toml")
PINNED = hashlib.sha256(f"{Path(CONSTRAINTS).read_text()}{PROJECT['dependency-groups']}".encode()).hexdigest()
# Written by the session dev: nox itself runs in an environment that has everything, and makes no others.
FILLED = Path(sys.prefix, "autograd-cookbook-pins")
if FILLED.exists():
    nox.options.default_venv_backend = "none"
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def packages(*groups: str) -> list[tuple[str, ...]]:
    """The package and some of its dependency groups, in the pinned versions: arguments of pip, in order."""
    wanted = nox.project.dependency_groups(PROJECT, *groups)
    # What is imported is compiled then, and kept; to compile all of it takes longer than to unpack it.
    options = ("--no-compile", "-c", CONSTRAINTS)
    # torch first and alone: a range, asked for by another package, would take a build with CUDA.
    return [(*options, "torch"), (*options, *wanted, "-e", ".")]


def install(session: nox.Session, *groups: str) -> None:
    """Fill the environment of a session."""
    if not FILLED.exists():
        for arguments in packages(*groups):
            session.install(*arguments)
    elif FILLED.read_text() != PINNED:
        session.error("this environment is out of date: python -m nox -s dev")


@nox.session(default=False, venv_backend="none")
def dev(session: nox.Session) -> None:
    """Install everything into the environment that nox runs in; all sessions then run there and start at once."""
    if sys.prefix == sys.base_prefix:
        session.error("first make a virtual environment and activate it: python -m venv .venv")
    for arguments in packages("browser", "serve", "lint"):
        session.run(sys.executable, "-m", "pip", "install", *arguments)
    FILLED.write_text(PINNED)


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
    """Build the site into build/site, running everything on it; with --page NAME, one page into build/page."""
    install(session, "docs")
    if "--page" in session.posargs:
        session.run("python", "-m", "docs._ext.one_page", *session.posargs, env=ONE_THREAD)
        return
    if "--publish" in session.posargs:  # a folder of builds, by the workflow pages
        session.run("python", "-m", "docs._ext.published", *session.posargs[1:])
        return
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
    """Test all recipes and tools, in a few minutes on two processors; with -k NAME, what has the name."""
    install(session, "test")
    # Each worker collects all tests, which takes longer than a few of them do.
    workers = () if "-k" in session.posargs else ("-n", "2", "--dist", "loadgroup")
    pytest(session, *workers, "--ignore=tests/site", "tests")


@nox.session(default=False)
def doctest(session: nox.Session) -> None:
    """Run the examples in docstrings and in Markdown files."""
    install(session, "test")
    pytest(session, "--doctest-modules", "src", "tests/test_snippets.py")


@nox.session(default=False)
def gradcheck(session: nox.Session) -> None:
    """Run all tests that take long, nightly, or with --changed-since REVISION those of what differs from it in git."""
    install(session, "test")
    session.run("python", "-m", "autograd_cookbook", "build")
    pytest(session, "-n", "2", "--dist", "loadgroup", "-m", "slow", "--ignore=tests/site", "tests")


@nox.session(default=False)
def mutation(session: nox.Session) -> None:
    """Break every backward in every small way, and see that a test fails; --modules PAGE for some pages alone."""
    install(session, "test")
    # As a module, so that the plugin is found in this folder.
    options = ("-q", "-s", "-p", "tests.mutation", "tests/recipes", "tests/test_catalog.py", "tests/test_accuracy.py")
    session.run("python", "-m", "pytest", *options, *session.posargs, env=ONE_THREAD)


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """Compile the CUDA kernels; run their tests and Triton's where a GPU is, and again with memory checked."""
    install(session, "test")
    options = ["--check-cuda"] if shutil.which("nvcc") else []
    if not options:
        session.warn("no nvcc here: the C++ kernels are built and the CUDA kernels are not even compiled")
    session.run("python", "-m", "autograd_cookbook", "build", *options, env=ONE_THREAD)
    pytest(session, "-m", "gpu", "tests/recipes")
    if shutil.which("nvidia-smi") and shutil.which("compute-sanitizer"):
        checked = ("compute-sanitizer", "--error-exitcode", "1", "python", "-m", "pytest")
        session.run(*checked, "-m", "gpu", *NATIVE_TESTS, env=ONE_THREAD, external=True)
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
    compile_only = "from autograd_cookbook.recipes._native.cli import LIBRARIES; [it.compile() for it in LIBRARIES]"
    session.run("python", "-c", compile_only, env=env)
    libraries = list(Path(env["XDG_CACHE_HOME"]).rglob("*.so"))
    if not libraries or any(b"__asan_report" not in library.read_bytes() for library in libraries):
        session.error("the kernels were compiled without the sanitizer")
    session.run("pytest", *NATIVE_TESTS, *session.posargs, env=env | {"LD_PRELOAD": " ".join(preloaded)})


@nox.session(default=False)
def browser(session: nox.Session) -> None:
    """Test the built site in headless Chromium, and the build itself."""
    install(session, "browser", "docs")
    if not (SITE / "index.html").exists():
        build_site(session)
    # One more than processors: a page that is waited for leaves one idle.
    pytest(session, "-m", "site and not slow", "-n", "3", "--dist", "loadgroup", "tests/site")


@nox.session(default=False, venv_backend="none")
def add(session: nox.Session) -> None:
    """Start a recipe, check, error or pitfall from a scaffold: nox -s add -- recipe NAME."""
    session.run(sys.executable, ".scaffold/add.py", *session.posargs)


@nox.session(default=False)
def wild(session: nox.Session) -> None:
    """Install public libraries one by one, audit their functions, and hold that against what was judged; or NAME."""
    install(session, "test")
    session.run("python", "-m", "wild.run", *session.posargs, env=ONE_THREAD)


@nox.session(default=False)
def refresh(session: nox.Session) -> None:
    """Measure again what is stored and stale, or NAME: badges, costs, the error index, what the audit finds."""
    install(session, "test")
    session.run("python", "-m", "benchmarks.refresh", *session.posargs, env=ONE_THREAD)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Run the long benchmarks of pages and add all recipes to the history; or NAME of these, or of a recipe."""
    install(session, "test")
    pages = ("attention", "large_vocabulary", "native")
    for name in session.posargs or (*pages, "history"):
        if name in pages:
            session.run("python", "-m", f"benchmarks.{name}")
        else:
            recipes = () if name == "history" else (name,)
            session.run("python", "-m", "benchmarks.history", *recipes, env=ONE_THREAD)


@nox.session(default=False, venv_backend="virtualenv")
def release(session: nox.Session) -> None:
    """Build the package into build/dist and try it in an empty environment; with a VERSION, prepare its release."""
    session.install("-c", CONSTRAINTS, *nox.project.dependency_groups(PROJECT, "release"))
    if session.posargs:
        (version,) = session.posargs
        module = Path("src/autograd_cookbook/__init__.py")
        module.write_text(re.sub('(?m)^__version__ = ".*"$', f'__version__ = "{version}"', module.read_text()))
        if "dev" not in version:
            session.run("towncrier", "build", "--yes", "--version", version)
    elif any(Path("changes").glob("*.*.md")):
        session.run("towncrier", "build", "--draft", "--version", "next")
    folder = Path("build/dist")
    shutil.rmtree(folder, ignore_errors=True)
    # With the pinned backend; the wheel is built from the sdist.
    session.run("python", "-m", "build", "--no-isolation", "--outdir", str(folder))
    session.run("twine", "check", "--strict", *map(str, folder.iterdir()))
    session.run("python", "-m", "tests.distribution", str(folder), env=ONE_THREAD)


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Check style, types and prose."""
    install(session, "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("pytest", "-m", "slow", "tests/test_typing.py")
    # Types and names of the standard library as the newest Python has them, which need not be installed.
    session.run("mypy", "--python-version", "3.14", "--enable-error-code", "deprecated")
    session.run("python", "-m", "docs.prose")


@nox.session(default=False, venv_backend="none")
def versions(session: nox.Session) -> None:
    """Test and measure everything on each supported torch, on RELEASE or on newest; several GB each, one at a time."""
    changed = []
    pins = [line for line in Path(CONSTRAINTS).read_text().splitlines() if not line.startswith(OF_TORCH)]
    for release in session.posargs or VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            constraints = Path(folder, "constraints.txt")
            pin = [] if release == "newest" else [f"torch=={release}"]
            constraints.write_text("\n".join([*pins, *pin]))
            session.run(sys.executable, "-m", "venv", str(Path(folder, "env")))
            programs = Path(folder, "env", "bin")
            env = ONE_THREAD | {
                "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
                "XDG_CACHE_HOME": str(Path(folder, "cache")),  # kernels that this torch compiles
            }
            run = partial(session.run, str(programs / "python"), "-m", env=env)
            wanted = nox.project.dependency_groups(PROJECT, "docs", "test")
            run("pip", "install", "-q", "--no-cache-dir", "-c", str(constraints), "torch", *wanted, "-e", ".")
            # What is otherwise is stored first: the tests know of it, and fail at what is not.
            report = str(Path(folder, "tests.xml"))
            options = ("-n", "2", "--dist", "loadgroup", "--ignore=tests/site", "--junitxml", report)
            for step in (
                ("tests.versions",),
                ("benchmarks.history",),
                ("pytest", "-o", "faulthandler_timeout=300", *options, "tests"),
                ("tests.versions", report),
            ):
                try:
                    run(*step)
                except nox.command.CommandFailed:
                    changed.append(f"{release} ({' '.join(step[:1])})")
    if changed:
        session.error(f"tests fail, or something has changed: {', '.join(dict.fromkeys(changed))}")


@nox.session(default=False)
def wordings(session: nox.Session) -> None:
    """Store what other releases of torch say of the errors in the index; several GB each, one at a time, or RELEASE."""
    install(session, "test")
    folder = Path(session.create_tmp())
    programs, said = folder / "programs.json", folder / "said"
    said.mkdir(exist_ok=True)
    session.run("python", "-m", "docs.errors.wordings", "export", str(programs))
    for release in session.posargs or RELEASES:
        with tempfile.TemporaryDirectory() as other:
            session.run("python", "-m", "venv", other)
            # NumPy 2 came later than torch 2.2.
            numpy = "numpy<2" if release < "2.3" else "numpy>=2"
            python = str(Path(other, "bin", "python"))
            session.run(
                python, "-m", "pip", "install", "-q", "--no-cache-dir", f"torch=={release}", numpy, external=True
            )
            env = ONE_THREAD | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), str(Path("src").resolve())])}
            run = ("-m", "docs.errors.wordings", "run", str(programs), str(said / f"{release}.json"))
            session.run(python, *run, env=env, external=True)
    session.run("python", "-m", "docs.errors.wordings", "merge", *map(str, sorted(said.glob("*.json"))))


@nox.session(default=False, venv_backend="virtualenv")
def lock(session: nox.Session) -> None:
    """Pin the newest versions of everything but torch in constraints.txt."""
    header = [line for line in Path(CONSTRAINTS).read_text().splitlines() if line.startswith(("#", "torch=="))]
    session.install(header[-1])
    groups = nox.project.dependency_groups(PROJECT, "test", "serve", "browser", "lint", "release")
    session.install("--upgrade", *groups)
    frozen = session.run("python", "-m", "pip", "freeze", silent=True, external=False)
    pins = [line for line in str(frozen).splitlines() if "==" in line and not line.startswith("torch==")]
    Path(CONSTRAINTS).write_text("\n".join([*header, *pins]) + "\n")


if __name__ == "__main__":
    nox.main()
