"""kill -9, a thousand times: at every step of a round and at random moments, and then look what the ledger says.

`make soak` runs it; `python -m bench.soak --kills 30` is a short one. A child process is forked for every try, with
everything imported already, and is killed before, within or after a step, or at a moment that a clock chooses. What it
has seen (clients at work, results that were out) it tells a file that survives it, and that the ledger must agree with.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from nestegg import runs
from nestegg.configuration.config import load_config
from nestegg.ledger import Ledger, books, run_entries
from nestegg.mechanism import Lattice
from nestegg.report.pages import Pages
from nestegg.runs import folder as files
from nestegg.training import Callback, RoundReport, State, blocks, loop

CONFIG = """
[federation]
clients = 6
[model]
name = "linear"
[training]
rounds = 4
local_epochs = 1
[ledger]
url = "{url}"
[privacy]
[[privacy.groups]]
name = "strict"
clients = 3
epsilon = 5.0
saving_rate = 0.5
[[privacy.groups]]
name = "open"
clients = 3
epsilon = 9.0
"""
ROUNDS = 4
# What a round does, in this order; `within` is between the writes of one transaction.
STEPS: dict[str, tuple[Any, str]] = {
    "reserve": (books.RunBooks, "reserve"),
    "within a transaction": (run_entries, "append"),
    "sample": (loop.Federation, "cohort"),
    "train": (blocks.Clipping, "sum"),
    "noise": (Lattice, "noise"),
    "write the checkpoint": (files.RunFolder, "save_checkpoint"),
    "release": (books.RunBooks, "release"),
    "write the line": (files.RunFolder, "append_line"),
}
MOMENTS = [(step, after) for step in STEPS for after in (False, True)]


@dataclass
class Tally:
    """What was found."""

    kills: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    rounds: int = 0
    retries: int = 0
    faults: list[str] = field(default_factory=list)


def soak(url: Callable[[], str], kills: int, seed: int, place: Path, show: Callable[[Tally], None]) -> Tally:
    """Kill runs until so many kills are done; every run is then led to its end."""
    torch.set_num_threads(1)
    generator, tally = random.Random(seed), Tally()
    moments = [*MOMENTS] * (1 + kills // (2 * len(MOMENTS)))
    duration = 0.5
    while tally.kills.total() < kills:
        home = place / f"run-{tally.runs}"
        home.mkdir()
        (home / "config.toml").write_text(CONFIG.format(url=url()))
        finished = False
        while not finished:
            timed = generator.random() < 0.5 or not moments
            enough = tally.kills.total() >= kills
            moment = None if timed or enough else (*moments.pop(), generator.randint(1, ROUNDS))
            began = time.monotonic()
            child = os.fork()
            if child == 0:
                _train(home, moment)
            if timed and not enough:
                time.sleep(generator.uniform(0.0, duration))
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            finished = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
            if finished:
                duration = max(0.9 * duration, time.monotonic() - began)
            elif os.WIFSIGNALED(status):
                where = "at a random moment" if moment is None else f"{'after' if moment[1] else 'before'}: {moment[0]}"
                tally.kills[where] += 1
            else:
                tally.faults.append(f"{home}: a try ended with exit code {os.WEXITSTATUS(status)}: {_errors(home)}")
                finished = True
            tally.faults += _check(home)
        tally.runs += 1
        _count(home, tally)
        show(tally)
    return tally


def _train(home: Path, moment: tuple[str, bool, int] | None) -> NoReturn:
    """In the child: begin the run or go on with it, and die at a moment, if one is given."""
    witness = os.open(home / "witness", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(home / "errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    now = 0

    def tell(text: str) -> None:
        os.write(witness, f"{text}\n".encode())

    def probe(step: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def probed(*arguments: Any, **named: Any) -> Any:
            nonlocal now
            if step == "reserve":
                now += 1
            if step == "sample":
                tell(f"work {arguments[1]}")
            if moment == (step, False, now):
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **named)
            if moment == (step, True, now):
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return probed

    for step, (owner, name) in STEPS.items():
        setattr(owner, name, probe(step, getattr(owner, name)))
    Pages.write = lambda *_: None  # type: ignore[method-assign]  # charts take long and come after everything

    class Out(Callback):
        def on_round(self, state: State, report: RoundReport) -> None:
            saved = files.RunFolder(home / "run").load_checkpoint()
            tell(f"out {report.round} {saved.digest if saved else ''}")

    try:
        if (home / "run").exists():
            runs.resume_run(home / "run", callbacks=[Out()])
        else:
            runs.start_run(load_config(home / "config.toml"), home / "run", callbacks=[Out()])
        code = 0
    except BaseException as error:
        os.write(2, repr(error).encode())
        code = 9
    os._exit(code)


def _check(home: Path) -> list[str]:
    """Whether what the child saw, the ledger and the folder agree."""
    if not (home / "run").exists() or not (home / "witness").exists():
        return []
    seen = [line.split(" ") for line in (home / "witness").read_text().splitlines()]
    config = load_config(home / "run" / "config.toml")
    faults = []
    with Ledger(str(config.ledger.url)) as ledger:
        ledger.verify()  # nothing changed, nobody over budget
        if not ledger.has_run(str(config.ledger.run)):
            return ["clients worked for a run that the ledger does not know"] if seen else []
        with ledger._database.reading() as connection:
            from nestegg.ledger.history import History

            history = History(ledger.place)
            entries = list(history.follow(connection))
    paid = Counter(entry.round for entry in entries if entry.kind == "reserve")
    released = {entry.round: entry.detail["result"] for entry in entries if entry.kind == "release"}
    for word, round_, *digest in seen:
        if word == "work" and not paid[int(round_)]:
            faults.append(f"round {round_}: clients worked and nothing was charged")
        if word == "out" and released.get(int(round_)) != digest[0]:
            faults.append(f"round {round_}: what is out is not what was released")
    faults += [f"round {round_} was charged {times} times" for round_, times in paid.items() if times != 1]
    results = {(round_, digest[0]) for word, round_, *digest in seen if word == "out"}
    if len(results) != len({round_ for round_, _ in results}):
        faults.append("a round came out twice, with different results")
    if sum(entry.kind == "release" for entry in entries) != len(released):
        faults.append("a round was released twice")
    return [f"{home}: {fault}" for fault in faults]


def _count(home: Path, tally: Tally) -> None:
    """At the end of a run: every round is paid and out."""
    config = load_config(home / "run" / "config.toml")
    with Ledger(str(config.ledger.url), read_only=True) as ledger:
        state = ledger.books(str(config.ledger.run)).state
        with ledger._database.reading() as connection:
            query = "SELECT count(*) FROM entries WHERE kind = 'retry'"
            tally.retries += connection.exec_driver_sql(query).scalar_one()
    lines = (home / "run" / "rounds.jsonl").read_text().splitlines()
    if (state.done, state.claim, len(lines)) != (ROUNDS, None, ROUNDS) or not (home / "run" / "summary.json").exists():
        tally.faults.append(f"{home}: the run ended at round {state.done} with {len(lines)} lines")
    tally.rounds += state.done


def _errors(home: Path) -> str:
    return (home / "errors").read_text()


def main() -> None:
    """Soak on SQLite, or on a PostgreSQL server of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgresql", action="store_true")
    arguments = parser.parse_args()
    began = time.monotonic()

    def show(tally: Tally) -> None:
        print(f"\r{tally.kills.total()} kills, {tally.runs} runs, {len(tally.faults)} faults", end="", file=sys.stderr)

    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if arguments.postgresql:
            from tests.postgres import Server, find_binaries

            binaries = find_binaries()
            if binaries is None:
                sys.exit("There is no PostgreSQL here: neither initdb on the PATH nor Debian's package.")
            with Server(binaries) as server:
                tally = soak(server.new_database, arguments.kills, arguments.seed, place, show)
        else:
            numbers = iter(range(10**9))
            tally = soak(lambda: f"sqlite:///{place}/{next(numbers)}.db", arguments.kills, arguments.seed, place, show)
    print(f"\n{tally.kills.total()} kills in {tally.runs} runs and {time.monotonic() - began:.0f} s")
    for where, times in sorted(tally.kills.items(), key=lambda item: -item[1]):
        print(f"{times:6} {where}")
    print(f"{tally.rounds} rounds released; {tally.retries} times a round ran again under the same reservation")
    print(f"{len(tally.faults)} faults: charges lost, rounds released twice, clients over budget, runs not resumable")
    for fault in tally.faults:
        print(f"  {fault}")
    sys.exit(bool(tally.faults))


if __name__ == "__main__":
    main()
