"""The work in JAX on the CPU, for small networks, a compiled program a round. Arguments: the work's folder, variant.

Clients are sorted by their number of steps and cut into blocks. A block's clients train at once (vmap), for as many
steps as its longest client has; every device goes through its share of the blocks. Batches are gathered from the data
by index. All rounds have the same shapes, hence compile once. The variant `all` has all clients in one block, as most
people write it. In the variant `blocks` a few widths of a block are tried before the first round, with the CPU as one
device and with a device for every core, and the fastest is taken.

A convolution is a product with patches. With weights of its own for every client, which is what vmap makes of it, a
convolution would be one with groups, which is slow on the CPU, while products of many small matrices are not.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec
from numpy.typing import NDArray
from work import Run, Work, serve

HIDDEN = 32
WIDTHS = (4, 8, 16)
TRIALS = 5

Weights = tuple[Array, ...]
Shapes = tuple[tuple[int, ...], ...]


def network(name: str, shape: tuple[int, ...], outputs: int) -> tuple[Shapes, Callable[[Weights, Array], Array]]:
    """Return the shapes of a network's weights and its outputs for a batch of flat inputs.

    Raises:
        ValueError: this program does not know it.
    """
    size = int(np.prod(shape))
    if name == "mlp":
        return ((HIDDEN, size), (HIDDEN,), (outputs, HIDDEN), (outputs,)), _mlp
    if name == "softmax":
        return ((outputs, size), (outputs,)), _softmax
    if name == "tanh-cnn" and shape == (1, 28, 28):
        convolutions: Shapes = ((16, 1, 8, 8), (16,), (32, 16, 4, 4), (32,))
        return (*convolutions, (HIDDEN, 512), (HIDDEN,), (outputs, HIDDEN), (outputs,)), _tanh_cnn
    raise ValueError(f"This program knows no network {name} for inputs of shape {shape}.")


def _mlp(weights: Weights, x: Array) -> Array:
    w1, b1, w2, b2 = weights
    return jax.nn.relu(x @ w1.T + b1) @ w2.T + b2


def _softmax(weights: Weights, x: Array) -> Array:
    w, b = weights
    return x @ w.T + b


def _tanh_cnn(weights: Weights, x: Array) -> Array:
    w1, b1, w2, b2, w3, b3, w4, b4 = weights
    images = jnp.pad(x.reshape(-1, 28, 28, 1), ((0, 0), (3, 3), (3, 3), (0, 0)))
    first = _pooled(jnp.tanh(_convolved(images, w1) + b1))
    second = _pooled(jnp.tanh(_convolved(first, w2) + b2))
    flat = jnp.transpose(second, (0, 3, 1, 2)).reshape(x.shape[0], -1)  # torch has channels first
    return jnp.tanh(flat @ w3.T + b3) @ w4.T + b4


def _convolved(images: Array, weights: Array) -> Array:
    """Return a convolution with stride 2 of images with channels last."""
    outputs, channels, side, _ = weights.shape
    cells = (images.shape[1] - side) // 2 + 1
    reach = 2 * cells - 1
    shifts = [images[:, i : i + reach : 2, j : j + reach : 2, :] for i in range(side) for j in range(side)]
    patches = jnp.stack(shifts, axis=3).reshape(-1, side * side * channels)
    kernel = jnp.transpose(weights, (2, 3, 1, 0)).reshape(-1, outputs)
    return (patches @ kernel).reshape(-1, cells, cells, outputs)


def _pooled(images: Array) -> Array:
    """Return the largest of every 2 × 2 cells, with stride 1."""
    rows = jnp.maximum(images[:, 1:], images[:, :-1])
    return jnp.maximum(rows[:, :, 1:], rows[:, :, :-1])


def plan(work: Work, width: int, devices: int) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """The blocks of every round: rows of the data (blocks, steps, width, batch size), -1 for none, and their steps.

    Blocks of the same device follow each other.
    """
    cohorts = [[batches for _, batches in work.cohort(t)] for t in range(1, work.facts["rounds"] + 1)]
    most = max(len(batches) for cohort in cohorts for batches in cohort)
    share = -(-max(map(len, cohorts)) // (width * devices))  # blocks of a device
    rounds = []
    for cohort in cohorts:
        rows = np.full((share * devices, most, width, work.facts["batch_size"]), -1, np.int32)
        for n, batches in enumerate(sorted(cohort, key=len, reverse=True)):
            for s, batch in enumerate(batches):
                rows[n // width, s, n % width, : len(batch)] = batch
        steps = (rows[:, :, 0, 0] >= 0).sum(1, dtype=np.int32)  # a block's first client is its longest
        dealt: list[list[int]] = [[] for _ in range(devices)]
        for block in range(share * devices):  # to the device that has the least to do so far
            min((d for d in dealt if len(d) < share), key=lambda d: steps[d].sum()).append(block)
        order = np.concatenate(dealt)
        rounds.append((rows[order], steps[order]))
    return rounds


def compiled(work: Work, mesh: jax.sharding.Mesh) -> Callable[..., Array]:
    """The program of a round: of x, y, start, rows, steps, the noise's seed and standard deviation."""
    facts, outputs = work.facts, work.facts["outputs"]
    shapes, forward = network(facts["model"], work.x.shape[1:], outputs)
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]

    def loss(weights: Weights, x: Array, y: Array, real: Array) -> Array:
        z = forward(weights, x)
        if outputs == 1:
            losses = jax.nn.softplus(z[:, 0]) - z[:, 0] * y
        else:
            losses = jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], axis=1)[:, 0]
        return jnp.sum(losses, where=real) / jnp.maximum(real.sum(), 1)

    @partial(jax.vmap, in_axes=(0, 0, 0, None, None))
    def step(weights: Weights, momenta: Weights, rows: Array, x: Array, y: Array) -> tuple[Weights, Weights]:
        real, rows = rows >= 0, jnp.maximum(rows, 0)
        gradients = jax.grad(loss)(weights, x[rows], y[rows], real)
        rate = jnp.where(real[0], facts["learning_rate"], 0.0)  # a client without a batch stays as it is
        momenta = jax.tree.map(lambda m, g: facts["momentum"] * m + g, momenta, gradients)
        return jax.tree.map(lambda w, m: w - rate * m, weights, momenta), momenta

    whole, split = PartitionSpec(), PartitionSpec("devices")

    @partial(jax.shard_map, mesh=mesh, in_specs=(whole, whole, whole, split, split), out_specs=whole, check_vma=False)
    def clipped(x: Array, y: Array, start: Array, rows: Array, steps: Array) -> Array:
        width = rows.shape[2]
        first = [part.reshape(shape) for part, shape in zip(jnp.split(start, cuts), shapes, strict=True)]
        weights = tuple(jnp.broadcast_to(part, (width, *part.shape)) for part in first)

        def block(total: Array, batches: tuple[Array, Array]) -> tuple[Array, None]:
            rows, steps = batches
            state = (weights, jax.tree.map(jnp.zeros_like, weights))
            trained, _ = lax.fori_loop(0, steps, lambda s, state: step(*state, rows[s], x, y), state)
            updates = jnp.concatenate([part.reshape(width, -1) for part in trained], axis=1) - start
            norms = jnp.maximum(jnp.linalg.norm(updates, axis=1), 1e-30)
            return total + jnp.minimum(facts["clip_norm"] / norms, 1.0) @ updates, None

        return lax.psum(lax.scan(block, jnp.zeros_like(start), (rows, steps))[0], "devices")

    @jax.jit
    def program(x: Array, y: Array, start: Array, rows: Array, steps: Array, seed: int, std: float) -> Array:
        total = clipped(x, y, start, rows, steps)
        return start + (total + std * jax.random.normal(jax.random.key(seed), total.shape)) / facts["expected"]

    return program


