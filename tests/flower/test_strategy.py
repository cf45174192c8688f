"""The strategy on a grid in one process: what is released, by whom it is paid, and what may go wrong on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import PrivacyBudgetExhausted

from nestegg import Budget, Group, InputError, Ledger, Plan
from nestegg import plan as make_plan
from nestegg.flower import Enrolling, PlannedStrategy, PreconditionUnmet, Sharing, private_client_app
from nestegg.flower.aggregation import NoisySum
from nestegg.flower.in_process import LocalGrid
from nestegg.flower.session import Session
from nestegg.flower.terms import Terms
from nestegg.flower.wire import ENROL, ORDER, UPDATE
from nestegg.mechanism.randomness import Randomness
from tests.grid import STEP, accounts_in, client_app, model, small_plan

SOON = Enrolling(timeout=0.1)
BY_PARTITION = Enrolling(identity="partition-id")


SIZE = 300  # 90,600 weights: their standard deviation is known to 0.3 %


def kept(arrays: ArrayRecord) -> ArrayRecord:
    """Training that changes nothing, so that what is released is noise."""
    return arrays


def vector(arrays: ArrayRecord) -> np.ndarray[Any, Any]:
    return np.concatenate([array.numpy().ravel() for array in arrays.values() if array.dtype == "float32"])


def noise_of(plan: Plan, round_: int) -> float:
    """What the plan says of the noise of a parameter: c σ^t/(q^t N)."""
    expected = plan.mean_sampling_rate[round_ - 1] * plan.clients
    return plan.clip_norm * plan.round_noise_multiplier[round_ - 1] / expected


def assert_nobody_over(folder: Path, accounts: Path) -> None:
    """On the server's ledger, and on every client's own."""
    for ledger in [folder / "private" / "ledger.db", *accounts.glob("*/ledger.db")]:
        with Ledger(ledger, read_only=True) as books:
            books.verify()


def reply_with(message: Message, values: np.ndarray[Any, Any], name: str = UPDATE) -> Message:
    return Message(RecordDict({UPDATE: ArrayRecord({name: Array(values)})}), reply_to=message)


def only(partition: int, change: Callable[[Message, Message], list[Message]]) -> Callable[..., list[Message]]:
    """A fault of one client, in training."""

    def fault(number: int, question: Message, reply: Message) -> list[Message]:
        return change(question, reply) if number == partition and question.metadata.message_type != ENROL else [reply]

    return fault


WEIGHTS = SIZE * SIZE + 2 * SIZE
LONG = int(2.0 / Terms("any", small_plan(1), "flat", 0, (1.0,)).lattice(1).step)
FAULTS: dict[str, Callable[[Message, Message], list[Message]]] = {
    "nothing comes": lambda question, reply: [],
    "an error": lambda question, reply: [Message(Error(2, "lost"), reply_to=question)],
    "twice": lambda question, reply: [reply, reply],
    "wrong shape": lambda question, reply: [reply_with(question, np.zeros(WEIGHTS + 1, np.int32))],
    "wrong type": lambda question, reply: [reply_with(question, np.zeros(WEIGHTS))],
    "floating point": lambda question, reply: [reply_with(question, np.zeros(WEIGHTS, np.float32))],
    "huge": lambda question, reply: [reply_with(question, np.full(WEIGHTS, 2**31 - 1, np.int32))],
    "too long by little": lambda question, reply: [reply_with(question, np.full(WEIGHTS, LONG, np.int32))],
    "renamed": lambda question, reply: [reply_with(question, np.zeros(WEIGHTS, np.int32), "model")],
    "no arrays": lambda question, reply: [Message(RecordDict(), reply_to=question)],
    "metrics only": lambda question, reply: [
        Message(RecordDict({"m": MetricRecord({"loss": 1.0})}), reply_to=question)
    ],
}


BYTES = {
    "a petabyte": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }",
    "a pickle": b"\x80\x04K\x01.",
    "a zip file": b"PK\x03\x04" + bytes(100),
    "a header without end": b"\x93NUMPY\x01\x00\x10\x00{'descr': ((((    ",
    "nothing": b"",
}


def raw(message: Message, data: bytes) -> Message:
    array = Array("float32", (WEIGHTS,), "numpy.ndarray", data)
    return Message(RecordDict({UPDATE: ArrayRecord({UPDATE: array})}), reply_to=message)


@pytest.mark.parametrize("name", BYTES)
def test_bytes_of_a_stranger_are_never_parsed(tmp_path: Path, name: str) -> None:
    def fault(question: Message, reply: Message) -> list[Message]:
        return [raw(question, BYTES[name].ljust(4 * WEIGHTS + 128, b"\0"))]

    grid = LocalGrid(client_app(tmp_path / "clients", kept), 6, fault=only(2, fault))
    plan = small_plan(rounds=1)
    result = PlannedStrategy(plan, tmp_path / "run").start(grid, model(SIZE), timeout=0.1)
    assert vector(result.arrays).std() == pytest.approx(noise_of(plan, 1), rel=0.015)


def test_a_reply_counts_for_whoever_was_asked_not_for_whom_it_names(tmp_path: Path) -> None:
    """Two clients say that they answer a third one's order: all three count once, as themselves."""
    first: list[str] = []

    def fault(number: int, question: Message, reply: Message) -> list[Message]:
        if question.metadata.message_type != ENROL:
            first.append(question.metadata.message_id)
            reply.metadata.__dict__["_reply_to_message_id"] = first[0]
        return [reply]

    plan = small_plan(rounds=1, factor=1000.0)
    grid = LocalGrid(client_app(tmp_path / "clients", factor=1000.0), 6, fault=fault)
    result = PlannedStrategy(plan, tmp_path / "run", sharing=Sharing("flat")).start(grid, model(SIZE), timeout=0.1)
    norms = [row.clip_norm[0] for row in plan.groups for _ in range(row.group.clients)]
    each = sum(norms) / np.sqrt(WEIGHTS) / plan.clients
    assert abs(vector(result.arrays).mean() - each) < 5 * noise_of(plan, 1) / np.sqrt(WEIGHTS)


