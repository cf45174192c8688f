"""From a configuration to its data, its model and the federation that trains."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.checks import one_of, whole
from nestegg.config import Config, changed
from nestegg.data import Dataset, load_dataset, partition, thinned
from nestegg.description import Description
from nestegg.models import NETWORKS, make_model
from nestegg.planning import Plan
from nestegg.randomness import Purpose, Randomness
from nestegg.runs.task import Task
from nestegg.training import AdaptiveClipping, Federation, LocalTraining, Mechanics, Performance


class Simulation:
    """Data, model and plan of a run, made from its configuration alone.

    Attributes:
        config: what describes it.
        data: what is divided among clients.
        parts: every client's samples.
        federation: ready to train.
    """

    def __init__(self, config: Config, plan: Plan) -> None:
        self.config = config
        training, privacy = config.training, config.privacy
        whole("training.seed", training.seed, 0, 2**63 - 1)
        self.data: Dataset = load_dataset(config.federation.dataset, config.federation.data)
        self.parts = _assign(self.data, config, plan)
        name = config.model.name or NETWORKS[self.data.name]
        self.federation = Federation(
            plan,
            make_model(name, self.data.shape, self.data.classes, training.seed),
            [(self.data.train_x[part], self.data.train_y[part]) for part in self.parts],
            local=LocalTraining(
                training.local_epochs,
                training.batch_size,
                training.learning_rate,
                training.momentum,
                training.schedule,
            ),
            mechanics=Mechanics(
                privacy.clipping,
                privacy.clip_unit,
                privacy.colluders,
                AdaptiveClipping(**privacy.adaptive.model_dump()),
                Randomness(training.seed, training.reproducible),
            ),
            test=(self.data.test_x, self.data.test_y),
            performance=Performance(training.engine, training.workers, training.device, training.precision),
        )

    def task(self, run: Description) -> Task:
        """Return the task of a run."""
        return Task(run, self.federation, self._origin, self._labels())

    def _labels(self) -> NDArray[np.int64] | None:
        """Samples of each label at every client, which nobody may know unless the run is not for release anyway."""
        if not self.config.training.reproducible:
            return None
        counts = [np.bincount(self.data.train_y[part].numpy(), minlength=self.data.classes) for part in self.parts]
        return np.array(counts)

    def _origin(self) -> list[Tensor | bytes]:
        """What the run began with: the data, who has which of it, and the first model."""
        data = self.data
        return [data.train_x, data.train_y, data.test_x, data.test_y, *self.parts, self.federation.start().model]


def _assign(data: Dataset, config: Config, plan: Plan) -> list[Tensor]:
    """Every client's samples; which client is in which group is as random as the partition itself."""
    federation, seed = config.federation, config.training.seed
    stream = Randomness(seed, reproducible=True).stream(Purpose.PARTITION)
    parts = partition(data.train_y.numpy(), plan.clients, federation.partition, federation.dirichlet, stream)
    parts = [parts[i] for i in stream.permutation(plan.clients)]
    if federation.samples_per_client is not None:
        parts = thinned(parts, federation.samples_per_client, stream)
    return [torch.from_numpy(part) for part in parts]


def resolved(config: Config, plan: Plan) -> Config:
    """The configuration with every default written out, so that it means the same tomorrow."""
    one_of("federation.dataset", config.federation.dataset, NETWORKS)
    config = changed(config, "federation", clients=plan.clients)
    return changed(config, "model", name=config.model.name or NETWORKS[config.federation.dataset])
