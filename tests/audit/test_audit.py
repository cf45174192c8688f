"""The audit on the real code: it passes what keeps its promise, finds what does not, and says what it left out."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nestegg
from bench import planted
from nestegg.audit import Audit, Clock, arms, audit
from nestegg.audit.canaries import crafted, loud
from nestegg.audit.claims import Claims
from nestegg.audit.exact import exact_attacks
from nestegg.audit.replay import replay
from nestegg.planning import Setting
from nestegg.training import Federation, loop
from nestegg.training.workers import Workers
from tests.audit.conftest import Counted


def attacks(found: Audit) -> set[str]:
    return {one.finding.attack for one in found.refutations}


@pytest.mark.parametrize("method", ["spend-as-you-go", "idp-fedavg", "adaptive-clipping"])
def test_the_code_as_it_is_passes(method: str) -> None:
    found = audit(planted.subject(method), clock=Counted(40))
    assert not found.refutations
    assert {one.group for one in found.evidence} == {"strict", "middle", "open"}
    assert all(one.by_counting < one.epsilon for one in found.evidence)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("bug", "attack"),
    [("noise 3 % low", "noise"), ("rate + 0.03", "sampling"), ("a block whose rounding depends on company", "company")],
)
def test_planted_bugs_are_found(bug: str, attack: str) -> None:
    with planted.BUGS[bug]():
        assert attack in attacks(audit(planted.subject(), clock=Counted(60)))


def test_a_relabelled_plan_is_refuted_and_no_code_runs_by_it() -> None:
    found = audit(planted.relabelled(planted.subject().plan), clock=Counted(2))
    assert attacks(found) == {"budgets"}
    assert found.not_attacked == ("everything else: no code may be run by this plan",)


class Convolutions(nn.Module):
    """A network of several layers that the dense engine does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, rectify, and tell classes apart."""
        return self.last(torch.relu(self.first(x)).flatten(1))  # type: ignore[no-any-return]


def small(model: nn.Module, shape: tuple[int, ...], **options: object) -> Federation:
    groups = [nestegg.Group("strict", 4, nestegg.Budget(4.0)), nestegg.Group("single", 1, nestegg.Budget(8.0))]
    data = [(torch.randn(3, *shape), torch.randint(3, (3,))) for _ in range(5)]
    return Federation(nestegg.plan(groups, rounds=3), model, data, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("clipping", ["per-layer", "flat"])
@pytest.mark.parametrize("unit", ["gradient", "update"])
def test_any_model_engine_clipping_and_unit(clipping: str, unit: str) -> None:
    mechanics = nestegg.Mechanics(clipping=clipping, clip_unit=unit, colluders=1)
    found = audit(small(Convolutions(), (1, 4, 4), mechanics=mechanics), clock=Counted(30))
    assert not found.refutations
    assert found.facts["engine"] == "loop"
    arms_of = {one.finding.arm for one in found.findings}
    assert {"crafted network", "your model", "plan"} <= arms_of


def test_optimisers_and_losses_of_ones_own_are_attacked_too() -> None:
    local = nestegg.LocalTraining(loss=nn.CrossEntropyLoss(), optimizer=torch.optim.Adam)
    found = audit(small(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), (4,), local=local), clock=Counted(4))
    assert not found.refutations
    assert any(one.finding.arm == "your model" for one in found.findings)


class Frozen(nn.Module):
    """A model whose parameters have no influence on its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        """Return the same for everybody."""
        return torch.zeros(len(x), 3) + 0.0 * self.weight


def test_a_model_that_no_canary_moves_is_listed_and_the_other_arm_runs() -> None:
    found = audit(small(Frozen(), (4,)), clock=Counted(30))
    assert any(line.startswith("your model: no canary has an update") for line in found.not_attacked)
    assert any(one.finding.attack == "signal" for one in found.findings)


@dataclass(frozen=True)
class Steep:
    """Noise that falls by a third from round to round."""

    fall: float = 1.5

    def schedule(self, setting: Setting) -> nestegg.Schedule:
        """Return the curve at a rate of one's own, calibrated."""
        return setting.calibrated(0.8, self.fall ** -np.arange(setting.rounds, dtype=np.float64))


