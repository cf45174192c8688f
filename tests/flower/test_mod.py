"""What leaves a client through its app: a clipped update with its share of noise, one word, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from nestegg import Budget, InputError
from nestegg.flower import OwnAccount, account_of_node, private_client_app, wire
from nestegg.flower.arrays import ArrayLayout
from nestegg.flower.terms import Terms
from tests.flower.guards import make_terms
from tests.grid import model, moved


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
def test_arrays_that_are_not_the_models_fail_in_one_word(tmp_path: Path, bad: str) -> None:
    """Not as a refusal: what training returns depends on data, and servers may tell that all have refused."""
    app, terms = enrolled(tmp_path, replying(BAD[bad]))
    reply = ask(app, question(terms, model()))
    assert reply.error.reason == wire.FAILED
    assert not wire.is_refusal(reply)


def raising(message: Message, context: Context) -> Message:
    raise RuntimeError("patient 4711 has")


def test_errors_of_training_code_stay_at_the_client(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, train in enumerate((raising, lambda m, c: Message(Error(0, "patient 4711"), reply_to=m))):
        app, terms = enrolled(tmp_path / str(number), train)
        reply = ask(app, question(terms, model()))
        assert reply.error.reason == wire.FAILED
    assert "4711" in caplog.text  # the client's own log


def test_a_clients_log_names_the_step_that_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def unreadable(message: Message, context: Context) -> Message:
        raise InputError("data.csv is not there.")

    trainings = {
        "round 1, training: RuntimeError: patient 4711 has": raising,
        "round 1, training: data.csv is not there.": unreadable,  # of training, whatever its type: no refusal
        "round 1, reading what training returned: the arrays are not": replying(BAD["renamed"]),
        "round 1, clipping and adding noise: the update is not finite": replying(BAD["NaN"]),
    }
    for number, (sentence, train) in enumerate(trainings.items()):
        app, terms = enrolled(tmp_path / str(number), train)
        assert ask(app, question(terms, model())).error.reason == wire.FAILED
        assert f"nestegg has failed: {sentence}" in caplog.messages[-1]
    again = {
        "reading the order: a message has no record 'nestegg'": (RecordDict({"arrays": model()}), "train"),
        "round 1, paying from this client's account: round 1 of run": (question(terms, model()), "train"),
        "enrolment: a message has no record 'nestegg-offer'": (RecordDict(), wire.ENROL),
        "messages of type 'evaluate' are not answered": (question(terms, model()), "evaluate"),
    }
    for sentence, (content, kind) in again.items():
        assert wire.is_refusal(ask(app, content, kind))
        assert f"nestegg has refused: {sentence}" in caplog.messages[-1]


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
    with pytest.raises(InputError, match=r"node-config has no epsilon, and .*none/budget.toml cannot be read: No such"):
        account_of_node(node(account=str(tmp_path / "none")))
    for config in ({}, {"account": str(tmp_path), "epsilon": "much"}):
        with pytest.raises(InputError):
            account_of_node(node(**config))
