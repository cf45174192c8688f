"""The privacy mechanism of one round: clip, add shares of noise, make up for missing shares, sum.

All quantities are those of the plan, in the unit in which updates are clipped. Client n is sampled with q_n^t; what
leaves it has norm at most c_n^t and carries noise N(0, (c_n^t σ_n^t)²/N); the server adds the shares of everyone else.
Since c_n^t σ_n^t = c σ^t, the total is N(0, (c σ^t)²) whoever took part, and client n faces σ_n^t. A simulation, which
plays all parts, draws the N shares as what they add up to: one vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

# Clipping aims this much below the norm, so that rounding to single precision cannot lift an update over it.
_BELOW = 1.0 - 1e-6
_SUBNORMAL = 1e-37

CLIPPINGS = ("per-layer", "flat")


@dataclass(frozen=True)
class Layout:
    """How a model's trainable parameters lie in one flat vector. A layer is a module that owns parameters."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    layers: tuple[slice, ...]

    @classmethod
    def of(cls, model: nn.Module) -> Layout:
        """The layout of a model; buffers and parameters without gradient have no place in it and are never sent."""
        names, shapes, layers = [], [], []
        seen: set[int] = set()  # tied parameters are one parameter
        start = 0
        for path, module in model.named_modules():
            size = 0
            for name, parameter in module.named_parameters(prefix=path, recurse=False):
                if parameter.requires_grad and id(parameter) not in seen:
                    seen.add(id(parameter))
                    names.append(name)
                    shapes.append(parameter.shape)
                    size += parameter.numel()
            if size:
                layers.append(slice(start, start + size))
                start += size
        return cls(tuple(names), tuple(shapes), tuple(layers))

    @property
    def size(self) -> int:
        """Number of trainable parameters."""
        return self.layers[-1].stop if self.layers else 0

    def flatten(self, model: nn.Module) -> Tensor:
        """The model's trainable parameters as one vector, a copy."""
        parameters = dict(model.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names])

    def load(self, model: nn.Module, vector: Tensor) -> None:
        """Write a vector into the model's trainable parameters."""
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, piece in zip(self.names, self.split(vector), strict=True):
                parameters[name].copy_(piece)

    def split(self, vectors: Tensor) -> list[Tensor]:
        """Views of (…, size) vectors in the shapes of the parameters, (…, *shape)."""
        pieces = vectors.split([shape.numel() for shape in self.shapes], dim=-1)
        return [piece.unflatten(-1, shape) for piece, shape in zip(pieces, self.shapes, strict=True)]


def clip(updates: Tensor, norms: Tensor, layers: Sequence[slice] | None = None) -> Tensor:
    """Clip updates to their clients' norms (ClientUpdate, line 9), in place.

    Args:
        updates: (clients, size); a row that is not finite becomes zero.
        norms: c_n^t of each client.
        layers: clip each of the m layers to c_n^t/√m, so that the whole stays within c_n^t; by default the whole.

    Returns:
        The norm that each update had; it is not finite where the update was not.
    """
    if not bool((norms >= 0.0).all()):  # NaN is not: never an update that is not clipped
        raise ValueError("a clip norm is not a number of at least 0")
    pieces = [slice(None)] if layers is None else layers
    # In double precision, where the squares of single precision cannot overflow: only what is not finite gives such.
    lengths = torch.stack([torch.linalg.vector_norm(updates[:, p], dim=1, dtype=torch.float64) for p in pieces], dim=1)
    whole: Tensor = torch.linalg.vector_norm(lengths, dim=1)
    broken = ~torch.isfinite(whole)
    if broken.any():
        updates[broken] = 0.0
    limit = (norms.double() * _BELOW / np.sqrt(len(pieces)))[:, None]
    scale = torch.where((lengths > limit) & ~broken[:, None], limit / lengths, 1.0)  # a zero update stays zero
    for piece, factor in zip(pieces, scale.unbind(dim=1), strict=True):
        if (factor < _SUBNORMAL).any():  # in single precision such factors are too coarse
            updates[:, piece] = (updates[:, piece].double() * factor[:, None]).to(updates.dtype)
        elif (factor < 1.0).any():
            updates[:, piece] *= factor[:, None].to(updates.dtype)
    return whole


class BlockSum(NamedTuple):
    """What some clients contribute to a round.

    Attributes:
        total: the sum of their clipped updates.
        bits: the sum of b − ½ over them, b = 1 for an update that was below its norm.
        broken: how many updates were not finite.
    """

    total: Tensor
    bits: float
    broken: int


def clipped_sum(updates: Tensor, norms: NDArray[np.float64], layers: Sequence[slice] | None = None) -> BlockSum:
    """Clip the updates of some clients, in place, and sum them; see `clip` for the arguments."""
    limits = torch.from_numpy(norms).to(updates.device)
    lengths = clip(updates, limits, layers)
    below = int((lengths <= limits).sum())  # NaN is not below
    return BlockSum(updates.sum(dim=0), below - len(updates) / 2.0, int((~torch.isfinite(lengths)).sum()))


def share_std(total_std: float, clients: int, colluders: int) -> float:
    """Standard deviation of one client's share of the round's noise.

    Clients know their own shares, so k who collude can take theirs out: the others' shares alone must then do, and
    each variance grows by N/(N − k).
    """
    return total_std / float(np.sqrt(clients - colluders))


def add_noise(total: Tensor, std: float, shares: int, stream: np.random.Generator) -> None:
    """Add the sum of so many independent shares of noise to a vector, in place."""
    if not (np.isfinite(std) and std >= 0.0):  # never a sum without its noise
        raise ValueError("the standard deviation of the noise is not a finite number of at least 0")
    if std > 0.0 and shares > 0:
        noise = torch.from_numpy(stream.standard_normal(total.numel(), dtype=np.float32))
        total.add_(noise.to(total.device), alpha=std * float(np.sqrt(shares)))
