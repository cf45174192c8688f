"""The balanced loss, and losses of one's own that are made for each client."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nestegg
from nestegg import Budget, Federation, Group, InputError, LocalTraining, Mechanics, Performance, Randomness
from nestegg.configuration.config import load_config, to_toml
from nestegg.mechanism import Layout
from nestegg.runs.configured import new_simulation
from nestegg.training import kernel
from nestegg.training.blocks import Engine
from nestegg.training.clients import ClientsInMemory
from nestegg.training.engines import make_engine
from nestegg.training.losses import Balanced
from nestegg.training.values import values_of
from tests.conftest import Run
from tests.federations import DENSE, ENGINES

SIMULATED = Mechanics(randomness=Randomness(1, reproducible=True))
LOCAL = LocalTraining(epochs=3, batch_size=8, learning_rate=0.1, loss=nestegg.balanced)
QUIET = nestegg.plan([Group("all", 3, Budget(8.0))], rounds=2, method="fedavg", spending_rate=1.0)


def skewed(labels: int) -> list[tuple[Tensor, Tensor]]:
    """Clients of few labels each: one of a single sample, two of a single label, one of all."""
    rng = torch.Generator().manual_seed(0)

    def one(samples: int, least: int, most: int) -> tuple[Tensor, Tensor]:
        return torch.randn(samples, 6, generator=rng), torch.randint(least, most, (samples,), generator=rng)

    return [one(1, 0, 1), one(40, 0, 1), one(9, labels - 1, labels), one(37, 0, 2), one(100, 0, labels)]


def network(*units: int, between: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(3)
    layers = [part for a, b in pairwise(units) for part in (nn.Linear(a, b), between())]
    return nn.Sequential(*layers[:-1])


def engine_of(name: str, model: nn.Module, clients: Any, local: LocalTraining = LOCAL) -> Engine:
    return make_engine(Performance(name), model, ClientsInMemory(clients), local, SIMULATED.randomness)[0]


def update(engine: Engine, model: nn.Module, block: list[int]) -> Tensor:
    return engine.train_block(Layout.of(model).flatten(model), block, 2, 0.1).clone()


@pytest.fixture
def dense(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(kernel.VARIABLE, request.param)
    return "dense"


@pytest.mark.parametrize("labels", [2, 5])
def test_a_client_trains_on_the_cross_entropy_of_shifted_outputs(labels: int) -> None:
    outputs, y = torch.randn(12, labels), torch.tensor([0] * 9 + [1] * 3)
    share = (torch.bincount(y, minlength=labels) + 1.0) / (len(y) + labels)
    expected = functional.cross_entropy(outputs + share.log(), y)
    assert float(nestegg.balanced.for_client(y)(outputs, y)) == pytest.approx(float(expected), rel=1e-6)
    assert float(nestegg.balanced(outputs, y)) == float(functional.cross_entropy(outputs, y))


def test_one_output_is_shifted_as_the_difference_of_two_would_be() -> None:
    output, y = torch.randn(12, 1), torch.tensor([0] * 9 + [1] * 3)
    both = torch.cat([torch.zeros(12, 1), output], dim=1)
    loss = nestegg.balanced.for_client(y)
    assert float(loss(output, y)) == pytest.approx(float(nestegg.balanced.for_client(y)(both, y)), rel=1e-6)
    assert float(nestegg.balanced(output, y)) == pytest.approx(float(functional.cross_entropy(both, y)), rel=1e-6)


def test_a_model_that_knows_nothing_is_not_told_how_common_labels_are() -> None:
    """The derivative by the bias is π less the shares of labels, which are the same but for smoothing."""
    y = torch.tensor([0] * 900 + [3] * 100)
    shares = torch.tensor([0.9, 0.0, 0.0, 0.1])
    for loss, known in ((nestegg.balanced.for_client(y), shares * 1000 / 1004 + 1 / 1004), (nestegg.balanced, 0.25)):
        bias = torch.zeros(4, requires_grad=True)
        loss(bias.expand(1000, 4), y).backward()
        assert bias.grad is not None
        assert torch.allclose(bias.grad, known - shares, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [network(6, 5), network(6, 1), network(6, 33, 5), network(6, 7, 9, 20, between=nn.Tanh)],
    ids=["softmax", "one output", "rectifiers", "more outputs than labels"],
)
@pytest.mark.parametrize("dense", DENSE, indirect=True)
def test_engines_agree_whoever_shares_a_block(dense: str, model: nn.Sequential) -> None:
    clients = skewed(2 if len(model[-1].bias) == 1 else 5)  # type: ignore[arg-type]
    loop, compiled = (engine_of(name, model, clients) for name in ("loop", dense))
    plain = engine_of(dense, model, clients, LocalTraining(3, 8, 0.1))
    blocks = ([0, 1, 2, 3, 4], [4, 2, 0], [3, 1])
    alone = [update(compiled, model, [client])[0] for client in range(5)]
    for client, own in enumerate(alone):
        assert torch.allclose(own, update(loop, model, [client])[0], atol=1e-6)
        assert not torch.allclose(own, update(plain, model, [client])[0], atol=1e-3)
        assert all(
            update(compiled, model, block)[block.index(client)].equal(own) for block in blocks if client in block
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_clients_that_are_loaded_when_sampled_are_shifted_alike(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine != "loop":
        monkeypatch.setenv(kernel.VARIABLE, engine)
    clients = dict(zip("abc", skewed(5)[2:], strict=True))
    lazy = {name: (lambda data=data: data) for name, data in clients.items()}
    made, name = nestegg.plan([Group("all", 3, Budget(8.0))], rounds=2), "loop" if engine == "loop" else "dense"
    ends = []
    for data in (clients, lazy):
        world = Federation(
            made, network(6, 5), data, local=LOCAL, mechanics=SIMULATED, performance=Performance(name, workers=1)
        )
        ends.append(nn.utils.parameters_to_vector(nestegg.train(world)[0].parameters()))
    assert ends[0].equal(ends[1])


@pytest.mark.parametrize("engine", ["loop", "auto"])
def test_a_client_with_one_label_says_little_and_not_nothing(engine: str) -> None:
    model, clients = network(6, 5), skewed(5)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    ours, plain = (engine_of(engine, model, clients, local) for local in (LOCAL, LocalTraining(3, 8, 0.1)))
    for client in (0, 1, 2):
        found, usual = (update(one, model, [client]).norm() for one in (ours, plain))
        assert 0.0 < found < usual
    assert update(ours, model, [1]).norm() < 0.3 * update(plain, model, [1]).norm()


def test_clients_without_data_contribute_nothing_and_stop_nobody() -> None:
    full = skewed(5)[3:]
    nobody = (torch.zeros(0, 6), torch.zeros(0, dtype=torch.long))
    for data in ([*full, nobody], {"a": full[0], "b": full[1], "c": lambda: nobody}):
        for engine in ("loop", "auto"):
            performance = Performance(engine, workers=1)
            world = Federation(QUIET, network(6, 5), data, local=LOCAL, mechanics=SIMULATED, performance=performance)
            model, reports = nestegg.train(world)
            assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
            assert [report.simulation_only_broken_updates for report in reports] == [0, 0]


def test_the_model_is_measured_by_the_cross_entropy() -> None:
    x, y = skewed(5)[4]
    world = Federation(QUIET, network(6, 5), skewed(5)[2:], local=LOCAL, mechanics=SIMULATED, test=(x, y))
    model, reports = nestegg.train(world)
    with torch.no_grad():
        assert reports[-1].loss == pytest.approx(float(functional.cross_entropy(model(x), y)), rel=1e-5)


def test_targets_that_are_no_labels_are_refused() -> None:
    x = torch.zeros(3, 6)
    for targets, message in (
        (torch.tensor([0.0, 1.0, 0.5]), "targets of a type with decimals"),
        (torch.tensor([0, 1, 5]), "a label must be one whole number from 0 to 4; some clients have others"),
        (torch.tensor([0, 1, -1]), "a label must be one whole number from 0 to 4; some clients have others"),
        (torch.zeros(3, 2, dtype=torch.long), "a label must be one whole number from 0 to 4; some clients have others"),
    ):
        with pytest.raises(InputError, match=message):
            Federation(QUIET, network(6, 5), [(x, targets)] * 3, local=LOCAL)
    for targets in (torch.tensor([0.5]), torch.tensor([-1]), torch.zeros(2, 2, dtype=torch.long)):
        with pytest.raises(InputError, match="the balanced loss needs labels: one whole number"):
            nestegg.balanced.for_client(targets)
    with pytest.raises(InputError, match="labels that the model has no outputs for"):
        nestegg.balanced.for_client(torch.tensor([7]))(torch.zeros(1, 5), torch.tensor([0]))


def test_runs_are_told_apart_by_it_and_older_ones_go_on() -> None:
    def said(**values: Any) -> Any:
        local = LocalTraining(3, **values)
        return values_of(Federation(QUIET, network(6, 5), skewed(5)[2:], local=local), "")["local.loss"]

    assert said() == "nestegg.training.local.default_loss"
    assert said(loss=nestegg.balanced) == said(loss=Balanced()) == "nestegg.training.losses.Balanced{}"
    for copied in (copy.deepcopy(nestegg.balanced), pickle.loads(pickle.dumps(nestegg.balanced))):
        assert engine_of("auto", network(6, 5), skewed(5), LocalTraining(loss=copied)).name == (
            "dense" if DENSE else "loop"
        )


class Rare:
    """A loss of one's own, made for each client: errors count more where the client seldom has the label."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    def for_client(self, targets: Tensor) -> Any:
        if len(targets) == 37:
            raise LookupError("no table for this client")
        weight = 1.0 / (1.0 + torch.bincount(targets, minlength=5))
        return lambda outputs, labels: functional.cross_entropy(outputs, labels, weight)


