"""Canaries: clients whose update is known beforehand, each on coordinates of its own.

On the crafted network every canary has one sample, zero but for its own coordinate. The network is saturated: it says
yes to everything, so the gradient of a sample whose label is no is that sample, whatever the weights are. A canary's
update therefore has one direction, downwards along its own coordinate, and, if the sample is loud, exactly the length
of its clip norm; one round has as many independent trials as there are canaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from nestegg.accounting import Array
from nestegg.audit.claims import Claims
from nestegg.audit.watching import Watched
from nestegg.mechanism.randomness import Randomness
from nestegg.planning import Plan
from nestegg.runs.configured import with_members
from nestegg.training import Federation, Performance
from nestegg.training.local import Samples, default_loss

QUIET = 256  # coordinates of nobody: nothing but noise
LOUD = 1000.0  # how often a loud canary's gradient is as long as it may be
_SATURATED = 1e30  # no sample moves the output away from its limit, nor a step this bias
_LAYERS = 4  # at most, of the crafted network


class Parallel(nn.Module):
    """Linear layers side by side, whose outputs are added to one beyond the reach of any sample."""

    limit: Tensor

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, 1, bias=False) for _ in range(layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        self.register_buffer("limit", torch.tensor(_SATURATED))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the layers' outputs."""
        return self.limit + torch.stack([layer(x) for layer in self.layers]).sum(dim=0)


@dataclass(frozen=True, eq=False)
class Crafted:
    """A federation of canaries by somebody's plan, clipping, unit and engine.

    Attributes:
        watched: its rounds.
        width: coordinates of a layer.
        layers: of the network.
    """

    watched: Watched
    width: int
    layers: int

    def seen(self, vector: Tensor) -> Array:
        """Return a vector along the directions of all updates, downwards, those of canaries and those of nobody."""
        parts = vector.double()[: self.layers * self.width].view(self.layers, self.width)
        return np.asarray(-parts.sum(dim=0).numpy() / np.sqrt(self.layers))


def crafted(
    claims: Claims,
    performance: Performance,
    loudness: Mapping[int, float],
    *,
    layers: int = 1,
    randomness: Randomness | None = None,
) -> Crafted:
    """Make a federation in which some clients are canaries and all others have no data.

    Args:
        claims: the plan, its mechanics and local training.
        performance: engine and processes.
        loudness: the gradient of each canary, by client; one with 0 has its coordinate and no data.
        layers: of the network, where the engine is not the dense one; that one has one layer.
        randomness: of cohorts and noise; by default they are secret.
    """
    is_dense = performance.engine == "dense"
    layers, width = 1 if is_dense else min(layers, _LAYERS), len(loudness) + QUIET
    data = [_sample(width, 0, 0.0)] * claims.plan.clients
    for coordinate, (client, gradient) in enumerate(loudness.items()):
        data[client] = _sample(width, coordinate, gradient)
    federation = Federation(
        nameless(claims.plan),
        _saturated(width) if is_dense else Parallel(width, layers),
        data,
        local=replace(claims.local, epochs=1, loss=default_loss, optimizer=None),  # there is one gradient
        mechanics=replace(claims.mechanics, randomness=randomness or Randomness()),
        performance=replace(performance, precision="fp32"),
    )
    return Crafted(Watched(federation), width, layers)


def loud(claims: Claims) -> float:
    """Return a gradient that every clip norm of a plan is far below."""
    steps = np.array(claims.local.rates(claims.plan.rounds))
    return float(LOUD * (claims.norms / steps).max())


def nameless(plan: Plan) -> Plan:
    """Return a plan whose groups do not say who is in them."""
    return with_members(plan, ())


def _sample(width: int, coordinate: int, gradient: float) -> Samples:
    x = torch.zeros(int(gradient != 0.0), width)
    x[:, coordinate] = gradient
    return x, torch.zeros(len(x), dtype=torch.int64)


def _saturated(width: int) -> nn.Module:
    """The same as one layer that the dense engine takes; a step is lost beside its bias."""
    layer = nn.Linear(width, 1)
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, _SATURATED)
    return nn.Sequential(layer)
