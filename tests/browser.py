"""A real browser for tests: Chromium without a screen, which reaches nothing but this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# No sandbox, as tests may run as root; no name is resolved but this machine's.
_FLAGS = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
_OVERFLOWING = """() => {
  const scrolls = e => e && (getComputedStyle(e).overflowX === "auto" || scrolls(e.parentElement));
  return [...document.body.querySelectorAll("*")]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e.parentElement))
    .map(e => e.outerHTML.slice(0, 120));
}"""


@dataclass
class Visit:
    """A page that is open.

    Attributes:
        page: Playwright's page.
        console: what it wrote to the console, and what was thrown and not caught.
        requests: addresses that it asked for, its own first.
    """

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def findings(self) -> list[str]:
        """Return what axe-core finds that is serious or critical: rule and place."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        grave = [one for one in found if one["impact"] in ("serious", "critical")]
        return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in grave for node in one["nodes"]]

    def overflowing(self) -> list[str]:
        """Return elements that reach beyond the right edge of the window, but for those that scroll."""
        return list(self.page.evaluate(_OVERFLOWING))


@contextmanager
def chromium_browser() -> Iterator[Any]:
    """Start Chromium, or skip where there is none.

    While it runs, asyncio thinks of this thread as busy; so it must not stay on longer than tests need it.
    """
    playwright = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no browser here: neither chromium nor google-chrome on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=_FLAGS)
        yield browser
        browser.close()


@contextmanager
def visit(browser: Any, address: str | Path, *, width: int = 1280, dark: bool = False) -> Iterator[Visit]:
    """Open a page, a file or an address, in a window and a profile of its own."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    try:
        page = context.new_page()
        visit = Visit(page)
        page.on("console", lambda said: visit.console.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: visit.console.append(f"thrown: {error}"))
        page.on("request", lambda asked: visit.requests.append(asked.url))
        page.goto(address.resolve().as_uri() if isinstance(address, Path) else address)
        yield visit
    finally:
        context.close()
