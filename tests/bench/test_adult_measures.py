"""Balanced accuracy and AUC: against scikit-learn's, with ties and with labels that do not occur."""

from __future__ import annotations

import math

import pytest
import torch
from bench.adult_measures import area_under_curve, balanced_accuracy
from sklearn.metrics import balanced_accuracy_score, roc_auc_score


@pytest.mark.parametrize("seed", range(5))
def test_both_measures_are_those_of_scikit_learn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(300, generator=generator) < 0.24).long()
    outputs = torch.randn(300, 1, generator=generator).mul(3).round() + labels[:, None]  # many are equal
    assert area_under_curve(outputs, labels) == pytest.approx(roc_auc_score(labels, outputs[:, 0]), abs=1e-12)
    expected = balanced_accuracy_score(labels, outputs[:, 0] > 0)
    assert balanced_accuracy(outputs, labels) == pytest.approx(expected, abs=1e-6)


def test_a_constant_model_is_worth_half_however_common_a_label_is() -> None:
    outputs, labels = torch.full((100, 1), -1.0), (torch.arange(100) % 4 == 0).long()
    assert (balanced_accuracy(outputs, labels), area_under_curve(outputs, labels)) == (0.5, 0.5)


def test_without_one_of_the_labels_there_is_no_curve() -> None:
    outputs = torch.tensor([[1.0], [2.0]])
    assert math.isnan(area_under_curve(outputs, torch.tensor([1, 1])))
    assert balanced_accuracy(outputs, torch.tensor([1, 1])) == 1.0
