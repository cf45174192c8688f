"""What a run is, said once for runs of a configuration and for runs of a federation made in Python."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from nestegg.configuration.config import Config, changed, is_parquet, load_config, own_ledger, to_toml
from nestegg.configuration.identity import config_digest
from nestegg.configuration.participants import make_participants, pace_of_config
from nestegg.configuration.terms_file import TERMS
from nestegg.errors import InputError
from nestegg.files import write_atomically
from nestegg.planning import Budget, load_plan
from nestegg.planning.curves import Pace
from nestegg.release import NOT_FOR_RELEASE, stamp
from nestegg.schema import Section, read

CONFIG, RUN = "config.toml", "run.json"  # what describes a run in its folder
FORMAT = "nestegg-run/1"  # of run.json
_MEMBERS = "private/members.json"  # names of clients are not for release

Members = tuple[tuple[str, ...], tuple[Budget, ...]]


@dataclass(frozen=True)
class Description:
    """What a run's folder, its ledger, its checkpoints and its summary need to know of it.

    Attributes:
        files: the files of its folder that describe it, by name.
        identity: a digest of all that its results depend on.
        kin: the same but for the seed: runs that share it differ by chance alone.
        run: its name in the ledger that pays.
        ledger: URL of that ledger; None is one of its own, in its folder.
        dataset: how its data is called.
        model: how its model is called.
        seed: of what is public, and of everything if it is reproducible.
        reproducible: whether its noise follows from the seed, so that it is not for release.
        colluders: clients against whose joint knowledge of their own noise the guarantee holds.
        adaptive: parameters of the controller of adaptive clipping, where it is used.
        pace: learning rates and unit of clip norms, as the plan was made with them; None where nobody knows them.
        go_on: what resumes it, with {folder} in the place of its folder.
        members: reads who is in it, in the order of the plan's groups, and their budgets.
        is_deployed: whether clients clip and add noise themselves, on machines of their own.
    """

    files: Mapping[str, str] = field(repr=False)
    identity: str
    kin: str
    run: str
    ledger: str | None
    dataset: str
    model: str | None
    seed: int
    reproducible: bool
    colluders: int
    adaptive: Mapping[str, Any]
    pace: Pace | None
    go_on: str
    members: Callable[[], Members] = field(repr=False)
    is_deployed: bool = False

    @property
    def stamp(self) -> dict[str, str]:
        """What every file of the run says about itself."""
        return stamp(self.reproducible)

    @property
    def note(self) -> str | None:
        """What its plans and its entry in the ledger say about it."""
        return self.stamp.get("note")

    def ledger_in(self, folder: Path) -> str | Path:
        """Return the ledger that pays: the one it names, or its own file in its folder."""
        return self.ledger or own_ledger(folder)

    def write(self, folder: Path) -> None:
        """Write the files that describe it."""
        for name, text in self.files.items():
            write_atomically(folder / name, text)


def read_description(folder: Path) -> Description:
    """Read what the run in a folder is.

    Raises:
        InputError: there is no run, or what describes it is damaged.
    """
    if (folder / CONFIG).is_file():
        return of_config(load_config(folder / CONFIG))
    if not (folder / RUN).is_file():
        if (folder / TERMS).is_file():
            raise InputError(f"{folder} is a run on Flower: start its server again with this folder, and it goes on.")
        raise InputError(f"{folder} is not a run: it has neither {CONFIG} nor {RUN}, nor {TERMS} as a run on Flower.")

    def kept() -> Members:
        rows = load_plan(folder / "plan.json").groups
        return read_names(folder), tuple(row.group.budget for row in rows for _ in range(row.group.clients))

    return of_record(read_record(folder), kept)


def of_config(config: Config, members: Callable[[], Members] | None = None) -> Description:
    """Describe the run of a configuration, all of whose defaults are written out.

    Args:
        config: what is run.
        members: reads who is in it; by default they are those whom the configuration names.
    """
    head = f"# {NOT_FOR_RELEASE}\n" if config.training.reproducible else ""

    def named() -> Members:
        roster = make_participants(config)
        return roster.clients, roster.budgets

    return Description(
        files={CONFIG: head + tomli_w.dumps(to_toml(config))},
        identity=config_digest(config),
        kin=config_digest(changed(config, "training", seed=0)),
        run=config.ledger.run or "",
        ledger=config.ledger.url,
        dataset=dataset_of(config),
        model=config.model.name,
        seed=config.training.seed,
        reproducible=config.training.reproducible,
        colluders=config.privacy.colluders,
        adaptive=config.privacy.adaptive.model_dump(),
        pace=pace_of_config(config),
        go_on="nestegg run --resume {folder}",
        members=members or named,
    )


def dataset_of(config: Config) -> str:
    """Return how people call the data of a configuration: a file by its name, wherever it lies."""
    dataset = config.federation.dataset
    return Path(dataset).name if is_parquet(dataset) else dataset


_NEEDED = ("mechanics.randomness.seed", "mechanics.randomness.reproducible", "mechanics.colluders")


class RunRecord(Section):
    """What run.json says of a run that was started from Python.

    Attributes:
        format: of this file.
        run: its name in the ledger that pays.
        ledger: URL of that ledger, if it is not its own.
        model: how its model is called.
        values: all that its results depend on, but for data and clients, which are in the private part.
        note: that it is not for release, where its noise follows from a seed.
    """

    format: str
    run: str
    ledger: str | None = None
    model: str
    values: dict[str, Any]
    note: str | None = None


def of_record(record: RunRecord, members: Callable[[], Members]) -> Description:
    """Describe a run that is started from Python; `read_description` describes one that is in a folder."""
    values = record.values
    seed, reproducible = (values[f"mechanics.randomness.{key}"] for key in ("seed", "reproducible"))
    adaptive = "mechanics.adaptive."
    return Description(
        files={RUN: json.dumps(record.model_dump(exclude_none=True), indent=1) + "\n"},
        identity=_digest(values),
        kin=_digest({**values, "mechanics.randomness.seed": 0}),
        run=record.run,
        ledger=record.ledger,
        dataset="own data",
        model=record.model,
        seed=seed,
        reproducible=reproducible,
        colluders=values["mechanics.colluders"],
        adaptive={key.removeprefix(adaptive): value for key, value in values.items() if key.startswith(adaptive)},
        pace=Pace(tuple(values["rates"]), values["mechanics.clip_unit"]) if "rates" in values else None,
        go_on="nestegg.run(federation, '{folder}', resume=True)",
        members=members,
    )


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def with_names(run: Description, names: Sequence[str]) -> Description:
    """Return a description that also writes the names of the run's clients, into its private part."""
    return replace(run, files={**run.files, _MEMBERS: json.dumps({"clients": list(names), **run.stamp}) + "\n"})


def read_record(folder: Path) -> RunRecord:
    """Read run.json."""
    record = read(RunRecord, _read_json(folder / RUN), str(folder / RUN))
    if record.format != FORMAT:
        raise InputError(f"{folder / RUN}: format = {record.format!r} must be {FORMAT!r}.")
    if missing := [name for name in _NEEDED if name not in record.values]:
        raise InputError(f"{folder / RUN} is damaged: values has no {missing[0]!r}.")
    return record


def read_names(folder: Path) -> tuple[str, ...]:
    """Read the names of a Python run's clients, in the order of its plan's groups."""
    try:
        return tuple(map(str, _read_json(folder / _MEMBERS)["clients"]))
    except (KeyError, TypeError):
        raise InputError(f"{folder / _MEMBERS} is damaged: it has no list of clients.") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
