"""Folders with a file for each client."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.extras import needs

Pair = tuple[Tensor, Tensor]


class FolderSource:
    """Clients who are files of a folder; what `from_folder` returns.

    Attributes:
        names: the names of the files, without their suffix, sorted.
    """

    sizes: NDArray[np.int64] | None = None

    def __init__(self, folder: Path, suffix: str, names: Sequence[str], read: Callable[[Path], Pair]) -> None:
        self.names, self._known = tuple(names), frozenset(names)
        self._folder, self._suffix, self._read = folder, suffix, read

    def load(self, name: str) -> Pair:
        """Read a client's file."""
        if name not in self._known:
            raise InputError(f"the data has no client {name!r}.")
        path = self._path(name)
        try:
            x, y = self._read(path)
        except KeyError:
            raise InputError(f"{path} must hold the arrays x, the inputs, and y, the targets.") from None
        except InputError:
            raise
        except Exception as error:  # of the library that reads such files
            raise InputError(
                f"{path} cannot be read: {(str(error) or type(error).__name__).splitlines()[0]}."
            ) from None
        return x, y

    def fingerprint(self) -> bytes:
        """Return a digest of the names of files, their sizes, and when they were changed."""
        return hashlib.sha256(b"".join(self.fingerprints())).digest()

    def fingerprints(self) -> list[bytes]:
        """Return the same for each client."""
        return [repr((name, *self._state(name))).encode() for name in self.names]

    def _state(self, name: str) -> tuple[object, ...]:
        try:
            state = self._path(name).stat()
        except OSError:
            return ("absent",)
        return state.st_size, state.st_mtime_ns

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{self._suffix}"


def from_folder(
    path: str | os.PathLike[str],
    *,
    suffix: str | None = None,
    target: str | None = None,
    features: Sequence[str] | None = None,
) -> FolderSource:
    """Return the clients of a folder with a file for each; the client's name is the file's, without the suffix.

    Files are read when their clients are sampled. No pickle is ever loaded. Inputs of .csv files are float32; of other
    files they keep their type if it is int32 or int64, as tokens do.

    Args:
        path: the folder.
        suffix: .npz or .safetensors, with arrays x and y, or .csv or .parquet, with columns; None means the one that
            the folder has files of.
        target: the column of targets of .csv and .parquet files.
        features: the columns of their inputs; None means all others, in their order.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> np.savez(folder / "ada.npz", x=np.ones((2, 3), np.float32), y=np.array([0, 1]))
        >>> source = from_folder(folder)
        >>> source.names, source.load("ada")[1]
        (('ada',), tensor([0, 1]))
    """
    folder = Path(path)
    suffix = one_of("suffix", suffix, _READERS) if suffix is not None else _only_suffix(folder)
    has_columns = suffix in (".csv", ".parquet")
    if has_columns != (target is not None) or (features is not None and not has_columns):
        raise InputError(f"suffix = {suffix!r}: target is the column of .csv and .parquet files, which need it.")
    if has_columns:
        needs(f"a folder of {suffix} files", "tables")
    found = sorted(file.name.removesuffix(suffix) for file in _files(folder) if file.name.endswith(suffix))
    if not found:
        raise InputError(f"{folder} has no files whose names end in {suffix}.")
    return FolderSource(folder, suffix, found, lambda file: _READERS[suffix](file, target, features))


def _files(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".") and entry.is_file()]
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}.") from None


def _only_suffix(folder: Path) -> str:
    suffixes = {Path(file.name).suffix for file in _files(folder)} & _READERS.keys()
    if len(suffixes) != 1:
        what = " and ".join(sorted(suffixes)) or f"none of {', '.join(_READERS)}"
        raise InputError(f"suffix must say which files of {folder} are clients: it has {what}.")
    return suffixes.pop()


def _read_npz(file: Path, *_: object) -> Pair:
    with np.load(file, allow_pickle=False) as arrays:
        return torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])


def _read_safetensors(file: Path, *_: object) -> Pair:
    tensors = safetensors.torch.load_file(file)
    return tensors["x"], tensors["y"]


def _read_columns(file: Path, target: str, features: Sequence[str] | None) -> Pair:
    from nestegg.data.single import read_csv, read_parquet  # which need pyarrow

    return (read_csv if file.suffix == ".csv" else read_parquet)(file, target=target, features=features)


_READERS: dict[str, Callable[..., Any]] = {
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".csv": _read_columns,
    ".parquet": _read_columns,
}
