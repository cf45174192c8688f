"""The configuration file: one TOML for every command, typed, with an error that points at the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from nestegg.configuration.method_keys import PLANNER_KEYS, unread_keys
from nestegg.errors import InputError
from nestegg.named import is_named
from nestegg.planning.registry import METHODS, Method, default_method
from nestegg.schema import Section, read_toml

_FILE_URL = "sqlite:///"
LOSSES = ("balanced",)  # that a configuration may name by a word
NEWEST = 2  # format; whoever changes a default counts it up, and keeps the old one for older files


DIVIDING = ("partition", "dirichlet", "samples_per_client")  # keys that say how data is divided among clients


class FederationTable(Section):
    """Who takes part, with what data."""

    dataset: str = "digits"
    data: str | None = None
    clients: int | None = None
    partition: str = "dirichlet"
    dirichlet: float = 0.1
    samples_per_client: int | None = None  # at most so many of each client's, chosen at random
    held_out: float | None = None  # share of each client's samples on which a simulation measures budget groups
    client_column: str | None = None  # of a Parquet file: who, and what is to be predicted
    target_column: str | None = None
    test: str | None = None  # a Parquet file with public test data
    classes: int | None = None  # how many there are; by default as in the test data
    validation: int | None = None  # training samples that no client gets, evenly spread, to make choices on
    tested_on: str = "test"  # or those


class Model(Section):
    """What is trained; by default the dataset's own network."""

    name: str | None = None
    features: str | None = None  # what it is trained on in the place of inputs


class Training(Section):
    """How clients train, and for how long."""

    rounds: int = 25
    local_epochs: int = 5
    batch_size: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.9
    schedule: str = "cosine"
    seed: int = 0
    reproducible: bool = False
    precision: str = "fp32"
    engine: str = "auto"
    workers: int | None = None
    device: str = "cpu"
    loss: str | None = None  # "balanced", or "module:function" of outputs and targets; by default cross entropy


class GroupTable(Section):
    """One budget and the clients that share it: a share of all clients, or a number of them."""

    name: str
    epsilon: float
    share: float | None = None
    clients: int | None = None
    saving_rate: float | None = None
    transition: int | None = None


class Adaptive(Section):
    """Parameters of the method adaptive-clipping."""

    quantile: float = 0.5
    step: float = 0.2
    bit_noise: float | None = None
    server_rate: float = 1.0
    server_momentum: float = 0.0


class Side(Section):
    """What clients say besides their updates; shares are of the square of their clip norms."""

    clip_share: float = 0.0  # whether updates lie below their norms: the clip norm is learnt from it
    quantile: float = 0.5
    step: float = 1.0
    curve_share: float = 0.0  # loss and right answers on samples that clients hold back
    held_back: float = 0.1
    largest_loss: float = 5.0


class Privacy(Section):
    """Budgets, and the method that spends them."""

    method: str = "spend-as-you-go"
    composition: str = "exact"
    accountant: str = "rdp"
    delta: float = 1e-5
    spending_rate: float = 0.9
    clip_norm: float = 10.0
    clipping: str = "per-layer"
    clip_unit: str = "gradient"
    budgets: str = "individual"
    colluders: int = 0
    shape: str | list[float] = "geometric"
    end_ratio: float = 0.5
    saving_rate: float | None = None
    transition: int | None = None
    groups: list[GroupTable] = Field(default_factory=list)
    budgets_file: str | None = None
    budget_levels: int = 32
    adaptive: Adaptive = Adaptive()
    side: Side = Side()
    planner: dict[str, Any] = Field(default_factory=dict)  # the planner's own parameters
    memory: float = 2.0
    influence: str | list[float] | None = None
    spare: float = 0.0


class LedgerTable(Section):
    """Where budgets are kept over many runs; by default every run keeps its own, in its folder."""

    url: str | None = None
    run: str | None = None  # the run's name in the ledger: written into a run's folder, not for people


class Config(Section):
    """A whole configuration file.

    Attributes:
        format: of the defaults. A file without it means those of format 1, for ever. From format 2 on the method is by
            default the one that plans have by default in Python, too.
        code: folder of one's own modules, by default that of the file.
    """

    format: int = 1
    code: str | None = None
    federation: FederationTable = FederationTable()
    model: Model = Model()
    training: Training = Training()
    privacy: Privacy
    ledger: LedgerTable = LedgerTable()


