"""How a round grows with nodes: a cluster of more and more of them on loopback, each with one worker and no work.

python -m bench.cluster_growth --out DIR

All nodes share the cores of this machine. So each has two clients of one sample, and what is measured is what nodes
cost by themselves: a model of 1.66 million parameters is sent to each, and a sum comes back from each.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import median

import psutil
from tests.ray_nodes import RayNodes

from bench.cluster import federation, round_seconds
from nestegg.bench.growth import Point
from nestegg.bench.growth_charts import power, save_growth
from nestegg.bench.machine import machine

_NODES, _ROUNDS, _BY_NODE = (1, 2, 4, 8), 15, 2


def point(nodes: int) -> Point:
    """Measure a round on so many nodes, and the memory of the process that leads it."""
    with RayNodes(0, *[1] * nodes) as cluster:
        os.environ.update(cluster.environment)
        import ray  # reads the environment, which is the same but for the folder

        rounds = federation(_BY_NODE * nodes, 1, cluster.address, nodes)
        round_seconds(rounds)
        seconds = median(round_seconds(rounds) for _ in range(_ROUNDS))
        ray.shutdown()
    return Point("nodes", nodes, seconds, psutil.Process().memory_info().rss / 1e6)


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    folder: Path = parser.parse_args().out
    print(machine())
    points = []
    for nodes in _NODES:
        points.append(point(nodes))
        print(points[-1])
    print(f"powers: {power(points, 'seconds'):.2f} and {power(points, 'megabytes'):.2f}")
    folder.mkdir(parents=True, exist_ok=True)
    save_growth(folder, points)


if __name__ == "__main__":
    main()
