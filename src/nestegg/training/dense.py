"""The engine for dense networks: a block of clients is one call of the compiled kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from nestegg.mechanism import Layout
from nestegg.mechanism.randomness import Randomness
from nestegg.training.clients import Clients, Integers
from nestegg.training.kernel import Kernel, Network, Steps, Work, orders, train
from nestegg.training.local import LocalTraining
from nestegg.training.losses import Balanced, shifts

# Numbers in the updates of one block, about: enough to outweigh its call from Python. A block has some clients at
# least, unless they take too much memory; where there are many clients, there are also many blocks, for many workers.
_BLOCK, _CLIENTS, _MOST, _BLOCKS = 1 << 19, 8, 1 << 22, 16


def is_dense(model: nn.Module, shape: torch.Size) -> bool:
    """Return whether a model is linear layers after an optional flattening, with one kind of function between them.

    That is the rectifier or the hyperbolic tangent; one linear layer alone will do. Every layer has a bias and is
    trained in single precision; none is used twice, has hooks or is a class of its own.
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
        and all(type(layer) is nn.Linear for layer in layers[::2])
        and {type(layer) for layer in layers[1::2]} in (set(), {nn.ReLU}, {nn.Tanh})
        and [layer.in_features for layer in linear] == widths[:-1]
        and len({id(parameter) for parameter in parameters}) == 2 * len(linear)
        and all(p.requires_grad and p.dtype == torch.float32 for p in parameters)
        and not any(map(is_hooked, model.modules()))
    )


def is_hooked(part: nn.Module) -> bool:
    """Return whether other code is called when a module is."""
    return bool(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks)


class _Rows(NamedTuple):
    """Samples of some clients, where those of each begin, how many, and what is added to each client's outputs."""

    samples: Tensor
    starts: Integers
    sizes: Integers
    shifts: NDArray[np.float32] | None

    def of(self, block: list[int]) -> _Rows:
        own = None if self.shifts is None else self.shifts[block]
        return _Rows(self.samples, self.starts[block], self.sizes[block], own)


class DenseEngine:
    """Forward and backward passes of small networks without autograd, and without calls from Python in each batch.

    The kernel trains client after client, so that no bit of an update depends on who else is in the block.
    """

    name = "dense"

    def __init__(
        self,
        model: nn.Module,
        clients: Clients,
        training: LocalTraining,
        randomness: Randomness,
        kernel: Kernel,
    ) -> None:
        self.kernel = kernel
        self.instruction_set: str | None = kernel.instruction_set
        self.layout = Layout.of(model)
        self.rows = max(1, min(max(_BLOCK // self.layout.size, _CLIENTS), _MOST // self.layout.size))
        self.training, self.randomness = training, randomness
        self.clients = clients
        units = [self.layout.shapes[0][1], *(shape[0] for shape in self.layout.shapes[::2])]
        self.network = Network(units, any(type(part) is nn.Tanh for part in model.modules()))
        self.all: _Rows | None = None
        if not clients.is_lazy:  # side by side once and for all
            self.all = self._side_by_side(range(len(clients)))

    def _side_by_side(self, block: Sequence[int]) -> _Rows:
        """Samples of some clients as rows [inputs, 1, what is expected]."""
        x, y, sizes = self.clients.rows(block)
        outputs, x = self.network.units[-1], x.flatten(1)
        expected = y[:, None] if outputs == 1 else functional.one_hot(y, outputs)
        samples = torch.cat([x, x.new_ones(len(y), 1), expected.to(x.dtype)], dim=1)
        return _Rows(samples, np.cumsum(sizes) - sizes, sizes, self._shifts(y, sizes))

    def _shifts(self, y: Tensor, sizes: Integers) -> NDArray[np.float32] | None:
        """What the balanced loss adds to each client's outputs."""
        if not isinstance(self.training.loss, Balanced):
            return None
        outputs = self.network.units[-1]
        labels = max(outputs, 2)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        counts = np.bincount(owner * labels + y.numpy(), minlength=len(sizes) * labels)
        return shifts(counts.reshape(-1, labels), outputs)

    def blocks(self, cohort: Sequence[int]) -> list[list[int]]:
        """Clients of similar size side by side, the largest first: nobody waits for the largest at the end."""
        if not cohort:
            return []
        known = self.clients.sizes
        sizes = np.ones(len(cohort), np.int64) if known is None else known[list(cohort)]
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
        """The updates of a block; NaN, which counts as zero, where memory fails or a client's data cannot be read.

        Such a client must not stop the others: that would tell that it was sampled.
        """
        try:
            return self._train(model, block, round_, rate)
        except (Exception, SystemExit):  # code of others may do anything
            if len(block) == 1:
                return torch.full((1, self.layout.size), torch.nan)
        return torch.cat([self.train_block(model, [client], round_, rate) for client in block])

    def _train(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        training, key = self.training, self.randomness.order_key(round_)
        rows = self._side_by_side(block) if self.all is None else self.all.of(block)
        order = orders(self.kernel, key, self.clients.keys(block), rows.sizes, rows.starts, training.epochs)
        batch = max(1, min(training.batch_size, int(rows.sizes.max())))  # no client of the block has more in a batch
        steps = Steps(training.epochs, batch, rate, training.momentum)
        work = Work(rows.samples, order, rows.sizes, rows.shifts)
        return train(self.kernel, model, self.network, work, steps)
