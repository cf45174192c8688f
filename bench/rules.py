"""Do the rules of thumb of docs/recipes.md hold? Checked on the cells of results/, and, with data, by some training.

    python -m bench.rules [--data DIR]

DIR holds the paper's four datasets. With it, lengths of clients' updates are measured, and some recipes are trained in
more rounds and fewer; that takes some minutes.

How much noise models of several sizes got, and how accurate they were (“When to spend”, twenty seeds); what it cost on
validation data to choose a clip norm too small, too large, or on another dataset; and what the learning rate matters
where the clip norm goes with it (“Choosing learning rates”).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from nestegg.configuration.config import changed
from nestegg.configuration.participants import make_plan, pace_of_config
from nestegg.data import load_dataset, oriented_gradients, partition
from nestegg.experiments.cells import Store, measure
from nestegg.experiments.definition import Experiment, load
from nestegg.experiments.scales import configured
from nestegg.experiments.settings import Hyperparameters
from nestegg.models import make_model
from nestegg.planning.reaching import assumed_memory, noise_to_signal

STORE = Store(Path(__file__).parents[1] / "results")
SIZES = {
    "adult-softmax": 109,
    "adult-mlp": 3_521,
    "mnist-features": 4_420,
    "fmnist-features": 4_420,
    "cifar10-features": 5_610,
    "mnist-mlp": 25_450,
    "fmnist-mlp": 25_450,
}
METHODS = {"optimal-full": "optimal, q = 1", "idp-fedavg": "idp-fedavg", "exact": "exact", "paper": "paper"}
ROUNDS, LENGTHENED = (12, 25, 50, 100), ("adult-softmax", "mnist-features", "fmnist-features")
PROXIES = {
    "mnist-features": "fmnist-features",
    "fmnist-features": "mnist-features",
    "cifar10-features": "fmnist-features",
}


def setting(experiment: Experiment, row: str, column: str) -> Hyperparameters:
    """Return the setting of a cell, by the names of its row and column."""
    found = next(one for one in experiment.rows if one.name == row)
    return experiment.cell(found, next(one for one in experiment.columns if one.name == column))


def accuracy(hyperparameters: Hyperparameters, seeds: list[int]) -> float:
    """Return the mean final accuracy of finished cells."""
    cells = [STORE.get(configured(hyperparameters, "full", seed)) for seed in seeds]
    return float(np.mean([cell.final for cell in cells if cell is not None]))


def noise(row: str) -> list[tuple[float, float]]:
    """Return the ratio of noise to signal and the accuracy of every method, with the memory that was measured."""
    experiment, found = load("when-to-spend"), []
    known = configured(setting(experiment, row, "optimal-full"), "full", 0)
    kept, _ = assumed_memory(make_plan(known), pace_of_config(known))
    for name in METHODS:
        wanted = setting(experiment, row, name)
        config = configured(wanted, "full", 0)
        size = SIZES[row.removesuffix("-strict")]
        ratio = noise_to_signal(make_plan(config), size, pace_of_config(config), kept)
        found.append((ratio, accuracy(wanted, experiment.seeds)))
    return found


def noise_table() -> Iterator[str]:
    """A line a model and budgets: its noise, and what became of it."""
    yield f"| model | parameters | {' | '.join(METHODS.values())} |"
    yield "|" + "---|" * (2 + len(METHODS))
    falls = pairs = 0
    for row in load("when-to-spend").rows:
        found = noise(row.name)
        cells = " | ".join(f"{ratio:.2f}: {right:.1f}" for ratio, right in found)
        yield f"| {row.label} | {SIZES[row.name.removesuffix('-strict')]:,} | {cells} |"
        ordered = sorted(found)
        falls += sum(later[1] < earlier[1] for earlier, later in pairwise(ordered))
        pairs += len(ordered) - 1
    yield ""
    yield f"Where the ratio rises from one method to the next, accuracy falls in {falls} of {pairs} cases."


def tuned(row: str) -> dict[float, float]:
    """Return the accuracy on validation data by clip norm, of the optimal schedule with everybody in every round."""
    experiment = load("when-to-spend-tuning")
    wanted = [setting(experiment, f"{row}-optimal-full", column.name) for column in experiment.columns]
    return {one.clip_norm: accuracy(one, experiment.seeds) for one in wanted}


def best_of(found: dict[float, float]) -> float:
    """Return the clip norm with the highest accuracy."""
    return max(found, key=lambda norm: found[norm])


def clip_table() -> Iterator[str]:
    """A line a factor: what it costs to miss the best clip norm by it."""
    lost: dict[float, list[float]] = {}
    for row in load("when-to-spend").rows:
        found = tuned(row.name)
        best = best_of(found)
        for norm, right in found.items():
            lost.setdefault(norm / best, []).append(found[best] - right)
    yield "| clip norm, beside the best | mean loss in points | largest | tasks |"
    yield "|---|---|---|---|"
    for factor, points in sorted(lost.items()):
        if 0.2 < factor < 5.0 and factor != 1.0:
            yield f"| × {factor:g} | {np.mean(points):.1f} | {max(points):.1f} | {len(points)} |"


def proxy_table() -> Iterator[str]:
    """A line a task: what it costs to choose the clip norm on another dataset."""
    yield "| task | best of its own | chosen on | loss in points |"
    yield "|---|---|---|---|"
    for row, proxy in PROXIES.items():
        for end in ("", "-strict"):
            found, others = tuned(row + end), tuned(proxy + end)
            own, taken = best_of(found), best_of(others)
            loss = f"{found[own] - found[taken]:.1f}" if taken in found else "not tried"
            yield f"| {row}{end} | c = {own:g} | {proxy}{end}: c = {taken:g} | {loss} |"


def rate_table() -> Iterator[str]:
    """A line a task: the best accuracy at each learning rate, the clip norm going with it."""
    experiment = load("tuning-rates")
    yield "| task | learning rates, each with its best clip norm: accuracy on validation data |"
    yield "|---|---|"
    for task in SIZES:
        shown = []
        for row in experiment.rows:
            if row.name.rsplit("-", 1)[0] == task:
                tried = [setting(experiment, row.name, column.name) for column in experiment.columns]
                right, best = max(((accuracy(one, experiment.seeds), one) for one in tried), key=lambda pair: pair[0])
                shown.append(f"λ = {best.learning_rate:g}, c = {best.clip_norm:g}: {right:.1f}")
        yield f"| {task} | {'; '.join(shown)} |"


def update(model: nn.Module, x: Tensor, y: Tensor, rate: float, batch: int) -> Tensor:
    """Return what one pass over a client's data does to a model, divided by the learning rate."""
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for rows in torch.randperm(len(y)).split(batch):
        out, labels = model(x[rows]), y[rows]
        one = nn.functional.binary_cross_entropy_with_logits
        loss = nn.functional.cross_entropy(out, labels) if out.shape[1] > 1 else one(out[:, 0], labels.float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    after = nn.utils.parameters_to_vector(model.parameters()).detach()
    nn.utils.vector_to_parameters(before, model.parameters())
    return (after - before) / rate


def norms_table(folder: str) -> Iterator[str]:
    """A line a task: how long updates of the first round are, for a quarter of the clients, beside the best norms."""
    experiment = load("when-to-spend")
    yield "| task | lower quarter | median | upper quarter | best c | best c, strict |"
    yield "|---|---|---|---|---|---|"
    for task in SIZES:
        torch.manual_seed(100)  # of the order of samples
        wanted = setting(experiment, task, "optimal-full")
        data = load_dataset(wanted.dataset, folder)
        parts = partition(data.train_y.numpy(), wanted.clients, "dirichlet", 0.1, np.random.default_rng(100))[::4]
        lengths = []
        for part in parts:
            x, y = data.train_x[part], data.train_y[part]
            x = oriented_gradients(x) if wanted.features else x
            model = make_model(wanted.model or "", x.shape[1:], data.classes, 100)
            lengths.append(float(update(model, x, y, wanted.learning_rate, wanted.batch_size).norm()))
        quarters = " | ".join(f"{one:.1f}" for one in np.quantile(lengths, (0.25, 0.5, 0.75)))
        best = " | ".join(f"{best_of(tuned(one)):g}" for one in (task, f"{task}-strict"))
        yield f"| {task} | {quarters} | {best} |"


def rounds_table(folder: str) -> Iterator[str]:
    """A line a task: accuracy on validation data by rounds, the clip norm falling as they rise, and without privacy."""
    experiment = load("when-to-spend")
    yield f"| task | {' | '.join(f'T = {rounds}' for rounds in ROUNDS)} | T = 25, without privacy |"
    yield "|" + "---|" * (2 + len(ROUNDS))
    for task in LENGTHENED:
        known = setting(experiment, task, "optimal-full").but(tested_on="validation")
        norms = [round(known.clip_norm * (25.0 / rounds) ** 0.5, 2) for rounds in ROUNDS]
        tried = [known.but(rounds=rounds, clip_norm=norm) for rounds, norm in zip(ROUNDS, norms, strict=True)]
        configs = [configured(one, "full", 100) for one in (*tried, known.but(method="fedavg"))]
        found = [measure(changed(config, "federation", data=folder)).final for config in configs]
        shown = [f"{right:.1f} (c = {norm:g})" for right, norm in zip(found, norms, strict=False)]
        yield f"| {task} | {' | '.join(shown)} | {found[-1]:.1f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the datasets")
    data = parser.parse_args().data
    for table in (noise_table, clip_table, proxy_table, rate_table):
        print(*table(), sep="\n", end="\n\n")
    if data is not None:
        for trained in (norms_table, rounds_table):
            print(*trained(data), sep="\n", end="\n\n")
