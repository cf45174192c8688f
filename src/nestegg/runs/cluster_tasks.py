"""Independent pieces of work on the nodes of a cluster, each on one processor."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from logging import getLogger
from typing import Any, TypeVar

import torch

from nestegg.errors import InputError, StoppedError
from nestegg.training.cluster import Cluster, Node, cluster_at
from nestegg.training.connecting import first_line
from nestegg.training.seats import clear_seats

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK = 1.0  # seconds between looks at the cluster
_SILENCE = 10.0  # seconds without the cluster's head after which it is given up
_ROOM = 5.0  # seconds in which processors that were just let go of are free for others
_LIVES = 3  # processes that a piece of work may cost
_LOG = getLogger("nestegg.cluster")


def as_done_there(
    work: Callable[[Item], Result], items: Sequence[Item], address: str, gpus: int = 0
) -> Iterator[tuple[int, Result]]:
    """Yield the place of each item and what the work gave for it, as soon as it is done; see `as_done`.

    What was at work on a node that is lost is begun again on another.

    Args:
        work: a function of a module, which all nodes can import.
        items: what it is called with, each for itself.
        address: of the cluster.
        gpus: that each piece of work asks for, besides a processor.

    Raises:
        StoppedError: the cluster is gone, or a piece of work was lost again and again.
    """
    import ray

    cluster = cluster_at(address)
    clear_seats()
    _say_if_full(cluster, gpus)
    waiting, lost = list(range(len(items)))[::-1], [0] * len(items)
    running: dict[Any, tuple[int, Node]] = {}
    heard = time.monotonic()
    try:
        while waiting or running:
            for node in _free(cluster, [node for _, node in running.values()], gpus)[: len(waiting)]:
                place = waiting.pop()
                running[_begun(cluster, node, gpus, work, items[place])] = place, node
            if not running:
                raise StoppedError(f"no node has room for a piece of work: {cluster.offer()}.")
            ready, _ = ray.wait(list(running), timeout=_LOOK)
            heard = time.monotonic() if ready else heard
            if time.monotonic() - heard > _SILENCE and not cluster.is_reachable():
                raise StoppedError(f"the head of the cluster, {cluster.address}, does not answer any more.")
            for one in ready:
                place, node = running.pop(one)
                try:
                    result = ray.get(one)
                except ray.exceptions.RayTaskError as error:
                    raise _ours(error, node) from None
                except ray.exceptions.RayError:
                    waiting.append(place)
                    lost[place] += 1
                else:
                    yield place, result
                if lost[place] == _LIVES:
                    raise StoppedError(f"the same piece of work was lost {_LIVES} times, last on node {node.name}.")
    finally:
        for one in running:  # nobody would take what they give
            with suppress(Exception):
                ray.cancel(one, force=True)


def _say_if_full(cluster: Cluster, gpus: int) -> None:
    """Say that others have all there is, where they do: the work begins when they let go of it."""
    import ray

    kind, began = "GPU" if gpus else "CPU", time.monotonic()
    while ray.available_resources().get(kind, 0) < max(gpus, 1):
        if time.monotonic() - began > _ROOM:
            _LOG.warning(f"Nothing is begun until there is room: {cluster.offer()}.")
            return
        time.sleep(_ROOM / 10.0)


def _free(cluster: Cluster, busy: Sequence[Node], gpus: int) -> list[Node]:
    """Every node as often as it has room for one more, those with the most room first."""
    free = {node: (node.gpus // gpus if gpus else node.processors) for node in cluster.nodes()}
    for node in busy:
        if node in free:
            free[node] -= 1
    return [node for node, room in sorted(free.items(), key=lambda one: -one[1]) for _ in range(room)]


def _begun(cluster: Cluster, node: Node, gpus: int, work: Callable[[Item], Any], item: Item) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options = {
        "num_cpus": 1,
        "num_gpus": gpus,
        "max_retries": 0,  # whoever asks decides where it is begun again
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False),
        "runtime_env": {"env_vars": cluster.held} if cluster.held else None,
    }
    return ray.remote(_done).options(**options).remote(cluster.environment, sys.path, work, item)


def _done(environment: dict[str, str], path: list[str], work: Callable[[Item], Result], item: Item) -> Result:
    """In a process of a node: do the work as on the machine that asked for it."""
    os.environ.update(environment)
    sys.path.extend(place for place in path if place not in sys.path)
    torch.set_num_threads(1)
    return work(item)


def _ours(error: Any, node: Node) -> Exception:
    """The error that the work raised, which names the node."""
    cause = error.cause
    if isinstance(cause, InputError | StoppedError):
        return type(cause)(f"on node {node.name}: {cause}")
    return InputError(f"on node {node.name}: {first_line(error)}.")
