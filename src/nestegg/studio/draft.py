"""A draft: what the plan page holds. The page's address, every request and the link that restores it are its query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from nestegg.checks import MAX_CLIENTS, one_of, probability, whole
from nestegg.configuration.config import Config, FederationTable, GroupTable, Model, Privacy, Training
from nestegg.errors import InputError
from nestegg.planning import COMPARED, Budget
from nestegg.planning.curves import CURVES

METHODS = ("optimal", "idp-fedavg", "exact", "paper", "dp-fedavg")
UNIFORM = "idp-fedavg"
MOST_GROUPS, MOST_ROUNDS = 64, 1_000  # beyond these nothing would follow a slider


class DraftError(InputError):
    """Something in a draft cannot be: a sentence for each field, by the field's name."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        super().__init__(" ".join(sentences.values()))
        self.sentences = dict(sentences)


@dataclass(frozen=True)
class DraftGroup:
    """A row of the page."""

    name: str
    clients: int
    epsilon: float


@dataclass(frozen=True)
class Draft:
    """Everything that the page decides.

    Attributes:
        method: one of `METHODS`.
        rounds: T.
        memory: κ of the method optimal.
        rate: q, the spending rate.
        saving: sampling rate of everybody before the transition, of methods that save.
        transition: first round at the spending rate, of methods that save.
        curve: of the learning rate.
        delta: of every budget.
        clip: norm of updates.
        parameters: of the network that noise is compared with.
        colluders: clients who would take their own shares out of the noise.
        groups: rows.
    """

    method: str = "optimal"
    rounds: int = 25
    memory: float = 2.0
    rate: float = 1.0
    saving: float = 0.5
    transition: int = 13
    curve: str = "cosine"
    delta: float = 1e-5
    clip: float = 10.0
    parameters: int = 4_420
    colluders: int = 1
    groups: tuple[DraftGroup, ...] = (
        DraftGroup("careful", 34, 10.0),
        DraftGroup("usual", 43, 20.0),
        DraftGroup("generous", 23, 30.0),
    )

    @property
    def clients(self) -> int:
        """N."""
        return sum(group.clients for group in self.groups)

    def to_query(self) -> str:
        """Return the draft as the query of an address.

        >>> Draft(groups=(DraftGroup("all", 100, 8.0),)).to_query()[-27:]
        'colluders=1&group=100,8,all'
        """
        single = {
            key: f"{value:.12g}" if isinstance(value, float) else value
            for key, value in asdict(self).items()
            if key != "groups"
        }
        rows = [("group", f"{one.clients},{one.epsilon:.12g},{one.name}") for one in self.groups]
        return urlencode([*single.items(), *rows], safe=",")

    def config(self, method: str | None = None) -> Config:
        """Return the configuration of the draft, or of the same with another method."""
        about = COMPARED[method or self.method]
        everybody = self.rate == 1.0 and not about.lets_save
        privacy: dict[str, Any] = {
            "method": about.written,
            **about.changes,
            "accountant": "gaussian" if everybody else "rdp",
            "delta": self.delta,
            "spending_rate": self.rate,
            "clip_norm": self.clip,
            "colluders": self.colluders,
            "groups": [GroupTable(name=one.name, epsilon=one.epsilon, clients=one.clients) for one in self.groups],
        }
        if about.lets_save:
            privacy |= {"saving_rate": min(self.saving, self.rate), "transition": min(self.transition, self.rounds)}
        if about.name == "optimal":
            privacy |= {"memory": self.memory}
        return Config(
            format=2,
            federation=FederationTable(clients=self.clients),
            model=Model(),
            training=Training(rounds=self.rounds, schedule=self.curve),
            privacy=Privacy(**privacy),
        )


def read_draft(items: Iterable[tuple[str, str]]) -> Draft:
    """Read a query; what it does not say is as in the first draft.

    Raises:
        DraftError: some values cannot be, with a sentence for each.
    """
    values: dict[str, Any] = {}
    rows: list[str] = []
    wrong: dict[str, str] = {}
    for key, text in items:
        if key == "group":
            rows.append(text)
            continue
        try:
            if key not in _READERS:
                raise InputError(f"{key} is no field of a plan.")
            values[key] = _READERS[key](key, text)
        except InputError as error:
            wrong[key] = str(error)
    if rows:
        values["groups"] = tuple(_read_group(number, text, wrong) for number, text in enumerate(rows))
        _check_groups(values["groups"], wrong)
    if not wrong:
        draft = Draft(**values)
        if draft.colluders >= draft.clients:
            wrong["colluders"] = f"colluders = {draft.colluders} must be fewer than the {draft.clients} clients."
    if wrong:
        raise DraftError(wrong)
    return draft


def _read_group(number: int, text: str, wrong: dict[str, str]) -> DraftGroup:
    """Read clients,epsilon,name; what is wrong is noted under group-0-clients and the like."""
    clients, epsilon, name = (*text.split(",", 2), "", "")[:3]
    values = {"clients": 1, "epsilon": 1.0}
    checks: dict[str, tuple[str, Callable[[str, str], Any]]] = {
        "clients": (clients, _clients),
        "epsilon": (epsilon, _epsilon),
    }
    for key, (written, read) in checks.items():
        try:
            values[key] = read(key, written)
        except InputError as error:
            wrong[f"group-{number}-{key}"] = str(error)
    if not name.strip():
        wrong[f"group-{number}-name"] = "a group must have a name."
    return DraftGroup(name.strip(), int(values["clients"]), float(values["epsilon"]))


def _check_groups(groups: tuple[DraftGroup, ...], wrong: dict[str, str]) -> None:
    if len(groups) > MOST_GROUPS:
        wrong["group"] = f"{len(groups)} groups are more than the {MOST_GROUPS} that this page plans at once."
    names = [group.name for group in groups]
    for number, name in enumerate(names):
        if name in names[:number]:
            wrong.setdefault(f"group-{number}-name", f"there is another group called {name!r}.")


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{key} = {text!r} must be a number.") from None


def _whole(low: int, high: int | None = None) -> Callable[[str, str], int]:
    return lambda key, text: whole(key, _number(key, text), low, high)  # type: ignore[arg-type]


def _checked(check: Callable[[str, float], float]) -> Callable[[str, str], float]:
    return lambda key, text: check(key, _number(key, text))


def _between(low: float, high: float) -> Callable[[str, str], float]:
    """Read a number within bounds beyond which arithmetic, not the plan, decides what is shown."""

    def check(key: str, value: float) -> float:
        if not low <= value <= high:
            raise InputError(f"{key} = {value!r} must be a number from {low:g} to {high:g}.")
        return value

    return _checked(check)


def _epsilon(key: str, text: str) -> float:
    return Budget(_number(key, text)).epsilon


_clients = _whole(1, MAX_CLIENTS)
_READERS: dict[str, Callable[[str, str], Any]] = {
    "method": lambda key, text: one_of(key, text, METHODS),
    "rounds": _whole(1, MOST_ROUNDS),
    "memory": _between(0.0, 1e6),
    "rate": _between(1e-4, 1.0),
    "saving": _between(1e-4, 1.0),
    "transition": _whole(1, MOST_ROUNDS),
    "curve": lambda key, text: one_of(key, text, CURVES),
    "delta": _checked(probability),
    "clip": _between(1e-9, 1e9),
    "parameters": _whole(1, 10**15),
    "colluders": _whole(0, MAX_CLIENTS),
}
