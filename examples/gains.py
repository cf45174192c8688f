"""What `make demo` has shown, in five lines: `python examples/gains.py FOLDER`."""

import csv
import json
import sys
from pathlib import Path


def finals(folder: Path) -> dict[str, float]:
    """Return the mean final accuracy of every method of a comparison."""
    with (folder / "comparison-summary.csv").open() as file:
        return {row["method"]: float(row["mean"]) for row in csv.DictReader(file)}


def standing(folder: Path) -> str:
    """Return how a run ended, and whether its clients are within their budgets for life."""
    summary = json.loads((folder / "summary.json").read_text())
    over = [group["name"] for group in summary["groups"] if group["epsilon_spent"] > group["epsilon"]]
    budgets = f"{', '.join(over)} over budget" if over else "nobody is over budget"
    return f"all {summary['rounds']} rounds, {summary['final_accuracy']:.1f} %, and {budgets}"


def main(demo: Path) -> None:
    """Print what was gained and by what, what was refused, and where to look next."""
    new, old = finals(demo / "recipe"), finals(demo / "papers-way")
    steps = {
        "features": new["paper"] - old["paper"],
        "exact composition": new["exact"] - new["paper"],
        "even spending": new["idp-fedavg"] - new["exact"],
        "computed schedule": new["optimal"] - new["idp-fedavg"],
    }
    gains = ", ".join(f"{what} {points:+.1f}" for what, points in steps.items())
    own = new["idp-fedavg"] - new["dp-fedavg"]
    lines = (
        f"Within the same budgets the paper's way ends at {old['paper']:.1f} %, the recipe at {new['optimal']:.1f} %; "
        f"without privacy, at {new['fedavg']:.1f} %.",
        f"Points by part: {gains}; own budgets {own:+.1f}.",
        "Monday's run took a part of each budget for life; Tuesday's was refused before any client worked.",
        f"Planned anew from what was left, it came to its end: {standing(demo / 'tuesday')}.",
        f"Look next at {demo}/recipe/comparison.html and {demo}/tuesday/report.html; docs/results.md has twenty seeds.",
    )
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
