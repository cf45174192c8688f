"""Accounts that hold also where later releases are chosen after earlier results were seen.

A sum of Rényi curves minimised over its orders in the end bounds only plans that depend on no output: an adversary
who picks the next release after seeing the last can make the best order a random one. What holds is a filter, a bound
that is fixed in advance and never passed: at rate 1 that of the Gaussian accountant, which has no price (Smith and
Thakurta 2022; Koskela, Tobaben and Honkela 2023), and at any rate one Rényi order, fixed when a budget is set (Feldman
and Zrnic 2021; Lécuyer 2021). Σ_t ρ_t(α) ≤ ε − log((α − 1)/α) + (log δ + log α)/(α − 1) is then exactly what an
accountant with that single order calls ε or less.
"""

from __future__ import annotations

import numpy as np

from nestegg.accounting.rdp import ORDERS, RdpAccountant


def filter_order(epsilon: float, delta: float) -> float:
    """Return the Rényi order that is fixed for a budget: of all in `ORDERS`, that of the least noise without sampling.

    It follows from the budget alone, so that everybody who knows the budget knows the order.

    >>> filter_order(10.0, 1e-5)
    3.4
    """
    a = np.array(ORDERS)
    allowed = epsilon - np.log1p(-1.0 / a) + (np.log(delta) + np.log(a)) / (a - 1.0)
    return ORDERS[int(np.argmax(allowed / a))]  # a release without sampling costs α/(2σ²)


def renyi_account(order: float) -> RdpAccountant:
    """Return the accountant of one Rényi order.

    >>> spent = renyi_account(filter_order(10.0, 1e-5)).spend(0.9, 2.4244) * 25
    >>> float(spent.epsilon(1e-5)[0].round(3))
    10.0
    """
    return RdpAccountant((order,), name="renyi")
