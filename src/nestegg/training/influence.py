"""Measure how much of a round's noise is still in the final model: on public data, without any noise of a plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.interpolate import PchipInterpolator

from nestegg.accounting import Array
from nestegg.checks import whole
from nestegg.errors import InputError
from nestegg.files import write_atomically
from nestegg.planning.curves import Pace
from nestegg.planning.influence import FORMAT, fitted_memory
from nestegg.training.loop import Federation
from nestegg.training.reports import State

_RISE = 0.05  # of the loss, at least, by noise in the last round: enough to be seen, little enough to be quadratic
_DOUBLINGS = 60


@dataclass(frozen=True)
class Influence:
    """w_t of every round, relative to the last, as it was measured.

    Attributes:
        influence: w_t.
        low, high: one standard error below and above, over the draws of noise.
        measured: the rounds that were measured; those between are interpolated, monotonically between neighbours.
        memory: the κ whose schedule comes nearest to that of the measured curve.
        noise: that was put into every parameter, as a standard deviation.
        draws: of noise in each measured round, each with both signs.
    """

    influence: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    measured: tuple[int, ...]
    memory: float
    noise: float
    draws: int

    def save(self, path: Path | str, **about: Any) -> None:
        """Write the file that `nestegg.Optimal(influence=...)` and configurations take; `about` says what it is of."""
        content = {"format": FORMAT, **asdict(self), **about}
        write_atomically(Path(path), json.dumps(content, indent=1, allow_nan=False) + "\n")


def measure_influence(
    federation: Federation,
    *,
    points: int = 7,
    draws: int = 4,
    seed: int = 0,
    tell: Callable[[int, int], None] = lambda done, all_: None,
) -> Influence:
    """Measure w_t = √(rise_t / rise_T): what noise put into round t raises the loss by in the end.

    The federation must be one of public data, of a plan without noise (`method="fedavg"`), with randomness that is
    reproducible and test data: nothing that is measured here is private, and no privacy is accounted for. It is trained
    once as it is. Then the same noise is put into the model after one round or another, and training goes on to the
    end with the same cohorts and orders.

    Args:
        federation: on public data.
        points: rounds to measure, spread over all of them.
        draws: of noise for each.
        seed: of the noise.
        tell: hears how many of all trainings are done.

    Raises:
        InputError: the federation is none of that, or its loss does not rise by any noise.
    """
    _check(federation)
    whole("points", points, 2)
    whole("draws", draws, 2)
    states = _trained(federation, federation.start())
    rounds, size = federation.plan.rounds, len(states[0].model)
    rng = np.random.default_rng(seed)
    noises = [torch.from_numpy(rng.standard_normal(size)).to(states[0].model) for _ in range(draws)]
    base = _loss(federation, states[-1])
    scale = _scale(federation, states[-1], noises, base)
    measured = sorted({int(t) for t in np.linspace(1, rounds, min(points, rounds)).round()})
    rises = np.empty((len(measured), draws))
    for i, t in enumerate(measured):
        for j, noise in enumerate(noises):
            rises[i, j] = _rise(federation, states[t - 1], scale * noise, base)
            tell(i * draws + j + 1, len(measured) * draws)
    return _found(rises, measured, federation, scale)


def _found(rises: Array, measured: list[int], federation: Federation, scale: float) -> Influence:
    mean, error = rises.mean(axis=1), rises.std(axis=1, ddof=1) / np.sqrt(rises.shape[1])
    last, every = mean[-1], np.arange(1, federation.plan.rounds + 1)
    curves = []
    for values in (mean, mean - error, mean + error):
        kept = np.sqrt(np.maximum(values, 0.0) / last)
        curves.append(PchipInterpolator(measured, kept)(every) if len(measured) > 1 else np.ones(1))
    influence, low, high = (tuple(float(value) for value in np.maximum(curve, 0.0)) for curve in curves)
    memory = fitted_memory(influence, Pace(federation.rates, federation.mechanics.clip_unit))
    return Influence(influence, low, high, tuple(measured), memory, scale, rises.shape[1])


def _check(federation: Federation) -> None:
    if federation.plan.is_private:
        raise InputError("influence is measured without noise: the federation's plan must be of method = 'fedavg'.")
    if federation.test is None:
        raise InputError("influence is measured by the loss on test data: the federation has none.")
    if not federation.randomness.reproducible:
        raise InputError("influence compares trainings: the federation's randomness must be reproducible.")


def _trained(federation: Federation, state: State) -> list[State]:
    """The states after each of the rounds that are left."""
    states = []
    while state.round < federation.plan.rounds:
        state, _ = federation.round(state)
        states.append(state)
    return states


def _loss(federation: Federation, state: State) -> float:
    assert federation.test is not None
    loss = federation.measured(state, federation.test).loss
    return float("nan") if loss is None else loss


def _rise(federation: Federation, state: State, noise: torch.Tensor, base: float) -> float:
    """What noise in one round raises the loss by in the end; both signs, so that what is linear in it goes out."""
    ends = []
    for sign in (1.0, -1.0):
        noisy = replace(state, model=state.model + sign * noise)
        ends.append(_loss(federation, [noisy, *_trained(federation, noisy)][-1]))
    return (ends[0] + ends[1]) / 2.0 - base


def _scale(federation: Federation, last: State, noises: list[torch.Tensor], base: float) -> float:
    """The size of noise that raises the loss of the last model by a share of it."""
    scale = 1e-6
    for _ in range(_DOUBLINGS):
        rise = float(np.mean([_rise(federation, last, scale * noise, base) for noise in noises]))
        if rise >= _RISE * abs(base):
            return scale
        scale *= 1.5
    raise InputError("influence cannot be measured: no noise in the last round raises the loss.")
