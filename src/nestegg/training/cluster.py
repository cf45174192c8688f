"""The nodes of a Ray cluster: which of them can take part, and what all of them compute with."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from logging import getLogger
from typing import Any

from nestegg.errors import InputError
from nestegg.training import kernel, node
from nestegg.training.connecting import connect, first_line, obstacle

_LOG = getLogger("nestegg.cluster")
_LOOK = 0.5  # seconds for which nodes are taken to be as they were
_PROBE = 60.0  # seconds in which a node must say what it can do: it starts a process and imports torch
_CAPABILITIES = ("DEFAULT", "AVX2", "AVX512")  # of torch, the narrowest first
# How torch and the libraries in it are held to one instruction set where machines differ.
_HELD = {
    "DEFAULT": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"},
}
Abilities = Mapping[str, Any]
_clusters: dict[str, Cluster] = {}  # by the address that was asked for; Ray connects a process to one


@dataclass(frozen=True)
class Node:
    """A node that can take part.

    Attributes:
        id: by which Ray knows it.
        name: by which people do.
        processors: that it offers.
        gpus: that it offers.
    """

    id: str
    name: str
    processors: int
    gpus: int


class Cluster:
    """A cluster that this process is connected to, and its nodes as they come and go.

    A node takes part if it has the same versions of Python, torch and nestegg, and the instruction set that the run is
    held to: the one that NESTEGG_KERNEL names here, or else the widest that all nodes have at the start. Others are
    named in a warning, once, and not used.

    Args:
        address: local, auto, or host:port; see `connect`.

    Raises:
        InputError: it cannot be reached, or none of its nodes can take part.
    """

    def __init__(self, address: str) -> None:
        began = time.monotonic()
        self.address = connect(address)
        self._asked: dict[str, Abilities | str] = {}  # what nodes can do, or why that cannot be told, by their ids
        self._pending: dict[str, Any] = {}  # nodes that have not answered yet
        self._judged: dict[str, Node | None] = {}
        self._nodes: list[Node] = []
        self._looked = 0.0
        self._refused: dict[str, str] = {}
        self._ours = node.abilities()
        self._ask(_PROBE)
        able = [can for can in self._asked.values() if not isinstance(can, str) and self._difference(can) is None]
        # Of the kernel, on all nodes: one that all have, or "none".
        self.instruction_set = _instruction_set([can["instruction_sets"] for can in able])
        capabilities = {can["capability"] for can in able}
        self._capability = min(capabilities, key=_width, default="DEFAULT")
        # What processes are started with where machines differ, and what all of them set: so they give the same bits.
        self.held = _HELD.get(self._capability, {}) if len(capabilities) > 1 else {}
        self.environment = {kernel.VARIABLE: self.instruction_set}
        nodes = self.nodes()
        if not nodes:
            raise InputError(f"cluster = {address!r} has no node that can take part: {self._reasons()}.")
        sizes = ", ".join(f"{one.processors} on {one.name}" for one in nodes)
        _LOG.warning(f"A Ray cluster is ready after {time.monotonic() - began:.1f} s; processors: {sizes}.")

    def nodes(self) -> list[Node]:
        """Return the nodes that are there now and can take part; one that has joined is asked what it can do."""
        if time.monotonic() - self._looked < _LOOK or not self.is_reachable():
            return self._nodes
        alive = self._ask()
        for one, about in alive.items():
            if one in self._asked and one not in self._judged:
                self._judged[one] = self._judge(about, self._asked[one])
        self._nodes = [found for one in alive if (found := self._judged.get(one)) is not None]
        self._looked = time.monotonic()
        return self._nodes

    def is_connected(self) -> bool:
        """Return whether this process still is connected to it."""
        import ray

        return bool(ray.is_initialized()) and ray.get_runtime_context().gcs_address == self.address

    def is_reachable(self) -> bool:
        """Return whether the cluster's head answers."""
        return obstacle(self.address) is None

    def offer(self) -> str:
        """Return what the cluster has, for a message to somebody who asked for more."""
        import ray

        there, free = ray.cluster_resources(), ray.available_resources()
        kinds = {kind: name for kind, name in {"CPU": "processor", "GPU": "GPU"}.items() if kind in there}
        offers = " and ".join(
            f"{there[kind]:g} {name}{'s' * (there[kind] != 1)} ({free.get(kind, 0):g} free)"
            for kind, name in kinds.items()
        )
        return f"the cluster has {offers or 'none'}" + (f"; not used: {self._reasons()}" if self._refused else "")

    def _ask(self, patience: float = 0.0) -> dict[str, Abilities]:
        """All nodes that are alive, as Ray describes them, by their ids; new ones are asked what they can do.

        Their answers are waited for as long as this; those that come later are heard the next time.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # A node that offers nothing, as heads often do, is not asked for anything.
        alive = {one["NodeID"]: one for one in ray.nodes() if one["Alive"] and one["Resources"].get("CPU")}
        ray.cloudpickle.register_pickle_by_value(node)
        for one in alive.keys() - self._asked.keys() - self._pending.keys():
            there = NodeAffinitySchedulingStrategy(one, soft=False)
            self._pending[one] = ray.remote(node.abilities).options(num_cpus=0, scheduling_strategy=there).remote()
        answers = list(self._pending.values())
        ready = ray.wait(answers, num_returns=len(answers), timeout=patience)[0] if answers else []
        for one in [one for one, answer in self._pending.items() if answer in ready]:
            try:
                self._asked[one] = ray.get(self._pending.pop(one))
            except ray.exceptions.RayError as error:
                self._asked[one] = first_line(error)
        return alive

    def _judge(self, about: Abilities, can: Abilities | str) -> Node | None:
        """A node that can take part, or None with a warning that names it."""
        name = f"{about['NodeManagerHostname']} ({about['NodeManagerAddress']}:{about['NodeManagerPort']})"
        processors, gpus = (int(about["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
        one = Node(about["NodeID"], name, processors, gpus)
        reason = can if isinstance(can, str) else self._lack(can)
        if reason is None:
            return one
        self._refused[name] = reason
        say_refused(one, reason)
        return None

    def _lack(self, can: Abilities) -> str | None:
        """What keeps a node from taking part."""
        if (difference := self._difference(can)) is not None:
            return difference
        if self.instruction_set not in (*can["instruction_sets"], "none"):
            return f"it has no kernel for {self.instruction_set}"
        # Where all were alike at the start, nothing holds a wider one back.
        is_alike = can["capability"] == self._capability
        if not is_alike and (not self.held or _width(can["capability"]) < _width(self._capability)):
            return f"torch computes with {can['capability']} there, and this run with {self._capability}"
        return None

    def _difference(self, can: Abilities) -> str | None:
        """What a node has that differs from this machine, and must not."""
        for what in ("python", "torch", "nestegg"):
            if can[what] != self._ours[what]:
                return f"it has {what} {can[what]}, and this machine {self._ours[what]}"
        return None

    def _reasons(self) -> str:
        return "; ".join(f"{name}: {reason}" for name, reason in self._refused.items())


def cluster_at(address: str) -> Cluster:
    """Return the cluster at an address; a process connects to it once."""
    if (known := _clusters.get(address)) is None or not known.is_connected():
        _clusters.clear()
        _clusters[address] = known = Cluster(address)
    return known


def say_refused(one: Node, reason: str) -> None:
    """Say which node is not used, and why."""
    _LOG.warning(f"Node {one.name} of the cluster is not used: {reason}.")


def _width(capability: str) -> int:
    """The place of a capability of torch, the narrowest first; one that is not known is narrower than all."""
    return _CAPABILITIES.index(capability) if capability in _CAPABILITIES else -1


def _instruction_set(theirs: list[list[str]]) -> str:
    """The instruction set of a run: the one that is asked for here, or else the widest that all have, or none."""
    if os.environ.get(kernel.VARIABLE):
        return kernel.chosen() or "none"
    return next((one for one in kernel.instruction_sets() if all(one in sets for sets in theirs)), "none")