def main(folder: str, variant: str) -> None:
    """Serve rounds."""
    work = Work.load(folder)
    network(work.facts["model"], work.x.shape[1:], work.facts["outputs"])  # or it ends here, and says why
    cores = len(os.sched_getaffinity(0))
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", cores)
    arrays = (np.asarray(work.x).reshape(len(work.x), -1), work.y.astype(np.int32), work.start)

    def runner(devices: int, width: int) -> Run:
        mesh = jax.make_mesh((devices,), ("devices",), devices=jax.devices()[:devices])
        whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("devices"))
        data = jax.device_put(arrays, whole)
        rounds = [jax.device_put(blocks, split) for blocks in plan(work, width, devices)]
        program = compiled(work, mesh)

        def run(round_: int, noisy: bool) -> NDArray[np.float32]:
            return np.asarray(program(*data, *rounds[round_ - 1], round_, work.facts["noise_std"] if noisy else 0.0))

        return run

    everybody = max(len(work.cohort(t)) for t in range(1, work.facts["rounds"] + 1))
    choices = [(1, everybody)] if variant == "all" else [(devices, width) for devices in {1, cores} for width in WIDTHS]
    runs = {choice: runner(*choice) for choice in choices}
    seconds: dict[tuple[int, int], list[float]] = {choice: [] for choice in runs}
    for _ in range(1 + TRIALS):
        for choice, run in runs.items():
            started = time.perf_counter()
            run(1, True)
            seconds[choice].append(time.perf_counter() - started)
    best = min(runs, key=lambda choice: np.median(seconds[choice][1:]))  # without the first, which compiles
    serve(runs[best], version=jax.__version__, devices=best[0], width=best[1])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
