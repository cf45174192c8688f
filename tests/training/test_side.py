"""Side statistics: within the clip norm, in the same noise, unbiased, and no door for anything else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nestegg
from nestegg import (
    Budget,
    Federation,
    Group,
    InputError,
    LocalTraining,
    Mechanics,
    Performance,
    RoundReport,
    SideStatistics,
    State,
)
from nestegg.audit import audit
from nestegg.audit.watching import Watched
from nestegg.callbacks import Callback
from nestegg.configuration.config import load_config
from nestegg.mechanism.randomness import Randomness
from nestegg.mechanism.side import estimates, lengths_of, side_points
from nestegg.runs.comparison import variant
from nestegg.runs.configured import new_simulation
from nestegg.training import blocks
from nestegg.training.holding import HoldingBack
from nestegg.training.side import statistics_of

BOTH = SideStatistics(clip_share=0.05, curve_share=0.2)
CURVE = SideStatistics(curve_share=0.2)


def some_clients(count: int = 12, seed: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    made = torch.Generator().manual_seed(seed)
    truth = torch.randn(5, 3, generator=made)
    inputs = [torch.randn(20 + 3 * client, 5, generator=made) for client in range(count)]
    return [(x, (x @ truth).argmax(dim=1)) for x in inputs]


def federation(side: SideStatistics, *, clients: Any = None, epsilon: float = 20.0, **changes: Any) -> Federation:
    groups = [Group("strict", 8, Budget(epsilon)), Group("open", 4, Budget(4.0 * epsilon))]
    made = nestegg.plan(groups, rounds=changes.pop("rounds", 4), clip_norm=changes.pop("clip_norm", 2.0))
    randomness = Randomness(changes.pop("seed", 1), reproducible=changes.pop("reproducible", True))
    torch.manual_seed(0)
    return Federation(
        made,
        torch.nn.Linear(5, 3),
        some_clients() if clients is None else clients,
        local=LocalTraining(epochs=1, batch_size=8, learning_rate=0.2),
        mechanics=Mechanics(randomness=randomness, side=side),
        performance=Performance(**changes),
    )


@pytest.mark.parametrize("engine", ["loop", "auto"])
def test_all_that_a_client_sends_lies_within_its_clip_norm(engine: str) -> None:
    wild = [(1e4 * x, y) for x, y in some_clients()]
    for clients in (wild, some_clients()):
        watched = Watched(federation(BOTH, clients=clients, engine=engine))
        state = watched.federation.start()
        for client in range(12):
            points = watched.contribution(state, [client])
            norm = watched.federation.plan.groups[int(client >= 8)].clip_norm[0] * watched.federation.rates[0]
            length = math.sqrt(math.fsum(np.square(points.numpy()))) * watched.clipping.step
            assert len(points) == 18 + 3
            assert length <= norm
            assert torch.equal(points, points.round())


def test_workers_change_no_bit() -> None:
    one, two = (nestegg.train(federation(BOTH, workers=workers)) for workers in (1, 2))
    for mine, other in zip(one[0].parameters(), two[0].parameters(), strict=True):
        assert torch.equal(mine, other)
    assert [report.side for report in one[1]] == [report.side for report in two[1]]


def held_truth(world: Federation) -> dict[str, float]:
    """Means over clients, weighted by their clip norms, written out from the data alone."""
    assert isinstance(world.clients, HoldingBack)
    norms = np.repeat([row.clip_norm[0] for row in world.plan.groups], [8, 4])
    right, loss = [], []
    for client in range(12):
        x, y = world.clients.held(client)
        with torch.no_grad():
            outputs = world.model(x)
        right.append(float((outputs.argmax(dim=1) == y).double().mean()))
        loss.append(min(float(torch.nn.functional.cross_entropy(outputs, y)), world.side.largest_loss))
    return {"accuracy": 100.0 * float(np.average(right, weights=norms)), "loss": float(np.average(loss, weights=norms))}


@pytest.mark.no_cover
def test_the_curve_is_unbiased_and_its_noise_is_as_stated() -> None:
    world = federation(CURVE, reproducible=False)
    truth, trials = held_truth(world), 150
    seen = [world.round(world.start())[1].side for _ in range(trials)]
    for name, true in truth.items():
        values, std = np.array([one[name] for one in seen]), seen[0][f"{name}_std"]
        assert abs(values.mean() - true) < 5.0 * std / math.sqrt(trials)
        assert values.std(ddof=1) / std == pytest.approx(1.0, abs=5.0 / math.sqrt(2.0 * trials))


def test_the_noise_of_a_statistic_is_that_of_the_formula() -> None:
    """σ^t/(√f Σ q v), v_n = σ^t/σ_n: from the plan's noise multipliers, not from its clip norms."""
    world = federation(SideStatistics(clip_share=0.05))
    said = world.round(world.start())[1].side
    sigma = np.repeat([row.noise_multiplier[0] for row in world.plan.groups], [8, 4])
    whole = 12.0 / (1.0 / sigma).sum()
    assert said["below_std"] == pytest.approx(whole / (2.0 * math.sqrt(0.05) * (whole / sigma).sum()), rel=1e-9)


