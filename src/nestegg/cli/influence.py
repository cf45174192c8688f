"""`nestegg influence`: measure on public data how much of a round's noise is still in the final model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from nestegg.checks import whole
from nestegg.cli.options import Where
from nestegg.errors import InputError
from nestegg.extras import RUNS, needs

if TYPE_CHECKING:
    from nestegg.training.influence import Influence


def influence(
    config_file: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What will be trained, and how.")],
    public: Annotated[
        str, typer.Option(metavar="DATASET", help="Public data to measure on: a dataset's name, or module:function.")
    ],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of that dataset's files.")] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="What to write.")] = Path("influence.json"),
    points: Annotated[int, typer.Option(help="Rounds to measure.")] = 7,
    draws: Annotated[int, typer.Option(help="Draws of noise in each of them.")] = 4,
    jobs: Annotated[
        int | None, typer.Option(help="Measurements at a time; one for each core where it takes long.")
    ] = None,
    cluster: Where = None,
) -> None:
    """Measure the memory of a training: it is run on public data, and noise is added to one round or another."""
    needs("nestegg influence", *RUNS, *([] if cluster is None else ["cluster"]))
    from nestegg.configuration.config import load_config
    from nestegg.report.influence_chart import write_influence_chart
    from nestegg.runs.influence import Processes, PublicTraining  # torch is slow to import; other commands do without
    from nestegg.training.influence import measure_influence

    config = load_config(config_file)
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"--out = {str(out)!r} must be a file in a folder that exists.")
    jobs = None if jobs is None else whole("--jobs", jobs, 1, 256)
    training, part = PublicTraining(config, public, data), out.with_name(f"{out.name}.part")
    federation = training.federation()
    with Console(stderr=True).status("Training on public data …") as status:
        found = measure_influence(
            federation,
            points=points,
            draws=draws,
            keep=part,
            tell=lambda done, all_: status.update(f"Adding noise to one round, {done} of {all_} …"),
            work=Processes(training, jobs, cluster),
        )
    found.save(out, dataset=public, rounds=federation.plan.rounds)
    part.unlink(missing_ok=True)
    chart = out.with_suffix(".svg")
    write_influence_chart(chart, found.influence, found.low, found.high)
    shown = ", ".join(f"{t}: {found.influence[t - 1]:.2f}" for t in found.measured)
    Console().print(
        f"Noise that is left in the final model, by round (the last is 1): {shown}. Nearest is κ = {found.memory:.1f}. "
        f"Measured on {public}; no client's data was read. {_doubts(found)}Saved to {out}, drawn in {chart}.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _doubts(found: Influence) -> str:
    """Which rounds should be measured more often, if any."""
    if not found.unseen:
        return ""
    rounds = " and ".join(map(str, found.unseen))
    return (
        f"After noise in round {rounds} nothing was left that can be told from the error of the measurement, which "
        f"stands in its place: take more --draws than {found.draws}, or memory = 2.0. "
    )