def load_config(path: Path | str) -> Config:
    """Read a configuration; relative paths in it start from its own folder.

    With a ledger, whose later runs may depend on the results of earlier ones, the accountant is by default one that
    holds then too: gaussian where everybody is in every round, and renyi otherwise.
    """
    path = Path(path)
    config = read_toml(Config, path)
    if config.format not in range(1, NEWEST + 1):
        raise InputError(f"{path}: format = {config.format} must be a whole number from 1 to {NEWEST}.")
    # A file of budgets may say how its clients save, and a composition is of spend-as-you-go.
    if config.format >= 2 and not {"method", "budgets_file", "composition"} & config.privacy.model_fields_set:
        config = changed(config, "privacy", method=default_method([config.privacy, *config.privacy.groups]))
    here = path.parent.resolve()
    if config.privacy.budgets_file is not None:
        config = changed(config, "privacy", budgets_file=str((here / config.privacy.budgets_file).resolve()))
    if isinstance(config.privacy.influence, str):
        config = changed(config, "privacy", influence=str((here / config.privacy.influence).resolve()))
    if config.privacy.method in METHODS and (open_ := left_open(config.privacy, METHODS[config.privacy.method])):
        own = {**dict(config.privacy), **open_}  # still not given: another method may have others
        config = config.model_copy(update={"privacy": Privacy.model_construct(config.privacy.model_fields_set, **own)})
    federation = config.federation
    paths = {"data": federation.data, "test": federation.test}
    paths |= {"dataset": federation.dataset} if is_parquet(federation.dataset) else {}
    absolute = {key: str((here / name).resolve()) for key, name in paths.items() if name is not None}
    config = changed(config, "federation", **absolute)
    if config.code is not None or any(is_named(name or "") for name in _named(config)):
        config = config.model_copy(update={"code": str((here / (config.code or "")).resolve())})
    if (url := config.ledger.url or "").startswith(_FILE_URL):
        config = changed(config, "ledger", url=f"{_FILE_URL}{here / url.removeprefix(_FILE_URL)}")
    if config.ledger.url is not None and "accountant" not in config.privacy.model_fields_set:
        config = changed(config, "privacy", accountant="renyi" if _samples(config.privacy) else "gaussian")
    return config


def is_parquet(dataset: str) -> bool:
    """Return whether a dataset is a file of clients."""
    return dataset.lower().endswith(".parquet")


def is_own(dataset: str) -> bool:
    """Return whether a dataset is somebody's own: a file of clients, or what a function returns."""
    return is_parquet(dataset) or is_named(dataset)


def has_own(config: Config) -> bool:
    """Return whether data, model or loss are somebody's own, so that only making them shows if they work."""
    named = any(is_named(name or "") for name in (config.model.name, config.model.features))
    return is_own(config.federation.dataset) or named or config.training.loss not in (None, *LOSSES)


def _named(config: Config) -> list[str | None]:
    """What may be given by "module:Name"."""
    model = config.model
    return [config.federation.dataset, model.name, model.features, config.training.loss, config.privacy.method]


def left_open(privacy: Privacy, method: Method) -> dict[str, Any]:
    """Return the spending rate and the accountant of a method, where none are given and they are others than now."""
    given, rate = privacy.model_fields_set, privacy.spending_rate
    values: dict[str, Any] = {} if "spending_rate" in given else {"spending_rate": method.spending_rate}
    if "accountant" not in given:
        spares = privacy.spare > 0.0 and privacy.method == method.written
        values["accountant"] = "rdp" if spares else method.accountant_at(values.get("spending_rate", rate))
    return {key: value for key, value in values.items() if value != getattr(privacy, key)}


def _samples(privacy: Privacy) -> bool:
    """Whether somebody may be left out of a round: then only one Rényi order holds for a ledger that outlives a run."""
    if privacy.method in METHODS and METHODS[privacy.method].spending_rate == 1.0:  # whose clients never save
        return privacy.spending_rate < 1.0 or privacy.spare > 0.0
    rates = [privacy.spending_rate, privacy.saving_rate, *(group.saving_rate for group in privacy.groups)]
    may_sample = privacy.budgets_file is not None or is_named(privacy.method)  # whose rates are not known yet
    return may_sample or any(rate is not None and rate < 1.0 for rate in rates)


def changed(config: Config, section: str, **values: Any) -> Config:
    """The configuration with other values in one of its sections."""
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})


def own_ledger(folder: Path) -> Path:
    """The ledger in a run's folder: in its private part; older runs have it beside their other files."""
    older = folder / "ledger.db"
    return older if older.exists() else folder / "private" / "ledger.db"


def to_toml(config: Config) -> dict[str, Any]:
    """The configuration as a TOML table: without what was not given, and without the keys of other methods."""
    content = config.model_dump(exclude_none=True)
    privacy = content["privacy"]
    unread = {*unread_keys(config.privacy.method), *(PLANNER_KEYS if privacy["planner"] else ("planner",))}
    unread |= {"side"} if config.privacy.side == Side() else set()
    content["privacy"] = {key: value for key, value in privacy.items() if key not in unread}
    if is_own(config.federation.dataset):  # where these may mean nothing, and are then refused
        for key in {*DIVIDING} - config.federation.model_fields_set:
            content["federation"].pop(key, None)
    return content
