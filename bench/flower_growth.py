"""What a round on Flower costs, and what grows while a run goes on: memory, the SuperLink's storage, the ledger.

    python -m bench.flower_growth cost        a round of 100, 1,000 and 10,000 nodes, a small model and a large one
    python -m bench.flower_growth inside      1,000 rounds of 100 nodes, all of them asked, on a SuperLink's own state
    python -m bench.flower_growth superlink   1,000 rounds of 100 nodes on a real SuperLink over TLS, few asked a round

All ledgers are on a PostgreSQL server that is started for it. `cost` has no SuperLink: a grid in this process makes a
new reply of the full size whenever the strategy asks for one, and its own time does not count. `inside` is Flower's
state, object store and request handlers in this process, without HTTP. In `superlink` every process is a real one but
the SuperNodes', for which `bench.flower_nodes` speaks.
"""

from __future__ import annotations

import argparse
import logging
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import psycopg
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from tests.postgres import Server, find_binaries

from bench.flower_nodes import Fleet, over_tls
from bench.flower_replies import Replies, clocks, memory
from bench.superlink_inside import SuperLinkInside
from nestegg import Plan
from nestegg.flower import PlannedStrategy, wire
from nestegg.flower.loopback import Loopback

APP = Path(__file__).parent / "growth_app"
sys.path.insert(0, str(APP))

from growth_app import BUDGET, GROUP, make_plan  # noqa: E402

ANSWER = wire.Answer(epsilon=BUDGET.epsilon, delta=BUDGET.delta, group=GROUP, partition=-1)
SMALL, LARGE = 1_000, 1_600_000


