"""Measure how much of a round's noise is still in the final model: on public data, in the training that is meant."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, repeat
from operator import mul
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
from nestegg.training.blocks import one_thread
from nestegg.training.kept import Kept, Place
from nestegg.training.loop import Federation
from nestegg.training.reports import State
from nestegg.training.values import values_of

LEAST = 0.1  # w_t of a round that hardly matters
_RISE = 0.05  # of the loss, at least, by noise in the last round: enough to be seen, little enough to be quadratic
_SIZES = tuple(accumulate(repeat(1.5, 63), mul, initial=1e-6))  # of noise, to try
_STRIDE = 8  # sizes at a time
_MOST_DRAWS = 1000


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

    @property
    def unseen(self) -> tuple[int, ...]:
        """Measured rounds of which so little is left that w_t is the error of measuring it, and that is not small."""
        return tuple(t for t in self.measured if self.low[t - 1] == 0.0 and self.influence[t - 1] > 1.01 * LEAST)

    def save(self, path: Path | str, **about: Any) -> None:
        """Write the file that `nestegg.Optimal(influence=...)` and configurations take; `about` says what it is of."""
        content = {"format": FORMAT, **asdict(self), **about}
        write_atomically(Path(path), json.dumps(content, indent=1, allow_nan=False) + "\n")


Work = Callable[["Probe", Sequence[Place]], Iterable[tuple[Place, float]]]


@dataclass(frozen=True, eq=False)
class Probe:
    """A training as it will be, and the noise to put into it beside its own.

    Attributes:
        federation: that is trained.
        states: after each of its rounds.
        base: loss of the last model.
        noises: the draws, of unit size.
        scale: the size that they get.
    """

    federation: Federation
    states: list[State]
    base: float
    noises: list[torch.Tensor]
    scale: float

    def at(self, place: Place) -> tuple[State, torch.Tensor, float]:
        """Return what one measurement needs beside the federation: the state after a round, the noise, and the base."""
        t, draw = place
        return self.states[t - 1], self.scale * self.noises[draw], self.base

    @property
    def digest(self) -> str:
        """SHA-256 of all that measurements depend on: settings, test data, the models of all rounds, and the noise."""
        settings = json.dumps(values_of(self.federation, ""), sort_keys=True)
        found = hashlib.sha256(f"{settings} {self.base!r} {self.scale!r}".encode())
        models = (state.model for state in self.states)
        for one in (*self.federation.public_fingerprint(), *models, *self.noises):
            found.update(one if isinstance(one, bytes) else one.detach().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()


def one_by_one(probe: Probe, places: Sequence[Place]) -> Iterator[tuple[Place, float]]:
    """Measure in this process."""
    for place in places:
        yield place, rise(probe.federation, *probe.at(place))


def measure_influence(
    federation: Federation,
    *,
    points: int = 7,
    draws: int = 4,
    seed: int = 0,
    keep: Path | str | None = None,
    tell: Callable[[int, int], None] = lambda done, all_: None,
    work: Work = one_by_one,
) -> Influence:
    """Measure w_t = √(rise_t / rise_T): what noise put into round t raises the loss by in the end.

    The federation must be one of public data, with randomness that is reproducible, and test data: nothing that is
    measured here is private, and no privacy is accounted for. It should be the training that is meant, its clip norm
    and its noise included: both change how fast a model corrects what it was pushed to. It is trained once as it is.
    Then a small push is given to the model after one round or another, and training goes on to the end with the same
    cohorts, orders and noise.

    Args:
        federation: on public data.
        points: rounds to measure, spread over all of them.
        draws: of noise for each.
        seed: of the noise.
        keep: a file for measurements as they come, so that the same call goes on after an interruption; it stays.
            Measurements of another federation in it are not used.
        tell: hears how many of all measurements are done.
        work: makes the measurements that are missing, in any order.

    Raises:
        InputError: the federation is none of that, or its loss does not rise by any noise.
        StoppedError: it was interrupted, and there is a file to go on with.
    """
    _check(federation)
    whole("points", points, 2)
    whole("draws", draws, 2, _MOST_DRAWS)
    whole("seed", seed, 0, 2**63 - 1)
    kept = Kept(keep)
    with kept.stoppable(), one_thread():  # so that bits do not depend on the threads that a process has
        probe = _probe(federation, draws, seed)
        rounds = federation.plan.rounds
        measured = sorted({int(t) for t in np.linspace(1, rounds, min(points, rounds)).round()})
        places = [(t, draw) for t in measured for draw in range(draws)]
        known = kept.read(probe.digest)
        found = {place: known[place] for place in places if place in known}
        tell(len(found), len(places))
        for place, value in work(probe, [place for place in places if place not in found]):
            kept.add(place, value)
            found[place] = value
            tell(len(found), len(places))
        rises = np.array([found[place] for place in places]).reshape(len(measured), draws)
        return _found(rises, measured, federation, probe.scale)


def rise(federation: Federation, state: State, noise: torch.Tensor, base: float) -> float:
    """Return what noise in one round raises the loss by in the end; both signs, so that what is linear goes out.

    Raises:
        InputError: the loss is no longer finite.
    """
    if not np.isfinite(found := _rise(federation, state, noise, base)):
        raise InputError(f"influence cannot be measured: with noise after round {state.round} the loss is {found}.")
    return found


def _rise(federation: Federation, state: State, noise: torch.Tensor, base: float) -> float:
    ends = []
    for sign in (1.0, -1.0):
        noisy = replace(state, model=state.model + sign * noise)
        ends.append(_loss(federation, [noisy, *_trained(federation, noisy)][-1]))
    return (ends[0] + ends[1]) / 2.0 - base


def _probe(federation: Federation, draws: int, seed: int) -> Probe:
    states = _trained(federation, federation.start())
    last, rng = states[-1], np.random.default_rng(seed)
    noises = [torch.from_numpy(rng.standard_normal(len(last.model))).to(last.model) for _ in range(draws)]
    base = _loss(federation, last)
    return Probe(federation, states, base, noises, _scale(federation, last, noises, base))


def _found(rises: Array, measured: list[int], federation: Federation, scale: float) -> Influence:
    mean, error = rises.mean(axis=1), rises.std(axis=1, ddof=1) / np.sqrt(rises.shape[1])
    last, every = max(mean[-1], error[-1]), np.arange(1, federation.plan.rounds + 1)
    curves = []
    # What cannot be told from 0 may be its error. A round taken for too important costs little, one for too
    # unimportant a lot: none counts for less than LEAST.
    for values in (np.maximum(np.maximum(mean, error), LEAST**2 * last), mean - error, mean + error):
        kept = np.sqrt(np.maximum(values, 0.0) / last)
        curves.append(PchipInterpolator(measured, kept)(every) if len(measured) > 1 else np.ones(1))
    influence, low, high = (tuple(float(value) for value in np.maximum(curve, 0.0)) for curve in curves)
    memory = fitted_memory(influence, Pace(federation.rates, federation.mechanics.clip_unit))
    return Influence(influence, low, high, tuple(measured), memory, scale, rises.shape[1])


def _check(federation: Federation) -> None:
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


def _scale(federation: Federation, last: State, noises: list[torch.Tensor], base: float) -> float:
    """The least size of noise that raises the loss of the last model by a share of it; more noise raises it more."""

    def is_enough(size: float) -> bool:
        mean = float(np.mean([_rise(federation, last, size * noise, base) for noise in noises]))
        return not mean < _RISE * abs(base)  # a loss that is not finite has risen

    for top in range(_STRIDE - 1, len(_SIZES), _STRIDE):
        if is_enough(_SIZES[top]):
            return _SIZES[bisect_left(_SIZES, True, top - _STRIDE + 1, top, key=is_enough)]
    raise InputError("influence cannot be measured: no noise in the last round raises the loss.")
