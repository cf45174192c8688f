"""How ideas enter a federation: the engine of local ideas, and what clients do before their updates are clipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bench.trials.idea import Idea, LocalIdea, Released, Step
from nestegg.errors import InputError
from nestegg.mechanism import BlockSum
from nestegg.training import Federation, State
from nestegg.training.blocks import Clipping, Tell
from nestegg.training.engines import LoopEngine


@dataclass(frozen=True, eq=False)
class ShapedClipping(Clipping):
    """The mechanism's clipping, of what an idea makes of updates."""

    idea: Idea = field(kw_only=True)
    round_: int = field(kw_only=True)

    def sum(self, updates: Tensor, tell: Tell | None = None) -> BlockSum:
        """Shape the updates of these clients, then clip and sum them."""
        return super().sum(self.idea.shape(updates, self.norms, self.round_).contiguous(), tell)


class IdeaEngine(LoopEngine):
    """Client after client, by SGD with momentum on what an idea takes for gradients; for linear models alone."""

    name = "idea"

    def __init__(self, federation: Federation, idea: LocalIdea) -> None:
        if [len(shape) for shape in federation.layout.shapes] != [2, 1]:
            raise InputError("ideas about local training are tried on linear models with biases alone.")
        self.idea, self.client, self.norm, self.federation = idea, -1, 0.0, federation
        super().__init__(federation.model, federation.clients, federation.local, federation.randomness)

    def train_block(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        """The update of one client."""
        (self.client,) = block
        self.norm = float(norms_of(self.federation, round_)[self.client])
        return super().train_block(model, block, round_, rate)

    def _train_on(self, x: Tensor, y: Tensor, plan: list[NDArray[np.int64]], rate: float) -> None:
        outputs, start, velocity = self.layout.shapes[0][0], self.weights.clone(), torch.zeros_like(self.weights)
        inputs, expected = x.flatten(1), expectation(y, outputs)
        step = Step(self.client, start, self.weights, lambda at: at, rate, self.norm)
        for batch in plan:
            index = torch.from_numpy(batch)
            step = step._replace(slope=partial(linear_slope, inputs=inputs[index], expected=expected[index]))
            velocity = velocity.mul_(self.training.momentum).add_(self.idea.gradient(step))
            self.weights.add_(velocity, alpha=-rate)
        self.idea.leave(step, len(plan))


def expectation(y: Tensor, outputs: int) -> Tensor:
    """Return what outputs should be, a row for each label."""
    return y[:, None].float() if outputs == 1 else functional.one_hot(y, outputs).float()


def linear_slope(weights: Tensor, *, inputs: Tensor, expected: Tensor) -> Tensor:
    """Return the gradient of the cross entropy of a linear model: that of weights, a row for each output, and biases.

    By hand, for autograd takes ten times as long for a model as small as this.
    """
    outputs, width = expected.shape[1], inputs.shape[1]
    values = torch.addmm(weights[outputs * width :], inputs, weights[: outputs * width].view(outputs, width).T)
    residual = ((values.sigmoid() if outputs == 1 else values.softmax(dim=1)) - expected) / len(inputs)
    return torch.cat([(residual.T @ inputs).flatten(), residual.sum(dim=0)])


def norms_of(federation: Federation, round_: int) -> NDArray[np.float64]:
    """Return everybody's clip norm in a round, in the unit of updates."""
    norms = np.array([row.clip_norm[round_ - 1] for row in federation.plan.groups])[federation.group]
    return norms * (federation.rates[round_ - 1] if federation.mechanics.clip_unit == "gradient" else 1.0)


def equipped(federation: Federation, idea: Idea) -> Federation:
    """Let a federation train by an idea; it is the idea's from now on, in one process."""
    idea.begin(federation)
    workers = federation.workers
    if isinstance(idea, LocalIdea):
        workers.engine = federation.engine = IdeaEngine(federation, idea)
        idea.begin(federation)  # the engine has tried it on zeros
    workers.count, sums = 1, workers.sums

    def shaped(
        model: Tensor, cohort: Sequence[int], round_: int, rate: float, clipping: Clipping
    ) -> Iterator[BlockSum]:
        own = ShapedClipping(clipping.norms, clipping.layers, clipping.step, clipping.side, idea=idea, round_=round_)
        yield from sums(model, cohort, round_, rate, own)

    setattr(workers, "sums", shaped)  # noqa: B010, mypy allows no method to be assigned
    return federation


def step(federation: Federation, idea: Idea, state: State) -> State:
    """Return the state after one round of an equipped federation."""
    after, report = federation.round(state)
    update = after.model - state.model
    released = Released(after.round, state.model, update, report.noise_std, report.learning_rate)
    return replace(after, model=idea.next(released))


def train(federation: Federation, idea: Idea) -> State:
    """Train an equipped federation to its end, and return the state with the model that is used."""
    state = federation.start()
    while state.round < federation.plan.rounds:
        state = step(federation, idea, state)
    return replace(state, model=idea.final(state.model))
