"""Who is in a federation on Flower, and what the strategy's accountants say."""

from __future__ import annotations

from pathlib import Path

import pytest
from flwr.app import Error, Message, RecordDict
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyAccountant,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)

from nestegg import Budget, InputError, Ledger
from nestegg.flower import Enrolling, GroupAccountant, PlannedStrategy, PreconditionUnmet
from nestegg.flower.in_process import LocalGrid
from nestegg.flower.wire import ENROL
from tests.grid import BUDGETS, client_app, model, small_plan

SOON = Enrolling(timeout=0.1)
PATIENT = Enrolling(timeout=30)
BY_PARTITION = Enrolling(identity="partition-id")


def test_enrolment(tmp_path: Path) -> None:
    few = LocalGrid(client_app(tmp_path / "a"), 5)
    with pytest.raises(PreconditionUnmet, match="group 'open' has 1 of 2 clients"):
        PlannedStrategy(small_plan(), tmp_path / "few", enrolling=SOON).start(few, model())
    nameless = LocalGrid(client_app(tmp_path / "b"), 6, keys=False)
    with pytest.raises(PreconditionUnmet, match="--enable-supernode-auth"):
        PlannedStrategy(small_plan(), tmp_path / "keys", enrolling=SOON).start(nameless, model())
    PlannedStrategy(small_plan(), tmp_path / "partitions", enrolling=BY_PARTITION).start(nameless, model())
    with Ledger(tmp_path / "partitions" / "private" / "ledger.db", read_only=True) as ledger:
        names = dict(ledger.clients())
    assert sorted(names) == [f"partition-{number:06d}" for number in range(6)]
    assert [names[name].budget.epsilon for name in sorted(names)] == list(BUDGETS.values())


@pytest.mark.slow
def test_enrolment_bears_strange_answers_lost_ones_and_late_nodes(tmp_path: Path) -> None:
    from nestegg.flower import wire

    lost: list[int] = []

    def fault(number: int, question: Message, reply: Message) -> list[Message]:
        if question.metadata.message_type != ENROL:
            return [reply]
        if number == 1 and not lost:
            lost.append(number)
            return [Message(Error(5, "node unavailable"), reply_to=question)]
        if number == 6:
            return []  # a node that never says anything
        if number == 7:
            mad = wire.Answer(epsilon=float("nan"), delta=1e-5, group="strict", partition=7)
            return [Message(RecordDict({wire.ANSWER: wire.as_record(mad)}), reply_to=question)]
        return [reply]

    BUDGETS.update({6: 2.0, 7: 2.0, 8: 2.0})
    try:
        grid = LocalGrid(client_app(tmp_path / "clients"), 8, fault=fault)
        PlannedStrategy(small_plan(), tmp_path / "run", enrolling=PATIENT).start(grid, model(), num_rounds=1)
        grid.online[108] = 8
        grid.asked.clear()
        PlannedStrategy(small_plan(), tmp_path / "run", enrolling=PATIENT).start(grid, model())
        assert 108 not in {message.metadata.dst_node_id for message in grid.asked}  # the roster is closed
    finally:
        for number in (6, 7, 8):
            del BUDGETS[number]


@pytest.mark.slow
def test_a_roster_decides_who_may_enrol_and_where(tmp_path: Path) -> None:
    from nestegg.flower.enrolment import client_of_key

    names = [client_of_key(b"public key of %d" % number) for number in range(6)]
    # The last client has ε = 10 and room for it, and is asked for less.
    groups = dict(zip(names, ("strict", "strict", "middle", "open", "open", "middle"), strict=True))
    grid = LocalGrid(client_app(tmp_path / "clients"), 6)
    with pytest.raises(PreconditionUnmet, match="'open' has 1 of 2"):  # client 3 has 5, and refuses a group with 10
        PlannedStrategy(small_plan(), tmp_path / "a", enrolling=Enrolling(roster=groups, timeout=0.1)).start(
            grid, model()
        )
    groups |= {names[3]: "middle", names[5]: "open"}
    fresh = LocalGrid(client_app(tmp_path / "fresh"), 6)
    PlannedStrategy(small_plan(), tmp_path / "b", enrolling=Enrolling(roster=groups)).start(fresh, model())


