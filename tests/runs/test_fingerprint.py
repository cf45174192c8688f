"""What a run began with: noted before anything else is written, and compared when it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import nestegg
from nestegg import Federation, InputError, Mechanics, Performance, Randomness
from nestegg.ledger import Ledger
from tests.own_federation import NAMES, Slope, make_data, make_plan


class Table:
    """A source of one's own, whose fingerprint may fail."""

    names = NAMES
    sizes = None

    def __init__(self, error: BaseException | None = None) -> None:
        self.data, self.error = make_data(), error

    def load(self, name: str) -> Any:
        return self.data[name]

    def fingerprint(self) -> bytes:
        if self.error is not None:
            raise self.error
        return b"table, version 1"


def federation(clients: Any, **changes: Any) -> Federation:
    torch.manual_seed(3)
    mechanics = Mechanics(randomness=Randomness(3, reproducible=True))
    plan = make_plan(**changes)
    return Federation(plan, Slope(), clients, mechanics=mechanics, performance=Performance(workers=1))


@pytest.mark.parametrize("error", [OSError("the disk is gone"), SystemExit("the disk is gone")])
def test_a_run_whose_fingerprint_fails_writes_nothing(error: BaseException, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    nestegg.run(federation(Table(), accountant="renyi"), tmp_path / "first", ledger=ledger)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    for name, url in (("second", ledger), ("third", None), ("fourth", tmp_path / "new.db")):
        with pytest.raises(InputError, match=f"gives no fingerprint: {type(error).__name__}: the disk is gone"):
            nestegg.run(federation(Table(error), accountant="renyi"), tmp_path / name, ledger=url)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    with Ledger(ledger, read_only=True) as books:
        assert len(books.account(NAMES[0]).parts) == 1  # it knows of no other run
