"""Pages that people write about outcomes: blocks, numbers and pictures are made anew, the words stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestegg.errors import InputError
from nestegg.experiments.answers import answer, answered, asked_pictures
from nestegg.experiments.cells import Cell
from nestegg.experiments.outcomes import Outcome
from nestegg.experiments.pages import RULES, markdown
from nestegg.experiments.written import PICTURES, refresh, refreshed, with_block
from tests.experiments.made import outcome_with

MINUS, BEATS = "cifar10: exact minus idp-fedavg", "cifar10: does exact beat idp-fedavg?"


@pytest.fixture
def outcome(tmp_path: Path, cell: Cell) -> Outcome:
    """Exact composition is 0.9, 0.8 and 1.1 ahead of IDP-FedAvg at the stated norm; nothing else is run."""
    finals: dict[str, tuple[float, ...]] = {"idp-fedavg": (50.0, 60.0, 55.0), "exact": (50.9, 60.8, 56.1)}
    return outcome_with("table-cifar10", tmp_path, cell, {**finals, "ours": (49.0,)})


def test_pages_are_made_anew_and_their_words_stay(tmp_path: Path, outcome: Outcome) -> None:
    front, page, rules = (tmp_path / name for name in ("results.md", "results/table-cifar10.md", "results/reading.md"))
    rules.parent.mkdir()
    front.write_text(
        f'Ahead by [old](results/table-cifar10.md "{MINUS}").\n\n![Law](a/table-cifar10/law.svg "{MINUS}")\n'
    )
    rules.write_text("<!-- rules -->\n<!-- /rules -->\n")
    refresh(tmp_path, [outcome])  # the outcome gets its page
    page.write_text(page.read_text().replace("# CIFAR-10\n", "# Old\n\nWords: \\1.\n"))
    refresh(tmp_path, [outcome])
    assert front.read_text().startswith("Ahead by [+0.9](results/")
    assert "\n\n".join(RULES) in rules.read_text()
    assert page.read_text().startswith(
        "# CIFAR-10\n\nWords: \\1.\n\n<!-- table-cifar10 -->\n[All results](../results.md)"
    )
    assert markdown(outcome, "../images/results/table-cifar10.svg").strip() in page.read_text()
    drawn = {path.relative_to(tmp_path / PICTURES).as_posix() for path in (tmp_path / PICTURES).rglob("*.svg")}
    assert drawn == {"table-cifar10.svg", "table-cifar10/law.svg"}
    assert refreshed(tmp_path, [outcome], {"table-cifar10"}) == {
        path: path.read_text() for path in (front, rules, page)
    }
    assert "![" not in refreshed(tmp_path, [outcome], ())[page]


@pytest.mark.parametrize(
    "text",
    ["", "<!-- costs -->", "<!-- /costs -->\n<!-- costs -->", "<!-- costs -->\n<!-- /costs -->\n" * 2],
)
def test_a_page_without_one_place_for_a_block_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="one block for costs"):
        with_block(text, "costs", "")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (MINUS, "+0.9"),
        ("cifar10: idp-fedavg minus exact", "−0.9"),
        (BEATS, "beats rival"),
        ("cifar10: does ours beat idp-fedavg?", "one seed only"),
        ("cifar10: exact", "55.9 ± 5.0"),
        ("cifar10: ours", "49.0 (1 of 3 seeds)"),
        ("cifar10: dp-fedavg", "not run"),
        ("cifar10: the paper's fedavg", "44.42"),
        ("cifar10-chosen: exact minus idp-fedavg", "not run"),
        ("cifar10-chosen: does exact beat idp-fedavg?", "not run"),
        ("*: exact surely above idp-fedavg", "1 of 1"),
        ("*: exact surely below idp-fedavg", "0 of 1"),
        ("cifar10, cifar10-chosen: does exact beat idp-fedavg?", "1 of 1"),
        ("cifar10: unspent by idp-fedavg", "0 %"),
    ],
)
def test_a_link_shows_what_it_asks_for(asked: str, said: str, outcome: Outcome) -> None:
    assert answer(outcome, asked) == said


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ('[0](cifar.md "cifar10: exact")', "'cifar' must be one of table-cifar10"),
        ('[0](table-cifar10.md "cifar: exact")', "row = 'cifar' must be one of cifar10"),
        ('[0](table-cifar10.md "cifar10: exactly")', "Did you mean 'exact'"),
        ('[0](table-cifar10.md "cifar10: exact over ours")', "asks for nothing that is known"),
    ],
)
def test_a_link_that_asks_for_nothing_known_is_refused(link: str, why: str, outcome: Outcome) -> None:
    with pytest.raises(InputError, match=why):
        answered(link, {outcome.name: outcome})


def test_a_picture_waits_for_an_interval(outcome: Outcome) -> None:
    image = '![Title](a/table-cifar10/x.svg "cifar10: ours minus idp-fedavg")'
    assert asked_pictures(image, {outcome.name: outcome}) == {}  # one seed
