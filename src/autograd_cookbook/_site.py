"""The address of the documentation. The environment variable ``AUTOGRAD_COOKBOOK_URL`` sets it.

The build of the site and the build of a wheel read this variable, and the wheel stores the address in its metadata. So
a released package links to the site of its publisher. Without an address, there are no links.
"""

import os
import re
import sys
from pathlib import Path

SETTING = "AUTOGRAD_COOKBOOK_URL"


def base() -> str:
    """Return the address under which all versions are published, with a slash at its end. Empty if there is none."""
    address = os.environ.get(SETTING)
    if address is None:
        found = re.search(r"^Project-URL: Documentation, (\S+)", metadata(), re.MULTILINE)
        address = found[1] if found else ""
    return f"{address.rstrip('/')}/" if address else ""


def metadata() -> str:
    """Return the headers of the installed package's metadata. Empty if the package runs from a folder of sources.

    ``importlib.metadata`` reads them too, but its import takes a sixth of the time of an explanation.
    """
    for folder in sys.path:
        for path in Path(folder).glob("autograd_cookbook-*.dist-info/METADATA"):
            return path.read_text(encoding="utf-8").partition("\n\n")[0]
    return ""


def folder(version: str) -> str:
    """Return the folder of a version under that address."""
    return "latest" if "dev" in version else "stable"


def site(version: str) -> str:
    """Return the address of the documentation of a version, with a slash at its end. Empty if none is published."""
    return f"{root}{folder(version)}/" if (root := base()) else ""
