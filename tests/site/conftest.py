"""One browser and one server for all tests of the built site."""

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support import HANG

SITE = Path(__file__).parents[2] / "build" / "site"
INDEX = SITE / "index.html"
PUBLISHED = re.findall('<link rel="canonical" href="(.*?)index.html"', INDEX.read_text() if INDEX.exists() else "")
# Where the site was built to be; on GitHub Pages this is not the root of its host.
PREFIX = urlsplit(PUBLISHED[0]).path if PUBLISHED else "/"
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

# What a page is asked for comes at once, or never if the page is wrong: a failure takes so many seconds.
PATIENCE = 180.0
expect.set_options(timeout=1000 * PATIENCE)  # milliseconds


class Handler(SimpleHTTPRequestHandler):
    """Files below the prefix, and the site's own page for what is not there."""

    def translate_path(self, path: str) -> str:
        return super().translate_path("/" + path.removeprefix(PREFIX)) if path.startswith(PREFIX) else str(SITE / "-")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        body = (SITE / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def base() -> Iterator[str]:
    assert (SITE / "index.html").exists(), f"no site in {SITE}: run nox -s docs first"
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Handler(*args, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "these tests need Chromium on the PATH"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS, timeout=1000 * HANG)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page with these options, that nothing shares."""
    with browser.new_context(**options) as context:
        context.set_default_timeout(1000 * PATIENCE)
        yield context.new_page()


@pytest.fixture(scope="session")
def reader(browser: Browser) -> Iterator[Page]:
    """Goes from page to page, and so fetches what they share once."""
    with opened(browser) as page:
        yield page


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser, viewport={"width": 1440, "height": 900}) as page:
        yield page


@cache
def parsed(path: str) -> BeautifulSoup:
    """A page as its file says, without a browser."""
    return BeautifulSoup((SITE / path).read_text(encoding="utf-8"), "html.parser")


def pages() -> list[str]:
    """Every page that the site lists, relative to its root."""
    listed = SITE / "llms.txt"
    lines = listed.read_text().splitlines() if listed.exists() else []
    links = [link for line in lines for link in re.findall(r"^- \[.*?\]\((\S+?[.]html)\): ", line)]
    return sorted(link.removeprefix("".join(PUBLISHED)) for link in links)
