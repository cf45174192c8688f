"""Training as people do it: own losses, metrics, optimisers and curves, frozen parameters, callbacks."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nestegg import (
    Budget,
    Evaluation,
    Federation,
    Group,
    InputError,
    LocalTraining,
    Mechanics,
    Performance,
    Randomness,
    RoundReport,
    State,
    plan,
    train,
)
from nestegg.callbacks import Callback, MLflow, TensorBoard
from tests.federations import assembled

PLAN = plan([Group("strict", 2, Budget(8.0)), Group("open", 2, Budget(30.0))], rounds=3, spending_rate=1.0)
QUIET = plan([Group("all", 1, Budget(8.0))], rounds=3, method="fedavg", spending_rate=1.0)
SIMULATED = Mechanics(randomness=Randomness(1, reproducible=True))
ALONE = Performance(workers=1)


def data(clients: int = 4, samples: int = 6, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    rng = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(samples, 3, generator=rng), torch.randint(0, 2, (samples,), generator=rng)) for _ in range(clients)
    ]


def model() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


@pytest.mark.parametrize("make", [torch.optim.Adam, partial(torch.optim.AdamW, weight_decay=0.1), torch.optim.RMSprop])
def test_any_optimiser_of_torch_trains_as_torch_does(make: Any) -> None:
    """Without noise and with all samples in one batch, a round is an ordinary training by the same optimiser."""
    ((x, y),) = data(1)
    local = LocalTraining(epochs=3, batch_size=6, learning_rate=0.05, schedule="constant", optimizer=make)
    world = Federation(QUIET, model(), [(x, y)], local=local, mechanics=SIMULATED, performance=ALONE)
    assert (world.engine.name, world.why) == ("loop", "the optimiser is your own")
    ours, _ = train(world)
    theirs = model()
    for _ in range(3):  # rounds, each with an optimiser that starts fresh
        optimizer = make(theirs.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(theirs(x), y).backward()
            optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_an_optimiser_that_needs_a_closure_is_refused_before_anybody_pays() -> None:
    with pytest.raises(InputError, match="model and loss cannot be trained on zeros: TypeError"):
        Federation(PLAN, model(), data(), local=LocalTraining(optimizer=torch.optim.LBFGS))
    with pytest.raises(InputError, match="optimizer = 'adam' must be a function"):
        LocalTraining(optimizer="adam")  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [lambda t, rounds: (rounds - t + 1) / rounds, [1.0, 2 / 3, 1 / 3]])
def test_ones_own_curve_of_the_learning_rate_is_followed(schedule: Any) -> None:
    local = LocalTraining(learning_rate=0.3, schedule=schedule)
    _, reports = train(Federation(PLAN, model(), data(), local=local, mechanics=SIMULATED))
    assert [report.learning_rate for report in reports] == pytest.approx([0.3, 0.2, 0.1])
    noise = [report.noise_std for report in reports]  # clip norms are in its unit, and so is the noise
    assert noise[2] / noise[0] == pytest.approx(1 / 3 * PLAN.round_noise_multiplier[2] / PLAN.round_noise_multiplier[0])


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ([1.0, 0.5], "schedule has 2 factors; it must have one for each of 3 rounds"),
        (lambda t, rounds: 0.0, "schedule of round 1 = 0.0 must be a finite number above 0"),
        (lambda t, rounds: math.nan, "schedule of round 1 = nan"),
        (lambda t, rounds: 1 / (3 - t), "schedule failed for round 3: ZeroDivisionError"),
        ("sine", "schedule = 'sine'"),
    ],
)
def test_a_curve_that_is_none_is_refused(schedule: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Federation(PLAN, model(), data(), local=LocalTraining(schedule=schedule))


def test_ones_own_metrics_see_all_outputs_at_once() -> None:
    x, y = torch.randn(1200, 3), torch.randint(0, 2, (1200,))
    seen = []

    def recall(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(len(outputs))
        return (outputs.argmax(1)[targets == 1] == 1).float().mean()

    test = Evaluation(x, y, metrics={"recall": recall})
    result, reports = train(Federation(PLAN, model(), data(), test=test))
    assert seen == [2, 1200, 1200, 1200]  # tried out on two
    with torch.no_grad():
        guess = result(x).argmax(1)
    assert reports[-1].metrics == {"recall": pytest.approx(float((guess[y == 1] == 1).float().mean()))}
    assert reports[-1].accuracy == pytest.approx(100 * float((guess == y).float().mean()))


def test_a_metric_that_fails_is_refused_before_and_is_nan_later() -> None:
    def wrong(outputs: Tensor, targets: Tensor) -> float:
        raise KeyError("no such thing")

    def picky(outputs: Tensor, targets: Tensor) -> float:
        return 1.0 if len(outputs) == 2 else wrong(outputs, targets)

    x, y = torch.zeros(9, 3), torch.zeros(9, dtype=torch.long)
    with pytest.raises(InputError, match="metrics: 'm' failed: KeyError"):
        Federation(PLAN, model(), data(), test=Evaluation(x, y, metrics={"m": wrong}))
    _, reports = train(Federation(PLAN, model(), data(), test=Evaluation(x, y, metrics={"m": picky})))
    assert math.isnan(reports[0].metrics["m"])
    with pytest.raises(InputError, match="metrics: 'm' must be a function"):
        Evaluation(x, y, metrics={"m": "accuracy"})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="test has no samples"):
        Federation(PLAN, model(), data(), test=(x[:0], y[:0]))
    with pytest.raises(InputError, match="test must be a pair"):
        Federation(PLAN, model(), data(), test=x)
    with pytest.raises(InputError, match="test: the model cannot be measured"):
        Federation(PLAN, model(), data(), test=(torch.zeros(9, 7), y))


def test_a_simulation_measures_each_budget_group_on_its_own_clients_data() -> None:
    held = {"strict": (torch.zeros(5, 3), torch.zeros(5, dtype=torch.long)), "open": data(1)[0]}
    test = Evaluation(*data(1, seed=3)[0], by_group=held)
    result, reports = train(Federation(PLAN, model(), data(), test=test, mechanics=SIMULATED))
    found = reports[-1].simulation_only_group_accuracy
    assert found is not None
    with torch.no_grad():
        guess = result(held["open"][0]).argmax(1)
    assert found["open"] == pytest.approx(100 * float((guess == held["open"][1]).float().mean()))
    _, secret = train(Federation(PLAN, model(), data(), test=test))
    assert secret[-1].simulation_only_group_accuracy is None  # clients' own data: never of a run for release


def test_only_what_is_trained_is_clipped_noised_and_sent() -> None:
    frozen = model()
    frozen[0].requires_grad_(False)  # type: ignore[index]
    world = Federation(PLAN, frozen, data())
    result, _ = train(world)
    assert world.layout.size == 12
    assert world.start().model.shape == (12,)
    assert torch.equal(result[0].weight, frozen[0].weight)  # type: ignore[index]
    assert not torch.equal(result[2].weight, frozen[2].weight)  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_lora_model_of_peft_trains_as_it_is() -> None:
    """A tiny transformer made from its configuration: token ids in, classes out; 1 % of it is sent."""
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=2
    )
    adapted = get_peft_model(
        BertForSequenceClassification(config),
        LoraConfig(task_type="SEQ_CLS", r=2, lora_alpha=4, target_modules=["query", "value"]),
    )

    class Classifier(nn.Module):
        """Logits alone, as a loss takes them."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.inner(input_ids=tokens).logits
            return logits

    rng = np.random.default_rng(0)
    tokens = [(rng.integers(0, 50, (4, 7)), rng.integers(0, 2, 4)) for _ in range(4)]
    own = LocalTraining(epochs=1, optimizer=torch.optim.AdamW, learning_rate=1e-3)
    world = Federation(PLAN, Classifier(adapted), tokens, local=own, mechanics=SIMULATED, performance=ALONE)
    assert 0 < world.layout.size < 0.2 * sum(p.numel() for p in adapted.parameters())
    assert all("lora" in name or "classifier" in name for name in world.layout.names)
    before = {name: parameter.clone() for name, parameter in adapted.named_parameters()}
    result, reports = train(world)
    assert [report.simulation_only_broken_updates for report in reports] == [0, 0, 0]
    changed = {
        name.removeprefix("inner.")
        for name, parameter in result.named_parameters()
        if not torch.equal(parameter, before[name.removeprefix("inner.")])
    }
    assert changed == {name.removeprefix("inner.") for name in world.layout.names}
    with pytest.raises(InputError, match="model returns a SequenceClassifierOutput; it must return a tensor"):
        Federation(PLAN, adapted, tokens)


