"""One's own data, models and losses in a configuration: `plan`, `run` and `compare` work on them, mistakes are told."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from textwrap import dedent

import pytest
from safetensors.torch import load_file

from nestegg.configuration.config import load_config
from nestegg.configuration.identity import config_digest
from nestegg.ledger import Ledger
from nestegg.runs import resume_run, start_run
from nestegg.training import RoundReport
from tests.callbacks import EachRound
from tests.conftest import Run

CONFIG = """
[federation]
dataset = "{module}:clients"
[model]
name = "{module}:model"
[training]
rounds = 3
local_epochs = 1
reproducible = true
[privacy]
[[privacy.groups]]
name = "strict"
share = 0.5
epsilon = 10.0
[[privacy.groups]]
name = "open"
share = 0.5
epsilon = 30.0
"""
MODULE = """
import torch
from torch import nn
from nestegg.data import Dataset

NAMES = ("ada", "bob", "cid", "dan", "eve", "fay")


def samples(seed, count=12):
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))
    return x, (x.sum(1) > 0).long()


def clients():
    return {name: samples(seed) for seed, name in enumerate(NAMES)}, samples(99, 40)


def listed():
    return [samples(seed) for seed in range(6)], samples(99, 40)


def lazy():
    return {name: (lambda seed=seed: samples(seed)) for seed, name in enumerate(NAMES)}


def whole():
    return Dataset("mine", 2, *samples(1, 80), *samples(2, 40))


def numbers():
    def of(seed, count=12):
        x, _ = samples(seed, count)
        return x, x.sum(1)
    return {name: of(seed) for seed, name in enumerate(NAMES)}, of(99, 40)


def spread():
    x, _ = samples(1, 80)
    z, _ = samples(2, 40)
    return Dataset("mine", 1, x, x.sum(1), z, z.sum(1))


def model(shape, outputs):
    return nn.Sequential(nn.Linear(shape.numel(), 4), nn.Sigmoid(), nn.Linear(4, outputs))


def tall(shape, outputs):
    return nn.Linear(shape.numel() + 1, outputs)


def frozen(shape, outputs):
    return nn.Linear(shape.numel(), outputs).requires_grad_(False)


def broken(*anything):
    raise LookupError("no such table")


def nothing(*anything):
    return {"a": 1}


def nobody():
    return {}


def text(*anything):
    return "people"


