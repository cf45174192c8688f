"""The accountants of pfl and the filter of OpenDP beside ours, each in an environment of its own, which it installs.

`make soak` runs it. pfl accounts for equal releases only, so plans with one rate and one noise are replayed through it.
OpenDP's filter of zero-concentrated divergence refuses when Σ 1/(2σ²) would pass a bound; the ledger's accounts of the
rule gaussian refuse when Σ 1/σ² would pass μ². Both get the same charges, one by one, and must refuse the same one.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nestegg import Budget, Group, Ledger, Plan, plan
from nestegg.accounting import Charge, GaussianAccountant, PldAccountant, RdpAccountant, compose, gaussian_allowance
from nestegg.bench.simulators import Simulator, default_cache, python_of
from nestegg.errors import BudgetError, InputError

PFL = Simulator("pfl's accountants", "", (), ("pfl==0.6.0",), torch=False)
OPENDP = Simulator("OpenDP", "", (), ("opendp==0.16.0",), torch=False)
DELTA, LIVES = 1e-5, 20

_PFL = """
import json, sys
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant, PRVPrivacyAccountant, RDPPrivacyAccountant
found = []
for q, sigma, rounds, delta in json.load(sys.stdin):
    kinds = (RDPPrivacyAccountant, PLDPrivacyAccountant, PRVPrivacyAccountant)
    found.append([float(kind(rounds, q, "gaussian", delta=delta, noise_parameter=sigma).epsilon) for kind in kinds])
print(json.dumps(found))
"""
_OPENDP = """
import json, sys
import opendp.prelude as dp
dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=1), dp.l2_distance(T=float)
odometer = dp.c.make_fully_adaptive_composition(*space, output_measure=dp.zero_concentrated_divergence())
accepted = []
for bound, noises in json.load(sys.stdin):
    queryable, count, loss = dp.c.make_privacy_filter(odometer, d_in=1.0, d_out=bound)([0.0]), 0, 0.0
    for sigma in noises:
        try:
            queryable(dp.m.make_gaussian(*space, scale=sigma))
        except dp.OpenDPException:
            break
        count, loss = count + 1, queryable.privacy_loss(1.0)
    accepted.append([count, loss])
print(json.dumps(accepted))
"""


def replay_plans(python: Path) -> list[str]:
    """Plans with equal rounds through pfl's three accountants; returns what does not agree."""
    methods = [
        (method, q, epsilon)
        for method in ("idp-fedavg", "dp-fedavg")
        for q in (0.1, 0.5, 0.9)
        for epsilon in (2.0, 10.0)
    ]
    rows = []
    for method, q, epsilon in methods:
        made = plan([Group("all", 5, Budget(epsilon, DELTA))], 25, method=method, spending_rate=q, clip_norm=1.0)
        (charge,) = made.groups[0].charges()
        rows.append((*charge, DELTA))
    faults = []
    for (method, q, epsilon), (rate, sigma, n, _), theirs in zip(
        methods, rows, _answer(python, _PFL, rows), strict=True
    ):
        charge = Charge(rate, sigma, n)
        by_rdp = float(compose(RdpAccountant(), [charge]).epsilon(DELTA)[0])
        by_pld = float(compose(PldAccountant.for_releases(rate, sigma), [charge]).epsilon(DELTA)[0])
        agree = [by_rdp <= theirs[0] * (1 + 1e-6), abs(theirs[1] / by_pld - 1) < 2e-3, abs(theirs[2] - by_pld) < 0.08]
        print(f"{method:11} q = {q:<4} budget {epsilon:4g}: ours {by_rdp:.4f} {by_pld:.4f}; pfl {theirs}", flush=True)
        if not all(agree) or theirs[1] > epsilon:
            faults.append(f"pfl, {method}, q = {q}, budget {epsilon}: {theirs} against {by_rdp}, {by_pld}")
    return faults


def filter_beside_filter(python: Path) -> list[str]:
    """The same charges to the ledger and to OpenDP's filter; returns where they differ."""
    draw, faults, lives = random.Random(7), [], []
    for _ in range(LIVES):
        epsilon = draw.choice((1.0, 4.0, 10.0))
        lives.append((epsilon, [_release(draw.uniform(3.0, 20.0) / epsilon**0.5) for _ in range(40)]))
    asked = [
        (float(gaussian_allowance(epsilon, DELTA)[0]) / 2.0, [_noise(one) for one in plans]) for epsilon, plans in lives
    ]
    theirs = _answer(python, _OPENDP, asked)
    for (epsilon, plans), (count, loss) in zip(lives, theirs, strict=True):
        accepted, spent = _ledger(epsilon, plans)
        print(f"budget {epsilon:4g}: {accepted} charges fit by the ledger, {count} by OpenDP", flush=True)
        if accepted != count or abs(spent / 2.0 - loss) > 1e-12 * loss or count == len(plans):
            faults.append(f"budget {epsilon}: {accepted} and {count} charges, {spent / 2.0} and {loss}")
    return faults


def _ledger(epsilon: float, plans: list[Plan]) -> tuple[int, float]:
    """How many charges the ledger takes one after the other, each a run of its own, and Σ 1/σ² of them."""
    charged: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Ledger(f"sqlite:///{folder}/ledger.db") as ledger:
        ledger.set_budgets({"ada": Budget(epsilon, DELTA)}, rule="gaussian")
        for number, one in enumerate(plans):
            books = ledger.begin(str(number), one, ["ada"])
            try:
                books.release(1, books.reserve(1), "result")
            except BudgetError:
                break
            charged = [c.noise_multiplier for c in ledger.account("ada").charges for _ in range(c.rounds)]
        ledger.verify()
    return len(charged), math.fsum(sigma**-2 for sigma in charged)


def _noise(plan_: Plan) -> float:
    """The noise of a plan of one round for one group."""
    return plan_.groups[0].noise_multiplier[0]


def _release(sigma: float) -> Plan:
    """A plan of one round at rate 1 with about a given noise: what calibration makes of its cost."""
    return plan(
        [Group("all", 1, Budget(_epsilon(sigma), DELTA))],
        1,
        method="idp-fedavg",
        spending_rate=1.0,
        clip_norm=1.0,
        accountant="gaussian",
    )


def _epsilon(sigma: float) -> float:
    """What one release costs at rate 1."""
    return float(GaussianAccountant().spend(1.0, sigma).epsilon(DELTA)[0])


def main() -> None:
    """Run both comparisons; exit 1 if anything differs."""
    faults: list[str] = []
    for peer, compare in ((PFL, replay_plans), (OPENDP, filter_beside_filter)):
        try:
            python = python_of(peer, default_cache())
        except InputError as error:
            print(f"skipped: {error}")
            continue
        faults += compare(python)
    print(f"{len(faults)} differences", *faults, sep="\n  ")
    sys.exit(bool(faults))


def _answer(python: Path, program: str, asked: Any) -> Any:
    done = subprocess.run(
        [python, "-W", "ignore", "-c", program], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
