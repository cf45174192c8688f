"""The same work on Flower's simulation engine: a message per client, Ray actors. Arguments: the work's folder, actors.

The engine hands out one message per node and sweep, sleeps a tenth of a second between sweeps, and a sweep takes nodes
times waiting messages: nodes and waiting messages are therefore bounded, which is faster than a node for every client
where a cohort is large. Any node can stand for any client, since the client's number comes in the message.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from work import Work, serve

if TYPE_CHECKING:  # flwr is imported when the environment is set
    from flwr.app import Context, Message
    from flwr.serverapp import Grid

MOST_NODES, MOST_WAITING, PAUSE = 100, 200, 0.01
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux, too: listen on loopback only
    "RAY_worker_niceness": "0",  # Ray's default is 15: actors would yield to everything else
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no warning
}


@functools.cache
def prepared(folder: str) -> tuple[Work, torch.nn.Module, torch.Tensor, torch.Tensor, dict[int, dict[int, Any]]]:
    """What an actor keeps between messages: the work, a network, inputs, labels and the batches of all rounds."""
    torch.set_num_threads(1)
    work = Work.load(folder)
    rounds = range(1, work.facts["rounds"] + 1)
    batches = {t: {n: [torch.from_numpy(rows) for rows in rest] for n, rest in work.cohort(t)} for t in rounds}
    return work, work.network(), torch.from_numpy(work.x), torch.from_numpy(work.y), batches


def train(message: Message, context: Context) -> Message:
    """A client: train the model of the message on the client's batches, and reply with the clipped update."""
    from flwr.app import Array, ArrayRecord, Message, RecordDict

    task = message.content["task"]
    work, network, x, y, batches = prepared(task["folder"])
    facts = work.facts
    start = torch.from_numpy(message.content["model"]["weights"].numpy())
    weights = start.clone()
    torch.nn.utils.vector_to_parameters(weights, network.parameters())  # views: training changes `weights`
    optimiser = torch.optim.SGD(network.parameters(), lr=facts["learning_rate"], momentum=facts["momentum"])
    for rows in batches[task["round"]][task["client"]]:
        optimiser.zero_grad()
        work.loss(network(x[rows]), y[rows]).backward()
        optimiser.step()
    update = weights - start
    update *= (facts["clip_norm"] / update.norm()).clamp(max=1.0)
    return Message(RecordDict({"model": ArrayRecord({"update": Array(update.numpy())})}), reply_to=message)


def main(folder: str, actors: int, home: str) -> None:
    """Serve rounds; `home` is a folder for what Flower and Ray write."""
    talk = os.dup(1)
    os.dup2(2, 1)  # nothing but the talk goes to standard output
    os.environ |= ENVIRONMENT | {"FLWR_HOME": home}
    import flwr
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    work, facts = Work.load(folder), Work.load(folder).facts
    cohorts = {t: [client for client, _ in work.cohort(t)] for t in range(1, facts["rounds"] + 1)}
    nodes = min(MOST_NODES, max(map(len, cohorts.values())))
    server_app, client_app = ServerApp(), ClientApp()
    client_app.train()(train)

    def gather(grid: Grid, ids: list[int], round_: int, clients: list[int]) -> NDArray[np.float32]:
        total, model = np.zeros_like(work.start), ArrayRecord({"weights": Array(work.start)})
        messages, waiting = [], set()
        for i, client in enumerate(clients):
            task = ConfigRecord({"folder": folder, "round": round_, "client": client})
            messages.append(Message(RecordDict({"model": model, "task": task}), ids[i % nodes], "train"))
        while messages or waiting:
            free = MOST_WAITING - len(waiting)
            waiting.update(grid.push_messages(messages[:free]))
            messages = messages[free:]
            replies = grid.pull_messages(waiting)
            for reply in replies:
                if reply.has_error():
                    raise RuntimeError(reply.error.reason)
                waiting.remove(reply.metadata.reply_to_message_id)
                total += reply.content["model"]["update"].numpy()
            if not replies:
                time.sleep(PAUSE)
        return total

    @server_app.main()
    def server(grid: Grid, context: Context) -> None:
        while len(ids := list(grid.get_node_ids())) < nodes:
            time.sleep(PAUSE)

        def run(round_: int, noisy: bool) -> NDArray[np.float32]:
            total = gather(grid, ids, round_, cohorts[round_])
            if noisy:
                total += torch.randn(len(total)).numpy() * np.float32(facts["noise_std"])
            return work.start + total / np.float32(facts["expected"])

        gather(grid, ids, 1, cohorts[1][:actors])  # the actors start and prepare
        os.dup2(talk, 1)
        serve(run, version=flwr.__version__)

    ray = {"num_cpus": actors, "include_dashboard": False, "_node_ip_address": "127.0.0.1", "_temp_dir": home}
    ray |= {"object_store_memory": 2**29, "log_to_driver": False, "logging_level": "error"}
    config = {"init_args": ray, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, nodes, backend_config=config)


if __name__ == "__main__":
    import run_flower  # under this name actors find `train`, and `prepared` keeps what it has

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        run_flower.main(sys.argv[1], int(sys.argv[2]), temporary)
