"""What Sphinx-Gallery is told by name: the order of pages, and a clean slate for each script."""

import faulthandler
import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from docs._ext.pages import PLACES
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from autograd_cookbook.catalog import BY_NAME

SECONDS_UNTIL_HUNG = 3600  # however busy the machine


class PageOrder:
    """Sort the pages of a section as its header says."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> int:
        page = Path(filename).stem
        if page not in PLACES:
            raise ExtensionError(f"say in {self.folder}/GALLERY_HEADER.rst where {page} comes")
        return list(PLACES).index(page)


def reset(conf: dict[str, Any], script: str, when: str) -> None:
    """Before and after each script: defaults restored, and a watchdog set that says where a script hangs."""
    import matplotlib.pyplot as plt
    import torch

    plt.close("all")
    plt.style.use(["default", Path(__file__).with_name("figures.mplstyle")])
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch._dynamo.reset()
    # Triton decides when it is imported whether it interprets, and the script before may have decided otherwise.
    os.environ.pop("TRITON_INTERPRET", None)
    for name in [
        name
        for name in sys.modules
        if re.match(r"(triton(?!\._C)|autograd_cookbook\.recipes\.(.*triton|flash_attention))", name)
    ]:
        del sys.modules[name]
    if when == "before":
        faulthandler.dump_traceback_later(SECONDS_UNTIL_HUNG, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()


def fill_notebooks(app: Sphinx) -> None:
    """In a notebook our directives would be bare text: the source of a recipe takes its place, a table goes."""
    for path in Path(app.srcdir, "cookbook").glob("*/*.ipynb"):
        notebook = json.loads(path.read_text())
        cells, found = [], False
        for cell in notebook["cells"]:
            text = re.sub(r"^\.\. (costs::|slider:: \w+)\n\n?", "", "".join(cell["source"]), flags=re.MULTILINE)
            pieces = re.split(r"^\.\. recipe:: (\w+)$", text, flags=re.MULTILINE)
            for text, name in zip(pieces[::2], [*pieces[1::2], None], strict=True):
                if text.strip():
                    cells.append(cell | {"source": [text.strip("\n")]})
                if name in BY_NAME:  # any other is named by the directive's own error
                    source = f"```python\n{BY_NAME[name].source}```"
                    cells.append({"cell_type": "markdown", "metadata": {}, "source": [source]})
                    found = True
        if found:
            path.write_text(json.dumps(notebook | {"cells": cells}, indent=1))
            with ZipFile(path.with_suffix(".zip"), "w") as archive:
                for file in (path, path.with_suffix(".py")):
                    archive.write(file, file.name)


def setup(app: Sphinx) -> dict[str, bool]:
    # After Sphinx-Gallery, which writes the notebooks on the same event.
    app.connect("builder-inited", fill_notebooks, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
