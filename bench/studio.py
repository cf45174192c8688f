"""How fast the studio is, in a real browser: the first page, a slider, and one client among a million.

python -m bench.studio [--clients 1000000]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nestegg import Budget
from nestegg.ledger import Ledger

_MOVES = 20


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1_000_000)
    clients = parser.parse_args().clients
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        ledger = Path(name) / "ledger.db"
        with Ledger(ledger) as opened:
            opened.set_budgets({f"client-{i:07}": Budget(10.0) for i in range(clients)}, rule="renyi")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page, began = browser.new_page(), time.perf_counter()
        command = [sys.executable, "-m", "nestegg", "studio", name, "--ledger", str(ledger), "--no-browser"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as studio:
            assert studio.stdout is not None
            try:
                link = studio.stdout.readline().split(" at ")[1].strip()
                page.goto(link)
                _say("from the command to the page", began)
                page.wait_for_selector("body[data-shown]", timeout=120_000)
                _say("from the command to the first curves", began)
                _sliders(page)
                _search(page, link.partition("/?")[0], clients)
            finally:
                studio.terminate()
        browser.close()


# Move ε a step, as the slider does, and say how long it takes until the curves are new: measured within the page,
# because a driver from outside adds more than that.
_STEP = """async () => {
  const slider = document.querySelector(".group [data-key=slider]"), began = performance.now();
  const watched = { attributeFilter: ["data-shown"] };
  const shown = new Promise((done) => new MutationObserver(done).observe(document.body, watched));
  slider.value = Number(slider.value) - 0.01;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  await shown;
  return performance.now() - began;
}"""


def _sliders(page: Any) -> None:
    """Move ε step by step, and wait for the curves each time."""
    page.wait_for_selector("body[data-compared]", timeout=120_000)
    took = [page.evaluate(_STEP) for _ in range(_MOVES)]
    print(f"from a slider to new curves, median of {_MOVES}: {statistics.median(took):.0f} ms", flush=True)


def _search(page: Any, base: str, clients: int) -> None:
    """Find the last client but one, as people type."""
    wanted = f"client-{clients - 2:07}"
    page.goto(f"{base}/ledger")
    page.locator("#accounts tbody tr").nth(1).wait_for(timeout=120_000)
    began = time.perf_counter()
    page.fill("#prefix", wanted)
    page.wait_for_selector("#accounts tbody tr:only-child", timeout=120_000)
    _say(f"one of {clients:,} clients", began)


def _say(what: str, began: float) -> None:
    print(f"{what}: {time.perf_counter() - began:.2f} s", flush=True)


if __name__ == "__main__":
    main()
