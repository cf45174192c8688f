"""What two comparisons say was gained, and by what: `python examples/gains.py RECIPE PAPERS_WAY`."""

import csv
import sys
from pathlib import Path


def finals(folder: Path) -> dict[str, float]:
    """Return the mean final accuracy of every method of a comparison."""
    with (folder / "comparison-summary.csv").open() as file:
        return {row["method"]: float(row["mean"]) for row in csv.DictReader(file)}


def main(recipe: Path, papers_way: Path) -> None:
    """Print what each step from the paper's way to the recipe gave."""
    new, old = finals(recipe), finals(papers_way)
    steps = [
        ("features that need nobody's data, and a model that bears noise", new["paper"] - old["paper"]),
        ("composition that leaves nothing of a budget unspent", new["exact"] - new["paper"]),
        ("spending evenly instead of saving early", new["idp-fedavg"] - new["exact"]),
        ("a computed schedule, with everybody in every round", new["optimal"] - new["idp-fedavg"]),
    ]
    ends = f"The paper's way ends at {old['paper']:.1f} %, the recipe at {new['optimal']:.1f} %"
    print(f"{ends}; without privacy it ends at {new['fedavg']:.1f} %. Of the difference:")
    for what, points in steps:
        print(f"  {points:+5.1f} points by {what}")
    own = new["idp-fedavg"] - new["dp-fedavg"]
    print(f"Budgets of one's own, beside the strictest one for all, gave {own:+.1f} points (dp-fedavg, idp-fedavg).")
    print("Three seeds are few: differences of a point are within their spread. docs/results.md has twenty.")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
