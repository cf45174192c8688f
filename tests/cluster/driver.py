"""Processes that lead a training on a cluster: `python -m tests.cluster.driver WHAT ADDRESS FOLDER`.

A folder may hold a file `gate`: then the client `gated` waits, when it is loaded, until the file is gone.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from bench.soak import STEPS
from torch import Tensor, nn

import nestegg
from nestegg import Budget, Federation, Group, LocalTraining, Mechanics, Performance, Randomness
from nestegg.data import from_parquet
from nestegg.runs.cluster_tasks import as_done_there
from nestegg.training import SideStatistics
from nestegg.training.cluster import cluster_at

NAMES = ("gated", *(f"client {number}" for number in range(1, 12)))
ROUNDS = 4
OWN = nn.Sequential(nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 3))
DENSE = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


class Gated:
    """A source of clients who may have to wait, and who note on which node they were loaded."""

    names, sizes = NAMES, None

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __setstate__(self, state: dict[str, Any]) -> None:
        if os.environ.get("DATA_IS_MISSING"):
            raise FileNotFoundError("people.parquet is not here")
        self.__dict__.update(state)

    def load(self, name: str) -> tuple[Tensor, Tensor]:
        import ray

        if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:  # not who leads
            (self.folder / f"node-{ray.get_runtime_context().get_node_id()}").touch()
            (self.folder / f"worker-{os.getpid()}").touch()
            if name == "gated" and (self.folder / "gate").exists():
                (self.folder / f"waiting-{os.getpid()}").touch()
                while (self.folder / "gate").exists():
                    time.sleep(0.02)
        return samples(name)

    def fingerprint(self) -> bytes:
        return b"made of names"


def samples(name: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(len(name) * 31 + sum(name.encode()))
    x = torch.randn(20 + len(name), 6, generator=generator)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def made(clients: Any, model: nn.Module = OWN, *, private: bool = True, **changes: Any) -> Federation:
    groups = [Group("strict", NAMES[:5], Budget(8.0)), Group("open", NAMES[5:], Budget(20.0))]
    settings: dict[str, Any] = {} if private else {"method": "fedavg"}
    torch.manual_seed(3)
    for part in model.modules():
        if isinstance(part, nn.Linear):
            part.reset_parameters()
    side = changes.pop("side", SideStatistics())
    return Federation(
        nestegg.plan(groups, rounds=ROUNDS, clip_norm=2.0, **settings),
        model,
        clients,
        local=LocalTraining(epochs=2, batch_size=8, learning_rate=0.2),
        mechanics=Mechanics(randomness=Randomness(5, reproducible=True), side=side),
        performance=Performance(**changes),
    )


def parquet(folder: Path) -> Path:
    """A file with the clients' data."""
    path = folder / "people.parquet"
    columns: dict[str, list[Any]] = {"who": [], "label": [], **{f"x{i}": [] for i in range(6)}}
    for name in NAMES:
        x, y = samples(name)
        columns["who"] += [name] * len(y)
        columns["label"] += y.tolist()
        for i in range(6):
            columns[f"x{i}"] += x[:, i].tolist()
    pq.write_table(pa.table(columns), path)
    return path


def same(address: str, folder: Path) -> dict[str, bool]:
    """Train everything twice, here and there, and say whether bits are the same."""
    inside = {name: samples(name) for name in NAMES}
    table = from_parquet(parquet(folder), client="who", target="label")
    side = SideStatistics(clip_share=0.05, curve_share=0.1)
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "in memory, dense": (inside, {"model": DENSE}),
        "in memory, own model": (inside, {}),
        "without noise": (inside, {"private": False}),
        "loaded where it is trained": (Gated(folder), {}),
        "rows of a table": (table, {"model": DENSE}),
        "side statistics": (inside, {"side": side}),
        "one worker": (inside, {"workers": 1}),
    }
    found = {}
    for what, (clients, changes) in cases.items():
        models = []
        for cluster in (None, address):
            federation = made(clients, cluster=cluster, **{"workers": 1 if cluster is None else None, **changes})
            model, _ = nestegg.train(federation)
            models.append(np.concatenate([part.detach().numpy().ravel() for part in model.parameters()]))
        found[what] = np.array_equal(models[0], models[1])
    return found


def joins(address: str, folder: Path) -> None:
    """Train the same round again and again until a further node has taken part in it."""
    federation = made(Gated(folder), cluster=address)
    first = federation.round(federation.start())[0].model
    nodes, deadline = len(list(folder.glob("node-*"))), time.monotonic() + 150
    (folder / "began").touch()
    while len(list(folder.glob("node-*"))) == nodes and time.monotonic() < deadline:
        assert torch.equal(federation.round(federation.start())[0].model, first)
    assert len(list(folder.glob("node-*"))) > nodes
    print("joined")


def durable(address: str, folder: Path) -> None:
    """Begin a run, or go on with it, by a ledger."""
    federation = made(Gated(folder), cluster=None if address == "here" else address)
    summary = nestegg.run(federation, folder / "run", ledger=folder / "ledger.db", resume=True)
    print("rounds", summary["rounds"])


def held(address: str, folder: Path) -> None:
    """The same, but in its second round it stops before a step until the file `held` is gone again."""
    owner, name = STEPS[os.environ["HELD_BEFORE"]]
    call, note, calls = getattr(owner, name), folder / "held", [0]

    def waiting(*given: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2 and not (folder / "was-held").exists():
            (folder / "was-held").touch()
            note.touch()
            while note.exists():
                time.sleep(0.02)
        return call(*given, **more)

    setattr(owner, name, waiting)
    durable(address, folder)


def full(address: str, folder: Path) -> None:
    """Take all processors of the cluster, and let go of them as soon as somebody has said that there are none."""
    import ray

    class Taken:
        """Holds processors."""

        def here(self) -> None:
            """Answer."""

    taken: list[Any] = []

    class Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "until there is room" in record.getMessage():
                for one in taken:
                    ray.kill(one)

    logging.getLogger("nestegg.cluster").addHandler(Hears())
    cluster_at(address)
    taken += [ray.remote(Taken).options(num_cpus=1).remote() for _ in range(int(ray.cluster_resources()["CPU"]))]
    ray.get([one.here.remote() for one in taken])
    print("done", sorted(as_done_there(abs, [-1, -2, -3], address)))


def kernels(address: str, folder: Path) -> None:
    """Say to what all nodes of the cluster are held."""
    print("held to", cluster_at(address).instruction_set)


def refused(address: str, folder: Path) -> None:
    """Try what cannot be done, and say what is said."""
    for changes in ({"workers": 9}, {"device": "cuda"}):
        try:
            made(Gated(folder), cluster=address, **changes)
        except nestegg.InputError as error:
            print(error)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    what, where, place = sys.argv[1:]
    {one.__name__: one for one in (joins, durable, held, full, kernels, refused)}[what](where, Path(place))
