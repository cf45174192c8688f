"""The planners: from groups and budgets to a sampling rate and a noise multiplier for every group and round.

A planner decides nothing but (q_n^t, σ_n^t). What follows from them, the mean σ^t and the clip norms c_n^t, is
the same for all planners and made in `methods`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestegg.accounting import (
    MAX_NOISE,
    Accountant,
    Array,
    RdpAccountant,
    S,
    first_guess,
    smallest_noise,
    smallest_root,
)
from nestegg.errors import InputError
from nestegg.planning.budget import Group


@dataclass(frozen=True)
class Schedule:
    """What a planner decides: rates, noise, and the ε spent by them. Groups are rows, rounds are columns."""

    sampling_rate: Array
    noise_multiplier: Array
    epsilon_spent: Array


def spend_as_you_go(
    groups: Sequence[Group],
    rounds: int,
    spending_rate: float,
    accountant: Accountant[S],
    already_spent: S,
    composition: str = "exact",
) -> Schedule:
    """Algorithm "spend-as-you-go", lines 1 to 9. Without saving rounds it is uniform spending (IDP-FedAvg).

    In round t a client takes the noise with which T − t + 1 equal rounds at rate q would use up what is left of
    its budget (line 4, with the printed T − t repaired). In a saving round, t < T_n, it is then sampled, and
    charged, at rate q_n only (lines 5 and 6). What is left is, by the paper's composition, ε_n minus the ε spent
    so far (line 8). The exact composition keeps the whole curve that is spent and converts it to ε once, at the end.
    """
    schedule = _spend(groups, rounds, spending_rate, accountant, already_spent, composition == "exact", narrow=True)
    if schedule is None:  # an order that was left out would have been best
        schedule = _spend(
            groups, rounds, spending_rate, accountant, already_spent, composition == "exact", narrow=False
        )
    assert schedule is not None
    return schedule


def _spend(
    groups: Sequence[Group],
    rounds: int,
    spending_rate: float,
    accountant: Accountant[S],
    already_spent: S,
    exact: bool,
    narrow: bool,
) -> Schedule | None:
    """The recursion of `spend_as_you_go`; None if low orders were left out (`narrow`) that turn out to be needed."""
    budget = np.array([group.budget.epsilon for group in groups])
    delta = groups[0].budget.delta
    transition = np.array([group.transition or 1 for group in groups])
    saving_rate = np.array([group.saving_rate or spending_rate for group in groups])
    q, sigma, epsilon = (np.zeros((len(groups), rounds)) for _ in range(3))
    # One order by itself would ask for the cost of its conversion whole, and soon find no noise for what is left.
    rule: Accountant[Any] = RdpAccountant() if isinstance(accountant, RdpAccountant) else accountant
    spent = charge = already_spent  # `charge`, what a round costs, is replaced before its first use
    books = search = accountant  # for what is spent, and for the search of the noise: each needs only some orders
    for t in range(rounds):  # the paper's t is t + 1
        q[:, t] = np.where(t + 1 < transition, saving_rate, spending_rate)
        sigma[:, t] = sigma[:, t - 1]
        # Once a client spends, the exact composition gives the same σ in every round.
        rows = np.flatnonzero(t + 1 <= transition) if exact else np.arange(len(groups))
        if rows.size:
            aim, left, guess = budget[rows], rounds - t, _guess(sigma[rows], t)
            noise, search = _smallest_noise(books, search, spending_rate, left, aim, delta, spent.rows(rows), guess)
            if not exact:  # where converting to ε costs nothing, subtracting ε could overspend: never below exact
                remaining = budget - spent.epsilon(delta)
                alone = smallest_noise(rule, spending_rate, left, remaining, delta, guess=noise)
                noise = np.maximum(noise, alone)
            sigma[rows, t] = _reachable(noise, [groups[int(row)] for row in rows])
            charge = charge.replaced(rows, books.spend(q[rows, t], sigma[rows, t]))
        spent = spent + charge
        epsilon[:, t] = spent.epsilon(delta)
        if t == 0 and narrow:
            books = books.above(search)
        elif search.reaches_end_of(books, accountant):
            return None
        books = books.after(books.view(spent), delta)
        spent, charge = books.view(spent), books.view(charge)
    return Schedule(q, sigma, epsilon)


def _smallest_noise(
    books: Accountant[S],
    search: Accountant[S],
    q: float,
    left: int,
    budget: Array,
    delta: float,
    spent: S,
    guess: Array | None,
) -> tuple[Array, Accountant[S]]:
    """The noise of a round, looked for at few orders first and at all of them only if the few do not decide."""
    search = search.within(books)
    noise = smallest_noise(search, q, left, budget, delta, search.view(spent), guess)
    finite = np.minimum(noise, MAX_NOISE)
    total = search.view(spent) + search.spend(q, finite) * left
    if search.decides(total, delta, books):
        return noise, search.near(total, delta) if search == books else search
    noise = smallest_noise(books, q, left, budget, delta, spent, finite)
    return noise, books.near(spent + books.spend(q, np.minimum(noise, MAX_NOISE)) * left, delta)


def shaped(
    groups: Sequence[Group],
    spending_rate: float,
    accountant: Accountant[S],
    already_spent: S,
    shape: Array,
) -> Schedule:
    """Any idea of when to spend: noise in proportion to a given curve over the rounds, calibrated by one root.

    `shape` is the relative noise of every round; its scale does not matter.
    """
    budget = np.array([group.budget.epsilon for group in groups])
    delta = groups[0].budget.delta
    relative = shape / shape.min()
    levels, counts = np.unique(relative, return_counts=True)

    def total(rows: np.ndarray[tuple[int], np.dtype[np.intp]], scale: Array) -> Array:
        spending = already_spent.rows(rows)
        for level, count in zip(levels, counts, strict=True):
            spending = spending + accountant.spend(spending_rate, scale * level) * count
        return spending.epsilon(delta)

    guess = first_guess(spending_rate, np.sum(counts / np.square(levels)), budget, delta)
    scale = _reachable(smallest_root(total, budget, guess, accountant.rtol), groups)
    sigma = scale[:, None] * relative
    if sigma.max() > MAX_NOISE:
        raise InputError(
            f"shape: a round would have noise_multiplier = {sigma.max():g}; at most {MAX_NOISE:g} is allowed."
        )
    return with_noise(sigma, np.full(sigma.shape, spending_rate), delta, accountant, already_spent)


def with_noise(sigma: Array, q: Array, delta: float, accountant: Accountant[S], already_spent: S) -> Schedule:
    """The schedule of given rates and noise."""
    spent, epsilon = already_spent, np.empty(sigma.shape)
    for t in range(sigma.shape[1]):
        spent = spent + accountant.spend(q[:, t], sigma[:, t])
        epsilon[:, t] = spent.epsilon(delta)
    return Schedule(q, sigma, epsilon)


def _guess(sigma: Array, t: int) -> Array | None:
    """Where to look for the noise of round t, from the rounds before: their logarithms, continued."""
    if t == 0:
        return None
    logs = np.log(sigma[:, max(t - 3, 0) : t])
    if t == 1:
        return np.exp(logs[:, -1])
    trend = logs[:, -1] - logs[:, -2]
    bend = trend - (logs[:, -2] - logs[:, -3]) if t > 2 else 0.0
    return np.asarray(np.exp(logs[:, -1] + trend + bend))


def _reachable(noise: Array, groups: Sequence[Group]) -> Array:
    """The noise, unless there is a group whose budget no noise can meet."""
    for sigma, group in zip(noise, groups, strict=True):
        if not sigma <= MAX_NOISE:
            raise InputError(
                f"group {group.name!r}: epsilon = {group.budget.epsilon:g} at delta = {group.budget.delta:g} cannot be "
                "met by any noise, with what is spent already, as far as this accountant can show."
            )
    return noise
