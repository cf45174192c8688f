"""A model as Flower carries it, named arrays, and as the mechanism sees it: one vector in layers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import groupby
from math import prod

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from nestegg.errors import InputError


@dataclass(frozen=True)
class ArrayLayout:
    """Where the arrays of floating-point numbers lie in one vector; all others stay where they are.

    Attributes:
        names: of all arrays, in order.
        shapes: of all arrays.
        dtypes: of all arrays.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, arrays: ArrayRecord) -> ArrayLayout:
        """The layout of a record."""
        parts = [(name, tuple(array.shape), str(np.dtype(array.dtype))) for name, array in arrays.items()]
        names, shapes, dtypes = zip(*parts, strict=True) if parts else ((), (), ())
        layout = cls(names, shapes, dtypes)
        strange = [dtype for dtype in dtypes if np.dtype(dtype).kind not in "fiub"]
        if strange or not layout.size:
            raise InputError(
                f"arrays of type {strange[0]} cannot be made private."
                if strange
                else "arrays hold no floating-point numbers: there is nothing to train."
            )
        return layout

    @property
    def trained(self) -> list[tuple[str, tuple[int, ...], str]]:
        """Names, shapes and types of the arrays in the vector. Whatever is floating-point is clipped and noised."""
        everything = zip(self.names, self.shapes, self.dtypes, strict=True)
        return [one for one in everything if np.dtype(one[2]).kind == "f"]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(prod(shape) for _, shape, _ in self.trained)

    @property
    def layers(self) -> tuple[slice, ...]:
        """Neighbours whose names differ in the last part only are one layer: a module that owns parameters.

        Arrays that Flower has numbered, because they came without names, are a layer each.
        """
        layers, start = [], 0
        for _, owned in groupby(
            self.trained, key=lambda one: one[0] if one[0].isdigit() else one[0].rpartition(".")[0]
        ):
            stop = start + sum(prod(shape) for _, shape, _ in owned)
            layers.append(slice(start, stop))
            start = stop
        return tuple(layers)

    @property
    def digest(self) -> str:
        """Of names, shapes and types."""
        content = [self.names, self.shapes, self.dtypes]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def flatten(self, arrays: ArrayRecord) -> Tensor:
        """The vector of a record that has this layout, a copy in single precision."""
        if ArrayLayout.of(arrays) != self:
            raise InputError("the arrays are not those of the model: names, shapes, types or their order differ.")
        try:
            pieces = [arrays[name].numpy() for name, _, _ in self.trained]
        except Exception as error:  # NumPy's own reader fails in many ways
            raise InputError(f"an array cannot be read: {type(error).__name__}.") from None
        if any(piece.shape != shape for piece, (_, shape, _) in zip(pieces, self.trained, strict=True)):
            raise InputError("an array is not of the shape that it says.")
        return torch.from_numpy(np.concatenate([piece.astype(np.float32).reshape(-1) for piece in pieces]))

    def with_vector(self, arrays: ArrayRecord, vector: Tensor) -> ArrayRecord:
        """A record with the vector's numbers in place of its own, and everything else as it is."""
        result, start, values = dict(arrays.items()), 0, vector.numpy()
        for name, shape, dtype in self.trained:
            stop = start + prod(shape)
            result[name] = Array(values[start:stop].astype(dtype).reshape(shape))
            start = stop
        return ArrayRecord(result)
