"""Whoever takes a plan checks it: a plan whose noise is not what it charges is refused by all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nestegg import Budget, Charge, Group, InputError, Plan, VerificationError, plan
from nestegg.flower.terms import Terms, own_plan
from nestegg.ledger import Ledger
from nestegg.planning import Standing, check_plan, replanned
from nestegg.planning.consistency import clip_norms
from nestegg.planning.judge import epsilons
from nestegg.planning.plan_file import parse_plan
from nestegg.training import AdaptiveClipping, Federation, LocalTraining, Mechanics
from tests.federations import assembled, trained
from tests.grid import small_plan

PLAN = plan([Group("strict", 2, Budget(2.0)), Group("open", 1, Budget(30.0))], 4, method="idp-fedavg")
CLIENTS = [(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))] * 3


def row(name: str, value: object, group: int = 0, round_: int = 1) -> Callable[[Plan], Plan]:
    def change(made: Plan) -> Plan:
        values = list(getattr(made.groups[group], name))
        values[round_] = value
        rows = list(made.groups)
        rows[group] = replace(rows[group], **{name: tuple(values)})  # type: ignore[arg-type]
        return replace(made, groups=tuple(rows))

    return change


def first(made: Plan, **changes: Any) -> Plan:
    return replace(made, groups=(replace(made.groups[0], **changes), *made.groups[1:]))


def group(made: Plan, **changes: Any) -> Plan:
    return first(made, group=replace(made.groups[0].group, **changes))


def before(q: float, sigma: float, rounds: float) -> Callable[[Plan], Plan]:
    return lambda made: group(made, already_spent=(Charge(q, sigma, rounds),))  # type: ignore[arg-type]


def scaled(made: Plan, sigma: float, norm: float) -> Plan:
    """All with one noise and the clip norms that follow from it."""
    noise = replace(
        made, clip_norm=norm, groups=tuple(replace(one, noise_multiplier=(sigma,) * 4) for one in made.groups)
    )
    with np.errstate(over="ignore"):
        norms = clip_norms(noise).tolist()
    rows = [replace(one, clip_norm=tuple(c)) for one, c in zip(noise.groups, norms, strict=True)]
    return replace(noise, groups=tuple(rows))


# Each trains with other noise than it is charged for, or with none that is known.
FORGED: dict[str, Callable[[Plan], Plan]] = {
    "individual noise, one clip norm": lambda made: replace(made, method="adaptive-clipping"),
    "individual noise at one budget": lambda made: replace(made, method="dp-fedavg"),
    "a hundredth of the clip norm": lambda made: replace(made, clip_norm=made.clip_norm / 100),
    "a larger clip norm": row("clip_norm", 400.0),
    "a clip norm by a hair": lambda made: row("clip_norm", made.groups[0].clip_norm[1] * (1 + 1e-6))(made),
    "no clip norm": row("clip_norm", float("nan")),
    "no clipping": lambda made: replace(made, clip_norm=float("inf")),
    "a negative clip norm": lambda made: replace(made, clip_norm=-1.0),
    "no noise in a round": row("noise_multiplier", 0.0),
    "hardly any noise": row("noise_multiplier", 0.01),
    "endless noise": row("noise_multiplier", float("inf")),
    "no number for noise": row("noise_multiplier", float("nan")),
    "a rate of 0": row("sampling_rate", 0.0),
    "a rate above 1": row("sampling_rate", 1.5),
    "no number for a rate": row("sampling_rate", float("nan")),
    "noise under the name of fedavg": lambda made: replace(made, method="fedavg"),
    "a round too few": lambda made: replace(
        made, groups=(made.groups[0], replace(made.groups[1], noise_multiplier=made.groups[1].noise_multiplier[:-1]))
    ),
    "nobody": lambda made: replace(made, groups=()),
    "noise beyond all charges": lambda made: scaled(made, 1e300, 1e300),
    "noise that no charge may have": lambda made: scaled(made, 1e160, 250.0),
    "clip norms beyond all lattices": lambda made: scaled(made, 2.0, 1e13),
    "a method of somebody else": lambda made: replace(made, method="whatever"),
    "another composition": lambda made: replace(made, composition="whatever"),
    "another accountant": lambda made: replace(made, accountant="whatever"),
    "orders that are no numbers": lambda made: replace(made, orders=(2.0, float("nan"))),
    "no orders": lambda made: replace(made, orders=()),
    "a spending rate that is no number": lambda made: replace(made, spending_rate=float("nan")),
    "a name twice": lambda made: group(made, name="open"),
    "another delta": lambda made: group(made, budget=Budget(2.0, 1e-6)),
    "a transition that never comes": lambda made: group(made, transition=5),
    "rounds taken back": before(0.9, 2.0, -9),
    "half a round before": before(0.9, 2.0, 0.5),
    "endless noise before": before(0.9, float("inf"), 1),
    "no number for noise before": before(0.9, float("nan"), 1),
    "a rate above 1 before": before(1.5, 2.0, 1),
    "no number for a spending": row("epsilon_spent", float("nan")),
    "a negative spending": row("epsilon_spent", -1.0),
    "no number for a spending by PLD": lambda made: first(made, epsilon_spent_pld=float("nan")),
    "a spending too few": lambda made: first(made, epsilon_spent=made.groups[0].epsilon_spent[:-1]),
    "no number for a clip norm without noise": lambda made: replace(
        plan([one.group for one in made.groups], 4, method="fedavg"), clip_norm=float("nan")
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_plan_whose_noise_is_not_what_it_charges_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"^plan[.:]"):
        check_plan(FORGED[name](PLAN))


@pytest.mark.parametrize("name", list(FORGED)[:3])
def test_everybody_who_takes_a_plan_refuses_it(name: str, tmp_path: Path) -> None:
    """Relabelled, the strict group would face the noise of the open one: 13 times its ε (by the digest all is well)."""
    forged = FORGED[name](PLAN)
    assert parse_plan(forged.to_json(), "the forged plan") == forged
    with pytest.raises(VerificationError, match="must be"):
        forged.verify()
    with pytest.raises(InputError, match="must be"):
        trained(forged, nn.Linear(3, 2), CLIENTS)
    with Ledger(tmp_path / "ledger.db") as ledger, pytest.raises(InputError, match="must be"):
        ledger.begin("monday", forged, ["ada", "bob", "eve"], unknown=[Budget(10.0)] * 3)
    with pytest.raises(InputError, match="must be"):
        Terms("monday", forged, "flat", 0, (1.0,) * forged.rounds)


def test_what_was_never_spent_buys_nothing() -> None:
    """Nine rounds taken back would make 100 look like less than 60."""
    made = plan([Group("all", 10, Budget(100.0))], 10, method="spend-as-you-go")
    (one,) = made.groups
    back = Charge(one.sampling_rate[0], one.noise_multiplier[0], -9)
    poorer = group(made, budget=Budget(60.0), already_spent=(back,))
    stated = tuple(np.maximum(epsilons(poorer, poorer.groups[0]), 0.0).tolist())
    forged = replace(poorer, groups=(replace(poorer.groups[0], epsilon_spent=stated),))
    with pytest.raises(VerificationError, match=r"already_spent: .*-9.* must be"):
        forged.verify()


def test_a_file_with_noise_beyond_all_charges_is_refused_in_a_sentence() -> None:
    forged = parse_plan(scaled(PLAN, 1e160, 250.0).to_json(), "the forged plan")
    with pytest.raises(VerificationError, match=r"noise_multiplier = 1e\+160 must be at least"):
        forged.verify()


def test_a_ledger_puts_no_such_plan_in_force(tmp_path: Path) -> None:
    """A re-plan comes from within, yet is checked like any other."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        books = ledger.begin("monday", PLAN, ["ada", "bob", "eve"], unknown=[Budget(40.0)] * 3)
        with pytest.raises(InputError, match="clip_norm"):
            books._put_in_force(replace(PLAN, clip_norm=1.0), 0)


