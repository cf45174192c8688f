"""One piece of work for all simulators, read from a folder, and the talk with the benchmark that times them.

The scripts beside this file run in virtual environments of their own, where nestegg is not installed: what they share
needs NumPy only, and torch where a script asks for the network.

A round trains the clients of its cohort from `start`, each on its own batches in the given order, by SGD with momentum
on the mean loss of a batch (cross entropy; logistic where there is one output). Every client's update is clipped to
`clip_norm`; the clipped updates are summed, noise of standard deviation `noise_std` is added to every entry of the sum,
and the round's result is start + sum / expected. Rounds do not build on each other.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Work:
    """What is to be done.

    Attributes:
        folder: where it lies.
        facts: model, outputs, epochs, batch_size, learning_rate, momentum, clip_norm, noise_std, expected and rounds.
        x: inputs of all clients, float32.
        y: labels of all clients, int64.
        starts: client n has the samples from starts[n] to starts[n + 1].
        start: the model's weights as one float32 vector, parameter after parameter.
    """

    folder: Path
    facts: dict[str, Any]
    x: NDArray[np.float32]
    y: NDArray[np.int64]
    starts: NDArray[np.int64]
    start: NDArray[np.float32]

    @classmethod
    def load(cls, folder: str | Path) -> Work:
        """The work in a folder; inputs are mapped, not read."""
        folder = Path(folder)
        facts = json.loads((folder / "work.json").read_text())
        arrays = {name: np.load(folder / f"{name}.npy") for name in ("y", "starts", "start")}
        return cls(folder, facts, np.load(folder / "x.npy", mmap_mode="c"), **arrays)

    def cohort(self, round_: int) -> list[tuple[int, list[NDArray[np.int64]]]]:
        """The clients of a round (rounds count from 1), each with its batches of all epochs, as rows of x and y."""
        content = np.load(self.folder / f"round-{round_}.npz")
        pairs, at = [], 0
        for client in content["cohort"]:
            size = int(self.starts[client + 1] - self.starts[client])
            batches = []
            for _ in range(self.facts["epochs"]):
                order = self.starts[client] + content["order"][at : at + size]
                at += size
                batches += [order[i : i + self.facts["batch_size"]] for i in range(0, size, self.facts["batch_size"])]
            pairs.append((int(client), batches))
        return pairs

    def network(self) -> Any:
        """The network in torch, with the weights of the start."""
        import torch

        sys.path.insert(0, str(self.folder))
        networks = import_module("networks")  # the benchmark puts its own definitions there
        model = networks.MODELS[self.facts["model"]](torch.Size(self.x.shape[1:]), self.facts["outputs"])
        torch.nn.utils.vector_to_parameters(torch.from_numpy(self.start), model.parameters())
        return model

    def loss(self, outputs: Any, labels: Any) -> Any:
        """The mean loss of a batch, in torch."""
        from torch.nn import functional

        if outputs.shape[-1] == 1:
            return functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), labels.float())
        return functional.cross_entropy(outputs, labels)


Run = Callable[[int, bool], NDArray[np.float32]]


def serve(run: Run, **facts: Any) -> None:
    """Do what the benchmark asks for on standard input, a line at a time, and say on standard output how long it took.

    Args:
        run: does a round, with noise or without, and gives its result.
        facts: what is to be known about this simulator, such as versions.
    """
    talk = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed goes elsewhere
    talk.write(json.dumps(facts) + "\n")
    for line in sys.stdin:
        task = json.loads(line)
        started = time.perf_counter()
        result = run(task["round"], task["noisy"])
        seconds = time.perf_counter() - started
        if task.get("save"):
            np.save(task["save"], result)
        talk.write(json.dumps({"seconds": seconds}) + "\n")