def test_replies_that_flower_cannot_read_are_lost_and_a_superlink_that_takes_nothing_stops_the_run(
    tmp_path: Path,
) -> None:
    class Broken(LocalGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            replies = super().pull_messages(message_ids)
            if replies and replies[0].metadata.message_type == "train":
                raise KeyError("object")
            return replies

    class Full(LocalGrid):
        def push_messages(self, messages: Any) -> list[str]:
            sent = super().push_messages(messages)
            return [] if "train" in {m.metadata.message_type for m in messages} else sent

    plan = small_plan(rounds=1)
    broken = Broken(client_app(tmp_path / "a", kept), 6)
    result = PlannedStrategy(plan, tmp_path / "broken").start(broken, model(SIZE), timeout=0.1)
    assert vector(result.arrays).std() == pytest.approx(noise_of(plan, 1), rel=0.015)
    with pytest.raises(
        PreconditionUnmet, match="round 1, sending orders and reading replies: the SuperLink accepts no message"
    ):
        PlannedStrategy(plan, tmp_path / "full").start(Full(client_app(tmp_path / "b"), 6), model())
    with Ledger(tmp_path / "full" / "private" / "ledger.db", read_only=True) as ledger:
        (state,) = ledger.history().runs.values()
    assert state.done == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_the_noise_of_a_release_is_what_the_plan_says_whatever_a_client_does(tmp_path: Path, fault: str) -> None:
    plan = small_plan(rounds=1)
    grid = LocalGrid(client_app(tmp_path / "clients", kept), 6, fault=only(2, FAULTS[fault]))
    result = PlannedStrategy(plan, tmp_path / "run").start(grid, model(SIZE), timeout=0.1)
    assert vector(result.arrays).std() == pytest.approx(noise_of(plan, 1), rel=0.015)
    assert_nobody_over(tmp_path / "run", tmp_path / "clients")


def test_a_client_counts_once() -> None:
    terms = Terms("monday", small_plan(1), "flat", 0, (1.0,))
    total, order = NoisySum(terms, 1, 4), terms.order("open", 1)
    reply = reply_with(Message(RecordDict(), 100, "train"), np.full(4, 100, np.int32))
    total.add(5, order, reply)
    with pytest.raises(InputError, match="replied before"):
        total.add(5, order, reply)


def test_noise_is_whole_where_all_are_absent_and_where_nobody_is_drawn(tmp_path: Path) -> None:
    plan = small_plan(rounds=2)
    grid = LocalGrid(client_app(tmp_path / "clients", kept), 6)
    strategy = PlannedStrategy(plan, tmp_path / "run")
    before = vector(strategy.start(grid, model(SIZE), num_rounds=1).arrays)
    grid.online.clear()
    after = vector(PlannedStrategy(plan, tmp_path / "run", enrolling=SOON).start(grid, model(SIZE)).arrays)
    assert (after - before).std() == pytest.approx(noise_of(plan, 2), rel=0.015)


def test_it_is_a_plain_sum_over_the_plans_denominator(tmp_path: Path) -> None:
    plan = small_plan(rounds=1, factor=1000.0)
    grid = LocalGrid(client_app(tmp_path / "clients", factor=1000.0), 6, fault=only(0, FAULTS["nothing comes"]))
    result = PlannedStrategy(plan, tmp_path / "run", sharing=Sharing("flat")).start(grid, model(SIZE), timeout=0.1)
    norms = [row.clip_norm[0] for row in plan.groups for _ in range(row.group.clients)]
    assert min(norms) < STEP * np.sqrt(WEIGHTS)  # all are clipped
    each = sum(norms[1:]) / np.sqrt(WEIGHTS) / (plan.mean_sampling_rate[0] * plan.clients)
    error = noise_of(plan, 1) / np.sqrt(WEIGHTS)
    assert abs(vector(result.arrays).mean() - each) < 5 * error
    assert each > 20 * error  # the test would notice one client more or less, or another denominator
    assert result.arrays["b.count"].numpy() == 3


@pytest.mark.no_cover
@pytest.mark.slow
def test_everybody_is_drawn_by_itself_with_its_own_rate(tmp_path: Path) -> None:
    rounds = 30
    rates = {"strict": 0.1, "middle": 0.5, "open": 0.9}
    groups = [
        Group(name, 2, Budget(e), q, rounds) for (name, q), e in zip(rates.items(), (2.0, 5.0, 10.0), strict=True)
    ]
    plan = make_plan(groups, rounds=rounds, spending_rate=0.9)
    grid = LocalGrid(client_app(tmp_path / "clients"), 6)
    strategy = PlannedStrategy(plan, tmp_path / "run")
    strategy.start(grid, model())
    asked = [m.content.config_records[ORDER] for m in grid.asked if m.metadata.message_type == "train"]
    for name, q in rates.items():
        times = sum(order["group"] == name and int(str(order["round"])) < rounds for order in asked)
        assert abs(times - 2 * (rounds - 1) * q) < 5 * np.sqrt(2 * rounds * q * (1 - q))
    assert strategy.configure_evaluate(1, model(), None, grid) == []  # type: ignore[arg-type]


def test_what_is_sent_and_what_is_told(tmp_path: Path) -> None:
    plan = small_plan(rounds=2)
    grid = LocalGrid(client_app(tmp_path / "clients"), 6)
    seen = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(number)
        return MetricRecord({"a": 1.0})

    strategy = PlannedStrategy(plan, tmp_path / "run", sharing=Sharing("flat", clip_scale=[0.5, 0.25]))
    result = strategy.start(grid, model(), evaluate_fn=evaluate)
    assert seen == [0, 1, 2]
    order = next(m for m in grid.asked if m.metadata.message_type == "train").content.config_records[ORDER]
    assert order["clip_norm"] == plan.groups[0].clip_norm[0] * 0.5
    total = plan.clip_norm * plan.round_noise_multiplier[0] * 0.5
    assert order["noise_std"] == pytest.approx(total / np.sqrt(6))
    told = result.train_metrics_clientapp[2]
    assert set(told) == {"epsilon-strict", "epsilon-middle", "epsilon-open", "noise-std"}
    assert told["epsilon-middle"] == pytest.approx(plan.groups[1].epsilon_spent[1])


@pytest.mark.slow
@pytest.mark.parametrize("step", ["reserve", "exchange", "save_checkpoint", "release", "append_line"])
@pytest.mark.parametrize("after", [False, True])
def test_a_server_that_dies_at_any_step_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """In round 2, before or after the step: no round is lost or paid twice, and the noise of the release is whole."""
    from nestegg.flower import strategy as module
    from nestegg.ledger import RunBooks
    from nestegg.runs.folder import StateFolder

    plan = small_plan(rounds=3)
    grid = LocalGrid(client_app(tmp_path / "clients", kept), 6)
    owner: Any = {"exchange": module, "reserve": Session, "release": RunBooks}.get(step, StateFolder)
    real, calls = getattr(owner, step), 0

    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        # Own ledgers of clients use `release`, too: only the server's, of six clients, counts.
        counts = step != "release" or arguments[0].plan.clients == 6
        calls += counts
        if counts and calls == 2 and not after:
            raise KeyboardInterrupt
        result = real(*arguments, **options)
        if counts and calls == 2:
            if step == "exchange":
                list(result)
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, step, dying)
    with pytest.raises(KeyboardInterrupt):
        PlannedStrategy(plan, tmp_path / "run").start(grid, model(SIZE))
    monkeypatch.undo()
    result = PlannedStrategy(plan, tmp_path / "run").start(grid, model(SIZE))
    with Ledger(tmp_path / "run" / "private" / "ledger.db") as ledger:
        (state,) = ledger.history().runs.values()
        assert (state.done, len(state.paid)) == (3, 3)
        assert all(account.epsilon <= account.budget.epsilon for account in ledger.accounts())
    whole = np.sqrt(sum(noise_of(plan, t) ** 2 for t in (1, 2, 3)))
    assert vector(result.arrays).std() == pytest.approx(whole, rel=0.015)
    assert_nobody_over(tmp_path / "run", tmp_path / "clients")
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert len(lines) >= 2  # a line that was not written is a gap, not a wrong number


