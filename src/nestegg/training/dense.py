"""The batched engine: all clients of a cohort as one computation, for models whose layers are dense."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nestegg.mechanism import Layout
from nestegg.randomness import Randomness
from nestegg.training import kernel
from nestegg.training.local import LocalTraining, Samples

# Numbers in one buffer of weights, about: enough that a step's operations outweigh their calls from Python. A block has
# some clients at least, unless they take too much memory; where there are many clients, there are also many blocks, for
# many workers.
_BLOCK, _CLIENTS, _MOST, _BLOCKS = 1 << 19, 8, 1 << 22, 16


def is_dense(model: nn.Module, shape: torch.Size) -> bool:
    """Whether a model is linear layers with rectifiers between them, after an optional flattening, and nothing else.

    Every layer has a bias and is trained in single precision; none is used twice, has hooks or is a class of its own.
    """
    if type(model) is not nn.Sequential or len(model) == 0:
        return False
    layers = list(model)
    if type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1):
        shape = torch.Size([shape.numel()])
        layers = layers[1:]
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    parameters = [parameter for layer in linear for parameter in layer.parameters()]
    widths = [*shape, *(layer.out_features for layer in linear)]
    return (
        len(layers) % 2 == 1
        and all(type(layer) is (nn.ReLU if i % 2 else nn.Linear) for i, layer in enumerate(layers))
        and [layer.in_features for layer in linear] == widths[:-1]
        and len({id(parameter) for parameter in parameters}) == 2 * len(linear)
        and all(p.requires_grad and p.dtype == torch.float32 for p in parameters)
        and not any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in model.modules())
    )


class DenseEngine:
    """Forward and backward passes of many small networks without autograd, and without calls from Python in each batch.

    The compiled kernel trains client after client. Where there is none, and on other devices than CPUs, clients are one
    computation of batched matrix products: they are sorted by their number of steps, most first, so that in every step
    those that still have a batch are the first rows of each buffer, and nothing is computed for the others.
    """

    name = "dense"

    def __init__(
        self, model: nn.Module, clients: Sequence[Samples], training: LocalTraining, randomness: Randomness
    ) -> None:
        self.layout = Layout.of(model)
        self.rows = max(1, min(max(_BLOCK // self.layout.size, _CLIENTS), _MOST // self.layout.size))
        self.training, self.randomness = training, randomness
        self.sizes = np.array([len(y) for _, y in clients])
        self.starts = np.cumsum(self.sizes) - self.sizes
        x, y = torch.cat([x.flatten(1) for x, _ in clients]), torch.cat([y for _, y in clients])
        self.units = [self.layout.shapes[0][1], *(shape[0] for shape in self.layout.shapes[::2])]
        outputs = self.units[-1]
        expected = y[:, None] if outputs == 1 else functional.one_hot(y, outputs)
        self.samples = torch.cat([x, x.new_ones(len(y), 1), expected.to(x.dtype)], dim=1)
        self.library = kernel.load() if x.device.type == "cpu" else None

    def blocks(self, cohort: Sequence[int]) -> list[list[int]]:
        """Clients of similar size side by side, the largest first: nobody waits for the largest at the end."""
        if not cohort:
            return []
        sizes = self.sizes[list(cohort)]
        order = np.argsort(-sizes, kind="stable")
        # As many blocks as cores may be, of equal work: cut where the samples so far are a whole share of all.
        count = 2 ** int(np.log2(np.clip(len(order) // _CLIENTS, 1, _BLOCKS)))
        share = (np.cumsum(sizes[order]) - sizes[order] / 2) * count // sizes.sum()
        blocks: list[list[int]] = []
        for i, position in enumerate(order):
            if i == 0 or share[i] != share[i - 1] or len(blocks[-1]) == self.rows:
                blocks.append([])
            blocks[-1].append(cohort[position])
        return blocks

    def train_block(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        """The updates of a block, whose clients come the largest first."""
        if self.library is None:
            return self._train_batched(model, block, round_, rate)
        training, sizes = self.training, self.sizes[block]
        orders = self.randomness.orders(round_, block, sizes.tolist(), training.epochs)
        real = np.broadcast_to(np.arange(orders.shape[2]) < sizes[:, None, None], orders.shape)
        order = (orders + self.starts[block][:, None, None])[real]
        settings = (training.epochs, min(training.batch_size, int(sizes.max())), rate, training.momentum)
        return kernel.train(self.library, model, self.units, self.samples, order, sizes, *settings)

    def _train_batched(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        index, scale = self._schedule(block, round_)
        pieces = self.layout.split(model)
        start = [torch.vstack([w.T, b]) for w, b in zip(pieces[::2], pieces[1::2], strict=True)]
        weights = [layer.expand(len(block), *layer.shape).clone() for layer in start]
        velocity = [torch.zeros_like(layer) for layer in weights]
        inputs = [model.new_ones(*scale[0].shape[:2], layer.shape[1]) for layer in weights[1:]]
        networks = Networks(weights, velocity, inputs, self.training.momentum)
        for rows, factors in zip(index, scale, strict=True):
            if len(factors) < networks.clients:
                networks = networks.first(len(factors))
            samples = self.samples.index_select(0, rows.to(model.device))
            networks.step(samples.view(*factors.shape[:2], -1), factors.to(model.device), rate)
        parts = [part for layer in weights for part in (layer[:, :-1].transpose(1, 2), layer[:, -1])]
        return torch.cat([part.flatten(1) for part in parts], dim=1).sub_(model)

    def _schedule(self, block: list[int], round_: int) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """What is taken in every step by the clients that still have a batch, who are the first of the block.

        Numbers of samples, one after the other; and their weights in the client's mean loss, (clients, batch, 1).
        """
        sizes, epochs = self.sizes[block], self.training.epochs
        batch = min(self.training.batch_size, int(sizes.max()))
        orders = self.randomness.orders(round_, block, sizes.tolist(), epochs)
        an_epoch = -(-sizes // batch)
        at_work = np.arange(epochs * an_epoch.max())[:, None] < epochs * an_epoch
        step, client = np.nonzero(at_work)
        epoch, number = np.divmod(step, an_epoch[client])
        place = number[:, None] * batch + np.arange(batch)
        real = place < sizes[client][:, None]
        taken = orders[client[:, None], epoch[:, None], np.where(real, place, 0)] + self.starts[block][client][:, None]
        scale = (real / real.sum(axis=1, keepdims=True)).astype(np.float32)
        count = at_work.sum(axis=1)
        index = torch.from_numpy(taken.ravel()).split((count * place.shape[1]).tolist())
        return index, torch.from_numpy(scale[..., None]).split(count.tolist())


class Networks:
    """Networks of some clients in training, with every layer as one matrix a client.

    A layer's inputs end in a 1, and its bias is the last row of its matrix. `inputs` are buffers for what goes into
    every layer but the first.
    """

    def __init__(self, weights: list[Tensor], velocity: list[Tensor], inputs: list[Tensor], momentum: float) -> None:
        self.clients = len(weights[0])
        self.weights, self.velocity, self.inputs, self.momentum = weights, velocity, inputs, momentum
        self.features = weights[0].shape[1]
        self.hidden = [buffer[..., :-1] for buffer in inputs]
        self.back = [layer[:, :-1].transpose(1, 2) for layer in weights]

    def first(self, clients: int) -> Networks:
        """The first of these networks, in the same memory."""
        weights, velocity, inputs = (
            [buffer[:clients] for buffer in buffers] for buffers in (self.weights, self.velocity, self.inputs)
        )
        return Networks(weights, velocity, inputs, self.momentum)

    def step(self, samples: Tensor, scale: Tensor, rate: float) -> None:
        """One step of SGD with momentum on each client's mean loss; samples are rows [inputs, 1, what is expected].

        A gradient is never stored: the product that gives it is added to the velocity at once.
        """
        inputs = [samples[..., : self.features], *self.inputs]
        for layer, hidden in enumerate(self.hidden):
            torch.clamp_min(torch.bmm(inputs[layer], self.weights[layer]), 0.0, out=hidden)
        outputs = torch.bmm(inputs[-1], self.weights[-1])
        delta = _predicted(outputs).sub_(samples[..., self.features :]).mul_(scale)
        for layer in range(len(self.weights) - 1, -1, -1):
            above = delta
            if layer:
                below = torch.bmm(delta, self.back[layer])
                delta = torch.ops.aten.threshold_backward(below, self.hidden[layer - 1], 0.0)
            self.velocity[layer].baddbmm_(inputs[layer].transpose(1, 2), above, beta=self.momentum)
            self.weights[layer].add_(self.velocity[layer], alpha=-rate)


def _predicted(outputs: Tensor) -> Tensor:
    """Probabilities; less what is expected, they are the derivative of the default loss by the outputs."""
    return outputs.sigmoid_() if outputs.shape[-1] == 1 else outputs.softmax(dim=-1)
