"""Where the documentation is published: one setting, the environment variable ``AUTOGRAD_COOKBOOK_URL``.

A build reads the variable, whether it builds the site or a wheel, and the wheel keeps the address in its metadata. So
a released package links to the site of its publisher. Without an address there are no links.
"""

import os
from importlib.metadata import PackageNotFoundError, metadata

SETTING = "AUTOGRAD_COOKBOOK_URL"


def base() -> str:
    """The address that all versions are published under, with a slash at its end; empty if there is none."""
    address = os.environ.get(SETTING)
    if address is None:
        try:
            urls = metadata("autograd-cookbook").get_all("Project-URL") or []
        except PackageNotFoundError:  # run from a folder of sources
            urls = []
        address = dict(url.split(", ", 1) for url in urls).get("Documentation", "")
    return f"{address.rstrip('/')}/" if address else ""


def folder(version: str) -> str:
    """Where a version is under that address, until a newer one takes its place."""
    return "latest" if "dev" in version else "stable"


def site(version: str) -> str:
    """The address of the documentation of a version, with a slash at its end; empty if none is published."""
    return f"{root}{folder(version)}/" if (root := base()) else ""
