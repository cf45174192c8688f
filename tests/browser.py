"""A real browser for tests: Chromium without a screen, on a file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

# Nothing but the page: no sandbox (tests may run as root), no network of the browser's own.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


class Visit(NamedTuple):
    """What was on the page when it had settled, and what it wrote to the console."""

    dom: str
    console: list[str]


def find_browser() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def visit(browser: str, page: Path, profile: Path, *flags: str) -> Visit:
    command = [browser, *_FLAGS, *flags, f"--user-data-dir={profile}", "--dump-dom", page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return Visit(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])
