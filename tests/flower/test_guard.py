"""The client's side: the guard refuses what was not agreed on or is too dear, and nothing but noise and clip leaves."""

from __future__ import annotations

import json
import math
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from nestegg import Budget, Group, InputError, Ledger
from nestegg import plan as make_plan
from nestegg.accounting import Charge, GaussianAccountant, compose
from nestegg.flower import Guard, OwnAccount, account_of_node, private_client_app, wire
from nestegg.flower.arrays import ArrayLayout
from nestegg.flower.terms import Terms
from nestegg.ledger import RunBooks
from nestegg.mechanism import MAX_COHORT
from tests.conftest import Run
from tests.grid import model, moved, small_plan


def make_terms(run: str = "monday", rounds: int = 4, clipping: str = "flat") -> Terms:
    return Terms(run, small_plan(rounds), clipping, 0, (1.0,) * rounds)


def guard_of(folder: Path, epsilon: float = 5.0) -> Guard:
    return Guard(OwnAccount(folder, Budget(epsilon)))


def spent(folder: Path) -> float:
    with Ledger(folder / "ledger.db", read_only=True) as ledger:
        ledger.verify()
        return ledger.account("own").epsilon


def exact(terms: Terms, rounds: int) -> float:
    """What so many rounds cost a client of the middle group, by the exact account of plans without sampling."""
    noise = terms.row("middle").noise_multiplier[:rounds]
    return float(compose(GaussianAccountant(), [Charge(1.0, sigma) for sigma in noise]).epsilon(1e-5)[0])


def test_a_client_pays_for_every_round_up_to_the_one_it_is_asked_for(tmp_path: Path) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    assert guard.enrol(terms) == "middle"
    assert spent(tmp_path) == 0.0
    for round_ in (1, 3):
        guard.admit(terms.order("middle", round_))
        assert spent(tmp_path) == pytest.approx(exact(terms, round_))


def test_a_round_is_answered_once_and_in_order(tmp_path: Path) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 3))
    for round_ in (3, 2, 1):
        with pytest.raises(InputError, match="answered once"):
            guard_of(tmp_path).admit(terms.order("middle", round_))
    assert spent(tmp_path) == pytest.approx(exact(terms, 3))


CHANGES: dict[str, Any] = {
    "terms": "0" * 64,
    "group": "open",
    "clipping": "per-layer",
    "clip_norm": 1e6,
    "noise_std": 0.0,
    "step": 1.0,
    "round": 9,
    "run": "tuesday",
}


@pytest.mark.parametrize("field", CHANGES)
def test_an_order_that_differs_from_the_terms_is_refused(tmp_path: Path, field: str) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    with pytest.raises(InputError):
        guard.admit(terms.order("middle", 1).model_copy(update={field: CHANGES[field]}))
    assert spent(tmp_path) == 0.0


def test_terms_of_a_run_that_is_known_are_never_exchanged(tmp_path: Path) -> None:
    """Rounds that a client was not asked for have happened, too: nobody may make them cheaper afterwards."""
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 1))
    other = replace(terms, clip_scale=(2.0,) * 4)
    noisier = replace(terms, plan=small_plan(4, factor=0.5))
    for swapped in (other, noisier):
        with pytest.raises(InputError, match="not what was agreed on"):
            guard.admit(swapped.order("middle", 2))
        with pytest.raises(InputError, match=r"other terms|another plan"):
            guard.enrol(swapped, "middle")
    guard.enrol(terms)  # the same again is no harm
    guard.admit(terms.order("middle", 2))


def test_an_order_is_charged_by_the_plan_it_belongs_to(tmp_path: Path) -> None:
    """Whatever happened between the account's ledger and its terms."""
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    (file,) = (tmp_path / "terms").iterdir()
    noisier = replace(terms, plan=small_plan(4, factor=0.5))
    file.write_text(json.dumps({"terms": noisier.text, "group": "middle"}))
    with pytest.raises(InputError, match="another plan"):
        guard.admit(noisier.order("middle", 1))
    assert spent(tmp_path) == 0.0


