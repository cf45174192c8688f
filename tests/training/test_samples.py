"""Targets keep their values: what no tensor of int64 holds is refused, wherever it comes from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nestegg import InputError
from nestegg.data import from_frame, from_parquet
from nestegg.training.samples import as_pair

X = np.ones((3, 2), np.float32)
LARGE, FINE = np.array([1, 2, 2**63], np.uint64), np.array([1, 2, 2**63 - 1], np.uint64)


def test_unsigned_targets_are_converted_or_refused() -> None:
    assert as_pair("ada", (X, FINE))[1].tolist() == [1, 2, 2**63 - 1]
    for targets in (LARGE, torch.from_numpy(LARGE)):
        with pytest.raises(InputError, match=r"^ada has targets of 2\^63 or more"):
            as_pair("ada", (X, targets))


def test_unsigned_columns_are_converted_or_refused(tmp_path: Path) -> None:
    def columns(targets: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> dict[str, object]:
        return {"user": ["ada"] * 3, "a": X[:, 0], "label": targets}

    file = tmp_path / "people.parquet"
    for targets in (FINE, LARGE):
        pq.write_table(pa.table(columns(targets)), file)
        if targets is FINE:
            read = [from_parquet(file, client="user", target="label")]
            read += [from_frame(pd.DataFrame(columns(targets)), client="user", target="label")]
            assert [source.load("ada")[1].tolist() for source in read] == [FINE.tolist()] * 2
            continue
        with pytest.raises(InputError, match=r"column 'label' has values of 2\^63 or more"):
            from_parquet(file, client="user", target="label")
        with pytest.raises(InputError, match=r"column 'label' has values of 2\^63 or more"):
            from_frame(pd.DataFrame(columns(targets)), client="user", target="label")
