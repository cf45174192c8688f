"""The tables of rounds beside other simulators are those that were measured."""

from __future__ import annotations

import json
from statistics import median

from docs.rounds import MEASURED, PAGE, contests, refreshed, rounds_table


def test_the_page_shows_what_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert refreshed(page) == page
    assert {file.stem for file in MEASURED.glob("*.json")} == {"avx512", "avx2"}


def test_a_ratio_is_one_of_medians() -> None:
    for file in MEASURED.glob("*.json"):
        measured = json.loads(file.read_text(encoding="utf-8"))
        table = rounds_table(file)
        assert measured["machine"] in table
        assert f"the kernel for {file.stem}" in table
        for work in measured["works"]:
            ours, other = work["entries"][:2]
            assert f"{median(other['seconds']) / median(ours['seconds']):.2f}×" in table


def test_nobody_is_ahead() -> None:
    """A row in which a peer is ahead must be explained on the page: see "Where it is not met, and why"."""
    for file in MEASURED.glob("*.json"):
        assert all(work.ratio(entry) > 1.0 for work in contests(file) for entry in work.entries[1:])
