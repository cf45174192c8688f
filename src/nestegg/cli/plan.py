"""`nestegg plan`: from budgets to a spending plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from nestegg.checks import whole
from nestegg.errors import InputError
from nestegg.extras import needs
from nestegg.files import nothing_left

if TYPE_CHECKING:
    from rich.status import Status

    from nestegg.configuration.config import Config
    from nestegg.planning import GroupPlan, Plan
    from nestegg.planning.curves import Pace


def plan(
    config_file: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG.toml|PLAN.json", help="Groups, budgets, rounds and rates; or a saved plan, to show."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole plan as JSON and nothing else.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="PLAN.json", help="Save the plan to this file.")] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Plan idp-fedavg, paper, exact and optimal side by side.")
    ] = False,
    parameters: Annotated[
        list[int] | None,
        typer.Option(metavar="D", help="Say how much noise a model of D parameters gets; may be given several times."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw which rounds matter, noise and spending: a .svg, .png or .html file."),
    ] = None,
) -> None:
    """Turn individual privacy budgets into sampling rates, noise and clip norms for every round, and check them.

    A plan that was saved is shown as it is, at once; nestegg verify checks it.
    """
    if config_file.suffix == ".json":
        given = {"--out": out, "--compare": compare, "--parameters": parameters, "--chart": chart}
        _show_saved(config_file, [option for option, value in given.items() if value], as_json=as_json)
        return
    from nestegg.cli import tables
    from nestegg.cli.parameters import Carrying
    from nestegg.cli.progress import watching_index
    from nestegg.configuration.config import load_config
    from nestegg.configuration.limits import check_config
    from nestegg.configuration.participants import make_plan, pace_of_config, with_method
    from nestegg.planning import exposures, remarks, save_plan
    from nestegg.planning.reaching import assumed_memory
    from nestegg.planning.registry import RIVALS

    sizes = [whole("--parameters", one, 1) for one in dict.fromkeys(parameters or ())]
    if chart is not None:
        _check_chart(chart)
    config = load_config(config_file)
    check_config(config)
    colluders = config.privacy.colluders
    with Console(stderr=True, quiet=as_json).status("Planning …") as status, watching_index(status.update):
        made = _judged(_planned(config), status)
        _check_adaptive(config, made)
        side, spread = _side(config, made)
        asked = RIVALS if compare else ()
        rivals = {name: _judged(make_plan(with_method(config, name)), status) for name in asked}
        drawn = rivals or {"idp-fedavg": make_plan(with_method(config, "idp-fedavg"))} if chart is not None else {}
        exposed = [one.to_dict() for one in exposures(made, colluders)] if as_json and not compare else []
    if out is not None:
        save_plan(made, out)
    pace = pace_of_config(config)
    if chart is not None:
        _draw(chart, made, drawn, pace)
    carrying = Carrying(tuple(sizes), pace, assumed_memory(made, pace)[0], spread)
    if as_json:
        told = {"exposure": exposed, "remarks": remarks(made), **({"side": side} if side else {})}
        alone = made.to_dict() | told | carrying.to_dict(made)
        beside = {name: rival.to_dict() | carrying.to_dict(rival) for name, rival in rivals.items()}
        print(json.dumps(beside if compare else alone, allow_nan=False))
        return
    console = Console()
    if compare:
        tables.show_comparison(console, made, rivals, pace)
    else:
        tables.show(console, made, colluders)
        if side:
            console.print(side, highlight=False, markup=False, soft_wrap=True)
    carrying.show(console, rivals if compare and not made.about.is_own else {**rivals, made.about.label: made})
    if out is not None:
        console.print(f"Saved to {out}.", highlight=False, markup=False, soft_wrap=True)
    if chart is not None:
        console.print(f"Drawn in {chart}.", highlight=False, markup=False, soft_wrap=True)


def _show_saved(file: Path, refused: list[str], *, as_json: bool) -> None:
    """Show a plan that is whole by its digest; nothing is planned and nobody judges."""
    from nestegg.cli import tables
    from nestegg.planning import load_plan, remarks

    if refused:
        raise InputError(f"{refused[0]} needs a configuration, and {file} is a saved plan, which is only shown.")
    made = load_plan(file)
    if as_json:
        print(json.dumps(made.to_dict() | {"remarks": remarks(made)}, allow_nan=False))
        return
    console = Console()
    tables.show(console, made)
    console.print(
        f"Shown as saved, digest {made.digest[:16]}. To check it: nestegg verify {file}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _check_chart(chart: Path) -> None:
    """Refuse a chart that could not be drawn, before anything takes long."""
    needs("nestegg plan --chart", "charts")
    from nestegg.report.plan_chart import check_chart_file  # Altair is slow to import; other plans do without it

    check_chart_file(chart)


def _draw(chart: Path, made: Plan, plans: dict[str, Plan], pace: Pace) -> None:
    """Draw the plan beside others, uniform spending among them."""
    from nestegg.report.plan_chart import method_name, write_plan_chart

    write_plan_chart(
        chart,
        made,
        {method_name(made): made} | {name: one for name, one in plans.items() if name != method_name(made)},
        pace,
    )


@nothing_left()
def _planned(config: Config) -> Plan:
    """The plan; where data, model or loss are somebody's own, they are made, so that what a run refuses is refused."""
    from nestegg.configuration.config import has_own
    from nestegg.configuration.participants import make_plan

    if not has_own(config):
        return make_plan(config)
    needs("a plan with data, a model or a loss of one's own", "train", "ledger")
    from nestegg.runs.configured import new_simulation  # torch is slow to import; other plans do without it

    return new_simulation(config, "")[0].federation.plan


def _judged(made: Plan, status: Status) -> Plan:
    """The plan, judged; whoever waits is told how far that is."""
    from nestegg.planning import judged

    numbers = {row.group.name: number for number, row in enumerate(made.groups, 1)}

    def tell(row: GroupPlan) -> None:
        place = f"group {numbers[row.group.name]} of {len(made.groups)}"
        status.update(f"Judging {made.title} by privacy loss distributions, {place} …")

    return judged(made, tell)


def _side(config: Config, made: Plan) -> tuple[str, float]:
    """What side statistics cost, in words and as a factor on noise beside updates; refused as a run does."""
    from nestegg.configuration.config import Side

    if config.privacy.side == Side() or not made.is_private:
        return "", 1.0
    from nestegg.training import Mechanics, SideStatistics  # torch is slow to import; other plans do without it

    side = SideStatistics.of_table(config.privacy.side.model_dump())
    Mechanics(side=side).check(made)
    return side.cost(made) if side.shares else "", (1.0 - sum(side.shares.values())) ** -0.5


def _check_adaptive(config: Config, made: Plan) -> None:
    """Refuse parameters of adaptive clipping as a run does."""
    if made.about.learns_clip_norm:
        from nestegg.training import AdaptiveClipping  # torch is slow to import; other methods do without it

        AdaptiveClipping(**config.privacy.adaptive.model_dump()).check(made)
