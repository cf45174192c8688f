"""Clients with features, from Python and from configurations: the same as features made beforehand, mistakes told."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import nestegg
from nestegg import Budget, Group, InputError, LocalTraining, Mechanics, Randomness
from nestegg.configuration.config import load_config
from nestegg.data import Dataset, held_back, load_dataset, oriented_gradients, without
from nestegg.data.sources import MappingSource
from nestegg.models import make_model
from nestegg.runs import start_run
from nestegg.runs.configured import new_simulation
from nestegg.training import Federation
from tests.conftest import Run

NAMES = ("ada", "bob", "cid", "dan", "eve", "fay")
ROOT = Path(__file__).parents[2]
Pairs = dict[str, tuple[Tensor, Tensor]]


def people() -> Pairs:
    digits = load_dataset("digits")
    return {name: (digits.train_x[at : at + 30], digits.train_y[at : at + 30]) for at, name in enumerate(NAMES)}


def trained(clients: Any, features: int = 144, names: Sequence[str] | None = NAMES) -> Tensor:
    """What a private training by fixed seeds ends with."""
    groups = [Group("all", 6 if names is None else list(names), Budget(20.0), saving_rate=0.5)]
    made = nestegg.plan(groups, 3, clip_norm=5.0)
    model = make_model("softmax", torch.Size((features,)), 10, 0)
    mechanics, local = Mechanics(randomness=Randomness(3, reproducible=True)), LocalTraining(2, 8)
    model, _ = nestegg.train(Federation(made, model, clients, local=local, mechanics=mechanics))
    return nn.utils.parameters_to_vector(model.parameters()).detach()


class Readings:
    """A source of one's own."""

    names, sizes = NAMES, None

    def __init__(self, data: Pairs) -> None:
        self.data, self.asked = data, 0

    def load(self, name: str) -> tuple[Tensor, Tensor]:
        self.asked += 1
        return self.data[name]

    def fingerprint(self) -> bytes:
        return b"readings"


def test_all_that_a_federation_takes_may_have_features() -> None:
    data = people()
    made = {name: (oriented_gradients(x), y) for name, (x, y) in data.items()}
    expected = trained(made)
    assert expected.abs().max() > 0.01
    for clients in (data, {name: (lambda pair=pair: pair) for name, pair in data.items()}, Readings(data)):
        assert torch.equal(trained(nestegg.with_features(clients, oriented_gradients)), expected)
    by_position = trained(list(made.values()), names=None)
    arrays = [(x.numpy().astype(np.float64), y.numpy()) for x, y in data.values()]
    for listed in (list(data.values()), arrays):
        assert torch.equal(trained(nestegg.with_features(listed, oriented_gradients), names=None), by_position)


def test_they_are_computed_once() -> None:
    asked: list[int] = []

    def counted(inputs: Tensor) -> Tensor:
        asked.append(len(inputs))
        return inputs.flatten(1)

    clients = nestegg.with_features(people(), counted)
    assert sum(asked) == 180
    trained(clients, 64)
    assert sum(asked) == 180
    source = Readings(people())
    trained(nestegg.with_features(source, oriented_gradients))
    assert source.asked <= 2 * 6  # to learn their shape, and when a client is sampled first


def test_a_backbone_from_a_file_is_a_map_like_any(tmp_path: Path) -> None:
    def backbone() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())

    torch.manual_seed(0)
    save_file(backbone().state_dict(), tmp_path / "backbone.safetensors")
    loaded = backbone()
    with pytest.raises(InputError, match=r"^features has parameters that could be trained"):
        nestegg.with_features(people(), loaded)
    loaded.load_state_dict(load_file(tmp_path / "backbone.safetensors"))
    with pytest.raises(InputError, match=r"^features is in training mode"):
        nestegg.with_features(people(), loaded.requires_grad_(False))
    weights = {name: value.clone() for name, value in loaded.state_dict().items()}
    clients = nestegg.with_features(people(), loaded.eval())
    assert isinstance(clients, dict)
    assert clients["bob"][0].shape == (30, 16)
    assert torch.equal(clients["bob"][0], loaded(people()["bob"][0]))
    assert trained(clients, 16).isfinite().all()
    assert all(torch.equal(value, weights[name]) for name, value in loaded.state_dict().items())