def test_a_loss_of_ones_own_may_be_made_for_each_client() -> None:
    model, clients = network(6, 5), skewed(5)
    own, plain = (LocalTraining(1, 200, 0.1, loss=loss) for loss in (Rare(), functional.cross_entropy))
    ours, usual = (engine_of("auto", model, clients, local) for local in (own, plain))
    assert ours.name == "loop"
    x, y = clients[4]
    weight = 1.0 / (1.0 + torch.bincount(y, minlength=5))
    gradients = torch.autograd.grad(functional.cross_entropy(model(x), y, weight), list(model.parameters()))
    expected = -0.1 * torch.cat([gradient.flatten() for gradient in gradients])
    assert torch.allclose(update(ours, model, [4])[0], expected, atol=1e-6)
    assert not torch.allclose(update(usual, model, [4])[0], expected, atol=1e-3)
    assert torch.isnan(update(ours, model, [3])).all()  # which counts as zero
    assert torch.allclose(update(ours, model, [4])[0], expected, atol=1e-6)


CONFIG = """
format = 2
[federation]
dataset = "digits"
clients = 8
[model]
name = "softmax"
[training]
rounds = 2
local_epochs = 1
reproducible = true
[privacy]
[[privacy.groups]]
name = "all"
share = 1.0
epsilon = 10.0
"""


