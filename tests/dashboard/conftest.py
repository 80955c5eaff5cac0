"""The system's Chromium in front of a real server with a real model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.support.browser import FLAGS, browser_path
from tests.support.server import LegatoProcess

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
PATIENCE_MS = 30_000
"""For what must come to pass in a page: enough on a busy machine."""
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def axe_script() -> str:
    """axe-core, which `make test` fetches from the npm registry."""
    folder = os.environ.get("LEGATO_TEST_AXE") or Path(__file__).parents[2] / ".venv" / "axe"
    return (Path(folder) / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages. It ends with them: while it is there, no other test can have an event loop."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def home(model_path: Path) -> Iterator[LegatoProcess]:
    """A server at home: no keys, three at once."""
    with LegatoProcess("smollm2", "--parallel", "3", "--ctx", "4096") as process:
        process.wait_ready()
        yield process


class Visitor:
    """Somebody with a browser, whose page must never complain."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**({"viewport": DESKTOP, "locale": "en-GB"} | options))
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, url: str, tab: str = "") -> Page:
        """Go to a tab, and wait for the live connection."""
        self.page.goto(f"{url}/#{tab}")
        self.page.wait_for_selector("#connection[data-state=open]", state="attached")
        return self.page


@pytest.fixture
def visit(browser: Browser) -> Iterator[Any]:
    """Opens browsers of visitors: `visit()`, `visit(viewport=PHONE, color_scheme="dark", locale="sv-SE")`."""
    visitors: list[Visitor] = []

    def come(**options: Any) -> Visitor:
        visitors.append(Visitor(browser, **options))
        return visitors[-1]

    yield come
    complaints = [complaint for visitor in visitors for complaint in visitor.complaints]
    for visitor in visitors:
        visitor.context.close()
    assert complaints == []
