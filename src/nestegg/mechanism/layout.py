"""How a model's trainable parameters lie in one flat vector, which is what is clipped, noised and sent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


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
