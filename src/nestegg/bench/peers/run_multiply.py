"""No simulator: a round is some matrix products in every worker. Arguments: any folder, workers, precision."""

from __future__ import annotations

import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np
import torch
from numpy.typing import NDArray
from work import serve

SIZE, PRODUCTS = 1024, 40  # 86 thousand million operations


def multiply(connection: Connection, precision: str) -> None:
    """Multiply whenever told to."""
    torch.set_num_threads(1)
    kind = torch.float32 if precision == "fp32" else torch.bfloat16
    matrix = torch.randn(SIZE, SIZE).to(kind)
    out = torch.empty_like(matrix)
    while connection.recv():
        for _ in range(PRODUCTS):
            torch.mm(matrix, matrix, out=out)
        connection.send(True)


def main(workers: int, precision: str) -> None:
    """Serve rounds."""
    context, connections = get_context("fork"), []
    for _ in range(workers):
        ours, theirs = context.Pipe()
        context.Process(target=multiply, args=(theirs, precision), daemon=True).start()
        connections.append(ours)

    def run(_: int, __: bool) -> NDArray[np.float32]:
        for connection in connections:
            connection.send(True)
        for connection in connections:
            connection.recv()
        return np.zeros(1, np.float32)

    serve(run, operations=2.0 * SIZE**3 * PRODUCTS * workers)


if __name__ == "__main__":
    main(int(sys.argv[2]), sys.argv[3])
