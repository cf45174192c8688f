"""What `nestegg init` writes."""

from __future__ import annotations

from pathlib import Path

from nestegg.configuration.config import NEWEST

CONFIG, MODULE = "config.toml", "my_problem.py"
_EXAMPLES = Path(__file__).parents[1] / "examples"

_REST = """
[training]
rounds = 25
local_epochs = {epochs}                # passes of a client over its data in a round it is sampled for
batch_size = 16
learning_rate = 0.1
seed = 0                        # of everything public; noise and cohorts are secret unless reproducible = true
{loss}
[privacy]
method = "optimal"              # when to spend, computed; nestegg compare config.toml sets it beside others
delta = 1e-5                    # must be well below 1 / number of clients
clip_norm = 10.0                # updates are clipped to it; every run that tries another value spends budgets, too
memory = 2.0                    # how fast noise is forgotten; `nestegg influence` measures it on public data

# Every client has its own budget. Groups are clients with the same one; nobody's budget is guessed for them.
# budgets_file = "budgets.csv"  # instead of groups: a line client,epsilon for everybody
[[privacy.groups]]
name = "strict"
share = 0.5
epsilon = 10.0

[[privacy.groups]]
name = "open"
share = 0.5
epsilon = 30.0

# Budgets that last over many runs are kept in a ledger; without it, every run keeps its own.
# [ledger]
# url = "sqlite:///ledger.db"
"""

_HEAD = f"""format = {NEWEST}

[federation]
"""

OWN = '''"""A problem of one's own: who the clients are, what data they have, and what is trained on it."""

import torch
from torch import nn


def clients():
    """Return clients' data by name, and public test data.

    Here both are made up. Data is a pair of tensors or arrays (inputs, targets), or a function that returns one when
    its client is sampled. Without public test data, return the first alone and give federation.classes.
    """
    return {f"client {number}": samples(seed=number) for number in range(40)}, samples(seed=1000)


def samples(seed, count=30):
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return x, (x.sum(1) > 0).long()


def model(shape, outputs):
    """Return a model for inputs of a shape; its weights follow from training.seed. Two classes have one output."""
    return nn.Sequential(nn.Linear(shape.numel(), 16), nn.Tanh(), nn.Linear(16, outputs))
'''


def for_dataset(name: str, clients: int) -> str:
    """Return a configuration for one of our datasets."""
    note = "embedded" if name == "digits" else f"get it by: nestegg data get {name}"
    return (
        _HEAD
        + f'dataset = "{name}"{" " * max(1, 20 - len(name))}# {note}; its samples are divided among clients\n'
        + f'clients = {clients}\npartition = "dirichlet"         # dirichlet | iid | shards\n'
        + "dirichlet = 0.3                 # small is uneven\n"
        + _rest(epochs=5)
    )


def recipes() -> list[str]:
    """Return the names of all recipes: complete configurations whose values were chosen on validation data."""
    return sorted(path.stem for path in (_EXAMPLES / "recipes").glob("*.toml"))


def recipe(name: str) -> str:
    """Return a recipe, which needs no other file but its dataset's."""
    return (_EXAMPLES / "recipes" / f"{name}.toml").read_text(encoding="utf-8")


def examples() -> dict[str, str]:
    """Return all examples, recipes among them, by their paths as a clone has them."""
    files = (path for path in sorted(_EXAMPLES.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(_EXAMPLES.parent)): path.read_text(encoding="utf-8") for path in files}


def for_own() -> str:
    """Return a configuration for data and a model of one's own, which are in `MODULE`."""
    module = MODULE.removesuffix(".py")
    return (
        _HEAD
        + f'dataset = "{module}:clients"  # a function in {MODULE}, beside this file\n\n[model]\n'
        + f'name = "{module}:model"\n'
        + _rest(epochs=1)
    )


def for_file(data: str, columns: tuple[str, str], test: str | None, classes: int | None) -> str:
    """Return a configuration for a Parquet file.

    Args:
        data: its path, in quotes.
        columns: of clients' names and of targets, in quotes.
        test: path of public test data, in quotes.
        classes: how many labels there are; 1 where a number is predicted, None where test data tells.
    """
    is_number = classes == 1
    meaning = "a number is predicted" if is_number else "labels are 0, 1, …; clients with others count as zero"
    public = f"test = {test}\n" if test is not None else f"{f'classes = {classes}':32}# {meaning}\n{_NO_TEST}"
    named = f"dataset = {data}\nclient_column = {columns[0]}\ntarget_column = {columns[1]}\n"
    loss = 'loss = "torch.nn.functional:mse_loss"\n' if is_number else ""
    return (
        _HEAD
        + named
        + public
        + '\n[model]\nname = "softmax"                # few parameters: each gets noise; or mlp, "module:function"\n'
        + _rest(1, loss)
    )


_NO_TEST = '# test = "test.parquet"         # public test data with the same columns: without it, nothing is measured\n'


def _rest(epochs: int, loss: str = "") -> str:
    return _REST.format(epochs=epochs, loss=loss)
