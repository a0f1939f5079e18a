"""What pyproject.toml cannot say about the package: links that depend on its version and on where the site is, the
compression of the error index, which takes a quarter less in a distribution this way, and that of a released wheel.
"""

import importlib.util
import re
import runpy
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class Links(MetadataHookInterface):
    """Fills in the links and the README whose own links lead to files of the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called for a build from the repository; a wheel made from an sdist has what the sdist says."""
        urls = dict(self.config["urls"])
        # The package reads the address of the site from here, see its module _site.
        if address := runpy.run_path(f"{self.root}/src/autograd_cookbook/_site.py")["base"]():
            urls["Documentation"] = address
        metadata["urls"] = urls
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_whole_links(Path(self.root, "README.md").read_text(), urls["Source"], metadata["version"]),
        }


class Compressed(BuildHookInterface):
    """Puts the error index and its programs into a distribution, compressed as ``errors/storing.py`` reads them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a build; an editable installation uses the sources as they are, and an sdist has them
        compressed already.
        """
        self.folder = tempfile.TemporaryDirectory()
        if version == "editable":
            return
        errors = Path(self.root, "src/autograd_cookbook/errors")
        compressed = runpy.run_path(str(errors / "storing.py"))["compressed"]
        for path in errors.glob("*.json"):
            stored = Path(self.folder.name, f"{path.name}.packed")
            stored.write_bytes(compressed(path))
            place = "autograd_cookbook/errors" if self.target_name == "wheel" else "src/autograd_cookbook/errors"
            build_data["force_include"][str(stored)] = f"{place}/{stored.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called when the distribution is there."""
        self.folder.cleanup()
        # Ten seconds for one and a half percent: only the environment of a release has this.
        if version != "editable" and self.target_name == "wheel" and importlib.util.find_spec("zopfli"):
            deflate_again(Path(artifact_path))


def deflate_again(wheel: Path) -> None:
    """Compress the files of a wheel as far as its format allows; they stay in order, with their dates and modes."""
    from zopfli import ZipFile

    smaller = wheel.with_suffix(".smaller")
    with zipfile.ZipFile(wheel) as given, ZipFile(smaller, "w") as made:
        for info in given.infolist():
            made.writestr(info, given.read(info))
    smaller.replace(wheel)


def with_whole_links(text: str, source: str, version: str) -> str:
    """Markdown whose relative links, of which only the repository has the files, lead there."""

    def whole(link: re.Match[str]) -> str:
        return f"{link[1]}{link[2]}({source}/{'raw' if link[1] else 'blob'}/v{version}/"

    return re.sub(r"(!?)(\[[^]]*\])\((?!https?://|#)", whole, text)