def test_an_exhausted_budget_is_flowers_own_exception_and_nobody_is_asked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    grid = LocalGrid(client_app(tmp_path / "a"), 6)
    PlannedStrategy(small_plan(), tmp_path / "run", ledger=url).start(grid, model())
    again = LocalGrid(client_app(tmp_path / "b"), 6)  # clients that have forgotten; the server's ledger has not
    with pytest.raises(PrivacyBudgetExhausted, match="would go over budget"):
        PlannedStrategy(small_plan(), tmp_path / "again", ledger=url).start(again, model())
    assert {m.metadata.message_type for m in again.asked} == {ENROL}


def test_a_folder_keeps_its_terms(tmp_path: Path) -> None:
    grid = LocalGrid(client_app(tmp_path / "clients"), 6)
    PlannedStrategy(small_plan(), tmp_path / "run").start(grid, model(), num_rounds=1)
    others: list[tuple[Plan, dict[str, Any]]] = [
        (small_plan(rounds=5), {}),
        (small_plan(), {"sharing": Sharing("flat")}),
    ]
    for plan, options in others:
        with pytest.raises(PreconditionUnmet, match="other terms"):
            PlannedStrategy(plan, tmp_path / "run", **options).start(grid, model())
    with pytest.raises(PreconditionUnmet, match="another model"):
        PlannedStrategy(small_plan(), tmp_path / "run").start(grid, model(9))
    with pytest.raises(InputError, match=r"plan\.method = 'fedavg' must be one of"):
        PlannedStrategy(small_plan(method="fedavg"), tmp_path / "other")