def test_a_plan_whose_noise_is_not_what_it_charges_is_no_terms() -> None:
    plan = small_plan()
    row = plan.groups[1]
    changes: tuple[dict[str, Any], ...] = (
        {"clip_norm": (math.inf,) * 4},
        {"clip_norm": (1e6,) * 4},
        {"sampling_rate": (0.0,) * 4},
        {"sampling_rate": (1.5,) * 4},
    )
    for change in changes:
        groups = (plan.groups[0], replace(row, **change), plan.groups[2])
        with pytest.raises(InputError):
            Terms("monday", replace(plan, groups=groups), "flat", 0, (1.0,) * 4)
    with pytest.raises(InputError, match=r"plan\.clip_norm"):
        Terms("monday", replace(plan, clip_norm=math.inf), "flat", 0, (1.0,) * 4)


@pytest.mark.parametrize("scale", [1e40, 1e-40])
def test_terms_with_a_round_that_has_no_lattice_are_none(scale: float) -> None:
    """Found at the round itself, its charge would be written already."""
    with pytest.raises(InputError, match="the noise of a round"):
        Terms("monday", small_plan(), "flat", 0, (1.0, 1.0, 1.0, scale))


def test_terms_are_for_no_more_clients_than_a_sum_is_exact_for() -> None:
    many = make_plan([Group("all", MAX_COHORT, Budget(5.0))], 2)
    Terms("monday", many, "flat", 0, (1.0, 1.0))
    more = make_plan([Group("all", MAX_COHORT + 1, Budget(5.0))], 2)
    with pytest.raises(InputError, match=r"plan\.clients = 33554433 must be"):
        Terms("monday", more, "flat", 0, (1.0, 1.0))


def test_what_would_overspend_is_refused_before_and_after_enrolment_and_leaves_no_trace(tmp_path: Path) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    with pytest.raises(InputError, match=r"epsilon = 9\.316 of 5"):
        guard.enrol(terms, "open")
    with pytest.raises(InputError, match="not one that this client is enrolled in"):
        guard.admit(terms.order("open", 1))
    guard.enrol(terms)
    with pytest.raises(InputError, match="every other run paid to its end"):
        guard.enrol(make_terms("tuesday"))
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert not ledger.has_run("tuesday")
    with pytest.raises(InputError, match="too small for every group"):
        guard_of(tmp_path / "poor", 1.0).enrol(terms)
    guard.admit(terms.order("middle", 1))
    lower = guard_of(tmp_path, 3.0)  # its owner has thought better of it
    assert exact(terms, 2) > 3.0
    with pytest.raises(InputError, match="would go over budget"):
        lower.admit(terms.order("middle", 2))
    assert spent(tmp_path) <= 3.0
    with pytest.raises(InputError, match="below what it has spent"):
        guard_of(tmp_path, 1.0).admit(terms.order("middle", 2))


def test_a_run_that_ended_early_can_be_left(tmp_path: Path, run: Run) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 1))
    with pytest.raises(InputError, match="after = 0 must be a whole number"):
        guard.leave("monday", 0)
    answer = run("flower", "leave", tmp_path, "monday", "--after", 1)
    assert (answer.code, answer.out) == (0, "Run monday is left after round 1.\n")
    assert run("flower", "leave", tmp_path, "monday", "--after", 1).code == 2
    assert run("flower", "leave", tmp_path / "none", "monday", "--after", 1).code == 2
    cheap = make_plan([Group("middle", 6, Budget(2.0))], rounds=4, spending_rate=1.0, clip_norm=1.0)
    other = Terms("tuesday", cheap, "flat", 0, (1.0,) * 4)
    assert guard.enrol(other) == "middle"
    for refused in (lambda: guard.admit(terms.order("middle", 2)), lambda: guard.enrol(terms)):
        with pytest.raises(InputError):
            refused()


def test_a_client_that_withdraws_answers_nothing_any_more(tmp_path: Path, run: Run) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 1))
    answer = run("flower", "withdraw", tmp_path, "--reason", "moved away", "--author", "Grace")
    assert (answer.code, answer.out) == (0, "This client has withdrawn.\n")
    assert spent(tmp_path) == pytest.approx(exact(terms, 4))  # how far the run has come it does not know
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert (ledger.account("own").withdrawn, list(ledger.changes("own"))[-1].reason) == (True, "moved away")
    for refused in (
        lambda: guard.admit(terms.order("middle", 2)),
        lambda: guard.enrol(terms),
        lambda: guard.enrol(make_terms("tuesday")),
        lambda: guard.leave("monday", 4),
        lambda: guard.withdraw("again"),
    ):
        with pytest.raises(InputError, match="this client has withdrawn: it answers nothing any more"):
            refused()
    assert run("flower", "withdraw", tmp_path / "none", "--reason", "x").code == 2


