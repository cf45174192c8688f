"""The compiled kernel by itself, in every instruction set of this processor."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nestegg import InputError
from nestegg.mechanism import BELOW
from nestegg.mechanism.randomness import Randomness
from nestegg.training import kernel
from tests.federations import DENSE

NETWORKS = [[30, 33, 17, 10], [64, 32, 1], [40, 5], [9, 1], [75, 16], [75, 17]]  # with few outputs, and more than few
EDGES = (0, 3, 20, 61, 62)


@pytest.fixture(params=DENSE)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> kernel.Kernel:
    return in_set(request.param, monkeypatch)


def in_set(name: str, monkeypatch: pytest.MonkeyPatch) -> kernel.Kernel:
    monkeypatch.setenv(kernel.VARIABLE, name)
    found = kernel.load()
    assert found is not None
    assert found.instruction_set == name
    return found


def trained(compiled: kernel.Kernel, units: list[int], tanh: bool, shifts: Any = None, batch: int = 8) -> torch.Tensor:
    """Updates of a few clients after many steps that make much of a difference in the last bit."""
    generator = torch.Generator().manual_seed(4)
    sizes = np.array([37, 8, 1, 20])
    parameters = sum((a + 1) * b for a, b in pairwise(units))
    samples = torch.randn(int(sizes.sum()), units[0] + 1 + units[-1], generator=generator)
    samples[:, units[0]] = 1.0
    samples[:, units[0] + 1 :] = torch.softmax(samples[:, units[0] + 1 :] * 9.0, dim=1).round()
    starts = np.cumsum(sizes) - sizes
    order = np.concatenate([start + np.arange(n) for start, n in zip(starts, sizes, strict=True) for _ in range(25)])
    model = torch.randn(parameters, generator=generator) / 3.0
    work = kernel.Work(samples, order, sizes, shifts)
    return kernel.train(compiled, model, kernel.Network(units, tanh), work, kernel.Steps(25, batch, 0.3, 0.9))


@pytest.mark.parametrize("batch", [8, 21])  # vectors have 4, 8 or 16 numbers
@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize("units", NETWORKS)
def test_instruction_sets_agree_to_the_bit(
    units: list[int], tanh: bool, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = [name for name in DENSE if name != "baseline"]  # it has no product and sum with one rounding
    for shifts in (None, np.random.default_rng(0).normal(size=(4, units[-1])).astype(np.float32)):
        updates = [trained(in_set(name, monkeypatch), units, tanh, shifts, batch) for name in fused]
        for update in updates:
            assert torch.isfinite(update).all()
            assert update.equal(updates[0])


@pytest.mark.parametrize("batch", [1, 7, 16, 37])
@pytest.mark.parametrize("outputs", [2, 3, 10, 16, 17, 40])
def test_a_step_of_softmax_regression_is_the_one_by_definition(library: Any, outputs: int, batch: int) -> None:
    """Few outputs are trained in vectors of inputs and of samples, more in vectors of outputs."""
    inputs = 69
    x = torch.randn(batch, inputs, generator=torch.Generator().manual_seed(outputs))
    y = torch.arange(batch) % outputs
    samples = torch.cat([x, torch.ones(batch, 1), torch.nn.functional.one_hot(y, outputs).float()], dim=1)
    work = kernel.Work(samples, np.arange(batch), np.array([batch]), None)
    model = torch.randn((inputs + 1) * outputs, generator=torch.Generator().manual_seed(batch)) / 3.0
    (update,) = kernel.train(
        library, model, kernel.Network([inputs, outputs], False), work, kernel.Steps(1, batch, 0.5, 0.9)
    )
    weight, bias = model[: inputs * outputs].view(outputs, inputs).double(), model[inputs * outputs :].double()
    away = (torch.softmax(x.double() @ weight.T + bias, dim=1) - samples[:, inputs + 1 :]) / batch
    expected = -0.5 * torch.cat([(away.T @ x.double()).flatten(), away.sum(dim=0)])
    assert torch.allclose(update.double(), expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("units", NETWORKS)
def test_shifts_of_zero_change_no_bit_and_others_are_their_clients_own(library: Any, units: list[int]) -> None:
    zero = np.zeros((4, units[-1]), np.float32)
    plain = trained(library, units, False)
    assert trained(library, units, False, zero).equal(plain)
    zero[2, 0] = 1.0
    shifted = trained(library, units, False, zero)
    assert [bool(a.equal(b)) for a, b in zip(shifted, plain, strict=True)] == [True, True, False, True]
    assert trained(library, units, False, np.asfortranarray(zero)).equal(shifted)


def test_clipped_sums_are_the_same_in_every_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (0.0, 2.0**-20):
        totals = [np.zeros(62) for _ in DENSE]
        for name, total in zip(DENSE, totals, strict=True):
            kernel.add_clipped(in_set(name, monkeypatch), updates(), np.full(5, 0.7), EDGES, step, total)
        assert all(np.array_equal(total, totals[0]) for total in totals)


def test_an_instruction_set_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel.VARIABLE, "none")
    assert kernel.chosen() is kernel.load() is None
    for name in DENSE:
        monkeypatch.setenv(kernel.VARIABLE, name)
        assert kernel.chosen() == name
    monkeypatch.delenv(kernel.VARIABLE)
    assert kernel.chosen() == (DENSE[0] if DENSE else None)
    monkeypatch.setenv(kernel.VARIABLE, "mmx")
    with pytest.raises(InputError, match=f"NESTEGG_KERNEL = 'mmx' is not among .*: {', '.join([*DENSE, 'none'])}\\."):
        kernel.load()


def test_orders_are_those_of_numpy(library: kernel.Kernel) -> None:
    clients, sizes, randomness = [3, 0, 70_000, 8], np.array([1, 2, 1000, 37]), Randomness(7, True)
    starts = np.array([5, 0, 10, 2000])
    ours = kernel.orders(library, randomness.order_key(9), clients, sizes, starts, 3)
    theirs = randomness.orders(9, clients, sizes.tolist(), 3)
    parts = [starts[c] + theirs[c, epoch, : sizes[c]] for c in range(4) for epoch in range(3)]
    assert ours.tolist() == np.concatenate(parts).tolist()
    with pytest.raises(ValueError, match="the kernel was given another number"):
        kernel.orders(library, 1, clients, sizes[:3], starts, 3)


def test_training_refuses_what_it_would_misread(library: kernel.Kernel) -> None:
    network, steps = kernel.Network([8, 1], False), kernel.Steps(1, 4, 0.1, 0.9)
    model, samples, order, sizes = torch.zeros(9), torch.zeros(4, 10), np.arange(4), np.array([4])
    good = kernel.Work(samples, order, sizes, np.zeros((1, 1), np.float32))
    assert kernel.train(library, model, network, good, steps).shape == (1, 9)
    bad: dict[str, list[Any]] = {
        "samples": [samples[:, :9], samples.double()],
        "order": [order[:3]],
        "shifts": [np.zeros((1, 1)), np.zeros((2, 1), np.float32), np.zeros((1, 2), np.float32)],
    }
    works = [good._replace(**{name: value}) for name, values in bad.items() for value in values]
    for given, work in [(model[:8], good), (model.double(), good), *((model, work) for work in works)]:
        with pytest.raises(ValueError, match="the kernel was given"):
            kernel.train(library, given, network, work, steps)


def updates(seed: int = 0, clients: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(clients, EDGES[-1], generator=generator) * 10.0 ** torch.arange(clients)[:, None]


def expected(row: NDArray[Any], norm: float, edges: tuple[int, ...], step: float) -> NDArray[np.float64]:
    """One client's contribution, by NumPy, in extended precision where the order of a sum might matter."""
    parts = []
    for a, b in pairwise(edges):
        piece = row[a:b].astype(np.longdouble)
        limit = np.longdouble(norm) * np.longdouble(BELOW) / np.sqrt(np.longdouble(len(edges) - 1))
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
