"""`nestegg compare`: several methods, the same data, the same start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestegg.cli.progress import RoundProgress
from nestegg.cli.tables import accuracy_table
from nestegg.config import load_config
from nestegg.extras import RUNS, needs


def compare(
    config_file: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to train, and how.")],
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; paper and exact are the two compositions.")
    ] = "fedavg,dp-fedavg,idp-fedavg,adaptive-clipping,paper,exact",
    seeds: Annotated[int, typer.Option(help="How often, from the configured seed on.")] = 3,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the runs, the table and the chart.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the accuracies as JSON and nothing else.")] = False,
) -> None:
    """Run several methods on the same partition and the same initial model, and print one table."""
    needs("nestegg compare", *RUNS)
    from nestegg.comparison import compare as run_all

    config = load_config(config_file)
    names = [name.strip() for name in methods.split(",") if name.strip()]
    folder = out or Path(f"{config_file.stem}-comparison")
    rounds = config.training.rounds
    with RoundProgress(as_json, len(names) * seeds * rounds, every=rounds) as progress:
        outcomes = run_all(
            config, names, seeds, folder, lambda name, seed, report: progress.show(report, f"{name}, seed {seed}")
        )
    if as_json:
        print(json.dumps({outcome.name: outcome.final.tolist() for outcome in outcomes}))
        return
    console = Console()
    console.print(accuracy_table(outcomes, config.federation.dataset))
    console.print(f"Runs, table and chart are in {folder}.", highlight=False, markup=False, soft_wrap=True)
