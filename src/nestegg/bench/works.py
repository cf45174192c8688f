"""The work to be fast at: seven federations, written out so that any simulator can do the very same rounds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from nestegg.bench.peers.work import Work
from nestegg.checks import one_of
from nestegg.data import load_dataset, partition
from nestegg.data.features import oriented_gradients
from nestegg.errors import InputError
from nestegg.mechanism import Layout
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.models import make_model, networks
from nestegg.planning import Budget, Group, Plan, load_plan, plan, save_plan
from nestegg.training import Federation, LocalTraining, Mechanics, Performance
from nestegg.training.local import Samples

SEED = 0
CLIP_NORM = 1.0


@dataclass(frozen=True)
class Recipe:
    """A federation to measure.

    Attributes:
        what: it is, in a line.
        model: of its clients.
        training: what they do.
        rate: at which every client is sampled.
        clients: makes their data; the folder is where files of datasets lie.
        tolerance: by how much results may differ, as a share of the round's update. Convolutions sum thousands of
            products in an order of their own, and pools and rectifiers make more of a difference than it was.
    """

    what: str
    model: str
    training: LocalTraining
    rate: float
    clients: Callable[[str | None], list[Samples]]
    tolerance: float = 1e-3


def random_clients(count: int, low: int, high: int, shape: tuple[int, ...], classes: int) -> list[Samples]:
    """Clients with random inputs and labels: how fast they train does not depend on what they learn."""
    rng = np.random.default_rng(SEED)
    sizes = rng.integers(low, high + 1, count)
    inputs = torch.from_numpy(rng.standard_normal((int(sizes.sum()), *shape), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, classes, int(sizes.sum())))
    return list(zip(inputs.split(sizes.tolist()), labels.split(sizes.tolist()), strict=True))


def _uneven(data: str | None) -> list[Samples]:
    adult = load_dataset("adult", data)
    stream = Randomness(SEED, reproducible=True).stream(Purpose.PARTITION)
    parts = partition(adult.train_y.numpy(), 80, "dirichlet", 0.1, stream)
    return [(adult.train_x[part], adult.train_y[part]) for part in parts]


def _gradients(_: str | None) -> list[Samples]:
    """Clients with features of random images, as the recipes for images have them."""
    return [(oriented_gradients(x), y) for x, y in random_clients(100, 300, 900, (1, 28, 28), 10)]


def _sgd(epochs: int, batch_size: int) -> LocalTraining:
    return LocalTraining(epochs, batch_size, learning_rate=0.05, momentum=0.9, schedule="constant")


RECIPES = {
    "mlp": Recipe(
        "105-32-1 as for Adult, 80 clients of about 400 samples, batches of 32, 5 epochs",
        "mlp",
        _sgd(5, 32),
        1.0,
        lambda _: random_clients(80, 360, 440, (105,), 2),
    ),
    "cnn": Recipe(
        "McMahan's network of 1.66 M parameters, 20 clients of 600 images of 28 × 28, batches of 125, 1 epoch",
        "cnn",
        _sgd(1, 125),
        1.0,
        lambda _: random_clients(20, 600, 600, (1, 28, 28), 10),
        tolerance=1e-2,
    ),
    "uneven": Recipe(
        "Adult's real data, divided among 80 clients by Dirichlet 0.1, 108-32-1, batches of 32, 5 epochs",
        "mlp",
        _sgd(5, 32),
        1.0,
        _uneven,
    ),
    "many": Recipe(
        "10,000 clients of 10 to 30 samples, 1,000 sampled, 64-32-10 as for digits, batches of 10, 5 epochs",
        "mlp",
        _sgd(5, 10),
        0.1,
        lambda _: random_clients(10_000, 10, 30, (1, 8, 8), 10),
    ),
    "resnet20": Recipe(
        "ResNet-20 with GroupNorm, 10 clients of 500 images of 32 × 32, batches of 50, 1 epoch",
        "resnet20",
        _sgd(1, 50),
        1.0,
        lambda _: random_clients(10, 500, 500, (3, 32, 32), 10),
        tolerance=1e-2,
    ),
    "softmax": Recipe(
        "softmax regression on 441 features of images, 100 clients of 300 to 900, batches of 50, 2 epochs (recipes)",
        "softmax",
        _sgd(2, 50),
        1.0,
        _gradients,
    ),
    "tanh-cnn": Recipe(
        "Papernot's network of 26,010 parameters, 20 clients of 600 images of 28 × 28, batches of 50, 1 epoch",
        "tanh-cnn",
        _sgd(1, 50),
        1.0,
        lambda _: random_clients(20, 600, 600, (1, 28, 28), 10),
        tolerance=1e-2,
    ),
}


def recipe(name: str) -> Recipe:
    """The recipe of that name."""
    one_of("work", name, RECIPES)
    return RECIPES[name]


def missing_data(works: Sequence[str], data: str | None) -> dict[str, str]:
    """Return which pieces of work lack their data, and why: looked for before anything takes long."""
    missing = {}
    for name, made in [(name, recipe(name)) for name in works]:
        try:
            made.clients(data)
        except InputError as error:
            missing[name] = str(error)
    return missing


def write_work(made: Recipe, folder: Path, rounds: int, data: str | None = None) -> None:
    """Write a federation's data, start, cohorts and batches; `peers/work.py` reads them, and says what a round is."""
    clients = made.clients(data)
    classes = 1 + max(int(y.max()) for _, y in clients)
    model = make_model(made.model, clients[0][0].shape[1:], classes, SEED)
    group = Group("all", len(clients), Budget(8.0))
    spending = plan([group], rounds, method="idp-fedavg", spending_rate=made.rate, clip_norm=CLIP_NORM)
    world = _federation(spending, model, clients, made.training, Performance(workers=1))
    folder.mkdir(parents=True, exist_ok=True)
    sizes = np.array([len(y) for _, y in clients])
    np.save(folder / "x.npy", torch.cat([x for x, _ in clients]).numpy())
    np.save(folder / "y.npy", torch.cat([y for _, y in clients]).numpy())
    np.save(folder / "starts.npy", np.concatenate([[0], np.cumsum(sizes)]))
    np.save(folder / "start.npy", Layout.of(model).flatten(model).numpy())
    epochs = made.training.epochs
    for t in range(1, rounds + 1):
        cohort = world.cohort(t)
        orders = world.randomness.orders(t, cohort, sizes[cohort].tolist(), epochs)
        flat = [orders[i, epoch, : sizes[client]] for i, client in enumerate(cohort) for epoch in range(epochs)]
        np.savez(folder / f"round-{t}.npz", cohort=np.array(cohort), order=np.concatenate(flat))
    save_plan(spending, folder / "plan.json")
    shutil.copy(networks.__file__, folder / "networks.py")
    facts = {
        "model": made.model,
        "classes": classes,
        "outputs": 1 if classes == 2 else classes,
        "epochs": epochs,
        "batch_size": made.training.batch_size,
        "learning_rate": made.training.learning_rate,
        "momentum": made.training.momentum,
        "clip_norm": CLIP_NORM,
        "noise_std": CLIP_NORM * spending.round_noise_multiplier[0],
        "expected": spending.mean_sampling_rate[0] * len(clients),
        "rounds": rounds,
    }
    (folder / "work.json").write_text(json.dumps(facts, indent=1))


def load_federation(
    folder: Path, workers: int | None = None, precision: str = "fp32", engine: str = "auto"
) -> Federation:
    """The federation of a folder, to do its rounds here.

    Its network is the package's own, whose parts the kernel knows, and not the copy that other simulators take.
    """
    work = Work.load(folder)
    model = make_model(work.facts["model"], torch.Size(work.x.shape[1:]), work.facts["classes"], SEED)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(work.start), model.parameters())
    names = ("epochs", "batch_size", "learning_rate", "momentum")
    training = LocalTraining(**{name: work.facts[name] for name in names}, schedule="constant")
    sizes = np.diff(work.starts).tolist()
    clients = zip(torch.from_numpy(work.x).split(sizes), torch.from_numpy(work.y).split(sizes), strict=True)
    performance = Performance(engine, workers, precision=precision)
    return _federation(load_plan(folder / "plan.json"), model, list(clients), training, performance)


def _federation(
    spending: Plan,
    model: nn.Module,
    clients: list[Samples],
    training: LocalTraining,
    performance: Performance,
) -> Federation:
    mechanics = Mechanics("flat", "update", randomness=Randomness(SEED, reproducible=True))
    return Federation(spending, model, clients, local=training, mechanics=mechanics, performance=performance)
