"""The versions of the site, next to each other: a list for the theme's switcher, and the folder that is published.

Each version reads the list in its own ``_static``, so a page asks no other host. A build alone lists itself.
``python -m docs._ext.published FOLDER`` completes a folder of several builds: ``latest``, and one for each release,
named like ``v1.2.0``. The newest release becomes ``stable``, and all of them get the same list.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.version import Version
from sphinx.application import Sphinx

import autograd_cookbook
from autograd_cookbook._site import base, folder

LIST = "_static/versions.json"


def path_of(name: str) -> str:
    """Where a version's folder is on the host that publishes it. An unpublished site is shown at the root."""
    return f"{urlsplit(base()).path}{name}/" if base() else "/"


def entry(name: str, version: str) -> dict[str, Any]:
    """What the theme shows of a folder, and the number that its banner compares."""
    label = {"latest": "development", "stable": f"{version} (stable)"}.get(name, version)
    return {"name": label, "version": version, "url": path_of(name), "preferred": name == "stable"}


def write(site: Path, versions: dict[str, str]) -> None:
    (site / LIST).write_text(json.dumps([entry(*version) for version in versions.items()], indent=1) + "\n")


def assemble(published: Path, development: str) -> None:
    """Complete a folder of builds, so that it can be published as it is."""
    releases = {site.name: site.name.removeprefix("v") for site in published.glob("v*")}
    versions = {}
    if releases:
        newest = max(releases, key=Version)
        shutil.copytree(published / newest, published / "stable", dirs_exist_ok=True)
        versions["stable"] = releases[newest]
    if (published / "latest").exists():
        versions["latest"] = development
    for name in versions:
        write(published / name, versions)
    for name, version in releases.items():  # an old one is in no list but its own
        own = {} if version == versions["stable"] else {name: version}
        write(published / name, versions | own)
    start = next(iter(versions))
    # For an address that is nowhere, hosts show the page at the root.
    shutil.copy(published / start / "404.html", published)
    (published / "index.html").write_text(
        f'<!doctype html><title>Autograd Cookbook</title><meta http-equiv="refresh" content="0; url={start}/">'
        f'<a href="{start}/">Autograd Cookbook</a>\n'
    )


def write_own(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html":
        write(Path(app.outdir), {folder(app.config.release): app.config.release})


def name_the_list(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """The page for what is not there is shown at any address, so that it names the list from the root."""
    if page == app.config.notfound_pagename:
        json_url = app.config.notfound_urls_prefix + LIST
        context["theme_switcher"] = context["theme_switcher"] | {"json_url": json_url}


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", name_the_list, priority=100)
    app.connect("build-finished", write_own)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    assemble(Path(sys.argv[1]), autograd_cookbook.__version__)