def test_who_has_withdrawn_from_the_servers_ledger_enrols_in_nothing(tmp_path: Path) -> None:
    from nestegg.flower.enrolment import client_of_key

    url = f"sqlite:///{tmp_path}/ledger.db"
    grid = LocalGrid(client_app(tmp_path / "clients"), 6)
    PlannedStrategy(small_plan(), tmp_path / "a", ledger=url).start(grid, model(), num_rounds=1)
    with Ledger(url) as ledger:
        ledger.withdraw(client_of_key(b"public key of 0"), "moved away")
    fresh = LocalGrid(client_app(tmp_path / "fresh"), 6)
    with pytest.raises(PreconditionUnmet, match="group 'strict' has 1 of 2 clients"):
        PlannedStrategy(small_plan(), tmp_path / "b", ledger=url, enrolling=SOON).start(fresh, model())


def test_a_node_that_comes_back_under_another_number_is_the_same_client(tmp_path: Path) -> None:
    grid = LocalGrid(client_app(tmp_path / "clients"), 6)
    PlannedStrategy(small_plan(), tmp_path / "run").start(grid, model(), num_rounds=1)
    grid.online = {500 + number: number for number in range(6)}
    grid.asked.clear()
    PlannedStrategy(small_plan(), tmp_path / "run").start(grid, model(), num_rounds=2)
    assert {m.metadata.dst_node_id for m in grid.asked if m.metadata.message_type == "train"} == set(grid.online)


def test_the_accountant_is_flowers_and_agrees_with_flowers(tmp_path: Path) -> None:
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    for method in (SamplingMethod.POISSON, SamplingMethod.NO_AMPLIFICATION):
        config = PrivacyConfig(1e-5, 100, relation, method, max_epsilon=10.0)
        ours: PrivacyAccountant = GroupAccountant(config)
        theirs = RdpAccountant(config, orders=tuple(float(order) for order in range(2, 64)))
        event = GaussianPrivacyEvent(4.0, 50, 100)
        for accountant in (ours, theirs):
            accountant.compose(event, 12)
        assert ours.get_epsilon(1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=0.02)
        assert ours.get_epsilon(1e-5) <= theirs.get_epsilon(1e-5) * (1 + 1e-9)
        assert ours.get_delta(2.0) == pytest.approx(theirs.get_delta(2.0), rel=0.2)
        assert ours.num_releases == theirs.num_releases == ours.get_privacy_spent().num_releases == 12
        assert not ours.would_exceed(event)
        assert ours.would_exceed(event, max_epsilon=0.5)
        again = GroupAccountant(config)
        again.load_state_dict(ours.state_dict())
        assert again.get_epsilon(1e-5) == ours.get_epsilon(1e-5)
    with pytest.raises(ValueError, match="without-replacement"):
        GroupAccountant(PrivacyConfig(1e-5, 9, NeighboringRelation.REPLACE_ONE, SamplingMethod.WITHOUT_REPLACEMENT))
    strategy = PlannedStrategy(small_plan(), tmp_path / "run")
    with pytest.raises(InputError, match="not been started"):
        strategy.accountants()
    seen = []
    grid = LocalGrid(client_app(tmp_path / "clients"), 6)
    strategy.start(grid, model(), evaluate_fn=lambda number, arrays: seen.append(strategy.accountants()))
    spent = {name: accountant.get_privacy_spent() for name, accountant in seen[-1].items()}
    assert {name: round(one.epsilon, 6) for name, one in spent.items()} == {"strict": 2.0, "middle": 5.0, "open": 10.0}
    assert seen[-1]["open"].config.max_epsilon == Budget(10.0).epsilon