@pytest.mark.parametrize("epsilon", [3.0, 1.0])  # below what is pledged, and below what is spent
def test_no_budget_is_too_small_to_withdraw_or_to_leave(tmp_path: Path, epsilon: float) -> None:
    terms, folders = make_terms(), [tmp_path / "gone", tmp_path / "left"]
    for folder in folders:
        guard_of(folder).enrol(terms)
        guard_of(folder).admit(terms.order("middle", 1))
        with pytest.raises(InputError, match=r"would go over budget|below what it has spent"):
            guard_of(folder, epsilon).admit(terms.order("middle", 4))
        with Ledger(folder / "ledger.db") as ledger:
            assert ledger.account("own").epsilon == pytest.approx(exact(terms, 1))  # a refusal charges nothing
    guard_of(folders[0], epsilon).withdraw("enough")
    guard_of(folders[1], epsilon).leave("monday", 3)
    for folder, rounds in zip(folders, (4, 3), strict=True):
        with Ledger(folder / "ledger.db") as ledger:
            assert ledger.account("own").epsilon == pytest.approx(exact(terms, rounds))
            assert [one.epsilon for one in ledger.accounts()] == [pytest.approx(exact(terms, rounds))]
        with pytest.raises(InputError, match=r"has withdrawn|not one that this client is enrolled in"):
            guard_of(folder).admit(terms.order("middle", 4))


def test_a_withdrawal_counts_whatever_happens_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 1))
    with monkeypatch.context() as patch:
        patch.setattr(RunBooks, "reconcile", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            guard.withdraw("enough")
    with pytest.raises(InputError, match="this client has withdrawn"):
        guard.admit(terms.order("middle", 2))
    assert spent(tmp_path) == pytest.approx(exact(terms, 1))
    with pytest.raises(InputError, match="this client has withdrawn"):
        guard.withdraw("again")
    assert spent(tmp_path) == pytest.approx(exact(terms, 4))  # as was pledged


def test_a_ledger_that_was_told_of_a_withdrawal_is_enough(tmp_path: Path, run: Run) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    assert run("ledger", "withdraw", "own", "--reason", "x", "--ledger", tmp_path / "ledger.db").code == 0
    with pytest.raises(InputError, match="this client has withdrawn"):
        guard.admit(terms.order("middle", 1))


def test_an_accounts_rule_comes_from_the_first_plan_or_its_owner(tmp_path: Path) -> None:
    sampled = make_plan([Group("middle", 6, Budget(5.0))], rounds=4, spending_rate=0.5, clip_norm=1.0)
    half = Terms("half", sampled, "flat", 0, (1.0,) * 4)
    by_pld = make_plan([Group("middle", 6, Budget(2.0))], rounds=1, accountant="pld", clip_norm=1.0)
    judged = Terms("by pld", by_pld, "flat", 0, (1.0,))

    def rule(folder: Path) -> str:
        with Ledger(folder / "ledger.db", read_only=True) as ledger:
            return ledger.account("own").rule.name

    guard_of(tmp_path / "a").enrol(make_terms())
    guard_of(tmp_path / "b").enrol(half)  # to the last bit of its budget
    assert [rule(tmp_path / name) for name in "ab"] == ["gaussian", "renyi"]
    with pytest.raises(InputError, match="would make it epsilon"):  # beside what is pledged
        guard_of(tmp_path / "a").enrol(half)
    guard_of(tmp_path / "a", 30.0).enrol(half)  # charged as if everybody were sampled
    assert rule(tmp_path / "a") == "gaussian"
    with pytest.raises(InputError, match="filters by privacy loss distributions are not valid"):
        guard_of(tmp_path / "c").enrol(judged)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "budget.toml").write_text('epsilon = 5.0\ndelta = 1e-5\naccount = "fixed"\n')
    Guard(OwnAccount.of_folder(tmp_path / "d")).enrol(judged)
    assert rule(tmp_path / "d") == "fixed"
    with pytest.raises(InputError, match="Open a new account under another name"):
        Guard(OwnAccount(tmp_path / "d", Budget(5.0), "renyi")).admit(judged.order("middle", 1))


def test_a_servers_names_are_no_paths(tmp_path: Path) -> None:
    terms = make_terms("../../../evil\n")
    guard_of(tmp_path / "account").enrol(terms)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["account"]


def _race(folder: Path, gate: Any, results: Any) -> None:
    gate.wait()
    try:
        guard_of(folder).admit(make_terms().order("middle", 2))
        results.put("admitted")
    except InputError:
        results.put("refused")