def test_a_learnt_norm_goes_to_the_quantile_with_individual_budgets() -> None:
    side = SideStatistics(clip_share=0.3, quantile=0.7, step=1.0)
    world = federation(side, epsilon=400.0, rounds=60, clip_norm=50.0)
    _, reports = nestegg.train(world)
    assert reports[0].side["below"] == pytest.approx(1.0, abs=0.05)  # 50 is far too large
    late = [report.side["below"] for report in reports[-20:]]
    assert np.mean(late) == pytest.approx(0.7, abs=0.15)  # twelve clients: steps of a twelfth
    assert reports[-1].clip_norm / reports[-1].learning_rate < 25.0


def test_held_back_samples_are_never_trained_on() -> None:
    clients = some_clients()
    split = HoldingBack(federation(SideStatistics(), clients=clients).clients, 0.25, Randomness(1))
    for client, (x, y) in enumerate(clients):
        trained, held = split.samples(client), split.held(client)
        assert len(held[1]) == round(0.25 * len(y))
        together = torch.cat([trained[0], held[0]])
        assert {tuple(row) for row in together.tolist()} == {tuple(row) for row in x.tolist()}
        assert torch.equal(split.held(client)[0], held[0])  # in every round the same
    assert split.sizes is not None
    assert split.sizes.tolist() == [len(split.samples(client)[1]) for client in range(12)]


@pytest.mark.parametrize("engine", ["loop", "auto"])
def test_no_round_trains_on_what_is_held_back(engine: str) -> None:
    """Whatever is in the samples that the first round holds back, every round's model is the same, to the bit."""
    clients = some_clients()
    world = federation(CURVE, clients=clients, engine=engine)
    assert isinstance(world.clients, HoldingBack)
    spoilt = []
    for client, (x, y) in enumerate(clients):
        held = {tuple(row) for row in world.clients.held(client)[0].tolist()}
        is_held = torch.tensor([tuple(row) in held for row in x.tolist()])
        spoilt.append((x.masked_fill(is_held[:, None], 1e3), y.masked_fill(is_held, 0)))
    other = federation(CURVE, clients=spoilt, engine=engine)
    state, theirs = world.start(), other.start()
    for _ in range(4):
        (state, mine), (theirs, said) = world.round(state), other.round(theirs)
        assert torch.equal(state.model, theirs.model)
        assert mine.side != said.side  # it is what they measure on


def test_who_has_one_sample_trains_on_it_and_says_nothing() -> None:
    clients = [(x[:1], y[:1]) if client == 0 else (x, y) for client, (x, y) in enumerate(some_clients())]
    watched = Watched(federation(CURVE, clients=clients))
    points = watched.contribution(watched.federation.start(), [0])
    assert points[-2:].tolist() == [0.0, 0.0]
    assert bool(points[:-2].any())


@pytest.mark.parametrize("side", [SideStatistics(clip_share=0.1), CURVE, BOTH], ids=["bit", "curve", "both"])
def test_an_audit_attacks_all_coordinates_and_finds_nothing(side: SideStatistics) -> None:
    found = audit(federation(side, reproducible=False), seconds=2.0)
    attacks = {(one.finding.arm, one.finding.attack) for one in found.findings}
    assert {("crafted network", "sensitivity"), ("crafted network", "replay"), ("your model", "sensitivity")} <= attacks
    assert ("crafted network", "noise of bits") in attacks
    assert not [one.finding.says for one in found.findings if one.refutes]


def test_an_audit_notices_a_statistic_that_is_too_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "side_points", lambda values, lengths, step: side_points(values, 2.0 * lengths, step))
    found = audit(federation(BOTH, reproducible=False), seconds=2.0)
    assert {"sensitivity", "replay"} <= {one.finding.attack for one in found.findings if one.refutes}


def test_right_answers_need_classes() -> None:
    with pytest.raises(InputError, match="targets must be classes"):
        federation(CURVE, clients=[(x, y.float()) for x, y in some_clients()])


