"""`nestegg plan`: from budgets to a spending plan."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestegg.cli import tables
from nestegg.config import Config, load_config
from nestegg.errors import InputError
from nestegg.planning import Plan, exposures, judged, save_plan
from nestegg.roster import make_plan

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
        if compare:
            rivals = {name: judged(make_plan(config, **changes)) for name, changes in RIVALS.items()}
        else:
            rivals = {} if as_json or made.method == "fedavg" else rivals_of(config)
    if out is not None:
        save_plan(made, out)
    if as_json:
        found = {"exposure": [one.to_dict() for one in exposures(made, config.privacy.colluders)]}
        content = {name: rival.to_dict() for name, rival in rivals.items()} if compare else made.to_dict() | found
        print(json.dumps(content, allow_nan=False))
    elif compare:
        console.print(tables.comparison(rivals))
    else:
        tables.show(console, made, rivals, config.privacy.colluders)
    if out is not None and not as_json:
        console.print(f"Saved to {out}.", highlight=False, markup=False, soft_wrap=True)


def rivals_of(config: Config) -> dict[str, Plan]:
    """The planners on the same budgets, for comparison; one that cannot meet them is left out."""
    plans = {}
    for name, changes in RIVALS.items():
        with suppress(InputError):
            plans[name] = make_plan(config, **changes)
    return plans
