"""Schedules, and the numerics that planners share: batches of similar budgets, and noise that just meets a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from nestegg.accounting import MAX_NOISE, Accountant, Array, S, compose, first_guess, smallest_root
from nestegg.errors import InputError
from nestegg.planning.budget import Group

# Groups with similar budgets are planned together: their best orders are close, so few orders need a search.
_BATCH = 128
# How far noise is rounded, as a share of it, while a scale is looked for coarsely: 1,000 rounds become a hundred.
_COARSE = 0.03


@dataclass(frozen=True, eq=False)
class Schedule:
    """What a planner decides. Groups are rows, rounds are columns.

    Attributes:
        sampling_rate: q_n^t.
        noise_multiplier: σ_n^t.
        epsilon_spent: ε after every round, as planners of ours know it; of others it is computed.

    >>> Schedule(sampling_rate=np.full((2, 3), 0.5), noise_multiplier=np.full((2, 3), 4.0)).noise_multiplier.shape
    (2, 3)
    """

    sampling_rate: Array
    noise_multiplier: Array
    epsilon_spent: Array | None = None


@dataclass(frozen=True, eq=False)
class Batch(Generic[S]):
    """Some groups that are planned together.

    Attributes:
        groups: with their defaults written out.
        rows: their places among all groups.
        accountant: by which their spending counts.
        spent: what each has spent before.
    """

    groups: Sequence[Group]
    rows: NDArray[np.intp]
    accountant: Accountant[S]
    spent: S

    @property
    def budget(self) -> Array:
        """ε of every group."""
        return np.array([group.budget.epsilon for group in self.groups])

    @property
    def delta(self) -> float:
        """δ of all of them."""
        return self.groups[0].budget.delta


def in_batches(
    groups: Sequence[Group], accountants: Sequence[Accountant[Any]], make: Callable[[Batch[Any]], Schedule]
) -> Schedule:
    """Schedule groups of one accountant together, in batches of similar budgets, and put their rows back in order."""
    order = np.argsort([group.budget.epsilon for group in groups], kind="stable")
    places, parts = [], []
    for one in dict.fromkeys(accountants):
        rows = np.array([row for row in order if accountants[row] == one])
        for start in range(0, len(rows), _BATCH):
            chosen = rows[start : start + _BATCH]
            some = [groups[row] for row in chosen]
            places.append(chosen)
            parts.append(make(Batch(some, chosen, one, _spent_before(some, one))))
    return stitched(places, parts)


def stitched(places: Sequence[NDArray[np.intp]], parts: Sequence[Schedule]) -> Schedule:
    """One schedule of several, whose rows belong at the given places; it knows what is spent if each of them does."""
    place = np.argsort(np.concatenate(places))
    spent = [part.epsilon_spent for part in parts if part.epsilon_spent is not None]
    return Schedule(
        np.concatenate([part.sampling_rate for part in parts])[place],
        np.concatenate([part.noise_multiplier for part in parts])[place],
        np.concatenate(spent)[place] if len(spent) == len(parts) else None,
    )


def calibrated(batch: Batch[S], rates: Array, relative_noise: Array, *, coarse: bool = False) -> Schedule:
    """The schedule whose noise is in proportion to a curve, the same for all groups, each just within its budget.

    Args:
        batch: the groups.
        rates: of every round.
        relative_noise: of every round; its scale does not matter.
        coarse: whether to look for the scale with rounded noise first; see `Setting.calibrated`.
    """
    relative = relative_noise / relative_noise.min()
    releases = _releases(batch, rates, relative)
    guess, few = releases.first_guess()
    if coarse:
        rough = _releases(batch, rates, np.exp(np.round(np.log(relative) / _COARSE) * _COARSE))
        guess = np.minimum(rough.smallest_scale(guess, few), MAX_NOISE)
        few = few.near(rough.spent(few, np.arange(guess.size), guess), batch.delta)
    scale = reachable(releases.smallest_scale(guess, few), batch.groups)
    sigma = scale[:, None] * relative
    if sigma.max() > MAX_NOISE:
        raise InputError(f"a round would have noise_multiplier = {sigma.max():g}; at most {MAX_NOISE:g} is allowed.")
    return with_noise(batch, np.broadcast_to(rates, sigma.shape), sigma)


@dataclass(frozen=True, eq=False)
class _Releases(Generic[S]):
    """Different rates and relative noises of a batch, and how many rounds have each."""

    batch: Batch[S]
    rates: Array
    levels: Array
    counts: NDArray[np.intp]

    def spent(self, books: Accountant[S], rows: NDArray[np.intp], scale: Array) -> S:
        """What some groups have spent in the end."""
        spending = books.view(self.batch.spent.rows(rows))
        for q, level, count in zip(self.rates, self.levels, self.counts, strict=True):
            spending = spending + books.spend(q, scale * level) * count
        return spending

    def first_guess(self) -> tuple[Array, Accountant[S]]:
        """About which scale every group needs, and the accountant without what cannot decide there."""
        most, batch, whole = self.rates.max(), self.batch, self.batch.accountant
        weight = np.sum(self.counts * np.square(self.rates / most) / np.square(self.levels))
        guess = first_guess(most, weight, batch.budget, batch.delta)
        return guess, whole.below(batch.spent + whole.spend(most, guess) * np.ceil(weight), batch.delta)

    def smallest_scale(self, guess: Array, few: Accountant[S]) -> Array:
        """The scale by which every group just meets its budget, by the whole accountant where `few` do not decide."""
        batch, whole = self.batch, self.batch.accountant

        def total(rows: NDArray[np.intp], scale: Array) -> Array:
            nonlocal few
            spending = self.spent(few, rows, scale)
            if not few.decides(spending, batch.delta, whole):
                spending = self.spent(whole, rows, scale)
                few = whole.below(spending, batch.delta)
            return spending.epsilon(batch.delta)

        return smallest_root(total, batch.budget, guess, whole.rtol)


def _releases(batch: Batch[S], rates: Array, relative: Array) -> _Releases[S]:
    (qs, levels), counts = np.unique([rates, relative], axis=1, return_counts=True)
    return _Releases(batch, qs, levels, counts)


def with_noise(batch: Batch[S], rates: Array, noise: Array) -> Schedule:
    """The schedule of given rates and noise, with what is spent by it."""
    books, spent, epsilon = batch.accountant, batch.spent, np.empty(noise.shape)
    for t in range(noise.shape[1]):
        spent = spent + books.spend(rates[:, t], noise[:, t])
        epsilon[:, t] = spent.epsilon(batch.delta)
        books = books.below(spent, batch.delta)
        spent = books.view(spent)
    return Schedule(rates, noise, epsilon)


def reachable(noise: Array, groups: Sequence[Group]) -> Array:
    """The noise, unless there is a group whose budget no noise can meet."""
    for sigma, group in zip(noise, groups, strict=True):
        if not sigma <= MAX_NOISE:
            raise InputError(
                f"group {group.name!r}: epsilon = {group.budget.epsilon:g} at delta = {group.budget.delta:g} cannot be "
                "met by any noise, with what is spent already, as far as this accountant can show."
            )
    return noise


def _spent_before(groups: Sequence[Group], accountant: Accountant[S]) -> S:
    """What every group has spent before."""
    spent = accountant.spend(np.zeros(len(groups)), 1.0)  # never sampled, nothing spent
    for i, group in enumerate(groups):
        if group.already_spent:
            spent = spent.replaced(np.array([i]), compose(accountant, group.already_spent))
    return spent
