"""The compiled kernel by itself: what it adds up, and what it refuses to read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nestegg.training import kernel

EDGES = (0, 3, 20, 61, 62)


@pytest.fixture
def library() -> Any:
    found = kernel.load()
    if found is None:
        pytest.skip("there was no C compiler to build the kernel with")
    return found


def updates(seed: int = 0, clients: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(clients, EDGES[-1], generator=generator) * 10.0 ** torch.arange(clients)[:, None]


def expected(row: NDArray[Any], norm: float, edges: tuple[int, ...], step: float) -> NDArray[np.float64]:
    """One client's contribution, by NumPy, in extended precision where the order of a sum might matter."""
    parts = []
    for a, b in zip(edges[:-1], edges[1:], strict=True):
        piece = row[a:b].astype(np.longdouble)
        limit = np.longdouble(norm) * np.longdouble(kernel.BELOW) / np.sqrt(np.longdouble(len(edges) - 1))
        length = np.sqrt((piece**2).sum())
        piece = piece * (limit / length) if length > limit else piece
        parts.append(np.trunc(piece / step) if step else piece)
    return np.concatenate(parts).astype(np.float64)


@pytest.mark.parametrize("edges", [EDGES, (0, 62)])
@pytest.mark.parametrize("step", [0.0, 2.0**-18])
def test_clipped_updates_add_up_to_what_numpy_says(library: Any, edges: tuple[int, ...], step: float) -> None:
    rows = updates()
    norms = np.array([2.0, 1e9, 30.0, np.inf, 0.0])
    total = np.zeros(62)
    lengths = kernel.add_clipped(library, rows, norms, edges, step, total)
    assert lengths == pytest.approx(np.linalg.norm(rows.double().numpy(), axis=1), rel=1e-14)
    parts = [expected(row, norm, edges, step) for row, norm in zip(rows.numpy(), norms, strict=True)]
    # A number that lies within rounding of a multiple of the step may fall on either side of it.
    assert np.allclose(total, np.sum(parts, axis=0), rtol=1e-13, atol=len(rows) if step else 1e-13)
    if step:
        assert (total == np.trunc(total)).all()
        assert np.mean(total == np.sum(parts, axis=0)) > 0.9


@pytest.mark.parametrize("step", [0.0, 2.0**-10])
def test_what_leaves_is_within_its_norm_and_broken_rows_add_nothing(library: Any, step: float) -> None:
    rows = updates(1)
    rows[1, 7], rows[3, 0] = torch.nan, -torch.inf
    norms = np.array([0.3, 1.0, 7.0, 1.0, 2.5])
    for client in range(len(rows)):
        total = np.zeros(62)
        (length,) = kernel.add_clipped(library, rows[[client]], norms[[client]], EDGES, step, total)
        assert np.isfinite(length) == (client not in (1, 3))
        assert np.linalg.norm(total * (step or 1.0)) <= norms[client]
        assert total.any() == (client not in (1, 3))


@pytest.mark.parametrize("step", [0.0, 2.0**-20])
def test_a_contribution_does_not_depend_on_the_others(library: Any, step: float) -> None:
    rows, norms = updates(2, 6), np.array([0.5, np.inf, 3.0, 1.0, 2.0, 9.0])
    alone = []
    for client in range(6):
        total = np.zeros(62)
        kernel.add_clipped(library, rows[[client]], norms[[client]], EDGES, step, total)
        alone.append(total)
    order = [4, 1, 5, 0, 3, 2]
    together = np.zeros(62)
    kernel.add_clipped(library, rows[order], norms[order], EDGES, step, together)
    by_hand = np.zeros(62)
    for client in order:
        by_hand += alone[client]
    assert (together == by_hand).all()


def test_huge_numbers_are_clipped_and_not_lost(library: Any) -> None:
    rows = torch.full((1, 62), torch.finfo(torch.float32).max)
    total = np.zeros(62)
    (length,) = kernel.add_clipped(library, rows, np.array([2.0]), (0, 62), 2.0**-20, total)
    assert length == pytest.approx(float(torch.finfo(torch.float32).max) * np.sqrt(62.0))
    assert np.linalg.norm(total) * 2.0**-20 == pytest.approx(2.0, rel=1e-5)


def test_adding_refuses_what_it_would_misread(library: Any) -> None:
    good = {"updates": updates(), "norms": np.ones(5), "edges": EDGES, "step": 0.5, "total": np.zeros(62)}
    bad: dict[str, list[Any]] = {
        "updates": [updates().double(), updates()[0]],
        "norms": [np.ones(4), np.full(5, np.nan), -np.ones(5)],
        "edges": [(0, 61), (1, 62), (0, 70, 62), (0, 5, 5, 62)],
        "step": [-1.0, np.nan, np.inf],
        "total": [np.zeros(61), np.zeros(62, np.float32), np.zeros(124)[::2]],
    }
    for name, values in bad.items():
        for value in values:
            with pytest.raises(ValueError, match=r"the kernel was given|a clip norm|the step"):
                kernel.add_clipped(library, **{**good, name: value})
