"""Take the pictures of docs/studio.md: `python docs/screenshots.py` runs a small federation and looks at it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
# What to open, and what must be on it before a picture is taken.
PAGES = {
    "studio-plan": ("/", "body[data-compared]"),
    "studio-runs": (
        "/runs?" + "&".join(f"run=recipe%2F{run}" for run in ("exact-0", "exact-1", "optimal-0", "optimal-1")),
        "#chart-comparison svg",
    ),
    "studio-ledger": ("/ledger", "#accounts tbody tr"),
    "studio-statement": ("/statement?run=monday", "main section"),
}


def _nestegg(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "nestegg", *arguments], cwd=folder, check=True, capture_output=True)


def _prepare(folder: Path) -> None:
    """Runs to look at, as `make demo` makes them."""
    for name in ("ledger.toml", "lifetimes.csv"):
        shutil.copy(ROOT / "examples" / name, folder)
    recipe = str(ROOT / "examples" / "recipes" / "digits.toml")
    _nestegg(folder, "compare", recipe, "--methods", "exact,optimal", "--seeds", "2", "--out", "recipe")
    _nestegg(folder, "ledger", "budgets", "import", "lifetimes.csv")
    _nestegg(folder, "run", "ledger.toml", "--out", "monday")


def _photograph(link: str) -> None:
    from playwright.sync_api import sync_playwright

    base = link.partition("/?")[0]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, reduced_motion="reduce")
        page.goto(link)
        for name, (path, ready) in PAGES.items():
            page.goto(f"{base}{path}")
            page.wait_for_selector(ready, timeout=120_000)
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


if __name__ == "__main__":  # collecting doctests imports this file
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder)
        command = [sys.executable, "-m", "nestegg", "studio", ".", "--ledger", "ledger.db", "--no-browser"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as studio:
            assert studio.stdout is not None
            try:
                _photograph(studio.stdout.readline().split(" at ")[1].strip())
            finally:
                studio.terminate()