def federation(made: Plan, learning_rate: float, unit: str = "gradient", **options: Any) -> Federation:
    local, mechanics = LocalTraining(learning_rate=learning_rate), Mechanics(clip_unit=unit)
    return assembled(made, nn.Linear(3, 2), CLIENTS, local=local, mechanics=mechanics, **options)


@pytest.mark.parametrize("method", ["idp-fedavg", "adaptive-clipping"])
@pytest.mark.parametrize("rate", [1e-40, 1e40])
def test_noise_without_a_lattice_is_refused_before_any_round(method: str, rate: float) -> None:
    """A ledger is asked for a round once its federation is there: the charge would be written already."""
    made = plan([one.group for one in PLAN.groups], 4, method=method)
    federation(made, 0.1)
    federation(made, rate, "update")  # no learning rate in its noise
    with pytest.raises(InputError, match="the noise of a round"):
        federation(made, rate)


def test_the_last_round_has_its_lattice_too() -> None:
    """A learning rate that falls takes the noise with it: here from twice the least there may be to a third of it."""
    with pytest.raises(InputError, match="the noise of a round"):
        federation(PLAN, 2.0**-99 / (PLAN.clip_norm * PLAN.round_noise_multiplier[0]))


def test_bits_whose_noise_has_no_lattice_are_refused_before_any_round() -> None:
    made = plan([one.group for one in PLAN.groups], 4, method="adaptive-clipping")
    with pytest.raises(InputError, match="the noise of a round"):
        federation(made, 0.1, adaptive=AdaptiveClipping(bit_noise=1e40))


@pytest.mark.parametrize("method", ["fedavg", "dp-fedavg", "idp-fedavg", "adaptive-clipping", "shaped"])
def test_sound_plans_are_taken(method: str) -> None:
    made = plan([Group("a", 3, Budget(2.0)), Group("b", 5, Budget(9.0))], 5, method=method)
    check_plan(made)
    check_plan(made.replan(2))


@pytest.mark.parametrize("method", ["dp-fedavg", "idp-fedavg", "spend-as-you-go", "shaped"])
def test_a_clients_own_view_and_a_new_plan_are_taken(method: str) -> None:
    made = small_plan(method=method)
    for one in made.groups:
        check_plan(own_plan(made, one.group.name))
    standings = {
        one.group.name: [Standing("this run", one.group.budget, one.charges(3 if one is made.groups[1] else 2))]
        for one in made.groups
    }
    check_plan(replanned(made, 2, standings))
