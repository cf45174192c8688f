"""From a configuration to its data, its model and the federation that trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.checks import one_of, whole
from nestegg.configuration.config import Config, changed, is_own
from nestegg.configuration.description import Description, of_config
from nestegg.configuration.limits import check_undivided
from nestegg.configuration.own import OwnClients, load_data, load_loss
from nestegg.configuration.participants import make_participants, make_plan, with_method
from nestegg.data import Dataset, partition, thinned, without
from nestegg.data.sources import Floats
from nestegg.errors import InputError
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.models import NETWORKS, make_model
from nestegg.named import is_named
from nestegg.planning import Plan, known_method
from nestegg.runs.payment import Payment
from nestegg.runs.private import Origin
from nestegg.runs.task import Task
from nestegg.training import (
    AdaptiveClipping,
    Evaluation,
    Federation,
    LocalTraining,
    Mechanics,
    Performance,
    SideStatistics,
)
from nestegg.training.local import default_loss


class Simulation:
    """Data, model and plan of a run, made from its configuration alone.

    Args:
        config: what describes it.
        plan: by which it trains.
        data: what it trains on, where that is loaded already.
        members: who is in it, by place, where clients bring their own data; by default those of whom there is data.
        cluster: on whose nodes clients train, as in `Performance`.

    Attributes:
        data: what is divided among clients, or clients who bring their own.
        parts: every client's samples, where data is divided.
        federation: ready to train.
    """

    def __init__(
        self,
        config: Config,
        plan: Plan,
        data: Dataset | OwnClients | None = None,
        members: Sequence[str] | None = None,
        cluster: str | None = None,
    ) -> None:
        whole("training.seed", config.training.seed, 0, 2**63 - 1)
        self.config, self.data = config, load_data(config) if data is None else data
        self.parts: list[Tensor] = []
        clients: Any
        if isinstance(self.data, Dataset):
            self.parts, held = _held_out(_assign(self.data, config, plan), config)
            clients = [(self.data.train_x[part], self.data.train_y[part]) for part in self.parts]
            test: Any = Evaluation(self.data.test_x, self.data.test_y, by_group=_by_group(plan, self.data, held))
        else:
            clients, test = self.data.source, self.data.test
            if self.data.are_whole and not is_named(config.model.name or ""):  # our networks take no tokens
                clients, test = Floats(clients), test and (test[0].float(), test[1])
            plan = with_members(plan, members or make_participants(config, clients.names).clients)
        self.federation = _federation(config, plan, self.data, clients, test, cluster)

    @property
    def dataset(self) -> Dataset:
        """The data that is divided among clients."""
        assert isinstance(self.data, Dataset), "clients bring their own data"
        return self.data

    def task(self, run: Description) -> Task:
        """Return the task of a run."""
        return Task(run, self.federation, self._origin(), self._labels())

    def _labels(self) -> NDArray[np.int64] | None:
        """Samples of each label at every client, which nobody may know unless the run is not for release anyway."""
        data = self.data
        if not self.config.training.reproducible or not isinstance(data, Dataset) or data.train_y.is_floating_point():
            return None
        return np.array([np.bincount(data.train_y[part].numpy(), minlength=data.classes) for part in self.parts])

    def _origin(self) -> Origin:
        """What the run began with: the data, who has which of it, and the first model."""
        data = self.data
        if isinstance(data, OwnClients):
            return Origin.of(self.federation)
        tensors = (data.train_x, data.train_y, data.test_x, data.test_y, *self.parts)
        return Origin(lambda: [*tensors, self.federation.start().model])


def new_simulation(config: Config, run: str, cluster: str | None = None) -> tuple[Simulation, Description]:
    """Plan by a configuration, and return what trains by it and what describes it, under a name in the ledger."""
    data = load_data(config)
    if isinstance(data, OwnClients):
        check_undivided(config.federation)
    roster = make_participants(config, data.source.names if isinstance(data, OwnClients) else ())
    plan = make_plan(config, roster.groups)
    config = changed(resolved(config, plan), "ledger", run=run)
    return Simulation(config, plan, data, cluster=cluster), of_config(config, lambda: (roster.clients, roster.budgets))


def resumed_simulation(config: Config, plan: Plan, payment: Payment, cluster: str | None = None) -> Simulation:
    """Return what trains by a plan in force; of those who have withdrawn no data is needed."""
    data, gone = load_data(config), payment.gone()
    if not gone or isinstance(data, Dataset):
        return Simulation(config, plan, data, cluster=cluster)
    own = replace(data, source=without(data.source, list(gone.values())))
    return Simulation(config, plan, own, payment.members(), cluster)


def public_federation(config: Config, public: str, data: Path | None = None) -> Federation:
    """Return a configuration's training on public data, spending evenly, and the same in every repetition.

    Args:
        config: what will be trained; its own data is not read.
        public: a dataset's name, or "module:function".
        data: folder of the dataset's files.
    """
    if config.federation.clients is None:
        raise InputError("federation.clients must be given: the public data is divided among as many clients.")
    model = config.model.name or NETWORKS.get(config.federation.dataset, "mlp")
    folder = None if data is None else str(data.resolve())
    config = changed(config, "federation", dataset=public, data=folder, validation=None, tested_on="test")
    config = changed(changed(config, "model", name=model), "training", reproducible=True)
    privacy, method = config.privacy, known_method("privacy.method", config.privacy.method)
    # The method's defaults, written out: idp-fedavg has others, and would sample clients where optimal takes all.
    config = changed(config, "privacy", spending_rate=privacy.spending_rate, accountant=privacy.accountant)
    evenly = with_method(config, "idp-fedavg" if method.is_private else "fedavg")
    return new_simulation(evenly, "influence")[0].federation


def with_members(plan: Plan, names: Sequence[str]) -> Plan:
    """Return a plan whose groups say who is in them; its file and its digest do not."""
    rows, start = [], 0
    for row in plan.groups:
        own = tuple(names[start : start + row.group.clients])
        rows.append(replace(row, group=replace(row.group, members=own)))
        start += len(own)
    return replace(plan, groups=tuple(rows))


def resolved(config: Config, plan: Plan) -> Config:
    """The configuration with every default written out, so that it means the same tomorrow."""
    dataset = config.federation.dataset
    if not is_own(dataset):
        one_of("federation.dataset", dataset, NETWORKS)
    config = changed(config, "federation", clients=plan.clients)
    return changed(config, "model", name=config.model.name or NETWORKS.get(dataset, "mlp"))


def _federation(
    config: Config, plan: Plan, data: Dataset | OwnClients, clients: Any, test: Any, cluster: str | None
) -> Federation:
    training, privacy = config.training, config.privacy
    name = config.model.name or NETWORKS.get(config.federation.dataset, "mlp")
    return Federation(
        plan,
        make_model(name, data.shape, data.classes, training.seed, config.code),
        clients,
        local=LocalTraining(
            training.local_epochs,
            training.batch_size,
            training.learning_rate,
            training.momentum,
            training.schedule,
            load_loss(config) or default_loss,
        ),
        mechanics=Mechanics(
            privacy.clipping,
            privacy.clip_unit,
            privacy.colluders,
            AdaptiveClipping(**privacy.adaptive.model_dump()),
            Randomness(training.seed, training.reproducible),
            SideStatistics.of_table(privacy.side.model_dump()),
        ),
        test=test,
        performance=Performance(training.engine, training.workers, training.device, training.precision, cluster),
    )


def _assign(data: Dataset, config: Config, plan: Plan) -> list[Tensor]:
    """Every client's samples; which client is in which group is as random as the partition itself."""
    federation, seed = config.federation, config.training.seed
    if data.train_y.is_floating_point() and federation.partition != "iid":
        raise InputError(
            f"federation.partition = {federation.partition!r} needs classes; targets are numbers: use iid."
        )
    stream = Randomness(seed, reproducible=True).stream(Purpose.PARTITION)
    parts = partition(data.train_y.numpy(), plan.clients, federation.partition, federation.dirichlet, stream)
    parts = [parts[i] for i in stream.permutation(plan.clients)]
    if federation.samples_per_client is not None:
        parts = thinned(parts, federation.samples_per_client, stream)
    return [torch.from_numpy(part) for part in parts]


def _held_out(parts: list[Tensor], config: Config) -> tuple[list[Tensor], list[Tensor]]:
    """Every client's samples to train on, at least one, and those that are held out, chosen at random."""
    share, randomness = config.federation.held_out, Randomness(config.training.seed, reproducible=True)
    if share is None:
        return parts, []
    kept, held = [], []
    for client, part in enumerate(parts):
        order = torch.from_numpy(randomness.stream(Purpose.PARTITION, client=client).permutation(len(part)))
        count = min(max(1, round(share * len(part))), len(part) - 1)
        held.append(part[order[:count].sort().values])
        kept.append(part[order[count:].sort().values])
    return kept, held


def _by_group(plan: Plan, data: Dataset, held: Sequence[Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """What the clients of each budget group hold out."""
    found, start = {}, 0
    for row in plan.groups if held else ():
        rows = torch.cat(list(held[start : start + row.group.clients]))
        found[row.group.name] = data.train_x[rows], data.train_y[rows]
        start += row.group.clients
    return found
