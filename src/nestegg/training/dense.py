"""The batched engine: all clients of a cohort as one computation, for models whose layers are dense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from nestegg.errors import InputError
from nestegg.mechanism import Layout
from nestegg.randomness import Purpose, Randomness
from nestegg.training.local import LocalTraining, Samples, batches

# Numbers in one buffer of weights. Few enough that a block's weights and velocity stay in a core's cache; but at least
# so many clients, unless they take too much memory.
_BLOCK, _CLIENTS, _MOST = 1 << 17, 8, 1 << 22


@contextmanager
def one_thread() -> Iterator[None]:
    """Small operations on several threads mostly wait for each other; on a busy machine they wait very long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def is_dense(model: nn.Module) -> bool:
    """Whether a model is linear layers with biases, and rectifiers between them, after an optional flattening."""
    layers = [layer for layer in model if not isinstance(layer, nn.Flatten)] if isinstance(model, nn.Sequential) else []
    alternating = all(isinstance(layer, nn.ReLU if i % 2 else nn.Linear) for i, layer in enumerate(layers))
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    trainable = all(layer.bias is not None and all(p.requires_grad for p in layer.parameters()) for layer in linear)
    return bool(layers) and alternating and len(layers) % 2 == 1 and trainable


class DenseEngine:
    """Forward and backward passes of many small networks as batched matrix products, without autograd.

    Clients are sorted by their number of steps, most first. In every step the clients that still have a batch are the
    first rows of each buffer, so nothing is computed for those that are done, however uneven the clients are.
    """

    name = "dense"

    def __init__(
        self, model: nn.Module, clients: Sequence[Samples], training: LocalTraining, randomness: Randomness
    ) -> None:
        if not is_dense(model):
            raise InputError("engine = 'dense' needs a model of linear layers with rectifiers between them.")
        self.layout = Layout.of(model)
        self.rows = max(1, min(max(_BLOCK // self.layout.size, _CLIENTS), _MOST // self.layout.size))
        self.training, self.randomness = training, randomness
        self.sizes = [len(y) for _, y in clients]
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self.x = torch.cat([x.flatten(1) for x, _ in clients])
        self.y = torch.cat([y for _, y in clients])

    def train(
        self, model: Tensor, cohort: Sequence[int], round_: int, rate: float
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Updates of the cohort, many clients a block."""
        for block in self.blocks(cohort):
            with one_thread():
                updates = self.train_block(model, block, round_, rate)
            yield block, updates

    def blocks(self, cohort: Sequence[int]) -> list[list[int]]:
        """Clients of similar size side by side, the largest first."""
        ordered = sorted(cohort, key=lambda client: -self.sizes[client])
        count = -(-len(ordered) // self.rows)  # as few blocks as possible, and all alike
        rows = -(-len(ordered) // max(count, 1))
        return [ordered[start : start + rows] for start in range(0, len(ordered), max(rows, 1))]

    def train_block(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        """The updates of a block, whose clients come the largest first."""
        plans = [
            [self.starts[c] + b for b in batches(self.sizes[c], self.training, self._stream(round_, c))] for c in block
        ]
        weights = [start.expand(len(block), *start.shape).clone() for start in self.layout.split(model)]
        velocity = [torch.zeros_like(weight) for weight in weights]
        for step in range(len(plans[0])):
            active = sum(1 for plan in plans if step < len(plan))
            index, mask = (part.to(model.device) for part in _padded([plan[step] for plan in plans[:active]]))
            x = self.x.index_select(0, index.flatten()).unflatten(0, index.shape)
            y = self.y.index_select(0, index.flatten()).unflatten(0, index.shape)
            self._step(x, y, mask, [w[:active] for w in weights], [v[:active] for v in velocity], rate)
        return torch.cat([weight.flatten(1) for weight in weights], dim=1).sub_(model)

    def _step(
        self, x: Tensor, y: Tensor, mask: Tensor, weights: list[Tensor], velocity: list[Tensor], rate: float
    ) -> None:
        """One step of SGD with momentum on each client's mean loss; parameters come as (weight, bias, weight, …).

        A gradient is never stored: the product that gives it is added to the velocity at once.
        """
        inputs, momentum = [x], self.training.momentum
        for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            inputs.append(torch.baddbmm(bias[:, None], inputs[-1], weight.transpose(1, 2)).relu_())
        outputs = torch.baddbmm(weights[-1][:, None], inputs[-1], weights[-2].transpose(1, 2))
        delta = _loss_gradient(outputs, y) * (mask / mask.sum(dim=1, keepdim=True))[..., None]
        for layer in range(len(inputs) - 1, -1, -1):
            before = delta
            if layer:
                back = torch.bmm(delta, weights[2 * layer])
                delta = torch.ops.aten.threshold_backward(back, inputs[layer], 0.0)
            velocity[2 * layer].baddbmm_(before.transpose(1, 2), inputs[layer], beta=momentum)
            velocity[2 * layer + 1].mul_(momentum).add_(before.sum(dim=1))
            weights[2 * layer].add_(velocity[2 * layer], alpha=-rate)
            weights[2 * layer + 1].add_(velocity[2 * layer + 1], alpha=-rate)

    def _stream(self, round_: int, client: int) -> np.random.Generator:
        return self.randomness.stream(Purpose.SHUFFLE, round_, client)


def _loss_gradient(outputs: Tensor, labels: Tensor) -> Tensor:
    """Derivative of the default loss by the outputs, sample by sample."""
    if outputs.shape[-1] == 1:
        return outputs.sigmoid() - labels[..., None]
    return outputs.softmax(dim=-1) - functional.one_hot(labels, outputs.shape[-1])


def _padded(rows: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Batches of unequal length as one matrix of indices, and a mask of what is real."""
    lengths = np.array([row.size for row in rows])
    index = np.zeros((len(rows), lengths.max()), np.int64)
    mask = np.arange(index.shape[1]) < lengths[:, None]
    index[mask] = np.concatenate(rows)
    return torch.from_numpy(index), torch.from_numpy(mask.astype(np.float32))
