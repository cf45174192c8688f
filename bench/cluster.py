"""What a cluster costs: beside processes of this machine, by its terms, and by arithmetic on many machines.

python -m bench.cluster                 on this machine
python -m bench.cluster --shaped 100    as root: one node behind a link of 100 Mbit/s, beside what the arithmetic says
python -m bench.cluster --latency 20    as root: the same on a link on which packets take 20 ms
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any

import torch

import nestegg
from bench.delay import link
from nestegg import Budget, Federation, Group, LocalTraining, Mechanics, Performance, Randomness
from nestegg.bench.machine import machine
from nestegg.models import make_model
from nestegg.training.blocks import Task
from nestegg.training.performance import cores
from nestegg.training.shares import Shares

_SHAPE, _LABELS = torch.Size((1, 28, 28)), 10
_HEAD, _NODE, _PORT, _PLACE = "10.77.0.1", "10.77.0.2", 6399, "nestegg-bench"
_DEVICES = ("nestegg0", "nestegg1")
_TRIPS = 8  # there and back, beside one for each share: for the model to arrive and its sum to be fetched; by --latency


@dataclass(frozen=True)
class Terms:
    """What a round consists of, as it was measured here.

    Attributes:
        block: seconds of one block on one core.
        call: seconds of a share without work and without numbers, there and back.
        number: seconds that a process takes for each number of a sum that comes to it.
        put: seconds to lay out the model.
        blocks: of a round.
        parameters: of the model.
    """

    block: float
    call: float
    number: float
    put: float
    blocks: int
    parameters: int

    def seconds(self, machines: int, workers: int, *, bandwidth: float, latency: float) -> float:
        """Return what a round should take: bandwidth in bytes a second at the leading machine, latency one way."""
        everybody, shares = machines * workers, shares_of(self.blocks, machines * workers)
        work = self.block * self.blocks / min(everybody, self.blocks)
        out = self.put + 4.0 * self.parameters * machines / bandwidth
        there = self.number * self.parameters * shares / machines  # each node adds up its own
        back = machines * (8.0 * self.parameters / bandwidth + self.number * self.parameters)
        turns = shares / min(everybody, shares)  # that one worker takes
        return work + out + there + back + self.call * (turns + 1.0) + 2.0 * latency * (turns + _TRIPS)


def shares_of(blocks: int, workers: int) -> int:
    """Return in how many shares so many blocks are given to so many workers."""
    tasks: list[Task] = [None] * blocks  # type: ignore[list-item]
    shares, count = Shares(tasks, is_exact=True), 0
    while shares.take(workers) is not None:
        count += 1
    return count


def federation(clients: int, samples: int, cluster: str | None, workers: int, name: str = "cnn") -> Federation:
    """Return clients of one size, all of whom are sampled."""
    plan = nestegg.plan([Group("all", clients, Budget(10.0))], rounds=1000)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(samples, *_SHAPE, generator=generator), torch.randint(_LABELS, (samples,), generator=generator)
    return Federation(
        plan,
        make_model(name, _SHAPE, _LABELS, seed=0),
        [(x, y)] * clients,
        local=LocalTraining(epochs=1, batch_size=32, learning_rate=0.01),
        mechanics=Mechanics(randomness=Randomness(0, reproducible=True)),
        performance=Performance(cluster=cluster, workers=workers),
    )


def round_seconds(one: Federation) -> float:
    """Return what one round takes."""
    began = time.perf_counter()
    one.round(one.start())
    return time.perf_counter() - began


def taken(one: Federation, times: int) -> float:
    """Return what a round takes, after one that is not counted."""
    round_seconds(one)
    return median(round_seconds(one) for _ in range(times))


def measured(address: str, clients: int, samples: int, times: int) -> Terms:
    """Measure the terms of a round on a cluster and on this machine."""
    import ray

    alone = taken(federation(clients, samples, None, 1), times)
    call = taken(federation(1, 1, address, 1, "softmax"), 10 * times)
    large, here = federation(clients, 1, address, 1), federation(clients, 1, None, 1)
    size, shares = large.layout.size, shares_of(clients, 1)
    number = max(taken(large, times) - taken(here, times) - call * shares, 0.0) / shares / size
    model = large.start().model.numpy()
    began = time.perf_counter()
    for _ in range(times):
        ray.put(model)
    return Terms(alone / clients, call, number, (time.perf_counter() - began) / times, clients, size)


def beside(address: str, clients: int, samples: int, times: int) -> tuple[float, float]:
    """Return what a round takes in processes of this machine and on a cluster of the same cores, taking turns."""
    both = [federation(clients, samples, where, cores()) for where in (None, address)]
    for one in both:
        round_seconds(one)
    pairs = [[round_seconds(one) for one in both] for _ in range(times)]
    here, there = (median(column) for column in zip(*pairs, strict=True))
    return here, there


@contextmanager
def two_hosts() -> Iterator[tuple[str, Any]]:
    """Give a cluster of a head here and one node in a network namespace, and the latency of the link between them."""
    there = ["ip", "netns", "exec", _PLACE]
    subprocess.run(["ip", "netns", "add", _PLACE], check=True)
    subprocess.run([*there, "ip", "link", "set", "lo", "up"], check=True)
    try:
        with link(_PLACE, _HEAD, _NODE, _DEVICES) as latency, _cluster(there) as address:
            yield address, latency
    finally:
        subprocess.run(["ip", "netns", "del", _PLACE], check=False)


@contextmanager
def _cluster(there: list[str]) -> Iterator[str]:
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats"]
    os.environ["no_proxy"] = f"{_HEAD},{_NODE}"  # gRPC would ask a proxy for them
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        environment = {**os.environ, "RAY_TMPDIR": folder, "OMP_NUM_THREADS": "1"}
        address = f"{_HEAD}:{_PORT}"
        head = ["--head", f"--node-ip-address={_HEAD}", f"--port={_PORT}", "--num-cpus=0", "--include-dashboard=false"]
        node = [f"--address={address}", f"--node-ip-address={_NODE}", "--num-cpus=1"]
        held = [[*ray, *head, "--block"], [*there, *ray, *node, "--block"]]
        started: list[subprocess.Popen[bytes]] = []
        try:
            for command in held:
                started.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
                time.sleep(10.0)  # until it listens
            yield address
        finally:
            for process in started:
                process.terminate()
                process.wait()


def shape(megabits: float) -> None:
    """Slow the link between the two hosts down to a rate, both ways."""
    rule = f"root tbf rate {megabits:g}mbit burst 256kb latency 400ms".split()
    for place, device in zip(([], ["ip", "netns", "exec", _PLACE]), _DEVICES, strict=True):
        subprocess.run([*place, "tc", "qdisc", "replace", "dev", device, *rule], check=True)


def show_table(terms: Terms) -> None:
    """Print what a round should take on many machines."""
    print("\n| machines × workers | 1 Gbit/s, 0.5 ms | 10 Gbit/s, 0.1 ms |\n|---|---:|---:|")
    for machines, workers in product((1, 10, 100), (1, 16)):
        cells = (
            terms.seconds(machines, workers, bandwidth=gigabits * 1.25e8, latency=latency)
            for gigabits, latency in ((1.0, 5e-4), (10.0, 1e-4))
        )
        print(f"| {machines} × {workers} | " + " | ".join(f"{cell:.2f} s" for cell in cells) + " |")


def main() -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--samples", type=int, default=320)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--shaped", type=float, metavar="MBIT")
    parser.add_argument("--latency", type=float, metavar="MS", nargs="+", default=[], help="one way")
    given = parser.parse_args()
    print(machine())
    if given.shaped is None and not given.latency:
        began = time.perf_counter()
        federation(1, 1, "local", 1)
        print(f"the cluster is up and has its first worker after {time.perf_counter() - began:.1f} s")
        here, there = beside("local", given.clients, given.samples, given.times)
        print(
            f"a round in {cores()} processes {here:.3f} s, on a cluster of the same cores {there:.3f} s: "
            f"{there / here - 1.0:+.1%}"
        )
        terms = measured("local", given.clients, given.samples, given.times)
        print(terms)
        show_table(terms)
        show_table(replace(terms, blocks=1000))
        return
    with two_hosts() as (address, latency):
        terms = measured(address, given.clients, given.samples, given.times)  # over a link that nothing slows down
        print(terms)
        links = [(None, 0.0), *((given.shaped, one) for one in given.latency or [0.0])]
        for megabits, milliseconds in links:
            if megabits is not None:
                shape(megabits)
            latency.value = milliseconds / 1000.0
            there = taken(federation(given.clients, given.samples, address, 1), given.times)
            bandwidth = math.inf if megabits is None else megabits * 1.25e5
            expected = terms.seconds(1, 1, bandwidth=bandwidth, latency=milliseconds / 1000.0)
            over = f"{megabits or math.inf:g} Mbit/s and {milliseconds:g} ms"
            print(f"a round over {over} takes {there:.2f} s; by arithmetic {expected:.2f} s")


if __name__ == "__main__":
    main()
