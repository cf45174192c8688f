"""The datasets as tensors: an embedded one, and the paper's four."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nestegg.checks import one_of, whole
from nestegg.data.adult import as_tensors, read_adult
from nestegg.data.catalogue import CIFAR_BATCHES, CIFAR_FOLDER, find_folder, needed
from nestegg.data.formats import Bytes, read_cifar_batch, read_idx
from nestegg.errors import InputError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training data to divide among clients, and public test data.

    Attributes:
        name: how configurations call it.
        classes: number of classes; labels are 0 … classes − 1.
        train_x: (n, *shape), single precision.
        train_y: (n,) labels.
        test_x: as `train_x`.
        test_y: as `train_y`.
    """

    name: str
    classes: int
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor

    @property
    def shape(self) -> torch.Size:
        """Shape of one sample."""
        return self.train_x.shape[1:]


def load_dataset(name: str, folder: str | None = None) -> Dataset:
    """Read a dataset from `folder`, $NESTEGG_DATA or the cache; `digits` needs none of them."""
    one_of("federation.dataset", name, DATASETS)
    data = _digits() if name == "digits" else DATASETS[name](find_folder(name, folder))
    if not len(data.train_y) or not len(data.test_y) or data.test_x.shape[1:] != data.shape:
        raise InputError(
            f"dataset = {name!r} is damaged: {len(data.train_y)} training samples of shape {tuple(data.shape)}, "
            f"{len(data.test_y)} test samples of shape {tuple(data.test_x.shape[1:])}."
        )
    return data


def held_back(data: Dataset, samples: int, *, as_test: bool) -> Dataset:
    """Return a dataset without so many training samples, evenly spread, which no client gets then.

    What is chosen on them costs no privacy.

    Args:
        data: of which they are taken.
        samples: how many.
        as_test: whether they are the test data, to make choices on; the test data itself stays unseen.

    Example:
        >>> digits = load_dataset("digits")
        >>> chosen_on = held_back(digits, 120, as_test=True)
        >>> len(digits.train_y), len(chosen_on.train_y), len(chosen_on.test_y)
        (1437, 1317, 120)
    """
    count = len(data.train_y)
    whole("federation.validation", samples, 1, count - 1)
    held = torch.zeros(count, dtype=torch.bool)
    held[(torch.arange(samples) * count + count // 2) // samples] = True
    rest = replace(data, train_x=data.train_x[~held], train_y=data.train_y[~held])
    return replace(rest, test_x=data.train_x[held], test_y=data.train_y[held]) if as_test else rest


def _digits() -> Dataset:
    """1,797 images of 8 × 8, those of scikit-learn's `load_digits`; every fifth is test data."""
    with files("nestegg.data").joinpath("digits.npz").open("rb") as file, np.load(file) as table:
        x = torch.from_numpy(table["images"].astype(np.float32) / np.float32(16.0)).reshape(-1, 1, 8, 8)
        y = torch.from_numpy(table["labels"].astype(np.int64))
    test = torch.arange(len(y)) % 5 == 0
    return Dataset("digits", 10, x[~test], y[~test], x[test], y[test])


def _idx_dataset(name: str) -> Callable[[Path], Dataset]:
    def load(folder: Path) -> Dataset:
        tensors: list[Tensor] = []
        for images_path, labels_path in (needed(name)[:2], needed(name)[2:]):
            images = read_idx(folder / images_path, 3)
            labels = read_idx(folder / labels_path, 1)
            if len(images) != len(labels):
                raise InputError(f"{folder / labels_path} has {len(labels)} labels for {len(images)} images.")
            if labels.size and labels.max() > 9:
                raise InputError(f"{folder / labels_path} has the label {labels.max()}; labels are 0 to 9.")
            tensors += [_image_tensor(images[:, None]), torch.from_numpy(labels.astype(np.int64))]
        return Dataset(name, 10, *tensors)

    return load


def _adult(folder: Path) -> Dataset:
    train, test = (as_tensors(read_adult(folder / path)) for path in needed("adult"))
    return Dataset("adult", 2, *train, *test)


def _cifar10(folder: Path) -> Dataset:
    batches = [read_cifar_batch(folder / CIFAR_FOLDER / batch) for batch in CIFAR_BATCHES]
    images = np.concatenate([batch[0] for batch in batches[:-1]])
    labels = np.concatenate([batch[1] for batch in batches[:-1]])
    test_images, test_labels = batches[-1]
    return Dataset(
        "cifar10",
        10,
        _image_tensor(images),
        torch.from_numpy(labels),
        _image_tensor(test_images),
        torch.from_numpy(test_labels),
    )


def _image_tensor(images: Bytes) -> Tensor:
    return torch.from_numpy(images.astype(np.float32) / np.float32(255.0))


DATASETS: dict[str, Callable[[Path], Dataset]] = {
    "digits": lambda _: _digits(),
    "mnist": _idx_dataset("mnist"),
    "fashion-mnist": _idx_dataset("fashion-mnist"),
    "adult": _adult,
    "cifar10": _cifar10,
}
