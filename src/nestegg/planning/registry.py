"""All there is to say of every method, in one place; of methods that are not ours as far as their names tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, Literal, Protocol

from nestegg.checks import suggestion
from nestegg.errors import InputError
from nestegg.named import is_named, load_object
from nestegg.planning.parameters import planner_with
from nestegg.planning.planners import NoNoise, Optimal, Planner, Shaped, SpendAsYouGo, Uniform

# Okabe and Ito's colours, which the colour-blind tell apart too; a method and its variants share theirs.
_GREY, _SKY, _VERMILION, _BLUE, _GREEN = "#7F7F7F", "#56B4E9", "#D55E00", "#0072B2", "#009E73"
_PURPLE, _ORANGE, _BLACK = "#CC79A7", "#E69F00", "#000000"


@dataclass(frozen=True)
class Method:
    """A method.

    Attributes:
        name: how comparisons and experiments call it.
        written: how configurations and plan files call it.
        planner: what plans; none of a method that is not ours and is known by its name only.
        label: for people.
        colour: in charts.
        rates: spending if everybody is sampled at the spending rate in all rounds; saving if groups are at their saving
            rates before their transitions; own if the planner may choose any.
        same_noise: whether everybody has the smallest budget and the same noise, also where histories differ.
        learns_clip_norm: whether a controller sets the clip norm while training (adaptive clipping).
        is_private: whether there is noise at all.
        changes: what else it changes in [privacy], as variants in comparisons do.
        individual: of a variant in which everybody has the smallest budget, the one in which all have their own.
        spending_rate: q where none is given.
        idea: what it does, in words.
    """

    name: str
    written: str
    planner: Planner | None
    label: str
    colour: str
    rates: Literal["spending", "saving", "own"] = "spending"
    same_noise: bool = False
    learns_clip_norm: bool = False
    is_private: bool = True
    changes: Mapping[str, Any] = field(default_factory=dict)
    individual: str | None = None
    spending_rate: float = 0.9
    idea: str = ""

    def accountant_at(self, spending_rate: float) -> str:
        """The accountant where none is given: exact where the planner has everybody in every round."""
        everybody = self.spending_rate == spending_rate == 1.0 and not getattr(self.planner, "spare", 0.0)
        return "gaussian" if everybody else "rdp"

    @property
    def lets_save(self) -> bool:
        """Whether groups' saving rates and transitions count; a planner of somebody else's may read them."""
        return self.rates == "saving" or self.is_own

    @property
    def has_parameters(self) -> bool:
        """Whether plans say how its planner was set; of others of ours the rows, or the composition, say it."""
        return self.is_own or self.written == "optimal"

    @property
    def is_own(self) -> bool:
        """Whether somebody else wrote its planner."""
        return is_named(self.written)


def _ours(name: str, planner: Planner, label: str, colour: str, **traits: Any) -> Method:
    return Method(name, name, planner, label, colour, **traits)


def _at_smallest(method: Method) -> Method:
    """The same with everybody at the smallest budget."""
    changes = {**method.changes, "budgets": "smallest"}
    name, label, idea = f"{method.name}-smallest", f"{method.label}, min ε", f"as {method.name}, at the smallest budget"
    return replace(method, name=name, label=label, idea=idea, changes=changes, individual=method.name)


def _by_pld(method: Method, label: str, colour: str) -> Method:
    changes = {**method.changes, "accountant": "pld"}
    name, idea = f"{method.name}-pld", f"as {method.name}, by an accountant that is tighter where clients are sampled"
    return replace(method, name=name, label=label, idea=idea, colour=colour, changes=changes)


_OPTIMAL = _ours(
    "optimal",
    Optimal(),
    "Optimal",
    _BLACK,
    rates="own",
    spending_rate=1.0,
    idea="every client's own budget, spent so that the least noise is left in the final model",
)
_IDP = _ours("idp-fedavg", Uniform(), "IDP-FedAvg", _VERMILION, idea="every client's own budget, spent evenly")
_SAVING = _ours(
    "spend-as-you-go",
    SpendAsYouGo(),
    "Spend-as-you-go",
    _GREEN,
    rates="saving",
    idea="every client's own budget, saved in early rounds and spent in later ones, as in the paper",
)
_PAPER = replace(
    _SAVING,
    name="paper",
    label="Ours (paper)",
    colour=_BLUE,
    planner=SpendAsYouGo("paper"),
    changes={"composition": "paper"},
    idea="spend-as-you-go as printed: ε is subtracted from ε, which leaves budget unspent",
)
_EXACT = replace(
    _SAVING,
    name="exact",
    label="Ours (exact, RDP)",
    changes={"composition": "exact"},
    idea="spend-as-you-go with all rounds composed exactly, so that the whole budget is spent",
)
_EXACT_PLD = _by_pld(_EXACT, "Ours (exact, PLD)", _PURPLE)

# By the names that comparisons and experiments know.
COMPARED: Mapping[str, Method] = {
    method.name: method
    for method in (
        _ours("fedavg", NoNoise(), "FedAvg, no privacy", _GREY, is_private=False, idea="no noise, and no privacy"),
        _ours(
            "dp-fedavg",
            Uniform(),
            "DP-FedAvg",
            _SKY,
            same_noise=True,
            idea="the smallest budget for everybody, spent evenly",
        ),
        _IDP,
        _by_pld(_IDP, "IDP-FedAvg (PLD)", _VERMILION),
        _ours(
            "adaptive-clipping",
            Uniform(),
            "Adaptive clipping",
            _ORANGE,
            same_noise=True,
            learns_clip_norm=True,
            idea="as dp-fedavg, with a clip norm that is learnt in training",
        ),
        _SAVING,
        *(_PAPER, _EXACT, _EXACT_PLD),
        *map(_at_smallest, (_PAPER, _EXACT, _EXACT_PLD)),
        _ours("shaped", Shaped(), "Shaped", _ORANGE, idea="every client's own budget, spent by a shape that was given"),
        _OPTIMAL,
    )
}
# By the names that configurations and plan files know.
METHODS: Mapping[str, Method] = {name: method for name, method in COMPARED.items() if name == method.written}
# What `nestegg plan --compare` plans side by side: uniform spending first.
RIVALS = ("idp-fedavg", "paper", "exact", "optimal")


def known_method(source: str, name: str, among: Mapping[str, Method] = METHODS) -> Method:
    """Return all there is to say of a method; one of the form "module:Name" is somebody's own, and is not imported.

    >>> known_method("method", "dp-fedavg").same_noise, known_method("method", "my_schedules:Steps").label
    (True, 'Steps')
    """
    if is_named(name):
        return Method(name, name, None, name.partition(":")[2], _BLACK, rates="own")
    if name in among:
        return among[name]
    raise InputError(
        f"{source} = {name!r} must be one of {', '.join(among)}, or 'module:Name' for a planner of one's own."
        f"{suggestion(name, among)}"
    )


class Saver(Protocol):
    """Who may say how budget is saved: a group, or what is said for all groups."""

    @property
    def saving_rate(self) -> float | None:
        """The sampling rate while saving."""

    @property
    def transition(self) -> int | None:
        """The round in which spending begins."""


def default_method(groups: Iterable[Saver]) -> str:
    """Return the method where none is given: spend-as-you-go if anybody says how to save, and else optimal."""
    saves = any((group.saving_rate or 1.0) < 1.0 or (group.transition or 1) > 1 for group in groups)
    return "spend-as-you-go" if saves else "optimal"


def method_of(method: str | Planner) -> Method:
    """Return the method of a name, or of a planner itself."""
    if isinstance(method, str):
        found = known_method("method", method)
        if found.planner is not None:
            return found
        method = planner_with("method", load_object("method", method), {})
    kind = type(method)
    for ours in METHODS.values():
        if type(ours.planner) is kind and not ours.same_noise:
            return replace(ours, planner=method)
    name = f"{kind.__module__}:{kind.__qualname__}"
    if not is_dataclass(method) or isinstance(method, type) or not callable(getattr(method, "schedule", None)):
        raise InputError(f"method = {method!r} must be a name, or a frozen dataclass with schedule(setting).")
    if not is_named(name):
        raise InputError(f"method = {method!r}: {kind.__qualname__} must stand at the top of its module.")
    return replace(known_method("method", name), planner=method)
