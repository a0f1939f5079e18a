"""One setting says where the documentation is published, and what is printed follows it."""

import os
import subprocess
import sys
from email.message import Message
from importlib.metadata import PackageNotFoundError

import pytest

from autograd_cookbook import __version__, _site

FAULTY = "import torch\nfrom autograd_cookbook import audit\nx = torch.ones(2, requires_grad=True)\n"
PRINTED = {
    "audit": f"{FAULTY}print(audit(lambda x: x.detach(), (x,), only=['first_order'], isolate=False))",
    "HTML": f"{FAULTY}print(audit(lambda x: x.detach(), (x,), only=['first_order'], isolate=False)._repr_html_())",
    "explain": "from autograd_cookbook.cli import main; main(['explain'])",
    "explain, unknown": "from autograd_cookbook.cli import main; main(['explain'])",
}
PASTES = {
    "explain": "RuntimeError: Trying to backward through the graph a second time",
    "explain, unknown": "RuntimeError: the gradient graph says nothing that is known a second time",
}


@pytest.mark.parametrize("what", PRINTED)
def test_links_are_printed_where_a_site_is_published_and_left_out_where_none_is(what: str) -> None:
    def printed(address: str) -> str:
        env = os.environ | {_site.SETTING: address}
        command = [sys.executable, "-c", PRINTED[what]]
        done = subprocess.run(command, env=env, input=PASTES.get(what, ""), capture_output=True, text=True, check=True)
        return done.stdout

    linked, bare = printed("https://docs.example.org/gradients"), printed("")
    assert f"https://docs.example.org/gradients/{_site.folder(__version__)}/" in linked
    assert "see: " not in bare
    assert "Page: " not in bare
    assert ".html#" not in bare


@pytest.mark.parametrize("address", ["https://example.org/a", "https://example.org/a/"])
def test_development_and_releases_are_next_to_each_other(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_site.SETTING, address)
    assert _site.site("1.2.0") == "https://example.org/a/stable/"
    assert _site.site("1.3.0.dev0") == "https://example.org/a/latest/"


def test_a_wheel_knows_the_address_that_it_was_built_with(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Message()
    kept["Project-URL"] = "Source, https://example.org/source"
    monkeypatch.delenv(_site.SETTING, raising=False)
    monkeypatch.setattr(_site, "metadata", lambda name: kept)
    assert _site.site("1.2.0") == ""
    kept["Project-URL"] = "Documentation, https://example.org/docs/"
    assert _site.site("1.2.0") == "https://example.org/docs/stable/"
    monkeypatch.setenv(_site.SETTING, "")
    assert _site.site("1.2.0") == ""


def test_sources_that_are_not_installed_have_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.delenv(_site.SETTING, raising=False)
    monkeypatch.setattr(_site, "metadata", missing)
    assert _site.site("1.2.0") == ""
