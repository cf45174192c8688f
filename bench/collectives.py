"""torch.distributed beside Ray: what it costs to send a model to two workers and to add up their sums, without work.

python -m bench.collectives

Both lead two workers on this machine, by loopback: torch.distributed by gloo's broadcast and reduce, as torchrun would
have it, and our cluster by a round of clients who have one sample each. Then one worker is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from datetime import timedelta
from statistics import median

import torch
import torch.distributed as dist

from bench.cluster import federation, round_seconds
from nestegg.bench.machine import machine

_WORKERS, _TIMES = 2, 20


def join(rank: int, port: int) -> None:
    """Become one of the processes."""
    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", where, timedelta(seconds=20), rank=rank, world_size=_WORKERS + 1)


def work(rank: int, port: int, size: int) -> None:
    """Answer every model with a sum of zeros."""
    join(rank, port)
    model, total = torch.zeros(size), torch.zeros(size, dtype=torch.float64)
    while True:
        dist.broadcast(model, src=0)
        dist.reduce(total, dst=0)


def once(size: int) -> float:
    """Return what it takes to send a model and to add up what comes back."""
    model, total = torch.zeros(size), torch.zeros(size, dtype=torch.float64)
    began = time.perf_counter()
    dist.broadcast(model, src=0)
    dist.reduce(total, dst=0)
    return time.perf_counter() - began


def main() -> None:
    """Measure both, and print it."""
    print(machine())
    rounds = federation(_WORKERS, 1, "local", _WORKERS)
    size = rounds.layout.size
    round_seconds(rounds)
    alone = federation(1, 1, None, 1)  # what each worker trains
    ours = median(round_seconds(rounds) for _ in range(_TIMES)) - median(round_seconds(alone) for _ in range(_TIMES))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [multiprocessing.Process(target=work, args=(rank, port, size)) for rank in range(1, _WORKERS + 1)]
    for process in processes:
        process.start()
    join(0, port)
    once(size)
    theirs = median(once(size) for _ in range(_TIMES))
    print(f"{size:,} parameters, two workers: torch.distributed {theirs * 1e3:.0f} ms a round, Ray {ours * 1e3:.0f} ms")
    os.kill(processes[0].pid or 0, signal.SIGKILL)
    began = time.perf_counter()
    try:
        once(size)
        once(size)
        print("torch.distributed goes on without a worker")
    except RuntimeError as error:
        print(f"torch.distributed without a worker, after {time.perf_counter() - began:.1f} s: {str(error)[:100]}")
    for process in processes:
        process.kill()


if __name__ == "__main__":
    main()
