"""A run that stops and waits when the first client is about to work, and again when the first result is out."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

from nestegg.configuration.config import load_config
from nestegg.ledger import database
from nestegg.runs import start_run
from nestegg.training import RoundReport
from nestegg.training.dense import DenseEngine
from tests.callbacks import EachRound


def pause(mark: str) -> None:
    print(mark, flush=True)
    sys.stdin.readline()


class Careless(sqlite3.Connection):
    """Commits that return before they are on disk: what the test must be able to notice."""

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute(statement.replace("synchronous = FULL", "synchronous = OFF"), *parameters)


def main(config: Path, folder: Path, careless: bool) -> None:
    train = DenseEngine.train_block

    def watched(self: DenseEngine, *arguments: Any) -> Any:
        pause("work")
        return train(self, *arguments)

    DenseEngine.train_block = watched  # type: ignore[method-assign, assignment]
    if careless:
        connect = sqlite3.connect
        database.sqlite3.connect = lambda *given, **named: connect(*given, **named, factory=Careless)  # type: ignore

    def out(report: RoundReport) -> None:
        pause("out")

    start_run(load_config(config), folder, callbacks=[EachRound(out)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "careless")