def test_the_same_seed_gives_the_same_release(tmp_path: Path) -> None:
    """With noise from a seed, which clients must agree to, the release does not depend on who was lost."""
    from flwr.app import Context

    from nestegg.mechanism.randomness import Purpose

    seeded = Randomness(7, reproducible=True)

    def noise(context: Context, round_: int) -> np.random.Generator:
        return seeded.stream(Purpose.NOISE, round_, client=int(context.node_config["partition-id"]))

    released = []
    for name, fault in (("whole", None), ("lost", only(3, FAULTS["nothing comes"]))):
        app = private_client_app(accounts_in(tmp_path / name), noise=noise)

        @app.train()
        def train(message: Message, context: Context) -> Message:
            return Message(RecordDict({"arrays": message.content.array_records["arrays"]}), reply_to=message)

        strategy = PlannedStrategy(small_plan(), tmp_path / f"{name}-run", enrolling=BY_PARTITION, randomness=seeded)
        released.append(vector(strategy.start(LocalGrid(app, 6, fault=fault), model(), timeout=0.1).arrays))
    torch.testing.assert_close(torch.from_numpy(released[0]), torch.from_numpy(released[1]), rtol=0, atol=1e-5)


def test_everything_that_a_reproducible_run_writes_says_that_it_is_not_for_release(tmp_path: Path) -> None:
    plan, grid = small_plan(rounds=2), LocalGrid(client_app(tmp_path / "clients"), 6)
    PlannedStrategy(plan, tmp_path / "run", randomness=Randomness(1, reproducible=True)).start(grid, model())
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != ".lock"]
    assert {"terms.json", "roster.json", "rounds.jsonl", "model.safetensors"} <= {path.name for path in files}
    for path in [file for file in files if not file.name.startswith("ledger.db")]:
        assert b"not for release" in path.read_bytes(), path.name
    for ledger in [tmp_path / "run" / "private" / "ledger.db", *(tmp_path / "clients").glob("*/ledger.db")]:
        with Ledger(ledger, read_only=True) as books:
            assert all("not for release" in str(run.note) for run in books.history().runs.values())
    with pytest.raises(PreconditionUnmet, match="other terms"):  # and it does not go on as one that may be released
        PlannedStrategy(plan, tmp_path / "run").start(grid, model())