@pytest.mark.slow
def test_of_two_processes_asked_for_the_same_round_one_trains(tmp_path: Path) -> None:
    guard_of(tmp_path).enrol(make_terms())
    spawn = multiprocessing.get_context("spawn")
    gate, results = spawn.Event(), spawn.Queue()
    racers = [spawn.Process(target=_race, args=(tmp_path, gate, results)) for _ in range(2)]
    for racer in racers:
        racer.start()
    gate.set()
    outcomes = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()
    assert outcomes.count("admitted") == 1
    assert spent(tmp_path) == pytest.approx(exact(make_terms(), 2))


# The mod


def ask(app: ClientApp, content: RecordDict, kind: str = "train") -> Message:
    message = Message(content, 100, kind)
    message.metadata.__dict__["_message_id"] = "1"
    return app(message, Context(1, 100, {"partition-id": 2}, RecordDict(), {}))


def app_of(folder: Path, train: Callable[[Message, Context], Message]) -> ClientApp:
    app = private_client_app(lambda context: OwnAccount(folder, Budget(5.0)))
    app.train()(train)
    app.evaluate()(train)
    app.query()(train)
    return app


def enrolled(
    folder: Path, train: Callable[[Message, Context], Message], clipping: str = "flat"
) -> tuple[ClientApp, Terms]:
    app, terms = app_of(folder, train), make_terms(clipping=clipping)
    reply = ask(app, RecordDict({wire.OFFER: wire.offer(terms, None)}), wire.ENROL)
    assert wire.answer_of(reply.content) == wire.Answer(epsilon=5.0, delta=1e-5, group="middle", partition=2)
    return app, terms


def question(terms: Terms, arrays: ArrayRecord, round_: int = 1) -> RecordDict:
    order = wire.as_record(terms.order("middle", round_))
    return RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": 0.1}), wire.ORDER: order})


def replying(arrays: Callable[[ArrayRecord], ArrayRecord]) -> Callable[[Message, Context], Message]:
    def train(message: Message, context: Context) -> Message:
        records = {"arrays": arrays(message.content.array_records["arrays"]), "m": MetricRecord({"loss": 1.0})}
        return Message(RecordDict(records), reply_to=message)  # type: ignore[arg-type]

    return train


@pytest.mark.parametrize("clipping", ["flat", "per-layer"])
@pytest.mark.parametrize("step", [0.5, 0.0, 1e30])
def test_what_leaves_is_clipped_carries_its_share_and_nothing_else(tmp_path: Path, clipping: str, step: float) -> None:
    size = 300
    seen: list[Message] = []

    def train(message: Message, context: Context) -> Message:
        seen.append(message)
        for array in message.content.array_records["arrays"].values():
            array.data = array.data[:-4] + b"\0\0\0\0"  # training code may spoil what it was given
        return replying(lambda arrays: moved(model(size), step))(message, context)

    app, terms = enrolled(tmp_path, train, clipping)
    reply = ask(app, question(terms, model(size)))
    assert set(seen[0].content) == {"arrays", "config"}  # the order is no business of the training code
    assert set(reply.content) == {wire.UPDATE}
    assert set(reply.content.array_records[wire.UPDATE]) == {wire.UPDATE}
    points = reply.content.array_records[wire.UPDATE][wire.UPDATE].numpy()
    order = terms.order("middle", 1)
    assert points.dtype == np.int32  # points of the round's lattice, and nothing in between
    update = points * order.step
    layout = ArrayLayout.of(model(size))
    layers = layout.layers if clipping == "per-layer" else (slice(0, layout.size),)
    assert len(layout.layers) == 2
    for layer in layers:
        part, length = update[layer], layer.stop - layer.start
        within = min(order.clip_norm / np.sqrt(len(layers)), step * np.sqrt(length)) / np.sqrt(length)
        error = order.noise_std / np.sqrt(length)
        assert abs(part.mean() - within) < 5 * error
        assert part.std() == pytest.approx(order.noise_std, rel=5 / np.sqrt(2 * length))


