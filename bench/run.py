"""`make bench`: how fast planning is, next to the usual way, on this machine and in this run."""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from opacus.accountants.analysis.rdp import compute_rdp
from opacus.accountants.utils import get_noise_multiplier
from rich import box
from rich.console import Console
from rich.table import Table

from bench.transfer import config_of
from nestegg import Budget, Group, SpendAsYouGo, measure_influence, plan
from nestegg.accounting import ORDERS, rdp
from nestegg.planning import judged
from nestegg.planning.clients import read_clients
from nestegg.planning.levels import bucket
from nestegg.runs.configured import public_federation

PAPER = [
    Group("strict", 34, Budget(10.0), saving_rate=0.5, transition=13),
    Group("middle", 43, Budget(20.0), saving_rate=0.6, transition=13),
    Group("open", 23, Budget(30.0), saving_rate=0.7, transition=13),
]
Line = tuple[str, str, str, str]


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The median of some runs, after one that does not count."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def curves() -> list[Line]:
    """Rényi curves on our orders, ours and Opacus', in turns so that both see the same machine."""
    lines = []
    for q, sigma in ((0.9, 2.4255), (0.01, 1.0)):
        batch = np.linspace(0.9 * sigma, 1.1 * sigma, 1000)
        theirs = seconds(partial(compute_rdp, q=q, noise_multiplier=sigma, steps=1, orders=list(ORDERS)), 7)
        one = seconds(partial(rdp, q, sigma, ORDERS), 31)
        many = seconds(partial(rdp, q, batch, ORDERS), 3) / 1000
        what = f"RDP curve, {len(ORDERS)} orders, q = {q}, σ = {sigma}"
        lines.append((what, f"{one * 1e3:.2f} ms", f"Opacus {theirs * 1e3:.1f} ms", f"{theirs / one:.0f}×"))
        lines.append(("  each in a batch of 1,000", f"{many * 1e3:.3f} ms", "", f"{theirs / many:.0f}×"))
    return lines


def paper_plan() -> list[Line]:
    """The plan of the paper's example against GetNoise of Opacus for every client and round."""
    ours = seconds(lambda: plan(PAPER, 25), 21)
    calls = []
    for epsilon in (10.0, 20.0, 30.0):
        for rounds in (25, 12, 1):
            start = time.perf_counter()
            get_noise_multiplier(
                target_epsilon=epsilon, target_delta=1e-5, sample_rate=0.9, steps=rounds, accountant="rdp"
            )
            calls.append(time.perf_counter() - start)
    naive = statistics.mean(calls) * 100 * 25
    paper = seconds(lambda: plan(PAPER, 25, method=SpendAsYouGo("paper")), 5)
    pld = seconds(lambda: plan(PAPER, 25, accountant="pld"), 1)
    return [
        (
            "plan of the example, exact",
            f"{ours * 1e3:.0f} ms",
            f"Opacus {naive:.0f} s = 2,500 × mean of {len(calls)} calls",
            f"{naive / ours:,.0f}×",
        ),
        ("plan of the example, paper", f"{paper * 1e3:.0f} ms", "", f"{naive / paper:,.0f}×"),
        ("plan of the example, exact by PLD", f"{pld:.1f} s", "", ""),
    ]


def optimal_plans() -> list[Line]:
    """The computed schedule of the example by each accountant."""
    work = partial(plan, PAPER, 25, method="optimal")
    gaussian = seconds(work, 101)
    rdp = seconds(partial(work, spending_rate=0.9, accountant="rdp"), 11)
    pld = seconds(partial(work, spending_rate=0.9, accountant="pld"), 1)
    return [
        ("optimal plan of the example, Gaussian", f"{gaussian * 1e3:.2f} ms", "aimed at 1 ms", ""),
        ("optimal plan of the example, RDP, q = 0.9", f"{rdp * 1e3:.0f} ms", "aimed at 150 ms", ""),
        ("optimal plan of the example, PLD, q = 0.9", f"{pld:.1f} s", "aimed at 10 s", ""),
    ]


