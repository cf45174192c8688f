"""`nestegg run`: train by a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from nestegg.cli.options import Where
from nestegg.errors import InputError
from nestegg.extras import RUNS, needs

if TYPE_CHECKING:
    from nestegg.configuration.config import Config


def run(
    config_file: Annotated[Path | None, typer.Argument(metavar="CONFIG.toml", help="What to train, and how.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the run; by default named after the file.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the run in this folder.")] = None,
    charts: Annotated[
        bool, typer.Option("--charts", help="Write the page's charts as PNG and SVG files, too.")
    ] = False,
    cluster: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run's summary as JSON and nothing else.")] = False,
) -> None:
    """Train a model by a plan: sample, train, clip, add noise, sum, round by round. Writes a folder with everything."""
    needs("nestegg run", *RUNS, *([] if cluster is None else ["cluster"]))
    if resume is not None and config_file is None and not charts:
        from nestegg.configuration.finished import finished_summary

        if (finished := finished_summary(resume)) is not None:  # at once: nothing is to be trained
            _show(finished, resume, as_json=as_json)
            return
    if (config_file is None) == (resume is None):
        raise InputError("give either CONFIG.toml or --resume DIR.")
    from nestegg.configuration.config import load_config
    from nestegg.report.pages import pages_beside

    config = None if config_file is None else load_config(config_file)
    pages = pages_beside(lambda: _get_ready(config), as_files=charts)  # while torch, which is slow, is imported here
    from nestegg.cli.rounds import RoundProgress
    from nestegg.runs import RunFolder, resume_run, rounds_left, start_run

    if resume is not None:
        with RoundProgress(as_json, rounds_left(resume)) as progress:
            folder, summary = resume, resume_run(resume, callbacks=[progress], pages=pages, cluster=cluster)
    elif config_file is not None and config is not None:
        folder = out or Path(f"{config_file.stem}-run")
        with RoundProgress(as_json, config.training.rounds) as progress:
            summary = start_run(config, folder, callbacks=[progress], pages=pages, cluster=cluster)
    # How long a run took tells about its secret cohorts, unless it is a simulation that tells all.
    took = f", {RunFolder(folder).private().seconds:.1f} s" if summary["reproducible"] and not as_json else ""
    _show(summary, folder, took, as_json=as_json)


def _get_ready(config: Config | None) -> None:
    """In the process that writes pages: import and start what that takes, and do what follows from a configuration."""
    from nestegg.configuration.participants import quick_plan
    from nestegg.release import stamp
    from nestegg.report.page import get_ready

    if config is None:
        get_ready(None)
    else:
        get_ready(quick_plan(config), stamp(config.training.reproducible).get("note"))


def _show(summary: dict[str, Any], folder: Path, took: str = "", *, as_json: bool) -> None:
    """Say what a run has come to."""
    if as_json:
        print(json.dumps(summary))
        return
    console = Console()
    console.print(
        f"{_result(summary)} after {summary['rounds']} rounds{took}, "
        f"engine {summary['engine']} ({summary['engine_reason']}). See {escape(str(folder / 'report.html'))}.",
        highlight=False,
        soft_wrap=True,
    )
    if "note" in summary:
        console.print(f"[yellow]{summary['note'].capitalize()}.[/]", highlight=False, soft_wrap=True)


def _result(summary: dict[str, Any]) -> str:
    """How good the model is, as far as it can be told from public test data."""
    if summary["final_accuracy"] is not None:
        return f"[bold]{summary['final_accuracy']:.2f} %[/] test accuracy"
    if summary["final_loss"] is not None:
        return f"[bold]{summary['final_loss']:.4g}[/] test loss"
    return "Trained"