def test_a_plan_of_a_planner_from_outside_the_package() -> None:
    groups = [nestegg.Group("all", 12, nestegg.Budget(6.0))]
    assert not audit(nestegg.plan(groups, rounds=4, method=Steep()), clock=Counted(40)).refutations


def test_groups_that_are_asked_for_and_a_choice_among_many() -> None:
    groups = [nestegg.Group(f"g{i:02}", 2, nestegg.Budget(2.0 + i)) for i in range(12)]
    made = nestegg.plan(groups, rounds=2)
    found = audit(made, clock=Counted(2))
    assert len(found.facts["groups"]) == 8
    assert {"g00", "g11"} <= set(found.facts["groups"])
    assert found.not_attacked[0].startswith("4 of 12 groups")
    assert audit(made, groups=["g03"], clock=Counted(2)).facts["groups"] == ["g03"]
    with pytest.raises(nestegg.InputError, match="groups = 'nobody' must be among the plan's groups: g00"):
        audit(made, groups=["nobody"])


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(nestegg.InputError, match="no noise"):
        audit(nestegg.plan([nestegg.Group("all", 4, nestegg.Budget(5.0))], rounds=2, method="fedavg"))
    with pytest.raises(nestegg.InputError, match="seconds = -1 must be a finite number above 0"):
        audit(planted.subject().plan, seconds=-1)
    with pytest.raises(nestegg.InputError, match="needs a Federation or a Plan; it is a str"):
        audit("plan.json")  # type: ignore[arg-type]


def test_an_interruption_keeps_what_was_found() -> None:
    clock = Counted(1000)

    def tell(what: str, share: float) -> None:
        if what == "your model, exactly":
            clock.stop()

    found = audit(planted.subject(), clock=clock, tell=tell)
    assert found.facts["interrupted"]
    assert any(one.finding.attack == "replay" for one in found.findings)
    assert any("interrupted" in line for line in found.not_attacked)


def test_a_clock_ends_and_tells() -> None:
    told: list[float] = []
    clock = Clock(1e-9)
    assert not clock.until(1.0, told.append)(0)
    assert told == [1.0]


def claims_of(plan: nestegg.Plan, **options: object) -> Claims:
    return Claims(plan, nestegg.Mechanics(**options), nestegg.LocalTraining())  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["dense", "loop"])
def test_a_loud_canary_counts_as_its_clip_norm_in_its_own_direction_alone(engine: str) -> None:
    claims = claims_of(planted.subject().plan)
    made = crafted(claims, nestegg.Performance(engine=engine), {3: loud(claims), 20: 0.0}, layers=3)
    state = made.watched.federation.start()
    along = made.seen(made.watched.contribution(state, [3, 20])) * made.watched.clipping.step
    assert along[0] == pytest.approx(claims.norms[0, 0], rel=1e-5)
    assert not along[1:].any()


@pytest.mark.parametrize(
    "change",
    [
        lambda claims: replace(claims, mechanics=replace(claims.mechanics, colluders=5)),
        lambda claims: replace(claims, mechanics=replace(claims.mechanics, clip_unit="update")),
        lambda claims: replace(claims, plan=replace(claims.plan, clip_norm=claims.plan.clip_norm * 1.001)),
    ],
)
def test_a_round_by_other_rules_than_claimed_differs_from_its_plain_version(change: Callable[[Claims], Claims]) -> None:
    claims = claims_of(planted.subject().plan)
    one = arms.crafted_arm(claims, nestegg.Performance(engine="dense"), [0, 1, 2], 1)
    assert not replay(one).refutes
    assert replay(replace(one, claims=change(claims))).refutes


def test_whoever_claims_less_than_what_a_client_adds_is_refuted_to_the_last_bit() -> None:
    claims = claims_of(planted.subject().plan)
    one = arms.crafted_arm(claims, nestegg.Performance(engine="dense"), [0], 1)
    rows = tuple(replace(row, clip_norm=tuple(c * (1.0 - 3e-6) for c in row.clip_norm)) for row in claims.plan.groups)
    lower = replace(one, claims=replace(claims, plan=replace(claims.plan, groups=rows)))
    assert {found.attack for found in exact_attacks(lower) if found.refutes} == {"sensitivity"}


