"""Builds that can be trusted: nothing stale is kept, and nothing half-written is taken for good.

Sphinx-Gallery runs a script again when the script has changed. Here a script is also run again when a module
of the package that it imports, directly or not, has changed, or the pinned versions have.
"""

import ast
import hashlib
import importlib.util
from functools import cache
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
PACKAGE = "autograd_cookbook"
WHAT_CODE_READS = (
    *(f"src/{PACKAGE}/**/*.py", "docs/_ext/*.py"),
    *("benchmarks/results/*.*", "examples/*/GALLERY_HEADER.rst"),
)


@cache
def imports_of(path: Path) -> frozenset[Path]:
    """The files of the package that a file needs, directly or not, found without running anything."""
    found: set[Path] = set()
    pending = [path]
    while pending:
        for name in _imported_modules(pending.pop()):
            origin = _file_of(name)
            if origin is not None and origin not in found:
                found.add(origin)
                pending.append(origin)
    return frozenset(found)


@cache
def _imported_modules(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # "from package import name": the name may be a module or something inside of one.
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in names if name.partition(".")[0] == PACKAGE)


@cache
def _file_of(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # a function, not a module
        return None
    return Path(spec.origin) if spec and spec.origin else None


def fingerprint(script: Path) -> str:
    """Changes when the script may print something else than it did, though the script is the same."""
    digest = hashlib.sha256((ROOT / "constraints.txt").read_bytes())
    for path in sorted(imports_of(script)):
        # A subpackage may read what lies beside its modules, such as C++ sources.
        whole_folder = path.name == "__init__.py" and path.parent.name != PACKAGE
        for file in sorted(path.parent.glob("*.*")) if whole_folder else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


def forget_stale_examples(app: Sphinx) -> None:
    """Remove the gallery's checksum of each script that must run again; the gallery then runs it."""
    examples = Path(app.config.sphinx_gallery_conf["examples_dirs"])
    for script in sorted(examples.glob("*/*.py")):
        built = Path(app.srcdir) / "cookbook" / script.relative_to(examples)
        record = built.with_suffix(".src")
        current = fingerprint(script)
        if not record.exists() or record.read_text() != current:
            built.with_suffix(".py.md5").unlink(missing_ok=True)
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(current)


def distrust_interrupted_build(app: Sphinx) -> None:
    """If the last build did not end well, have every page written again: Sphinx goes by dates alone."""
    marker = Path(app.outdir) / ".unfinished"
    if marker.exists():
        for page in Path(app.outdir).rglob("*.html"):
            page.unlink()
    marker.touch()


def trust_finished_build(app: Sphinx, exception: Exception | None) -> None:
    """The last thing that a good build does."""
    if exception is None:
        (Path(app.outdir) / ".unfinished").unlink(missing_ok=True)


def depend_on_what_code_reads(app: Sphinx, docname: str, source: list[str]) -> None:
    """Have a page with code read again, and so run again, when what its code may import or read has changed."""
    if "{code-cell}" in source[0]:
        for pattern in WHAT_CODE_READS:
            for path in ROOT.glob(pattern):
                app.env.note_dependency(str(path), docname=docname)


def setup(app: Sphinx) -> dict[str, bool]:
    # Before Sphinx-Gallery, which runs the examples on the same event with the usual priority, 500.
    app.connect("builder-inited", forget_stale_examples, priority=100)
    app.connect("builder-inited", distrust_interrupted_build, priority=100)
    app.connect("source-read", depend_on_what_code_reads)
    app.connect("build-finished", trust_finished_build, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
