"""Several versions of a page next to each other, as they are published; each is built from these sources."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from docs._ext.published import LIST, assemble
from playwright.sync_api import Browser, Page, expect

from autograd_cookbook._site import SETTING

from .conftest import opened

pytestmark = [pytest.mark.site, pytest.mark.xdist_group("versions")]

ROOT = Path(__file__).parents[2]
ADDRESS = "https://docs.example.org/gradients"
DEVELOPMENT = "0.3.0.dev0"
BUILT = {"latest": DEVELOPMENT, "v0.10.0": "0.10.0", "v0.9.0": "0.9.0"}
BUILD = """
import sys
from pathlib import Path

import autograd_cookbook
from docs._ext import one_page

autograd_cookbook.__version__, one_page.FOLDER = sys.argv.pop(), Path(sys.argv.pop())
sys.exit(one_page.main())
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The glossary, which runs nothing, of two releases and a development version."""
    root = tmp_path_factory.mktemp("published")
    site = root / "gradients"
    site.mkdir()
    for name, version in BUILT.items():
        folder = tmp_path_factory.mktemp(name)
        command = [sys.executable, "-c", BUILD, "--page", "glossary", str(folder), version]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | {SETTING: ADDRESS}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        (folder / "site").rename(site / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, ADDRESS)
        assemble(site, DEVELOPMENT)
    return site


@pytest.fixture(scope="module")
def address(published: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(published.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{published.name}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("name", "canonical"), [("latest", "latest"), ("stable", "stable"), ("v0.9.0", "stable")])
def test_canonical_links_have_the_address_of_the_setting(name: str, canonical: str, published: Path) -> None:
    """That of an old version is the same page of the newest release."""
    html = (published / name / "glossary.html").read_text()
    assert f'<link rel="canonical" href="{ADDRESS}/{canonical}/glossary.html"' in html
    assert f"{ADDRESS}/{canonical}/glossary.html" in (published / name / "sitemap.xml").read_text()


@pytest.mark.parametrize(
    ("name", "shown", "banner"),
    [
        ("latest", "development", "an unstable development version"),
        ("stable", "0.10.0 (stable)", None),
        ("v0.10.0", "0.10.0 (stable)", None),
        ("v0.9.0", "0.9.0", "an old version (0.9.0)"),
    ],
)
@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1440, "light"), (1440, "dark")])
def test_the_switcher_and_the_banner(
    name: str, shown: str, banner: str | None, width: int, theme: str, browser: Browser, address: str
) -> None:
    with opened(browser, viewport={"width": width, "height": 800}, color_scheme=theme) as page:
        elsewhere = []
        page.on("request", lambda r: None if r.url.startswith((address, "data:")) else elsewhere.append(r.url))
        page.goto(f"{address}{name}/glossary.html", wait_until="networkidle")
        assert not elsewhere
        warning = page.locator("#bd-header-version-warning")
        expect(warning).to_contain_text(banner) if banner else expect(warning).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width < 960:
            page.locator("button.primary-toggle").first.click()
        button = page.locator(".version-switcher__button").locator("visible=true")
        expect(button).to_have_text(shown)
        button.click()
        menu = page.locator(".version-switcher__menu").locator("visible=true")
        expect(menu.locator("a.active")).to_have_text(shown)
        violations = Axe().run(page, context=".bd-header").response["violations"]
        assert not violations, json.dumps(violations, indent=1)[:2000]
        other = "development" if "stable" in shown else "0.10.0 (stable)"
        menu.get_by_text(other, exact=True).click()
        folder = "latest" if other == "development" else "stable"
        expect(page).to_have_url(f"{address}{folder}/glossary.html")


def test_the_root_leads_to_the_newest_release(page: Page, address: str) -> None:
    page.goto(address)
    expect(page).to_have_url(f"{address}stable/")


def test_without_a_release_there_is_only_the_development_version(tmp_path: Path) -> None:
    (tmp_path / "latest" / LIST).parent.mkdir(parents=True)
    (tmp_path / "latest/404.html").touch()
    assemble(tmp_path, DEVELOPMENT)
    listed = json.loads((tmp_path / "latest" / LIST).read_text())
    assert [(entry["name"], entry["preferred"]) for entry in listed] == [("development", False)]
    assert "url=latest/" in (tmp_path / "index.html").read_text()