def cost(nodes: int, parameters: int, rounds: int, ledger: str, folder: Path) -> str:
    """Measure rounds in this process; returns a line of the table."""
    grid, at = Replies(nodes, parameters, ANSWER), list[NDArray[np.float64]]()
    before, started = memory(), time.perf_counter()
    PlannedStrategy(plan_of(nodes, rounds, 1.0), folder, ledger=ledger).start(
        grid,
        model(parameters),
        evaluate_fn=lambda round_, arrays: at.append(np.append(clocks() - grid.seconds, time.perf_counter())),
    )
    wall, busy = np.median(np.diff(at, axis=0), axis=0)[:2]
    tenth = max(len(grid.memory) // 10, 1)
    first, last = (float(np.median(part)) for part in (grid.memory[:tenth], grid.memory[-tenth:]))
    return row(
        f"{nodes:,}",
        f"{parameters:,}",
        f"{rounds}",
        f"{at[0][2] - started:.1f} s",
        f"{wall:.3f} s",
        f"{busy:.3f} s",
        f"{1000 * busy / nodes:.2f} ms",
        f"{grid.sent / rounds / 1e6:,.1f} MB",
        f"{grid.received / rounds / 1e6:,.1f} MB",
        f"{before:.0f} / {first:.0f} / {last:.0f} / {max(grid.memory):.0f} MB",
    )


@dataclass
class Watch:
    """Writes a line of what there is after every so many rounds.

    Attributes:
        every: rounds between two lines.
        ledger: URL of the ledger.
        folder: of the run.
        more: further columns, as text.
    """

    every: int
    ledger: str
    folder: Path
    more: Callable[[], list[str]]
    at: list[float] = field(default_factory=lambda: [time.perf_counter()])

    def after(self, round_: int) -> None:
        """Write the line of a round, if it has one."""
        self.at.append(time.perf_counter())
        if round_ > 1 and round_ % self.every:
            return
        with psycopg.connect(self.ledger) as connection:
            (size,) = connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
        took = np.median(np.diff(self.at[-self.every - 1 :]))
        kept = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
        print(row(f"{round_:,}", f"{took:.2f} s", *self.more(), f"{size / 1e6:.1f} MB", f"{kept / 1e3:.0f} kB"))
        sys.stdout.flush()


def inside(nodes: int, rounds: int, rate: float, ledger: str, folder: Path, database: Path | None) -> None:
    """Run on the state of a SuperLink in this process, kept in memory or in a database."""
    print(row("round", "a round", "a reply", "messages", "objects", "memory", "ledger", "run's folder"))
    with SuperLinkInside(database, nodes) as link:
        fleet, state, started = Fleet(link.nodes, SMALL, ANSWER), link.state, time.process_time()

        def columns() -> list[str]:
            messages = state.num_message_ins() + state.num_message_res()
            reply = 1000 * (time.process_time() - started) / fleet.answered
            return [f"{reply:.1f} ms", f"{messages}", f"{len(state.object_store)}", f"{memory():.0f} MB"]

        watch = Watch(max(rounds // 10, 1), ledger, folder, columns)
        PlannedStrategy(plan_of(nodes, rounds, rate), folder, ledger=ledger).start(
            link.grid(fleet.step),
            model(SMALL),
            evaluate_fn=lambda round_, arrays: watch.after(round_) if round_ else None,
        )
        print(f"{fleet.answered:,} messages answered")


def superlink(nodes: int, rounds: int, rate: float, ledger: str, folder: Path) -> None:
    """Run on a real SuperLink with a database, with a ServerApp of its own process."""
    print(row("round", "a round", "a reply", "database", "its log", "SuperLink", "ServerApp", "ledger", "run's folder"))
    folder.mkdir()
    with Loopback(folder / "federation", []) as federation:
        place, state = federation.folder, sqlite3.connect(f"file:{federation.folder / 'state.db'}?mode=ro", uri=True)

        def columns() -> list[str]:
            server = [one for one in psutil.Process().children(recursive=True) if _is(one, "flwr-serverapp")]
            link = [one for one in psutil.Process().children() if _is(one, "flower-superlink")]
            database = sum(file.stat().st_size for file in place.glob("state.db*"))
            sizes = [f"{database / 1e6:.2f} MB", f"{(place / 'superlink.log').stat().st_size / 1e6:.2f} MB"]
            reply = 1000 * sum(sum(one.cpu_times()[:2]) for one in link) / fleet.answered
            return [f"{reply:.0f} ms", *sizes, *(f"{sum(map(memory, them)):.0f} MB" for them in (link, server))]

        address = f"127.0.0.1:{federation.port}"
        with over_tls(nodes, address, (place / "ca.crt").read_bytes()) as online:
            fleet, watch = Fleet(online, SMALL, ANSWER), Watch(max(rounds // 10, 1), ledger, folder / "run", columns)
            given: dict[str, str | float] = {"folder": str(folder / "run"), "ledger": ledger}
            given |= {"clients": nodes, "rounds": rounds, "rate": rate}
            run, done, lines = federation.run(APP, given, folder / "flwr.log"), 0, folder / "run" / "rounds.jsonl"
            while run.poll() is None:
                asked = state.execute("SELECT dst_node_id FROM message_ins WHERE delivered_at = ''").fetchall()
                if not fleet.step({number % 2**64 for (number,) in asked}):
                    time.sleep(0.05)
                for round_ in range(done + 1, (lines.read_bytes().count(b"\n") if lines.exists() else 0) + 1):
                    watch.after(done := round_)
            tables = [name for (name,) in state.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            left = {name: state.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
            print(f"{fleet.answered:,} messages answered, {done} rounds; rows left: {left}")


def plan_of(nodes: int, rounds: int, rate: float = 1.0) -> Plan:
    """Return the plan of the app for long runs."""
    return make_plan(nodes, rounds, rate)


def model(parameters: int) -> ArrayRecord:
    """Return a vector of zeros as a model."""
    return ArrayRecord({"a.weight": Array(np.zeros(parameters, np.float32))})


def row(*cells: str) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def _is(process: psutil.Process, program: str) -> bool:
    return any(program in part for part in process.cmdline()[:2])


def main() -> None:
    """Measure one thing, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "inside", "superlink"))
    parser.add_argument("--nodes", type=int, nargs="+", help="default 100; 100 1000 10000 for cost")
    parser.add_argument("--rounds", type=int, help="default 1,000; 3 for cost, one where replies are many and large")
    parser.add_argument("--rate", type=float, help="with which nodes are sampled; default 1, for superlink 0.03")
    parser.add_argument("--parameters", type=int, nargs="+", default=[SMALL, LARGE], help="of the models of cost")
    parser.add_argument("--database", action="store_true", help="keep the state of inside in a database")
    asked = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    binaries = find_binaries()
    if binaries is None:
        parser.error("PostgreSQL is not installed.")
    with Server(binaries) as server, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if asked.what != "cost":
            nodes, rounds, place = (asked.nodes or [100])[0], asked.rounds or 1000, Path(folder, "run")
            if asked.what == "superlink":
                superlink(nodes, rounds, asked.rate or 0.03, server.new_database(), place)
            else:
                database = Path(folder, "state.db") if asked.database else None
                inside(nodes, rounds, asked.rate or 1.0, server.new_database(), place, database)
            return
        print(
            row("nodes", "parameters", "rounds", "enrolment", "a round", "processor", "a reply", "out", "in", "memory")
        )
        for parameters in asked.parameters:
            for nodes in asked.nodes or [100, 1000, 10_000]:
                rounds = asked.rounds or (1 if nodes * parameters > 5e9 else 3)
                place = Path(folder, f"{nodes}-{parameters}")
                print(cost(nodes, parameters, rounds, server.new_database(), place), flush=True)


if __name__ == "__main__":
    main()