def test_what_is_not_bounded_is_clipped_and_what_is_not_finite_is_zero() -> None:
    values = np.array([[0.5, 7.0, np.nan, -np.inf, -3.0]])
    points = side_points(values, np.full((1, 5), 8.0), 1.0)
    assert points.tolist() == [[3.0, 7.0, 0.0, 0.0, -7.0]]  # a millionth below, and truncated
    names = ["below", "accuracy", "loss"]
    found = statistics_of(names, (0.75, math.inf), is_below=False, largest=5.0)
    assert found.tolist() == [-1.0, 0.5, -1.0]
    assert np.isnan(statistics_of(names, (math.nan, math.nan), is_below=True, largest=5.0)[1:]).all()


def test_a_broken_client_says_nothing() -> None:
    clients = some_clients()
    clients[0] = (torch.full_like(clients[0][0], torch.nan), clients[0][1])
    watched = Watched(federation(BOTH, clients=clients))
    assert not watched.contribution(watched.federation.start(), [0]).any()


def test_estimates_divide_by_what_the_plan_expects() -> None:
    lengths = lengths_of(np.array([1.0, 3.0]), [0.25])
    (found,) = estimates(np.array([0.7]), lengths, np.array([0.5, 1.0]), noise_std=0.35)
    assert found == pytest.approx((0.7 / 1.75, 0.35 / 1.75))


def test_without_noise_nobody_says_anything() -> None:
    made = nestegg.plan([Group("all", 12, Budget(10.0))], rounds=2, method="fedavg")
    world = Federation(made, torch.nn.Linear(5, 3), some_clients(), mechanics=Mechanics(side=BOTH))
    assert nestegg.train(world)[1][-1].side == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"clip_share": 1.0}, "clip_share = 1.0 must be 0, or at least 1e-06 and below 1"),
        ({"curve_share": -0.1}, "curve_share = -0.1 must be 0, or at least"),
        ({"curve_share": math.nan}, "curve_share = nan must be 0, or at least"),
        ({"clip_share": 0.5, "curve_share": 0.5}, "must add up to less than 1"),
        ({"quantile": 1.5}, "quantile = 1.5"),
        ({"step": 11.0}, "step = 11.0 must be at most 10"),
        ({"held_back": 0.0}, "held_back = 0.0"),
        ({"largest_loss": math.inf}, "largest_loss = inf"),
        ({"largest_loss": 1e7}, "largest_loss = 10000000.0 must be at most"),
        ({"clip_share": True}, "clip_share = True must be 0, or"),
        ({"clip_share": 5e-324}, "at least 1e-06"),
    ],
)
def test_wrong_shares_are_refused(given: dict[str, float], says: str) -> None:
    with pytest.raises(InputError, match=says):
        SideStatistics(**given)


def test_a_method_that_learns_its_norm_takes_no_second_bit() -> None:
    made = nestegg.plan([Group("all", 12, Budget(10.0))], rounds=2, method="adaptive-clipping")
    with pytest.raises(InputError, match="learns its clip norm by itself"):
        Federation(made, torch.nn.Linear(5, 3), some_clients(), mechanics=Mechanics(side=BOTH))


class Half(Callback):
    def on_round(self, state: State, report: RoundReport) -> bool:
        return report.round == 3


def test_a_run_goes_on_with_the_norm_it_had_learnt(tmp_path: Path) -> None:
    def world() -> Federation:
        return federation(BOTH, rounds=6)

    nestegg.run(world(), tmp_path / "whole")
    nestegg.run(world(), tmp_path / "halves", callbacks=[Half()])
    nestegg.run(world(), tmp_path / "halves", resume=True)
    whole, halves = (
        [json.loads(line) for line in (tmp_path / name / "rounds.jsonl").read_text().splitlines()]
        for name in ("whole", "halves")
    )
    assert len(whole) == 6
    assert [line["side"] for line in whole] == [line["side"] for line in halves]
    assert [line["clip_norm"] for line in whole] == [line["clip_norm"] for line in halves]


def test_a_comparison_has_methods_that_learn_their_norm_by_themselves(tmp_path: Path) -> None:
    text = """
    [training]
    rounds = 2
    reproducible = true
    [federation]
    clients = 8
    [privacy]
    method = "optimal"
    [privacy.side]
    clip_share = 0.02
    curve_share = 0.05
    [[privacy.groups]]
    name = "all"
    epsilon = 20
    share = 1.0
    """
    (tmp_path / "config.toml").write_text(text)
    config = load_config(tmp_path / "config.toml")
    for method, shares in (("adaptive-clipping", {"accuracy", "loss"}), ("idp-fedavg", {"below", "accuracy", "loss"})):
        simulation, _ = new_simulation(variant(config, method, 0), "run")
        assert set(simulation.federation.side.shares) == shares
    simulation, _ = new_simulation(variant(config, "fedavg", 0), "run")
    assert not simulation.federation.side.shares
