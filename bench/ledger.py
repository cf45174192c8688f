"""The ledger under load: a million clients in a thousand groups, a thousand rounds.

python -m bench.ledger [--clients 1000000] [--groups 1000] [--rounds 1000]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from nestegg import Budget, Group, plan
from nestegg.ledger import Ledger

T = TypeVar("T")


def timed(what: str, work: Callable[[], T]) -> T:
    """Do it, and say how long it took."""
    began = time.perf_counter()
    result = work()
    print(f"{what:58} {1000 * (time.perf_counter() - began):12.1f} ms", flush=True)
    return result


def main() -> None:
    """Measure, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("clients", 1_000_000), ("groups", 1000), ("rounds", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    clients, groups, rounds = asked.clients, asked.groups, asked.rounds
    budgets = np.geomspace(2.0, 30.0, groups)
    made = timed(
        "plan",
        lambda: plan(
            [Group(f"g{i}", clients // groups, Budget(float(e)), saving_rate=0.5) for i, e in enumerate(budgets)],
            rounds,
            accountant="renyi",  # by which the ledger keeps its accounts
        ),
    )
    names = [f"client-{i:07d}" for i in range(made.clients)]
    life = [row.group.budget for row in made.groups for _ in range(row.group.clients)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        with Ledger(f"sqlite:///{path}") as ledger:
            timed("set all budgets", lambda: ledger.set_budgets(dict(zip(names, life, strict=True))))
            books = timed("begin the run", lambda: ledger.begin("big", made, names))
            timed("check that the whole plan fits", books.check_rest)
            reserve, release = [], []
            for round_ in range(1, rounds + 1):
                moments = [time.perf_counter()]
                claim = books.reserve(round_)
                moments.append(time.perf_counter())
                books.release(round_, claim, f"{round_:064d}")
                moments.append(time.perf_counter())
                reserve.append(moments[1] - moments[0])
                release.append(moments[2] - moments[1])
            tenth = max(rounds // 10, 1)
            for what, times in (("reserve", reserve), ("release", release)):
                first, last = (1000 * float(np.median(part)) for part in (times[:tenth], times[-tenth:]))
                print(
                    f"{what}: {first:.1f} ms in the first tenth of the rounds, {last:.1f} ms in the last: "
                    f"{last / first:.2f} times"
                )
            print(f"reserve in round 1: {1000 * reserve[0]:.1f} ms, in round {rounds}: {1000 * reserve[-1]:.1f} ms")
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        print(f"the files: {size / 1e6:.0f} MB")
        with Ledger(f"sqlite:///{path}", read_only=True) as ledger:
            middle = names[len(names) // 2]
            account = timed("one client's account, read", lambda: ledger.account(middle))
            timed("its epsilon by RDP", lambda: account.epsilon)
            took = []
            for name in names[:: max(len(names) // 20, 1)]:
                began = time.perf_counter()
                _ = ledger.account(name).epsilon
                took.append(1000 * (time.perf_counter() - began))
            print(f"{len(took)} accounts, read and composed: median {np.median(took):.1f} ms, max {max(took):.1f} ms")
            timed("its epsilon by PLD", lambda: account.epsilon_pld)
            timed("go on with the run in a new process (read the log)", lambda: ledger.books("big"))
            timed("verify everything", ledger.verify)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"peak memory of all this: {peak:.2f} GB")


if __name__ == "__main__":
    main()
