"""Refresh docs/results.md and its pictures from the cells under results/: `python docs/results.py`."""

from pathlib import Path

from nestegg.experiments.cells import Store
from nestegg.experiments.pages import refresh_page
from nestegg.experiments.reproduction import Reproduction, chosen_experiments

ROOT = Path(__file__).parent.parent

if __name__ == "__main__":  # collecting doctests imports this file
    finished = Reproduction(chosen_experiments("all"), "cpu", Store(ROOT / "results"))
    refresh_page(ROOT / "docs" / "results.md", finished.outcomes())