three = 3
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The name of a module beside the configuration, another one for every test."""
    name = "own_" + re.sub(r"\W", "_", request.node.name) + str(abs(hash(tmp_path)))
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def config(folder: Path, module: str, *changes: tuple[str, str]) -> Path:
    text = CONFIG.format(module=module)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new.replace("MODULE", module))
    path = folder / "config.toml"
    path.write_text(text)
    return path


def test_plan_run_and_resume_work_on_own_data_and_models(run: Run, tmp_path: Path, module: str) -> None:
    file = config(tmp_path, module)
    planned = run("plan", file, "--json")
    assert planned.code == 0
    assert json.loads(planned.out)["clients"] == 6  # as the data says
    done = run("run", file, "--out", tmp_path / "run", "--json")
    assert (done.code, done.err) == (0, "")
    summary = json.loads(done.out)
    assert (summary["dataset"], summary["model"]) == (f"{module}:clients", f"{module}:model")
    assert set(load_file(tmp_path / "run" / "model.safetensors")) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    with Ledger(tmp_path / "run" / "private" / "ledger.db", read_only=True) as ledger:
        budgets = {name: account.budget.epsilon for name, account in ledger.clients()}
    assert set(budgets) == {"ada", "bob", "cid", "dan", "eve", "fay"}
    assert sorted(budgets.values()) == [10.0] * 3 + [30.0] * 3
    assert b"ada" not in (tmp_path / "run" / "config.toml").read_bytes()

    def stop(report: RoundReport) -> None:
        if report.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(Exception, match="It was interrupted"):
        start_run(load_config(file), tmp_path / "stopped", callbacks=[EachRound(stop)])
    file.unlink()
    resume_run(tmp_path / "stopped")  # it knows where the modules are
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "stopped")]
    assert models[0] == models[1]


def test_groups_are_filled_by_a_permutation_that_follows_from_the_seed(tmp_path: Path, module: str) -> None:
    members = []
    for seed in (0, 0, 1, 2):
        file = config(tmp_path, module, ("rounds = 3", f"rounds = 1\nseed = {seed}"))
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        start_run(load_config(file), tmp_path / "run")
        with Ledger(tmp_path / "run" / "private" / "ledger.db", read_only=True) as ledger:
            members.append({name for name, account in ledger.clients() if account.budget.epsilon == 10.0})
    assert members[0] == members[1]
    assert len({frozenset(one) for one in members}) > 1


@pytest.mark.parametrize("source", ["listed", "lazy", "whole"])
def test_functions_may_return_other_things(source: str, run: Run, tmp_path: Path, module: str) -> None:
    more = {"lazy": "\nclasses = 2", "whole": "\nclients = 6", "listed": ""}[source]
    file = config(tmp_path, module, ('MODULE:clients"'.replace("MODULE", module), f'MODULE:{source}"{more}'))
    done = run("run", file, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    words = "Trained after 3 rounds" if source == "lazy" else "test accuracy after 3 rounds"
    assert words in done.out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["final_accuracy"] is None) == (source == "lazy")


@pytest.mark.parametrize("source", ["numbers", "spread"])
def test_numbers_are_predicted_with_a_loss_by_name(source: str, run: Run, tmp_path: Path, module: str) -> None:
    more = '"\nclients = 6\npartition = "iid"' if source == "spread" else '"'
    changes = (
        (f'{module}:clients"', f"MODULE:{source}{more}"),
        ("local_epochs = 1", 'local_epochs = 20\nloss = "torch.nn.functional:mse_loss"'),
        ("rounds = 3", "rounds = 12"),
        ("[privacy]", '[privacy]\nmethod = "fedavg"'),
        (f'"{module}:model"', '"linear"'),
    )
    file = config(tmp_path, module, *changes)
    done = run("run", file, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert re.search(r"\d test loss after 12 rounds", done.out)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert lines[0]["accuracy"] is None
    # The sum of the inputs is learnt: with outputs (n, 1) against targets (n,) it would be their mean, loss about 3.
    assert lines[-1]["loss"] < 0.1
    assert "test loss" in (tmp_path / "run" / "report.html").read_text()


def with_budgets(tmp_path: Path, module: str, names: str) -> Path:
    lines = [f"{name},{5 + place}" for place, name in enumerate(names.split())]
    (tmp_path / "budgets.csv").write_text("\n".join(["client,epsilon", *lines, ""]))
    file = config(tmp_path, module, ("[privacy]", '[privacy]\nbudgets_file = "budgets.csv"\nbudget_levels = 6'))
    file.write_text(file.read_text().split("[[privacy.groups]]")[0])
    return file


def test_budgets_join_by_name(run: Run, tmp_path: Path, module: str) -> None:
    file = with_budgets(tmp_path, module, "fay bob ada eve dan cid")
    assert run("run", file, "--out", tmp_path / "run").code == 0
    with Ledger(tmp_path / "run" / "private" / "ledger.db", read_only=True) as ledger:
        found = {name: account.budget.epsilon for name, account in ledger.clients()}
    assert found == {"fay": 5.0, "bob": 6.0, "ada": 7.0, "eve": 8.0, "dan": 9.0, "cid": 10.0}


@pytest.mark.parametrize("command", ["plan", "run", "compare"])
def test_who_is_missing_on_either_side_is_said(command: str, run: Run, tmp_path: Path, module: str) -> None:
    file = with_budgets(tmp_path, module, "fay bob zoe ada eve")
    before = {path.name for path in tmp_path.iterdir()}
    refused = run(command, file, "--out", tmp_path / "out")
    assert refused.code == 2
    said = " ".join(refused.err.split())
    assert "budgets and data must name the same clients: 'zoe' has no data; 'cid', 'dan' have no budget." in said
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == before


MISTAKES = [
    (("MODULE:clients", "MODULE:broken"), "federation.dataset = 'MODULE:broken' raised LookupError: no such table."),
    (("MODULE:clients", "MODULE:text"), "federation.dataset = 'MODULE:text' returned a str; it must return"),
    (("MODULE:clients", "MODULE:nobody"), "federation.dataset = 'MODULE:nobody' returned no clients."),
    (("MODULE:clients", "MODULE:nothing"), "clients['a'] must be a pair of tensors or arrays"),
    (("MODULE:clients", "MODULE:nope"), "has no 'nope'"),
    (("MODULE:clients", "no_such_module_at_all:f"), "cannot be imported: ModuleNotFoundError"),
    (("MODULE:clients", "MODULE:three"), "must be a class or a function, not int"),
    (("MODULE:clients", "MODULE:lazy"), "federation.classes is missing: without public test data"),
    (('clients"', 'clients"\nclients = 7'), "federation.clients = 7 must be the number of clients in the data, 6."),
    (('clients"', 'clients"\nclasses = 0'), "federation.classes = 0 must be a whole number"),
    (('clients"', 'clients"\nclient_column = "who"'), "federation.client_column = 'who' belongs to a Parquet file"),
    (("MODULE:clients", "MODULE:numbers"), "targets of a type with decimals"),
    (("MODULE:clients", "MODULE:whole"), "federation.clients is missing"),
    (('MODULE:clients"', 'MODULE:whole"\nclasses = 5'), "federation.classes = 5 must be that of the dataset, 2."),
    (('clients"', 'clients"\nsamples_per_client = 2'), "samples_per_client is for data that is divided"),
    (
        ('clients"', 'clients"\npartition = "iid"'),
        "federation.partition is for data that is divided among clients; here",
    ),
    (('clients"', 'clients"\ndirichlet = 0.1'), "federation.dirichlet is for data that is divided among clients; here"),
    (("MODULE:model", "MODULE:broken"), "model.name = 'MODULE:broken' raised LookupError: no such table."),
    (("MODULE:model", "MODULE:nothing"), "model.name = 'MODULE:nothing' returned a dict; it must return a torch mod"),
    (('[model]\nname = "MODULE:model"', '[model]\nname = "MODULE:tall"'), "model cannot take inputs of shape (3,)"),
    (("MODULE:model", "MODULE:frozen"), "model has no trainable parameters."),
    (("rounds = 3", 'rounds = 3\nloss = "MODULE:nope"'), "training.loss = 'MODULE:nope'"),
    (("rounds = 3", 'rounds = 3\nloss = "mse"'), "training.loss = 'mse' must be balanced, or have the form"),
    (("MODULE:clients", "people.parquet"), "federation.client_column is missing"),
]


@pytest.mark.parametrize(
    ("command", "change", "message"),
    [
        *((command, *one) for command in ("plan", "run") for one in MISTAKES),
        *(("compare", *one) for one in MISTAKES[:1] + MISTAKES[-5:-4]),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(
    command: str, change: tuple[str, str], message: str, run: Run, tmp_path: Path, module: str
) -> None:
    file = config(tmp_path, module, (change[0].replace("MODULE", module), change[1]))
    before = {path.name for path in tmp_path.iterdir()}
    refused = run(command, file, "--out", tmp_path / "out")
    assert (refused.code, refused.out) == (2, "")
    assert message.replace("MODULE", module) in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == before


def test_a_run_does_not_go_on_with_a_function_that_returns_other_data(tmp_path: Path, module: str) -> None:
    def stop(report: RoundReport) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Exception, match="It was interrupted"):
        start_run(load_config(config(tmp_path, module)), tmp_path / "run", callbacks=[EachRound(stop)])
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    import sys

    original = sys.modules[module].samples
    sys.modules[module].samples = lambda seed, count=12: (original(seed, count)[0] + 1, original(seed, count)[1])  # type: ignore
    with pytest.raises(Exception, match="the data or the initial model is not what the run in"):
        resume_run(tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_where_modules_lie_is_no_part_of_the_identity(tmp_path: Path, module: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    here = load_config(config(tmp_path, module))
    assert here.code == str(tmp_path)
    file = config(tmp_path, module)
    file.write_text(f'code = "elsewhere"\n{file.read_text()}')
    there = load_config(file)
    assert there.code == str(tmp_path / "elsewhere")
    assert config_digest(here) == config_digest(there)
    assert config_digest(
        load_config(config(tmp_path, module, (f"{module}:clients", "MODULE:listed")))
    ) != config_digest(here)
    plain = dedent(CONFIG).replace('"{module}:clients"', '"digits"').replace('"{module}:model"', '"mlp"')
    (tmp_path / "plain.toml").write_text(plain)
    assert load_config(tmp_path / "plain.toml").code is None


def test_numbers_are_compared_by_their_loss(run: Run, tmp_path: Path, module: str) -> None:
    loss = ("rounds = 3", 'rounds = 3\nloss = "torch.nn.functional:mse_loss"')
    file = config(tmp_path, module, (f"{module}:clients", "MODULE:numbers"), loss)
    done = run("compare", file, "--methods", "fedavg,exact", "--seeds", 1, "--out", tmp_path / "c", "--jobs", 1)
    assert done.code == 0, done.err
    assert "Final test loss on" in done.out
    assert (tmp_path / "c" / "comparison.csv").read_text().startswith("method,seed,round,loss,note\n")
    assert "lowest loss with privacy" in (tmp_path / "c" / "comparison.html").read_text()
    refused = run("compare", config(tmp_path, module, (f'{module}:clients"', 'MODULE:lazy"\nclasses = 2')))
    assert refused.code == 2
    assert "a comparison needs public test data" in refused.err
