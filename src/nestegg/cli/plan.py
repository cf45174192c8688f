"""`nestegg plan`: from budgets to a spending plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestegg.cli import tables
from nestegg.config import Config, load_config, make_plan
from nestegg.planning import Plan, judged, save_plan

RIVALS = {
    "uniform": {"method": "idp-fedavg"},
    "paper": {"method": "spend-as-you-go", "composition": "paper"},
    "exact": {"method": "spend-as-you-go", "composition": "exact"},
}


def plan(
    config_file: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Groups, budgets, rounds and rates.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole plan as JSON and nothing else.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="PLAN.json", help="Save the plan to this file.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Plan uniform, paper and exact side by side.")] = False,
) -> None:
    """Turn individual privacy budgets into sampling rates, noise and clip norms for every round, and check them."""
    console = Console()
    config = load_config(config_file)
    with Console(stderr=True).status("Planning, and judging the plan by privacy loss distributions …"):
        made = judged(make_plan(config))
        rivals = {} if as_json and not compare else rivals_of(config, judge=compare)
    if out is not None:
        save_plan(made, out)
    if as_json:
        content = {name: rival.to_dict() for name, rival in rivals.items()} if compare else made.to_dict()
        print(json.dumps(content, allow_nan=False))
    elif compare:
        console.print(tables.comparison(rivals))
    else:
        tables.show(console, made, rivals)
    if out is not None and not as_json:
        console.print(f"Saved to {out}.", highlight=False)


def rivals_of(config: Config, judge: bool) -> dict[str, Plan]:
    """The three planners on the same budgets."""
    plans = {name: make_plan(config, **changes) for name, changes in RIVALS.items()}
    return {name: judged(rival) for name, rival in plans.items()} if judge else plans
