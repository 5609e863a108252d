"""A real browser, driven without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).with_name("vendor") / "axe.min.js"


def executable() -> str:
    """The browser of this machine.

    Raises:
        FileNotFoundError: there is none; `bash scripts/test` as root installs it.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise FileNotFoundError(
            "the viewer is tested in Chromium and none is installed: apt-get install chromium"
        )
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """Without its sandbox, which root in a container does not have: it opens own files only."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page that fails its test for anything it complains about.

    Attributes:
        page: of playwright.
        complaints: console errors, uncaught exceptions and refused loads so far.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(120_000)
        page.on("console", self._said)
        page.on("pageerror", self._threw)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _threw(self, error: Error) -> None:
        self.complaints.append(str(error))

    def open(self, address: str) -> Page:
        """Load afresh, until something is shown."""
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.wait_for_selector("body[data-shown]")
        return self.page

    def state(self) -> dict[str, str]:
        """What the address says."""
        found: dict[str, str] = self.page.evaluate(
            "Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"
        )
        return found

    def serious_findings(self) -> list[str]:
        """What axe-core calls serious or critical."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: dict[str, Any] = self.page.evaluate("axe.run()")
        return [
            f"{violation['id']}: {node['html']}: {node['failureSummary']}"
            for violation in found["violations"]
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]
