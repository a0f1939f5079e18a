"""Builds that can be trusted: nothing stale is kept, and nothing half-written is taken for good.

Sphinx-Gallery runs a script again when the script has changed. Here a script is also run again when a module
of the package that it imports, directly or not, has changed, or the pinned versions have.
"""

import ast
import hashlib
import importlib.util
from functools import cache, partial
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
PACKAGE = "autograd_cookbook"
WHAT_CODE_READS = (
    *(f"src/{PACKAGE}/**/*.*", "docs/_ext/*.py"),
    *("benchmarks/results/*.*", "examples/*/GALLERY_HEADER.rst", "constraints.txt"),
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


def generate_reference(app: Sphinx, generate: bool) -> None:
    """Keep autosummary from reading all modules to write what is there."""
    if code_is_as_before(app):
        app.config.autosummary_generate = generate


def forget_stale_examples(app: Sphinx) -> None:
    """Remove the gallery's checksum of each script that must run again; the gallery then runs it."""
    if code_is_as_before(app):
        return  # a script that has itself changed the gallery knows
    examples = Path(app.config.sphinx_gallery_conf["examples_dirs"])
    for script in sorted(examples.glob("*/*.py")):
        built = Path(app.srcdir) / "cookbook" / script.relative_to(examples)
        record = built.with_suffix(".src")
        current = fingerprint(script)
        if not record.exists() or record.read_text() != current:
            built.with_suffix(".py.md5").unlink(missing_ok=True)
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(current)


def unfinished(app: Sphinx) -> Path:
    """A file that is there while a build runs, and after one that did not end well."""
    return Path(app.outdir) / ".unfinished"


def distrust_interrupted_build(app: Sphinx) -> None:
    """If the last build did not end well, have every page written again: Sphinx goes by dates alone."""
    if unfinished(app).exists():
        for page in Path(app.outdir).rglob("*.html"):
            page.unlink()
    unfinished(app).touch()


def trust_finished_build(app: Sphinx, exception: Exception | None) -> None:
    """The last thing that a good build does."""
    if exception is None:
        unfinished(app).unlink(missing_ok=True)


def what_code_reads(app: Sphinx) -> Path:
    """A file that changes when anything changes that code on a page may import or read."""
    return Path(app.doctreedir) / "what-code-reads"


def look_at_what_code_reads(app: Sphinx) -> None:
    """Write that file. It stands for some three hundred, which Sphinx would list for each page."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in WHAT_CODE_READS for path in ROOT.glob(pattern)):
        if path.parent.name != "__pycache__":
            digest.update(path.read_bytes())
    record, current = what_code_reads(app), digest.hexdigest()
    if not record.exists() or record.read_text() != current:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(current)
    elif not unfinished(app).exists():
        app.code_is_as_before = True


def code_is_as_before(app: Sphinx) -> bool:
    """Whether the last build ended well, with the same package."""
    return hasattr(app, "code_is_as_before")


def depend_on_what_code_reads(app: Sphinx, docname: str, source: list[str]) -> None:
    """Have a page with code read again, and so run again, when what its code may import or read has changed."""
    if "{code-cell}" in source[0]:
        app.env.note_dependency(str(what_code_reads(app)), docname=docname)


def setup(app: Sphinx) -> dict[str, bool]:
    # Before Sphinx-Gallery, which runs the examples on the same event with the usual priority, 500.
    app.connect("builder-inited", look_at_what_code_reads, priority=100)
    app.connect("builder-inited", forget_stale_examples, priority=200)
    app.connect("builder-inited", distrust_interrupted_build, priority=200)
    # Around autosummary; afterwards the setting is as it was, or Sphinx would take it for another.
    app.connect("builder-inited", partial(generate_reference, generate=False), priority=499)
    app.connect("builder-inited", partial(generate_reference, generate=True), priority=501)
    app.connect("source-read", depend_on_what_code_reads)
    app.connect("build-finished", trust_finished_build, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
