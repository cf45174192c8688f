"""Datasets of Hugging Face as sources of clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import datasets
import pyarrow as pa

from nestegg.data.arrow import Table
from nestegg.data.frames import grouped
from nestegg.data.tables import TableSource
from nestegg.errors import InputError


def from_hugging_face(dataset: Any, *, client: str, target: str, features: Sequence[str] | None = None) -> TableSource:
    """Return the clients of one split of a dataset of Hugging Face, grouped by a column.

    Columns, types and order are as for `from_frame`. Nothing is downloaded: the dataset is there already.

    Example:
        >>> columns = {"user": [2, 10, 2], "tokens": [[5, 6], [7, 8], [9, 5]], "label": [0, 1, 1]}
        >>> source = from_hugging_face(datasets.Dataset.from_dict(columns), client="user", target="label")
        >>> list(source.names), source.load("2")
        (['2', '10'], (tensor([[5, 6],
                [9, 5]]), tensor([0, 1])))
    """
    if not isinstance(dataset, datasets.Dataset):
        raise InputError(
            f"dataset of type {type(dataset).__name__} must be one split of a dataset of Hugging Face, not streamed."
        )

    def batches(columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        for part in dataset.select_columns(list(columns)).with_format("arrow").iter(rows):
            yield from part.combine_chunks().to_batches()

    table = Table("dataset", dataset.features.arrow_schema, batches)
    return grouped(table, client=client, target=target, features=features)
