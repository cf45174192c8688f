"""UCI Adult: its columns as their documentation describes them, its files, and its rows as inputs of a network.

Nothing is fitted. Means, deviations or a list of categories taken from the training data would be statistics of
clients' data that no noise covers. Here a row's inputs depend on that row and on public constants alone.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.data.formats import read_bytes
from nestegg.errors import InputError


@dataclass(frozen=True)
class Range:
    """A column of numbers between round bounds, or of logarithms of them.

    A number is clamped to its bounds, and the bounds are put at −√3 and √3, where numbers spread evenly over the range
    have mean 0 and variance 1.
    """

    low: float
    high: float
    log: bool = False

    def inputs(self, values: Sequence[str]) -> NDArray[np.float64]:
        """One input for each value."""
        numbers = np.clip(np.array([float(value) for value in values]), self.low, self.high)
        low, high = self.low, self.high
        if self.log:
            numbers, low, high = np.log1p(numbers), math.log1p(low), math.log1p(high)
        scaled: NDArray[np.float64] = math.sqrt(3.0) * (2.0 * numbers - low - high) / (high - low)
        return scaled[:, None]


@dataclass(frozen=True)
class Categories:
    """A column of words out of a list; a word that is not on it is zero in every input."""

    known: tuple[str, ...]

    def inputs(self, values: Sequence[str]) -> NDArray[np.float64]:
        """An input for each category: 1 for the value's own."""
        own: NDArray[np.bool_] = np.array(values)[:, None] == np.array(self.known)
        return own.astype(np.float64)


def _listed(words: str) -> Categories:
    return Categories(tuple(words.split()))


# Categories, in this order, are those of adult.names; "?" is one where UCI's table of variables says that values are
# missing. Of numbers adult.names says "continuous" and nothing else. Their bounds are round, and chosen without a look
# at the data: a hundred years, a hundred hours, the sixteen levels of education, money of five digits, in logarithms
# because most people have none of it, and a million people for whom somebody may stand in the survey.
INPUTS: dict[str, Range | Categories] = {
    "age": Range(0, 100),
    "workclass": _listed(
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked ?"
    ),
    "fnlwgt": Range(0, 1_000_000),
    "education": _listed(
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
        "Doctorate 5th-6th Preschool"
    ),
    "education-num": Range(1, 16),
    "marital-status": _listed(
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
    ),
    "occupation": _listed(
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
        "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces ?"
    ),
    "relationship": _listed("Wife Own-child Husband Not-in-family Other-relative Unmarried"),
    "race": _listed("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
    "sex": _listed("Female Male"),
    "capital-gain": Range(0, 99_999, log=True),
    "capital-loss": Range(0, 99_999, log=True),
    "hours-per-week": Range(0, 100),
    "native-country": _listed(
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South "
        "China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
        "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
        "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands ?"
    ),
}
_WIDTHS = [1 if isinstance(column, Range) else len(column.known) for column in INPUTS.values()]
# Where among the inputs the columns of numbers are.
NUMBERS = [sum(_WIDTHS[:i]) for i, column in enumerate(INPUTS.values()) if isinstance(column, Range)]
LABEL = "income"
COLUMNS = (*INPUTS, LABEL)


def read_adult(path: Path) -> list[dict[str, str]]:
    """Return the rows of an Adult file by column; the test file's comment line and full stops are dropped."""
    try:
        text = read_bytes(path).decode("ascii")
        lines = list(csv.reader(io.StringIO(text), skipinitialspace=True))
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path} is not a text file.") from None
    rows = []
    for number, row in enumerate(lines, 1):
        if not row or (number == 1 and row[0].startswith("|")):
            continue
        if len(row) != len(COLUMNS):
            raise InputError(f"{path} line {number} has {len(row)} values; there must be {len(COLUMNS)}.")
        record = dict(zip(COLUMNS, row, strict=True))
        record[LABEL] = record[LABEL].rstrip(".")
        if record[LABEL] not in ("<=50K", ">50K"):
            raise InputError(f"{path} line {number}: {LABEL} = {record[LABEL]!r} must be <=50K or >50K.")
        for name, column in INPUTS.items():
            if isinstance(column, Range) and not re.fullmatch(r"-?[0-9]{1,15}", record[name]):
                raise InputError(f"{path} line {number}: {name} = {record[name]!r} must be a whole number.")
        rows.append(record)
    return rows


def as_tensors(rows: Sequence[dict[str, str]]) -> tuple[Tensor, Tensor]:
    """Return inputs, 108 a row, and labels: 1 is an income above 50,000."""
    parts = [column.inputs([row[name] for row in rows]) for name, column in INPUTS.items()]
    x = torch.from_numpy(np.hstack(parts).astype(np.float32))
    return x, torch.tensor([int(row[LABEL] == ">50K") for row in rows], dtype=torch.int64)