class Witness(Callback):
    """Writes down what it hears, and stops after some rounds."""

    def __init__(self, last: int) -> None:
        self.last, self.heard = last, [""]

    def on_start(self, federation: Federation, state: State) -> None:
        self.federation = federation
        self.heard = [f"start {state.round}"]

    def on_round(self, state: State, report: RoundReport) -> bool:
        assert isinstance(self.federation.model_at(state), nn.Sequential)
        self.heard.append(f"round {report.round}")
        return report.round == self.last

    def on_end(self, state: State) -> None:
        self.heard.append(f"end {state.round}")


def test_callbacks_hear_of_everything_and_may_stop() -> None:
    witness = Witness(2)
    _, reports = train(Federation(PLAN, model(), data()), callbacks=[Callback(), witness])
    assert witness.heard == ["start 0", "round 1", "round 2", "end 2"]
    assert len(reports) == 2


@pytest.mark.parametrize("reproducible", [True, False])
@pytest.mark.slow
def test_tensorboard_reads_what_was_written(tmp_path: Path, reproducible: bool) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    world = assembled(PLAN, model(), data(), test=data(1)[0], reproducible=reproducible)
    _, reports = train(world, callbacks=[TensorBoard(tmp_path)])
    found = EventAccumulator(str(tmp_path)).Reload()
    events = found.Scalars("accuracy")
    assert [(event.step, event.value) for event in events] == [
        (report.round, pytest.approx(report.accuracy)) for report in reports
    ]
    assert found.Scalars("epsilon/strict")[-1].value == pytest.approx(reports[-1].epsilon_spent["strict"])
    if not reproducible:  # how long a round took tells about its secret cohort
        assert len({event.wall_time for event in events}) == 1
        assert not [tag for tag in found.Tags()["scalars"] if "simulation" in tag or "seconds" in tag]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_mlflow_reads_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    where = tmp_path.as_uri()
    world = assembled(PLAN, model(), data(), test=data(1)[0])
    _, reports = train(world, callbacks=[MLflow("own", name="monday", tracking_uri=where)])
    client = MlflowClient(where)
    experiment = client.get_experiment_by_name("own")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "monday"
    assert run.info.status == "FINISHED"
    assert run.data.params["plan"] == PLAN.digest
    history = client.get_metric_history(run.info.run_id, "accuracy")
    assert [(one.step, one.value) for one in history] == [(r.round, pytest.approx(r.accuracy)) for r in reports]
    assert {one.timestamp for one in history} == {run.info.start_time} == {run.info.end_time}


