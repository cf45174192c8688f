"""Refresh the results' pages and pictures from the cells under results/: `python docs/results.py`."""

from pathlib import Path

from nestegg.experiments.cells import Store
from nestegg.experiments.reproduction import Reproduction, chosen_experiments
from nestegg.experiments.written import refresh

ROOT = Path(__file__).parent.parent

if __name__ == "__main__":  # collecting doctests imports this file
    finished = Reproduction(chosen_experiments("all"), "cpu", Store(ROOT / "results"))
    refresh(ROOT / "docs", finished.outcomes())
