"""The file formats of the image datasets, parsed as if a stranger had written them."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestegg.errors import InputError

Bytes = NDArray[np.uint8]


def read_bytes(path: Path) -> bytes:
    """A file's content."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def read_idx(path: Path, dimensions: int) -> Bytes:
    """A gzipped IDX file of unsigned bytes (MNIST, Fashion-MNIST).

    The header is two zero bytes, the type (8 is unsigned byte), the number of dimensions, and their sizes.
    """
    try:
        raw = gzip.decompress(read_bytes(path))
    except (OSError, EOFError, zlib.error):
        raise InputError(f"{path} is not a complete gzip file.") from None
    header = 4 + 4 * dimensions
    if len(raw) < header or raw[:4] != bytes([0, 0, 8, dimensions]):
        raise InputError(
            f"{path} is not an IDX file of bytes in {dimensions} dimensions: its magic is {raw[:4].hex()}."
        )
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    expected = header + math.prod(shape)
    if len(raw) != expected:
        raise InputError(f"{path} has {len(raw)} bytes; its header says {expected}.")
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that can build NumPy arrays, strings, numbers, lists and dicts, and calls nothing else."""

    allowed = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy.core.numeric", "_frombuffer"),
            ("numpy._core.numeric", "_frombuffer"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every name that arrays do not need."""
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def read_cifar_batch(path: Path) -> tuple[Bytes, NDArray[np.int64]]:
    """Images (n, 3, 32, 32) and labels of one pickled CIFAR-10 batch, through an unpickler that admits arrays alone."""
    try:
        batch = _ArraysOnly(io.BytesIO(read_bytes(path)), encoding="latin1").load()
    except Exception as error:
        raise InputError(f"{path} is not a CIFAR-10 batch of arrays: {error}.") from None
    if not isinstance(batch, dict) or not {"data", "labels"} <= set(batch):
        raise InputError(f"{path} is not a CIFAR-10 batch: it must hold data and labels.")
    data, labels = np.asarray(batch["data"]), np.asarray(batch["labels"])
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072 or labels.shape != (len(data),):
        raise InputError(f"{path} must hold (n, 3072) bytes and n labels; it has {data.shape} and {labels.shape}.")
    if labels.size and not (labels.min() >= 0 and labels.max() < 10):
        raise InputError(f"{path} has a label outside 0 to 9.")
    return data.reshape(-1, 3, 32, 32), labels.astype(np.int64)