def test_a_client_whose_noise_is_no_secret_enrols_in_no_run_that_may_be_released(tmp_path: Path) -> None:
    app = private_client_app(accounts_in(tmp_path / "clients"), noise=lambda *_: np.random.default_rng(0))
    strategy = PlannedStrategy(small_plan(rounds=1), tmp_path / "run", enrolling=SOON)
    with pytest.raises(PreconditionUnmet, match="enrolment: all 6 nodes have refused"):
        strategy.start(LocalGrid(app, 6), model())
    assert not list((tmp_path / "clients").glob("*/ledger.db"))


def test_a_client_that_has_withdrawn_is_never_asked_and_its_share_is_made_up(tmp_path: Path) -> None:
    plan, asked = small_plan(rounds=2), []

    def watch(number: int, question: Message, reply: Message) -> list[Message]:
        if question.metadata.message_type != ENROL:
            asked.append(number)
        return [reply]

    grid = LocalGrid(client_app(tmp_path / "clients", kept), 6, fault=watch)
    PlannedStrategy(plan, tmp_path / "run").start(grid, model(SIZE), num_rounds=1)
    assert sorted(asked) == list(range(6))
    with Ledger(tmp_path / "run" / "private" / "ledger.db") as ledger:
        roster = json.loads((tmp_path / "run" / "roster.json").read_text())
        ledger.withdraw(roster["members"][0]["client"], reason="enough")
    asked.clear()
    result = PlannedStrategy(plan, tmp_path / "run").start(grid, model(SIZE), timeout=0.1)
    assert len(asked) == 5
    assert vector(result.arrays).std() == pytest.approx(np.hypot(noise_of(plan, 1), noise_of(plan, 2)), rel=0.015)
