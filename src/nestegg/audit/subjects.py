"""What there is to audit: a plan file, a configuration, a run's folder, or nothing but this installation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from nestegg.audit.claims import Claims
from nestegg.configuration.config import load_config
from nestegg.configuration.description import CONFIG, read_record
from nestegg.configuration.limits import check_config
from nestegg.errors import InputError
from nestegg.planning import Budget, Group, Plan, load_plan, plan
from nestegg.runs import RunFolder, Simulation
from nestegg.runs.configured import new_simulation
from nestegg.runs.flower_folder import FlowerFolder, stated_folder
from nestegg.training import AdaptiveClipping, Federation, LocalTraining, Mechanics, SideStatistics

_MODEL = "the run's own model"


@dataclass(frozen=True, eq=False)
class Subject:
    """What is audited.

    Attributes:
        what: as `audit` takes it.
        name: for people, and for files.
        folder: of the run, if it is one; what is found is kept there.
        run: the same, where what may be released of it is attacked, too.
        left_out: what of a run cannot be attacked, and why.
        stamp: what every file of the run says about itself.
    """

    what: Federation | Claims | Plan
    name: str
    folder: Path | None = None
    run: Path | None = None
    left_out: tuple[str, ...] = ()
    stamp: Mapping[str, str] = field(default_factory=dict)


def subject_of(path: Path | None, cluster: str | None = None) -> Subject:
    """Return what a path stands for; without one, a plan of our own, to try this installation.

    Args:
        path: of a plan, a configuration or a run.
        cluster: on which a model is attacked, as in `Performance`.

    Raises:
        InputError: it stands for nothing that can be audited.
    """
    if path is None:
        return Subject(_own_plan(), "installation")
    if path.is_dir():
        run = stated_folder(path)
        found = _on_flower(run) if isinstance(run, FlowerFolder) else _of_run(run, cluster)
        return replace(found, folder=path, stamp=run.about.stamp)
    if path.suffix == ".json":
        return Subject(load_plan(path), path.stem)
    config = load_config(path)
    check_config(config)
    simulation, _ = new_simulation(config, "audit", cluster)
    return Subject(simulation.federation, path.stem)


def _of_run(run: RunFolder, cluster: str | None) -> Subject:
    folder, about, made = run.path, run.about, run.plan()
    if (folder / CONFIG).is_file():
        try:
            simulation = Simulation(load_config(folder / CONFIG), made, cluster=cluster)
            return Subject(simulation.federation, folder.name, run=folder)
        except InputError as error:
            return Subject(made, folder.name, run=folder, left_out=(f"{_MODEL}: it cannot be made again: {error}",))
    values = read_record(folder).values
    mechanics = Mechanics(
        **plain_values(Mechanics, values, "mechanics"),
        adaptive=AdaptiveClipping(**plain_values(AdaptiveClipping, about.adaptive)),
        side=SideStatistics(**plain_values(SideStatistics, values, "mechanics.side")),
    )
    claims = Claims(made, mechanics, LocalTraining(**plain_values(LocalTraining, values, "local")))
    why = f"{_MODEL}: it is a run from Python: nestegg.audit.audit(federation) attacks its model"
    return Subject(claims, folder.name, run=folder, left_out=(why,))


def _on_flower(run: FlowerFolder) -> Subject:
    run.load_checkpoint()  # which must be of these terms
    terms = run.terms
    mechanics = Mechanics(
        clipping=terms.clipping,
        clip_unit="update",  # a factor for norms and noise alike leaves privacy as it is
        colluders=terms.colluders,
        side=SideStatistics.of_table(terms.side.model_dump()),
    )
    left_out = (
        f"{_MODEL}: only its clients have their data, on Flower",
        "the files of its folder: they are the server's",
    )
    return Subject(Claims(run.plan(), mechanics, LocalTraining()), run.path.name, left_out=left_out)


def plain_values(kind: type[Any], values: Any, prefix: str = "") -> dict[str, Any]:
    """Return the plain values that a run's record has for the fields of a dataclass; what is a function is left out."""
    functions = ("loss", "optimizer", "randomness", "adaptive", "side")
    found = {one.name: values.get(f"{prefix}.{one.name}" if prefix else one.name) for one in fields(kind)}
    if prefix == "local" and "." in str(found["schedule"]):
        del found["schedule"]  # a function of the user's: learning rates are then those by default
    return {name: value for name, value in found.items() if name not in functions and value is not None}


def _own_plan() -> Plan:
    budgets = {"strict": 5.0, "middle": 10.0, "open": 20.0}
    groups = [Group(name, 16, Budget(epsilon), saving_rate=0.6) for name, epsilon in budgets.items()]
    return plan(groups, rounds=10)