def in_round(*changes: tuple[str, str]) -> AbstractContextManager[None]:
    """Plant a bug in the text of a round."""
    text = textwrap.dedent(inspect.getsource(Federation.round))
    for right, wrong in changes:
        assert right in text
        text = text.replace(right, wrong)
    made: dict[str, Any] = {}
    exec(compile(f"from __future__ import annotations\n{text}", "planted", "exec"), vars(loop), made)
    return planted.patched(Federation, "round", lambda _: made["round"])


CLEAN = ("if lattice is not None:", "clean = (total * lattice.step / expected).float()\n    if lattice is not None:")


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("spend-as-you-go", [("client not in absent and ", "")]),
        ("spend-as-you-go", [CLEAN, ("clip_norm, velocity), report", "clip_norm, clean), report")]),
        ("adaptive-clipping", [CLEAN, ("state.model + update", "state.model + clean")]),
        ("adaptive-clipping", [("bits += part.bits", "bits += 2.0 * part.bits")]),
        ("adaptive-clipping", [("controller.server_momentum * velocity + update", "velocity + update")]),
    ],
    ids=["the absent count", "velocity without noise", "model without noise", "bits count twice", "momentum"],
)
def test_a_round_that_does_something_else_is_not_its_plain_version(method: str, changes: list[tuple[str, str]]) -> None:
    one = arms.crafted_arm(claims_of(planted.subject(method).plan), nestegg.Performance(engine="dense"), [0, 1, 2], 1)
    assert not replay(one).refutes
    with in_round(*changes):
        assert replay(one).refutes


def test_much_noise_is_no_alarm_though_its_lattice_is_coarse_beside_a_clip_norm() -> None:
    made = nestegg.plan([nestegg.Group("all", 30, nestegg.Budget(0.3))], rounds=100, method="dp-fedavg")
    one = arms.crafted_arm(claims_of(made), nestegg.Performance(engine="dense"), [0], 1)
    found = [*exact_attacks(one), *arms.below_the_norm(one.claims, nestegg.Performance(engine="dense"), [0], 1)]
    assert not any(finding.refutes for finding in found)


def test_weights_too_coarse_for_their_noise_are_listed_and_not_taken_for_wrong_noise() -> None:
    groups = [nestegg.Group("all", 6, nestegg.Budget(5.0))]
    plan = nestegg.plan(groups, rounds=2, clip_norm=1e-6)
    data = [(torch.randn(3, 4), torch.randint(3, (3,))) for _ in range(6)]
    found = audit(Federation(plan, nn.Linear(4, 3), data), clock=Counted(4))
    assert not found.refutations
    assert any("too coarse beside noise" in line for line in found.not_attacked)


def test_a_model_whose_rounds_take_too_long_is_attacked_exactly_and_the_rest_is_listed() -> None:
    class Late(Counted):
        """Time that is over when statistics of the model begin."""

        def until(self, share: float, tell: Callable[[float], None]) -> Callable[[int], bool]:
            return lambda passes: share > 0.8 and passes < 2

    found = audit(planted.subject(), clock=Late(2))
    assert "your model, by statistics: there is no time for 8 rounds of it" in found.not_attacked
    assert any(one.finding.arm == "your model" for one in found.findings)


def test_the_last_of_a_group_is_not_one_of_the_next() -> None:
    one = arms.crafted_arm(claims_of(planted.subject().plan), nestegg.Performance(engine="dense"), [0, 1, 2], 1)
    federation = one.watched.federation
    federation.group = np.append(federation.group[1:], federation.group[-1])
    assert {found.attack for found in exact_attacks(one) if found.refutes} >= {"sensitivity"}


def test_a_bug_of_worker_processes_is_found_where_the_users_rounds_would_have_them() -> None:
    def losing(shared: Any) -> Any:
        def fewer(self: Workers, *about: Any) -> Any:
            yield from list(shared(self, *about))[1:]

        return fewer

    whole = planted.subject()
    whole.workers.count = 2  # as more data would make it
    with planted.patched(Workers, "_shared", losing):
        assert {"clip norm", "replay"} <= attacks(audit(whole, clock=Counted(2)))
