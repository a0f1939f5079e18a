"""One setting says where the documentation is published, and what is printed follows it."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autograd_cookbook import __version__, _site

# What the audit prints, in a terminal and in a notebook, and what explain prints of a known message and an unknown one.
PRINTING = """
import torch
from autograd_cookbook import audit
from autograd_cookbook.cli import main

x = torch.ones(2, requires_grad=True)
report = audit(lambda x: x.detach(), (x,), only=["first_order"], isolate=False)
print(report)
print("---")
print(report._repr_html_())
print("---")
main(["explain", "RuntimeError: Trying to backward through the graph a second time"])
print("---")
main(["explain", "RuntimeError: the gradient graph says nothing that is known a second time"])
"""
ADDRESS = "https://docs.example.org/gradients"


@pytest.fixture(scope="module")
def printed() -> dict[str, list[str]]:
    """The four texts, with an address and without one."""

    def run(address: str) -> list[str]:
        env = os.environ | {_site.SETTING: address}
        done = subprocess.run([sys.executable, "-c", PRINTING], env=env, capture_output=True, text=True, check=True)
        return done.stdout.split("---\n")

    return {address: run(address) for address in (ADDRESS, "")}


@pytest.mark.parametrize("what", range(4), ids=["audit", "HTML", "explain", "explain, unknown"])
@pytest.mark.xdist_group("site address")
def test_links_are_printed_where_a_site_is_published_and_left_out_where_none_is(
    what: int, printed: dict[str, list[str]]
) -> None:
    linked, bare = printed[ADDRESS][what], printed[""][what]
    assert f"{ADDRESS}/{_site.folder(__version__)}/" in linked
    assert "see: " not in bare
    assert "Page: " not in bare
    assert ".html#" not in bare


@pytest.mark.parametrize("address", ["https://example.org/a", "https://example.org/a/"])
def test_development_and_releases_are_next_to_each_other(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_site.SETTING, address)
    assert _site.site("1.2.0") == "https://example.org/a/stable/"
    assert _site.site("1.3.0.dev0") == "https://example.org/a/latest/"


def test_a_wheel_knows_the_address_that_it_was_built_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = tmp_path / "autograd_cookbook-1.2.0.dist-info" / "METADATA"
    installed.parent.mkdir()
    head = "Metadata-Version: 2.4\nName: autograd-cookbook\nProject-URL: Source, https://example.org/source\n"
    body = "\nProject-URL: Documentation, https://example.org/of-the-readme\n"
    monkeypatch.delenv(_site.SETTING, raising=False)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "nothing"), str(tmp_path)])
    monkeypatch.chdir(tmp_path.parent)
    installed.write_text(head + body)
    assert _site.site("1.2.0") == ""
    installed.write_text(head + "Project-URL: Documentation, https://example.org/docs/\n" + body)
    assert _site.site("1.2.0") == "https://example.org/docs/stable/"
    monkeypatch.setenv(_site.SETTING, "")
    assert _site.site("1.2.0") == ""


def test_the_package_is_found_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = importlib.metadata.distribution("autograd-cookbook").read_text("METADATA") or ""
    assert _site.metadata() == whole.partition("\n\n")[0]
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delenv(_site.SETTING, raising=False)
    assert _site.site("1.2.0") == ""


def test_the_address_takes_no_slow_import() -> None:
    code = "import sys, autograd_cookbook.errors.cli; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