def test_an_optimiser_may_exchange_the_tensors_of_parameters() -> None:
    class Exchanging(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data = parameter.data - group["lr"] * parameter.grad

    local = LocalTraining(epochs=2, batch_size=6, learning_rate=0.05, schedule="constant", momentum=0.0)
    ends = [
        train(Federation(QUIET, model(), data(1), local=one, mechanics=SIMULATED, performance=Performance("loop")))[0]
        for one in (local, replace(local, optimizer=Exchanging))
    ]
    for a, b in zip(*(end.parameters() for end in ends), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_callbacks_cannot_change_a_state_and_any_truth_stops() -> None:
    class Vandal(Callback):
        def on_round(self, state: State, report: RoundReport) -> Any:
            state.model.zero_()
            return np.float64(report.round) >= 2

    worlds = [Federation(PLAN, model(), data(), mechanics=SIMULATED) for _ in range(2)]
    ends = [train(world, callbacks=[one]) for world, one in zip(worlds, (Vandal(), Witness(2)), strict=True)]
    assert len(ends[0][1]) == 2
    for a, b in zip(*(end.parameters() for end, _ in ends), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(InputError, match="callbacks must be a list of"):
        train(Federation(PLAN, model(), data()), callbacks=Vandal())  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [None, ["a"], 3])
def test_what_is_no_curve_is_refused(schedule: Any) -> None:
    with pytest.raises(InputError, match=r"schedule = .* must be one of cosine, constant, a factor for each round"):
        LocalTraining(schedule=schedule)
    with pytest.raises(InputError, match="schedule has 2 factors"):
        LocalTraining(schedule=np.ones(2)).rates(3)  # type: ignore[arg-type]
