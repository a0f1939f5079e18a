"""A build that keeps all its processes busy to the end.

Sphinx-Gallery runs one section after another, and waits for the last script of each; here the scripts of all sections
run side by side before, and the gallery then finds that they have run. Sphinx deals the pages out in a few pieces, in
the order of their names; here each page that runs something is a piece of its own, and what takes longest comes first.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import sphinx.builders
from joblib import Parallel, delayed
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.build_phase import BuildPhase
from sphinx.util.parallel import make_chunks
from sphinx_gallery.gen_rst import generate_file_rst
from sphinx_gallery.utils import get_md5sum

logger = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]
# How long each script and each page took when it last ran; a build on a bare machine has to guess.
SECONDS = ROOT / "build" / "seconds.json"
# What runs while a page is read: its cells, audits of functions, and programs of the error index. These are copies of a
# process that takes seconds to start, so that there is one for all that are read together.
RUNS = re.compile(r"^```{(code-cell|checks|errors)}", re.MULTILINE)
PROGRAMS = re.compile(r"^```{errors}", re.MULTILINE)


def seconds() -> dict[str, float]:
    """By script, as ``section/page.py``, and by page, as Sphinx names it."""
    return json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.exists() else {}


def store(took: dict[str, float]) -> None:
    SECONDS.parent.mkdir(exist_ok=True)
    SECONDS.write_text(json.dumps(dict(sorted((seconds() | took).items())), indent=0) + "\n", encoding="utf-8")


def run_side_by_side(app: Sphinx) -> None:
    """Run the scripts of the gallery that have to be run. One that fails is run again by the gallery, which reports."""
    conf = app.config.sphinx_gallery_conf
    examples, gallery = Path(conf["examples_dirs"]), Path(app.srcdir, conf["gallery_dirs"])
    stale = [path for path in examples.glob("*/*.py") if not has_run(path, gallery / path.relative_to(examples))]
    if not stale:
        return
    known = seconds()
    stale.sort(key=lambda path: known.get(str(path.relative_to(examples)), path.stat().st_size), reverse=True)
    logger.info("running %d scripts side by side", len(stale))
    for path in stale:
        Path(gallery, path.parent.name, "images", "thumb").mkdir(parents=True, exist_ok=True)
    work = (delayed(generate_file_rst)(path.name, gallery / path.parent.name, path.parent, conf) for path in stale)
    results = Parallel(n_jobs=conf["parallel"], pre_dispatch="n_jobs", batch_size=1, backend="loky")(work)
    store({str(path.relative_to(examples)): took for path, (_, _, (took, _), _) in zip(stale, results, strict=True)})


def has_run(script: Path, target: Path) -> bool:
    """Whether the gallery has the output of this very script."""
    record = Path(f"{target}.md5")
    return record.exists() and record.read_text() == get_md5sum(script, mode="t")


def pieces(app: Sphinx, names: Sequence[str], processes: int) -> list[Sequence[str]]:
    """Groups of pages, in the order in which Sphinx starts one when another ends: the first ones, then from the end."""
    if app.phase is not BuildPhase.READING:
        return make_chunks(names, processes)
    known, text = seconds(), {name: app.env.doc2path(name).read_text(encoding="utf-8") for name in names}
    slowest_first = sorted(names, key=lambda name: known.get(name, len(text[name])), reverse=True)
    programs = [name for name in slowest_first if PROGRAMS.search(text[name])]
    running = [name for name in slowest_first if RUNS.search(text[name]) and name not in programs]
    rest = [name for name in names if not RUNS.search(text[name])]
    groups = [programs[first::processes] for first in range(min(processes, len(programs)))]
    groups += [[name] for name in running]
    groups += make_chunks(rest, 2 * processes)
    return groups[:processes] + groups[: processes - 1 : -1]


def deal_out(app: Sphinx) -> None:
    sphinx.builders.make_chunks = lambda names, processes: pieces(app, names, processes)


def store_reading(app: Sphinx, exception: Exception | None) -> None:
    store(app.env.domains["duration"].reading_durations)


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.duration")
    # Before Sphinx-Gallery, and after what is stale has been forgotten.
    app.connect("builder-inited", run_side_by_side, priority=400)
    app.connect("builder-inited", deal_out)
    app.connect("build-finished", store_reading)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
