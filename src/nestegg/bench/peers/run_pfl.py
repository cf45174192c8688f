"""Apple's pfl-research on PyTorch, in one process or several. Arguments: the work's folder, processes.

All is pfl's own, up to the choice of users: cohorts and batches are given, and are tensors before the clock starts.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDatasetBase
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.postprocessor.base import Postprocessor
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism, NormClippingOnly
from work import Work, serve


class Client(Dataset):
    """A user with its batches of all epochs, which are one epoch to pfl."""

    def __len__(self) -> int:
        return sum(len(y) for _, y in self.raw_data)

    def iter(self, batch_size: int | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The batches, whatever the size asked for."""
        return iter(self.raw_data)


class Cohorts(FederatedDatasetBase):
    """The clients of every round that are this process's.

    They are shared out as by pfl's FederatedDataset with weights: longest first, each to the process with least to do.
    A process without any gets a client without batches, since pfl's reduction needs all. Round 0 is there to warm up.
    """

    def __init__(self, work: Work, rank: int, processes: int) -> None:
        super().__init__()
        x, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
        self.round, self.clients = 0, {0: [Client(((x[:1], y[:1]),))]}
        for t in range(1, work.facts["rounds"] + 1):
            cohort = [batches for _, batches in work.cohort(t)]
            shares: list[list[list[NDArray[np.int64]]]] = [[] for _ in range(processes)]
            for batches in cohort if processes == 1 else sorted(cohort, key=len, reverse=True):
                min(shares, key=lambda share: sum(map(len, share))).append(batches)
            self.clients[t] = [Client(tuple((x[b], y[b]) for b in batches)) for batches in shares[rank] or [[]]]

    def __next__(self) -> tuple[Client, int]:
        raise NotImplementedError("pfl's backend asks for cohorts")

    def get_cohort(self, cohort_size: int) -> Iterator[tuple[Client, int]]:
        """The round's clients with seeds, whatever the size asked for."""
        return ((client, self._get_seed()) for client in self.clients[self.round])


class DivideBy(Postprocessor):
    """Makes pfl's average the sum divided by a given number, in the place of the number of clients."""

    def __init__(self, expected: float) -> None:
        self.expected = expected

    def postprocess_server(self, *, stats: Any, **_: Any) -> tuple[Any, Metrics]:
        """Set the weight of the sum."""
        stats.weight = self.expected
        return stats, Metrics()


def start_others(processes: int) -> list[subprocess.Popen[bytes]]:
    """Start the other processes, and let pfl's environment variables say who belongs together."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    os.environ |= {"PFL_WORKER_ADDRESSES": ",".join([address] * processes), "GLOO_SOCKET_IFNAME": "lo"}
    start = partial(subprocess.Popen, [sys.executable, *sys.argv], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    others = [start(env=os.environ | {"PFL_WORKER_RANK": str(rank)}) for rank in range(1, processes)]
    os.environ["PFL_WORKER_RANK"] = "0"
    return others


def main(folder: str, processes: int) -> None:
    """Serve rounds, or help the process that does."""
    torch.set_num_threads(1)
    os.environ["PFL_PYTORCH_DEVICE"] = "cpu"
    others = start_others(processes) if processes > 1 and "PFL_WORKER_RANK" not in os.environ else []
    rank = int(os.environ.get("PFL_WORKER_RANK", "0"))
    from pfl.model.pytorch import PyTorchModel  # connects the processes

    work = Work.load(folder)
    facts, clip, network = work.facts, work.facts["clip_norm"], work.network()
    network.loss, network.metrics = lambda x, y: work.loss(network(x), y), lambda x, y: {}
    local = partial(torch.optim.SGD, momentum=facts["momentum"])
    # no use_torch_compile: pfl would compile the network's forward, but trains by its loss, which stays as it is
    model = PyTorchModel(network, local, torch.optim.SGD(network.parameters(), lr=1.0))
    training = NNTrainHyperParams(facts["batch_size"], local_num_epochs=1, local_learning_rate=facts["learning_rate"])
    cohorts, algorithm, start = Cohorts(work, rank, processes), FederatedAveraging(), model.get_parameters()
    backends = [
        SimulatedBackend(cohorts, None, [CentrallyAppliedPrivacyMechanism(mechanism), DivideBy(facts["expected"])])
        for mechanism in (NormClippingOnly(2, clip), GaussianMechanism(clip, facts["noise_std"] / clip))
    ]
    done = 0

    def iterate(round_: int, noisy: bool) -> None:
        nonlocal done
        done, cohorts.round = done + 1, round_
        model.set_parameters(start)
        params = NNAlgorithmParams(done, evaluation_frequency=sys.maxsize, train_cohort_size=1, val_cohort_size=None)
        algorithm.run(params, backends[noisy], model, training, send_metrics_to_platform=False)  # one iteration more

    def run(round_: int, noisy: bool) -> NDArray[np.float32]:
        if others:
            torch.distributed.broadcast(torch.tensor([round_, noisy]), src=0)
        iterate(round_, noisy)
        return torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()

    iterate(0, False)  # pfl evaluates in its first iteration, and with this frequency never again
    task = torch.zeros(2, dtype=torch.int64)
    if rank == 0:
        serve(run, version=version("pfl"))
        if others:
            torch.distributed.broadcast(task, src=0)
    while rank and (torch.distributed.broadcast(task, src=0) or task[0]):
        iterate(int(task[0]), bool(task[1]))
    if processes > 1:
        torch.distributed.destroy_process_group()
    for other in others:
        other.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
