"""Side statistics on Flower: what clients say, what a server hears, and what a guard refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from nestegg import InputError, Randomness, SideStatistics
from nestegg.flower import Enrolling, PlannedStrategy, Sharing, private_client_app, wire
from nestegg.flower.guard import Guard
from nestegg.flower.in_process import LocalGrid
from nestegg.flower.terms import Terms
from nestegg.mechanism.randomness import Purpose
from tests.grid import BUDGETS, accounts_in, model, small_plan

SIDE = SideStatistics(clip_share=0.1, curve_share=0.2, step=1.0)
FACTOR = 100.0  # on every ε: little noise


def app_of(accounts: Path, said: dict[str, Any] | None = None, seed: int = 7) -> ClientApp:
    """Clients whose weights all move by one, and who say how good the model is on what they hold back."""

    def noise(context: Context, round_: int) -> np.random.Generator:
        client = int(context.node_config["partition-id"])
        return Randomness(seed, reproducible=True).stream(Purpose.NOISE, round_, client=client)

    app = private_client_app(accounts_in(accounts, FACTOR), noise=noise)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = wire.single_arrays(message.content)
        moved = {
            name: Array(array.numpy() + np.float32(1.0)) if array.dtype == "float32" else array
            for name, array in arrays.items()
        }
        content = RecordDict({"arrays": ArrayRecord(moved)})
        if said is not None:
            content[wire.HELD_BACK] = MetricRecord(said)
        return Message(content, reply_to=message)

    return app


def started(tmp_path: Path, said: dict[str, Any] | None, *, last: int | None = None) -> tuple[Any, PlannedStrategy]:
    strategy = PlannedStrategy(
        small_plan(factor=FACTOR),
        tmp_path / "run",
        sharing=Sharing("flat", side=SIDE),
        enrolling=Enrolling(identity="partition-id", timeout=0.1),
        randomness=Randomness(7, reproducible=True),
    )
    grid = LocalGrid(app_of(tmp_path / "accounts", said), 6)
    return strategy.start(grid, model(), num_rounds=last, timeout=0.1), strategy


def test_a_server_hears_the_curve_and_learns_the_norm(tmp_path: Path) -> None:
    result, strategy = started(tmp_path, {"accuracy": 0.8, "loss": 1.25})
    told = [dict(result.train_metrics_clientapp[round_]) for round_ in range(1, 5)]
    for one in told:
        assert one["side-accuracy"] == pytest.approx(80.0, abs=5.0 * one["side-accuracy_std"])
        assert one["side-loss"] == pytest.approx(1.25, abs=5.0 * one["side-loss_std"])
    assert told[0]["side-below"] == pytest.approx(0.0, abs=5.0 * told[0]["side-below_std"])  # updates of 9 and more
    assert strategy.clip_norm > 1.0  # nobody is below: it grows
    assert told[0]["side-accuracy_std"] < 20.0
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["side-accuracy"] for line in lines] == [one["side-accuracy"] for one in told]


def test_a_run_goes_on_with_the_norm_it_had_learnt(tmp_path: Path) -> None:
    whole, _ = started(tmp_path / "whole", None)
    started(tmp_path / "halves", None, last=2)
    halves, _ = started(tmp_path / "halves", None)
    for name in whole.arrays:
        np.testing.assert_array_equal(whole.arrays[name].numpy(), halves.arrays[name].numpy())


@pytest.mark.parametrize("said", [None, {"accuracy": math.nan, "loss": math.nan}, {"accuracy": [1.0], "loss": [2]}])
def test_what_is_no_number_counts_as_the_middle(said: dict[str, Any] | None, tmp_path: Path) -> None:
    result, _ = started(tmp_path, said, last=1)
    told = dict(result.train_metrics_clientapp[1])
    assert told["side-accuracy"] == pytest.approx(50.0, abs=5.0 * told["side-accuracy_std"])


def test_what_is_beyond_its_bounds_is_clipped_or_nothing(tmp_path: Path) -> None:
    result, _ = started(tmp_path, {"accuracy": 1e9, "loss": math.inf}, last=1)
    told = dict(result.train_metrics_clientapp[1])
    assert told["side-accuracy"] == pytest.approx(50.0, abs=5.0 * told["side-accuracy_std"])  # 1e9 is no share
    assert told["side-loss"] == pytest.approx(5.0, abs=5.0 * told["side-loss_std"])


def test_terms_without_side_statistics_are_what_they_were() -> None:
    plain = Sharing("flat").terms("r", small_plan())
    assert "side" not in json.loads(plain.text)
    order = dict(wire.as_record(plain.order("strict", 1)))
    assert set(order) == {"run", "terms", "group", "round", "clipping", "clip_norm", "noise_std", "step"}
    with_side = Sharing("flat", side=SIDE).terms("r", small_plan())
    assert Terms.parse(with_side.text).side == SIDE
    assert with_side.digest != plain.digest


def test_a_guard_takes_a_learnt_norm_only_where_the_terms_have_one(tmp_path: Path) -> None:
    """Whatever norm a server says, norm and noise grow alike; anything else is not what was agreed on."""
    account = accounts_in(tmp_path)
    guard = Guard(account(Context(1, 1, {"partition-id": 2}, RecordDict(), {})))
    terms = Sharing("flat", side=SIDE).terms("r", small_plan())
    group = guard.enrol(terms)
    assert BUDGETS[2] == 5.0
    order = terms.order(group, 1, 3.0)
    plain = terms.order(group, 1)
    assert order.whole_norm / order.noise_std == pytest.approx(plain.whole_norm / plain.noise_std)
    assert order.whole_norm == pytest.approx(3.0 * plain.whole_norm)
    for wrong in (
        {"noise_std": order.noise_std / 2.0},
        {"learnt_norm": 4.0},
        {"lengths": [2.0 * one for one in order.lengths]},
        {"statistics": ["loss", "accuracy", "below"]},
    ):
        with pytest.raises(InputError, match="not what was agreed on"):
            guard.admit(order.model_copy(update=wrong))
    for norm in (math.inf, math.nan, -1.0):
        with pytest.raises(InputError):
            guard.admit(order.model_copy(update={"learnt_norm": norm}))
    guard.admit(order)
    with pytest.raises(InputError, match="must be 0"):
        Sharing("flat").terms("r", small_plan()).order("strict", 1, 3.0)