BAD: dict[str, Callable[[ArrayRecord], ArrayRecord]] = {
    "NaN": lambda arrays: moved(arrays, float("nan")),
    "infinite": lambda arrays: moved(arrays, float("inf")),
    "renamed": lambda arrays: ArrayRecord({name.replace("a.", "c."): array for name, array in arrays.items()}),
    "extra": lambda arrays: ArrayRecord({**arrays, "d": Array(np.zeros(3, np.float32))}),
    "missing": lambda arrays: ArrayRecord({name: array for name, array in arrays.items() if name != "b.weight"}),
    "in another order": lambda arrays: ArrayRecord(dict(reversed(list(arrays.items())))),
    "of another shape": lambda arrays: ArrayRecord({**arrays, "b.weight": Array(np.zeros(9, np.float32))}),
    "of another type": lambda arrays: ArrayRecord({**arrays, "b.weight": Array(np.zeros(8))}),
    "a shape that is not so": lambda arrays: ArrayRecord(
        {**arrays, "b.weight": Array("float32", (8,), "numpy.ndarray", Array(np.zeros(9, np.float32)).data)}
    ),
    "none": lambda arrays: ArrayRecord(),
}


@pytest.mark.parametrize("bad", BAD)
def test_arrays_that_are_not_the_models_are_refused_in_one_word(tmp_path: Path, bad: str) -> None:
    app, terms = enrolled(tmp_path, replying(BAD[bad]))
    reply = ask(app, question(terms, model()))
    assert reply.has_error()
    assert reply.error.reason in (wire.REFUSED, wire.FAILED)


def raising(message: Message, context: Context) -> Message:
    raise RuntimeError("patient 4711 has")


def test_errors_of_training_code_stay_at_the_client(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, train in enumerate((raising, lambda m, c: Message(Error(0, "patient 4711"), reply_to=m))):
        app, terms = enrolled(tmp_path / str(number), train)
        reply = ask(app, question(terms, model()))
        assert reply.error.reason == wire.FAILED
    assert "4711" in caplog.text  # the client's own log


def test_integers_are_left_alone_and_nothing_unasked_for_is_answered(tmp_path: Path) -> None:
    app, terms = enrolled(tmp_path, replying(moved))
    reply = ask(app, question(terms, model()))
    assert reply.content.array_records[wire.UPDATE][wire.UPDATE].numpy().size == ArrayLayout.of(model()).size == 80
    no_order = RecordDict({"arrays": model(), "config": ConfigRecord()})
    twice = RecordDict({**question(terms, model(), 2), "more": model()})
    forged = wire.offer(make_terms("other"), None)
    forged["digest"] = "0" * 64
    for content, kind in (
        (question(terms, model(), 1), "train"),  # it has answered that
        (no_order, "train"),
        (twice, "train"),
        (question(terms, model(), 2), "evaluate"),
        (question(terms, model(), 2), "query"),
        (RecordDict({wire.OFFER: forged}), wire.ENROL),
        (RecordDict({wire.OFFER: ConfigRecord({"terms": "{", "digest": "", "group": ""})}), wire.ENROL),
        (RecordDict(), wire.ENROL),
    ):
        assert ask(app, content, kind).error.reason == wire.REFUSED
    strange = RecordDict({**question(terms, model(), 2)})
    strange.config_records[wire.ORDER]["colour"] = "red"
    assert ask(app, strange).error.reason == wire.REFUSED


def test_an_account_comes_from_the_nodes_configuration_or_its_file(tmp_path: Path) -> None:
    def node(**config: str | float) -> Context:
        return Context(1, 1, config, RecordDict(), {})

    found = account_of_node(node(account=str(tmp_path), epsilon=3, delta=1e-6))
    assert found == OwnAccount(tmp_path, Budget(3.0, 1e-6))
    (tmp_path / "budget.toml").write_text("epsilon = 2.5\ndelta = 1e-6\n")
    assert account_of_node(node(account=str(tmp_path))).budget == Budget(2.5, 1e-6)
    for config in ({}, {"account": str(tmp_path / "none")}, {"account": str(tmp_path), "epsilon": "much"}):
        with pytest.raises(InputError):
            account_of_node(node(**config))


def test_terms_are_read_as_if_a_stranger_had_written_them() -> None:
    terms = make_terms()
    assert Terms.parse(terms.text).digest == terms.digest
    good = json.loads(terms.text)
    for change in (
        {"clipping": "none"},
        {"colluders": 6},
        {"clip_scale": [1.0]},
        {"clip_scale": [0.0, 1.0, 1.0, 1.0]},
        {"plan": "{}"},
        {"format": "nestegg-terms/1"},
        {"format": "nestegg-terms/3"},
        {"more": 1},
    ):
        with pytest.raises(InputError):
            Terms.parse(json.dumps(good | change))
