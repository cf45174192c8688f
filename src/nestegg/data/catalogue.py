"""The public datasets: which files they are, where they come from, and where to look for them."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from nestegg.errors import InputError
from nestegg.files import cache_folder

VARIABLE = "NESTEGG_DATA"


@dataclass(frozen=True)
class RemoteFile:
    """One file of a dataset at its public home."""

    path: str  # below the data folder, in the layout that torchvision uses
    url: str
    sha256: str


_ADULT = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"


def _idx_files(folder: str, home: str, sums: tuple[str, str, str, str]) -> tuple[RemoteFile, ...]:
    """The four files that MNIST and its successor have in common."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    files = zip(names, sums, strict=True)
    return tuple(RemoteFile(f"{folder}/raw/{n}-ubyte.gz", f"{home}{n}-ubyte.gz", digest) for n, digest in files)


FILES: dict[str, tuple[RemoteFile, ...]] = {
    "mnist": _idx_files(
        "MNIST",
        "https://yann.lecun.com/exdb/mnist/",
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "fashion-mnist": _idx_files(
        "FashionMNIST",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    "adult": (
        RemoteFile(
            "adult/adult.data",
            f"{_ADULT}adult.data",
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        ),
        RemoteFile(
            "adult/adult.test",
            f"{_ADULT}adult.test",
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        ),
    ),
    "cifar10": (
        RemoteFile(
            "cifar-10-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
}
CIFAR_FOLDER = "cifar-10-batches-py"
CIFAR_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def needed(name: str) -> tuple[str, ...]:
    """Paths below the data folder that a dataset is read from."""
    if name == "cifar10":
        return tuple(f"{CIFAR_FOLDER}/{batch}" for batch in CIFAR_BATCHES)
    return tuple(file.path for file in FILES[name])


def find_folder(name: str, configured: str | None) -> Path:
    """The configured folder, or else the first of $NESTEGG_DATA and the cache that holds the dataset.

    Raises:
        InputError: none does; the message names the files, their sums and where to put them.
    """
    if configured and not Path(configured).is_dir():
        raise InputError(f"federation.data = {configured!r} is not a folder; it must be the one that holds {name}.")
    places = [Path(p) for p in ((configured,) if configured else (os.environ.get(VARIABLE), cache_folder())) if p]
    looked = []
    for place in places:
        missing = [path for path in needed(name) if not (place / path).is_file()]
        if not missing:
            return place
        partly = len(missing) < len(needed(name))
        looked.append(f"{place} (which lacks {', '.join(missing)})" if partly else str(place))
    raise InputError(f"dataset = {name!r} was not found in {', '.join(looked)}. {how_to_get(name, configured)}")


def how_to_get(name: str, configured: str | None = None) -> str:
    """One sentence: a command, or the files to bring oneself; a folder that was configured is the one to fill."""
    files = "; ".join(f"{file.path} from {file.url} (SHA-256 {file.sha256})" for file in FILES[name])
    option = f" --folder {shlex.quote(configured)}" if configured else ""
    place = "it" if configured else f"a folder that {VARIABLE} names"
    unpacked = f", and unpack it there: {CIFAR_FOLDER} is read" if name == "cifar10" else ""
    return f"Run `nestegg data get {name}{option}`, or put into {place}: {files}{unpacked}."
