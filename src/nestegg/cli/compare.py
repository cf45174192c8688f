"""`nestegg compare`: several methods, the same data, the same start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestegg.checks import whole
from nestegg.cli.options import Where
from nestegg.cli.progress import RunProgress, watching_index
from nestegg.errors import InputError
from nestegg.extras import RUNS, needs
from nestegg.named import is_named


def compare(
    config_file: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to train, and how.")],
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; paper and exact are the two compositions.")
    ] = "fedavg,dp-fedavg,idp-fedavg,adaptive-clipping,paper,exact,optimal",
    seeds: Annotated[int, typer.Option(help="How often, from the configured seed on.")] = 3,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the runs, the tables, the chart and the page.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in a folder that exists; its finished runs are not run again.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time; by default one for each core, with a ledger one.")
    ] = None,
    cluster: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the accuracies as JSON and nothing else.")] = False,
) -> None:
    """Run several methods on the same partition and the same initial model, and print one table."""
    needs("nestegg compare", *RUNS, *([] if cluster is None else ["cluster"]))
    from nestegg.cli.tables import final_table
    from nestegg.configuration.config import load_config
    from nestegg.report.comparison import HEADS, write_comparison
    from nestegg.runs.comparison import Comparison
    from nestegg.training.performance import cores

    config = load_config(config_file)
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if config.code is None and any(map(is_named, names)):
        config = config.model_copy(update={"code": str(config_file.parent.resolve())})
    folder = out or Path(f"{config_file.stem}-comparison")
    if folder.exists() and not resume:
        raise InputError(f"{folder} exists; give another folder, or go on with it by --resume.")
    can_share = config.training.device == "cpu" and config.ledger.url is None
    jobs = (cores() if can_share else 1) if jobs is None else whole("--jobs", jobs, 1, 256)
    with Console(stderr=True, quiet=as_json).status("Planning …") as status, watching_index(status.update):
        comparison = Comparison(config, names, seeds, folder)
    with RunProgress(len(names) * seeds, quiet=as_json) as progress:
        results = comparison.run(
            jobs,
            lambda name, seed, final: progress.one_more(f"{name}, seed {seed}", final),
            cluster=cluster,
        )
    written = write_comparison(folder, results)
    if as_json:
        print(json.dumps({name: final.tolist() for name, final in results.finals().items()}))
        return
    console = Console()
    percent = ", %" if results.measure == "accuracy" else ""
    title = f"Final test {results.measure} on {results.dataset}{percent}"
    console.print(final_table(HEADS, results.rows(), title))
    files = ", ".join(path.name for path in written)
    said = f"In {folder}: {files}, and a folder for each run."
    console.print(said, highlight=False, markup=False, soft_wrap=True)