def written(folder: Path, loss: str) -> Path:
    (folder / "config.toml").write_text(
        CONFIG.replace("rounds = 2", f'rounds = 2\nloss = "{loss}"') if loss else CONFIG
    )
    return folder / "config.toml"


def test_a_configuration_names_it(run: Run, tmp_path: Path) -> None:
    plans, models = [], []
    for loss in ("", "balanced", "nestegg.training.losses:balanced"):
        config = load_config(written(tmp_path, loss))
        assert to_toml(config)["training"].get("loss", "") == loss
        world = new_simulation(config, "")[0].federation
        assert world.engine.name == ("dense" if DENSE and ":" not in loss else "loop")
        plans.append(world.plan.digest)
        models.append(nn.utils.parameters_to_vector(nestegg.train(world)[0].parameters()).detach())
    assert plans[0] == plans[1] == plans[2]
    assert not torch.allclose(models[0], models[1], atol=1e-3)
    assert torch.allclose(models[1], models[2], atol=1e-6)
    assert run("plan", written(tmp_path, "balanced")).code == 0


@pytest.mark.parametrize("word", ["balance", "cross-entropy", "Balanced", ""])
def test_other_words_are_refused(word: str, run: Run, tmp_path: Path) -> None:
    file = written(tmp_path, "X")
    file.write_text(file.read_text().replace('"X"', f'"{word}"'))
    for command in ("plan", "run"):
        refused = run(command, file, *(("--out", tmp_path / "out") if command == "run" else ()))
        assert refused.code == 2
        assert f"training.loss = '{word}' must be balanced, or have the form 'module:function'." in refused.err
    assert not (tmp_path / "out").exists()