def test_a_run_does_not_go_on_with_other_weights() -> None:
    source = MappingSource({name: (lambda pair=pair: pair) for name, pair in people().items()})
    one, other = (nn.Sequential(nn.Flatten(), nn.Linear(64, 5)).requires_grad_(False).eval() for _ in range(2))
    first, again, changed = (nestegg.with_features(source, module) for module in (one, one, other))
    assert isinstance(first, nestegg.Source)
    assert isinstance(again, nestegg.Source)
    assert isinstance(changed, nestegg.Source)
    assert first.fingerprint() == again.fingerprint() != changed.fingerprint()
    assert first.fingerprints() == again.fingerprints()  # type: ignore[attr-defined]
    assert all(a != b for a, b in zip(first.fingerprints(), changed.fingerprints(), strict=True))  # type: ignore[attr-defined]
    assert tuple(without(first, ["bob"]).names) == NAMES


def broken(data: Pairs) -> Pairs:
    """One client's inputs are no numbers."""
    return {**data, "cid": (data["cid"][0] * float("nan"), data["cid"][1])}


def lacking(data: Pairs) -> Pairs:
    return {**data, "cid": (torch.empty(0, 1, 8, 8), torch.empty(0, dtype=torch.int64))}


@pytest.mark.parametrize("kind", [dict, Readings], ids=["in memory", "source"])
def test_a_client_whose_features_fail_contributes_zero(
    kind: Callable[[Pairs], Any], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    expected = trained(nestegg.with_features(lacking(people()), oriented_gradients))
    assert not torch.equal(expected, trained(nestegg.with_features(people(), oriented_gradients)))
    assert torch.equal(trained(nestegg.with_features(kind(broken(people())), oriented_gradients)), expected)
    told = caplog.text + "".join(capsys.readouterr())
    assert "cid" not in told
    assert "finite" not in told


def test_where_nobody_s_features_can_be_had_the_reason_is_said() -> None:
    data = {name: (x * float("nan"), y) for name, (x, y) in people().items()}
    with pytest.raises(InputError, match=r"^features must be finite numbers; some are not\.$"):
        nestegg.with_features(data, oriented_gradients)
    with pytest.raises(InputError, match=r"no data that could be read: .*features must be finite"):
        trained(nestegg.with_features(Readings(data), oriented_gradients))
    for clients, features, message in (
        (people(), 3, "features = 3 must be a function or a module of inputs"),
        (7, oriented_gradients, "clients of type int must be a mapping of names to data, a source, or a list"),
        ([3], oriented_gradients, "client 1 has data of type int"),
    ):
        with pytest.raises(InputError, match=message):
            nestegg.with_features(clients, features)  # type: ignore[arg-type]


MODULE = """
import torch
from nestegg.data import load_dataset
from torch import nn

digits = load_dataset("digits")


def pairs():
    return {{f"client {{i}}": (digits.train_x[i::6], digits.train_y[i::6]) for i in range(6)}}


def clients():
    return pairs(), (digits.test_x, digits.test_y)


def lazy():
    bad = {{"client 2": (digits.train_x[2::6] * float("nan"), digits.train_y[2::6])}}
    return {{name: (lambda pair=pair: pair) for name, pair in {{**pairs(), **bad}}.items()}}, clients()[1]


def flat(inputs):
    return inputs.flatten(1)


def few(inputs):
    return inputs.flatten(1)[:0]


def none(inputs):
    return inputs.flatten(1) * float("nan")


def ragged(inputs):
    return inputs.flatten(1)[:, : 3 + int(inputs.sum()) % 2]


def wrong(inputs):
    return inputs @ torch.zeros(3, 3)


trainable = nn.Linear(8, 8)
counting = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, affine=False))
three = 3
"""
CONFIG = """
[federation]
{federation}
[model]
name = "softmax"
features = "{features}"
[training]
rounds = 3
local_epochs = 1
reproducible = true
[privacy]
[[privacy.groups]]
name = "all"
share = 1.0
epsilon = 30.0
saving_rate = 0.5
"""
DIGITS = 'dataset = "digits"\nclients = 6'


@pytest.fixture
def write(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Write a configuration, beside a module whose name is another one for every test."""
    module = "featured_" + re.sub(r"\W", "_", request.node.name) + str(abs(hash(tmp_path)))
    (tmp_path / f"{module}.py").write_text(MODULE.format())

    def call(features: str = "oriented-gradients", federation: str = DIGITS) -> Path:
        text = CONFIG.format(federation=federation, features=features).replace("MODULE", module)
        (tmp_path / "config.toml").write_text(text)
        return tmp_path / "config.toml"

    return call


MISTAKES = [
    ("MODULE:few", DIGITS, "features of 1437 inputs are 0 vectors; there must be as many."),
    ("MODULE:none", DIGITS, "features must be finite numbers; some are not."),
    ("MODULE:ragged", DIGITS, "features must be one vector of real numbers for every input, all of one length."),
    ("MODULE:wrong", DIGITS, "features of inputs of shape (1, 8, 8) raised RuntimeError."),
    ("MODULE:none", 'dataset = "MODULE:clients"', "features must be finite numbers; some are not."),
    ("MODULE:none", 'dataset = "MODULE:lazy"', "features must be finite numbers; some are not."),
    ("MODULE:trainable", DIGITS, "model.features has parameters that could be trained: call requires_grad_(False)"),
    (
        "MODULE:counting",
        DIGITS,
        "model.features is in training mode, in which parts keep statistics or draw: call eval() on it.",
    ),
    ("MODULE:three", DIGITS, "must be a class or a function, not int."),
    ("MODULE:nope", DIGITS, "has no 'nope'"),
    (
        "nonsense",
        DIGITS,
        "model.features = 'nonsense' must be one of oriented-gradients, mirrored-gradients, adult-hats, or 'module:",
    ),
    ("oriented-gradients", f"{DIGITS}\nvalidation = 0", "federation.validation = 0 must be a whole number, at least 1"),
    (
        "oriented-gradients",
        f'{DIGITS}\ntested_on = "validation"',
        "federation.tested_on = 'validation' needs federation.validation, a number of samples.",
    ),
    ("oriented-gradients", f'{DIGITS}\ntested_on = "training"', "federation.tested_on = 'training' must be one of"),
    (
        "oriented-gradients",
        'dataset = "MODULE:clients"\nvalidation = 9',
        "federation.validation = 9 is for data that is divided.",
    ),
]


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(("features", "federation", "message"), MISTAKES)
def test_mistakes_are_one_sentence_and_write_nothing(
    command: str, features: str, federation: str, message: str, run: Run, tmp_path: Path, write: Callable[..., Path]
) -> None:
    file = write(features, federation)
    before = {path.name for path in tmp_path.iterdir()}
    refused = run(command, file, "--out", tmp_path / "out")
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == before


def test_only_a_run_knows_how_much_data_there_is(run: Run, tmp_path: Path, write: Callable[..., Path]) -> None:
    refused = run("run", write(federation=f"{DIGITS}\nvalidation = 1437"), "--out", tmp_path / "out")
    assert refused.code == 2
    assert "federation.validation = 1437 must be a whole number, from 1 to 1436." in refused.err


def final(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("clients", ["clients", "lazy"])
def test_clients_of_their_own_in_a_configuration(
    clients: str, run: Run, tmp_path: Path, write: Callable[..., Path]
) -> None:
    """Of the lazy ones, one fails: the run goes on, and neither its files nor its words tell of it."""
    file = write(federation=f'dataset = "MODULE:{clients}"')
    file.write_text(file.read_text().replace("reproducible = true", ""))
    done = run("run", file, "--out", tmp_path / "run")
    assert (done.code, done.err) == (0, "")
    assert "client 2" not in done.out
    for path in (path for path in (tmp_path / "run").iterdir() if path.is_file()):
        assert not re.search(rb"client 2|broken_updates.: [1-9]", path.read_bytes()), path
    assert final(tmp_path / "run")["1.weight"].shape == (10, 144)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["final_accuracy"] > 20.0


def test_features_of_one_s_own_are_those_of_inputs_made_beforehand(tmp_path: Path, write: Callable[..., Path]) -> None:
    start_run(load_config(write("MODULE:flat")), tmp_path / "own")
    file = write("oriented-gradients")
    file.write_text(file.read_text().replace('features = "oriented-gradients"', ""))
    start_run(load_config(file), tmp_path / "plain")
    assert all(
        torch.equal(a, b) for a, b in zip(*(final(tmp_path / n).values() for n in ("own", "plain")), strict=True)
    )


@pytest.mark.parametrize("command", [("influence", "--public", "digits", "--points", "2", "--draws", "2"), ("audit",)])
def test_influence_and_audit_work_with_features(
    command: Sequence[str], run: Run, tmp_path: Path, write: Callable[..., Path]
) -> None:
    more = ["--seconds", "1", "--out", str(tmp_path / "audit")] if command[0] == "audit" else ["--jobs", "1"]
    more += [] if command[0] == "audit" else ["--out", str(tmp_path / "influence.json")]
    done = run(command[0], write(), *command[1:], *more)
    assert done.code == 0, done.err


def test_validation_samples_are_evenly_spread_and_nobody_s(write: Callable[..., Path]) -> None:
    digits = load_dataset("digits")
    rows = torch.arange(1437)
    numbered = Dataset("numbered", 10, rows[:, None].float(), digits.train_y, digits.test_x, digits.test_y)
    for samples in (1, 2, 7, 120, 1000, 1436):
        chosen, kept = (held_back(numbered, samples, as_test=as_test) for as_test in (True, False))
        held = chosen.test_x[:, 0].long()
        assert len(held) == samples
        assert torch.equal(torch.cat([held, chosen.train_x[:, 0].long()]).sort().values, rows)  # no sample twice
        assert torch.equal(chosen.test_y, digits.train_y[held])
        gaps = held.diff()
        assert samples == 1 or gaps.max() - gaps.min() <= 1
        assert torch.equal(kept.train_x, chosen.train_x)
        assert torch.equal(kept.test_y, digits.test_y)
    wrong: tuple[Any, ...] = (0, -1, 1437, 2000, 1.5, True)
    for samples in wrong:
        with pytest.raises(InputError, match=r"federation\.validation = .* must be a whole number, from 1 to 1436"):
            held_back(digits, samples, as_test=True)


@pytest.mark.parametrize("on", ["test", "validation"])
def test_a_configuration_s_validation_samples_are_measured_on_and_trained_by_nobody(
    on: str, write: Callable[..., Path]
) -> None:
    file = write(federation=f'{DIGITS}\nvalidation = 120\ntested_on = "{on}"')
    simulation, _ = new_simulation(load_config(file), "x")
    expected = held_back(load_dataset("digits"), 120, as_test=on == "validation")
    federation = simulation.federation
    assert federation.test is not None
    assert torch.equal(federation.test.inputs, oriented_gradients(expected.test_x))
    assert torch.equal(federation.test.targets, expected.test_y)
    mine = torch.cat([federation.clients.samples(client)[0] for client in range(6)])
    assert len(mine) == 1317
    own = {tuple(row) for row in oriented_gradients(expected.train_x).tolist()}
    assert {tuple(row) for row in mine.tolist()} == own


@pytest.mark.parametrize("spoilt", ["nan", "empty"])
def test_a_bad_first_client_tells_nobody_s_shape(spoilt: str, tmp_path: Path, write: Callable[..., Path]) -> None:
    """Without public test data the shape is that of whoever has features, not of the first client."""
    config = write(federation='dataset = "MODULE:clients"\nclasses = 10')
    first = "x * float('nan'), y" if spoilt == "nan" else "x[:0], y[:0]"
    module = next(tmp_path.glob("featured_*.py"))
    spoiling = f"x, y = pairs()['client 0']\n    return pairs() | {{'client 0': ({first})}}"
    module.write_text(f"{module.read_text()}\n\ndef clients():\n    {spoiling}\n")
    assert new_simulation(load_config(config), "")[0].federation.layout.size == 1450