def many_optimal(accountant: str, rate: float, aim: str) -> Line:
    """1,000 groups and 1,000 rounds by the computed schedule."""
    epsilons = np.exp(np.random.default_rng(0).uniform(0.0, np.log(30.0), 1000))
    groups = [Group(f"g{i}", 10, Budget(float(e))) for i, e in enumerate(epsilons)]
    start = time.perf_counter()
    plan(groups, 1000, method="optimal", spending_rate=rate, accountant=accountant)
    taken = f"{time.perf_counter() - start:.1f} s"
    what = f"1,000 groups × 1,000 rounds, optimal, {accountant}, q = {rate:g}"
    return (what, taken, f"{_memory():.2f} GB; aimed at {aim}, 1 GB", "")


def influence(data: Path) -> Line:
    """The memory of softmax regression on features, measured on MNIST as `nestegg influence` does."""
    start = time.perf_counter()
    measure_influence(public_federation(config_of("fmnist-features", 0), "mnist", data))
    return ("influence, softmax on features of MNIST", f"{time.perf_counter() - start:.0f} s", "aimed at 120 s", "")


def many_rounds() -> Line:
    """1,000 rounds of the example's groups, planned and judged."""
    groups = [replace(group, transition=500) for group in PAPER]
    start = time.perf_counter()
    made = plan(groups, 1000)
    planned = time.perf_counter()
    judged(made)
    end = time.perf_counter()
    return ("3 groups × 1,000 rounds, exact, judged", f"{end - start:.1f} s", f"planning {planned - start:.1f} s", "")


def many_groups() -> Line:
    """1,000 groups and 1,000 rounds, transitions anywhere."""
    rng = np.random.default_rng(0)
    epsilons = np.exp(rng.uniform(0.0, np.log(30.0), 1000))
    groups = [
        Group(f"g{i}", 10, Budget(float(e)), float(rng.uniform(0.3, 0.9)), int(rng.integers(1, 1001)))
        for i, e in enumerate(epsilons)
    ]
    start = time.perf_counter()
    plan(groups, 1000)
    return ("1,000 groups × 1,000 rounds, exact", f"{time.perf_counter() - start:.1f} s", f"{_memory():.2f} GB", "")


def many_clients() -> Line:
    """A million individual budgets: read, bucketed into 32 levels, planned."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clients.csv"
        epsilons = np.exp(rng.normal(1.5, 0.7, 1_000_000))
        file.write_text("client,epsilon\n" + "".join(f"c{i},{e:.4f}\n" for i, e in enumerate(epsilons)))
        start = time.perf_counter()
        clients = read_clients(file)
        read = time.perf_counter()
        groups, _ = bucket(clients, 32, 1e-5)
        plan([Group(g.name, g.clients, g.budget, saving_rate=0.5) for g in groups], 25)
        end = time.perf_counter()
    detail = f"reading {read - start:.1f} s; {_memory():.2f} GB"
    return ("1,000,000 budgets, 32 levels, 25 rounds", f"{end - start:.1f} s", detail, "")


def alone(work: Callable[[], Line]) -> Line:
    """Run in a process of its own, so that its peak memory is its own."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work)


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024.0**2 if sys.platform != "darwin" else 1024.0**3)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of MNIST, to measure influence too")
    data = parser.parse_args().data
    warnings.simplefilter("ignore")
    console = Console(width=120)
    table = Table(box=box.SIMPLE_HEAD, title="nestegg", title_justify="left")
    for heading in ("work", "nestegg", "beside it", "ratio"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    with console.status("Measuring, a few minutes …"):
        lines = [*curves(), *paper_plan(), *optimal_plans(), alone(many_rounds), alone(many_groups)]
        lines += [
            alone(partial(many_optimal, "gaussian", 1.0, "2 s")),
            alone(partial(many_optimal, "rdp", 0.9, "60 s")),
        ]
        lines += [alone(many_clients), *([alone(partial(influence, data))] if data else [])]
    for line in lines:
        table.add_row(*line)
    console.print(table)
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "opacus", "dp-accounting"))
    console.print(f"Python {platform.python_version()}, {packages}; {os.cpu_count()} cores.", highlight=False)


if __name__ == "__main__":
    main()
