"""The address of the documentation. The environment variable ``AUTOGRAD_COOKBOOK_URL`` sets it.

The build of the site and the build of a wheel read this variable, and the wheel stores the address in its metadata. So
a released package links to the site of its publisher. Without an address, there are no links.
"""

import os
from importlib.metadata import PackageNotFoundError, metadata

SETTING = "AUTOGRAD_COOKBOOK_URL"


def base() -> str:
    """Return the address under which all versions are published, with a slash at its end. Empty if there is none."""
    address = os.environ.get(SETTING)
    if address is None:
        try:
            urls = metadata("autograd-cookbook").get_all("Project-URL") or []
        except PackageNotFoundError:  # run from a folder of sources
            urls = []
        address = dict(url.split(", ", 1) for url in urls).get("Documentation", "")
    return f"{address.rstrip('/')}/" if address else ""


def folder(version: str) -> str:
    """Return the folder of a version under that address."""
    return "latest" if "dev" in version else "stable"


def site(version: str) -> str:
    """Return the address of the documentation of a version, with a slash at its end. Empty if none is published."""
    return f"{root}{folder(version)}/" if (root := base()) else ""
