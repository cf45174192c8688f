"""The paper's own planner: save first, spend later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestegg.accounting import MAX_NOISE, Accountant, Array, RdpAccountant, S, smallest_noise
from nestegg.checks import one_of
from nestegg.planning.schedule import Batch, Schedule, in_batches, reachable

if TYPE_CHECKING:
    from nestegg.planning.plan import GroupPlan
    from nestegg.planning.setting import Setting

COMPOSITIONS = ("exact", "paper")


@dataclass(frozen=True)
class SpendAsYouGo:
    """Algorithm "spend-as-you-go", lines 1 to 9. Without saving rounds it is uniform spending (IDP-FedAvg).

    In round t a client takes the noise with which T − t + 1 equal rounds at rate q would use up what is left of
    its budget (line 4, with the printed T − t repaired). In a saving round, t < T_n, it is then sampled, and
    charged, at rate q_n only (lines 5 and 6).

    Attributes:
        composition: what is left is, by the paper's composition, ε_n minus the ε spent so far (line 8). The exact
            composition keeps the whole curve that is spent and converts it to ε once, at the end.

    >>> from nestegg import Budget, Group, plan
    >>> strict = Group("strict", 34, Budget(10.0), saving_rate=0.5, transition=13)
    >>> made = plan([strict], rounds=25, method=SpendAsYouGo(composition="paper"))
    >>> round(made.groups[0].epsilon_spent[-1], 2)
    8.08
    """

    composition: str = "exact"

    def __post_init__(self) -> None:
        one_of("composition", self.composition, COMPOSITIONS)

    def schedule(self, setting: Setting) -> Schedule:
        """Return the schedule by which every group saves until its transition, and then spends what it has left."""
        exact = self.composition == "exact"

        def spend(batch: Batch[Any]) -> Schedule:
            made = _spend(batch, setting.rounds, setting.spending_rate, exact=exact, narrow=True)
            if made is None:  # an order that was left out would have been best
                made = _spend(batch, setting.rounds, setting.spending_rate, exact=exact, narrow=False)
            assert made is not None
            return made

        return in_batches(setting.groups, setting.accountants, spend)

    def rest(self, after: int, row: GroupPlan) -> SpendAsYouGo:
        """Return the same: the rounds that are left follow from what is left."""
        return self


def _spend(batch: Batch[S], rounds: int, spending_rate: float, *, exact: bool, narrow: bool) -> Schedule | None:
    """The recursion; None if low orders were left out (`narrow`) that turn out to be needed."""
    groups, accountant, budget, delta = batch.groups, batch.accountant, batch.budget, batch.delta
    transition = np.array([group.transition or 1 for group in groups])
    saving_rate = np.array([group.saving_rate or spending_rate for group in groups])
    q, sigma, epsilon = (np.zeros((len(groups), rounds)) for _ in range(3))
    # One order by itself would ask for the cost of its conversion whole, and soon find no noise for what is left.
    rule: Accountant[Any] = RdpAccountant() if isinstance(accountant, RdpAccountant) else accountant
    spent = charge = batch.spent  # `charge`, what a round costs, is replaced before its first use
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
            sigma[rows, t] = reachable(noise, [groups[int(row)] for row in rows])
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
