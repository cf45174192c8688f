"""Datasets, their files and formats, how they are divided among clients, and sources of clients' own data."""

from typing import TYPE_CHECKING, Any

from nestegg.data.datasets import DATASETS, Dataset, held_back, load_dataset
from nestegg.data.features import hat_functions, mirrored_gradients, oriented_gradients
from nestegg.data.folder import from_folder
from nestegg.data.joining import joined, positions
from nestegg.data.partition import PARTITIONS, partition, thinned
from nestegg.data.sources import MappingSource, Source, as_source, without

if TYPE_CHECKING:
    from nestegg.data.frames import from_frame
    from nestegg.data.hugging_face import from_hugging_face
    from nestegg.data.parquet import from_parquet

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Dataset",
    "MappingSource",
    "Source",
    "as_source",
    "from_folder",
    "from_frame",
    "from_hugging_face",
    "from_parquet",
    "hat_functions",
    "held_back",
    "joined",
    "load_dataset",
    "mirrored_gradients",
    "oriented_gradients",
    "partition",
    "positions",
    "thinned",
    "without",
]

# What needs an extra, which is imported when it is asked for: where it is at home, and the extra.
_HOMES = {
    "from_frame": ("frames", "tables"),
    "from_hugging_face": ("hugging_face", "hugging-face"),
    "from_parquet": ("parquet", "tables"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from nestegg.extras import needs

    home, extra = _HOMES[name]
    needs(f"nestegg.data.{name}", extra)
    return getattr(import_module(f"nestegg.data.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
