"""The guard of a client: it refuses what was not agreed on, or is too dear, and pays for what it answers."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nestegg import Budget, Group, InputError, Ledger
from nestegg import plan as make_plan
from nestegg.flower import Guard, OwnAccount
from nestegg.flower.terms import Terms
from nestegg.ledger import RunBooks
from tests.flower.guards import exact, guard_of, make_terms, spent
from tests.grid import small_plan


def test_a_client_pays_for_every_round_up_to_the_one_it_is_asked_for(tmp_path: Path) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    assert guard.enrol(terms) == "middle"
    assert spent(tmp_path) == 0.0
    for round_ in (1, 3):
        guard.admit(terms.order("middle", round_))
        assert spent(tmp_path) == pytest.approx(exact(terms, round_))


def test_a_round_is_answered_once_and_in_order(tmp_path: Path) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 3))
    for round_ in (3, 2, 1):
        with pytest.raises(InputError, match="answered once"):
            guard_of(tmp_path).admit(terms.order("middle", round_))
    assert spent(tmp_path) == pytest.approx(exact(terms, 3))


CHANGES: dict[str, Any] = {
    "terms": "0" * 64,
    "group": "open",
    "clipping": "per-layer",
    "clip_norm": 1e6,
    "noise_std": 0.0,
    "step": 1.0,
    "round": 9,
    "run": "tuesday",
}


@pytest.mark.parametrize("field", CHANGES)
def test_an_order_that_differs_from_the_terms_is_refused(tmp_path: Path, field: str) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    with pytest.raises(InputError):
        guard.admit(terms.order("middle", 1).model_copy(update={field: CHANGES[field]}))
    assert spent(tmp_path) == 0.0


def test_terms_of_a_run_that_is_known_are_never_exchanged(tmp_path: Path) -> None:
    """Rounds that a client was not asked for have happened, too: nobody may make them cheaper afterwards."""
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 1))
    other = replace(terms, clip_scale=(2.0,) * 4)
    noisier = replace(terms, plan=small_plan(4, factor=0.5))
    for swapped in (other, noisier):
        with pytest.raises(InputError, match="not what was agreed on"):
            guard.admit(swapped.order("middle", 2))
        with pytest.raises(InputError, match=r"other terms|another plan"):
            guard.enrol(swapped, "middle")
    guard.enrol(terms)  # the same again is no harm
    guard.admit(terms.order("middle", 2))


def test_an_order_is_charged_by_the_plan_it_belongs_to(tmp_path: Path) -> None:
    """Whatever happened between the account's ledger and its terms."""
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    (file,) = (tmp_path / "terms").iterdir()
    noisier = replace(terms, plan=small_plan(4, factor=0.5))
    file.write_text(json.dumps({"terms": noisier.text, "group": "middle"}))
    with pytest.raises(InputError, match="another plan"):
        guard.admit(noisier.order("middle", 1))
    assert spent(tmp_path) == 0.0


def test_what_would_overspend_is_refused_before_and_after_enrolment_and_leaves_no_trace(tmp_path: Path) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    with pytest.raises(InputError, match=r"epsilon = 9\.316 of 5"):
        guard.enrol(terms, "open")
    with pytest.raises(InputError, match="not one that this client is enrolled in"):
        guard.admit(terms.order("open", 1))
    guard.enrol(terms)
    with pytest.raises(InputError, match="every other run paid to its end"):
        guard.enrol(make_terms("tuesday"))
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert not ledger.has_run("tuesday")
    with pytest.raises(InputError, match="too small for every group"):
        guard_of(tmp_path / "poor", 1.0).enrol(terms)
    guard.admit(terms.order("middle", 1))
    lower = guard_of(tmp_path, 3.0)  # its owner has thought better of it
    assert exact(terms, 2) > 3.0
    with pytest.raises(InputError, match="would go over budget"):
        lower.admit(terms.order("middle", 2))
    assert spent(tmp_path) <= 3.0
    with pytest.raises(InputError, match="below what it has spent"):
        guard_of(tmp_path, 1.0).admit(terms.order("middle", 2))


def test_an_accounts_rule_comes_from_the_first_plan_or_its_owner(tmp_path: Path) -> None:
    sampled = make_plan([Group("middle", 6, Budget(5.0))], rounds=4, spending_rate=0.5, clip_norm=1.0)
    half = Terms("half", sampled, "flat", 0, (1.0,) * 4)
    by_pld = make_plan([Group("middle", 6, Budget(2.0))], rounds=1, accountant="pld", clip_norm=1.0)
    judged = Terms("by pld", by_pld, "flat", 0, (1.0,))

    def rule(folder: Path) -> str:
        with Ledger(folder / "ledger.db", read_only=True) as ledger:
            return ledger.account("own").rule.name

    guard_of(tmp_path / "a").enrol(make_terms())
    guard_of(tmp_path / "b").enrol(half)  # to the last bit of its budget
    assert [rule(tmp_path / name) for name in "ab"] == ["gaussian", "renyi"]
    with pytest.raises(InputError, match="would make it epsilon"):  # beside what is pledged
        guard_of(tmp_path / "a").enrol(half)
    guard_of(tmp_path / "a", 30.0).enrol(half)  # charged as if everybody were sampled
    assert rule(tmp_path / "a") == "gaussian"
    with pytest.raises(InputError, match="filters by privacy loss distributions are not valid"):
        guard_of(tmp_path / "c").enrol(judged)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "budget.toml").write_text('epsilon = 5.0\ndelta = 1e-5\naccount = "fixed"\n')
    Guard(OwnAccount.of_folder(tmp_path / "d")).enrol(judged)
    assert rule(tmp_path / "d") == "fixed"
    with pytest.raises(InputError, match="Open a new account under another name"):
        Guard(OwnAccount(tmp_path / "d", Budget(5.0), "renyi")).admit(judged.order("middle", 1))


def test_a_servers_names_are_no_paths(tmp_path: Path) -> None:
    terms = make_terms("../../../evil\n")
    guard_of(tmp_path / "account").enrol(terms)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["account"]


def _race(folder: Path, gate: Any, results: Any) -> None:
    gate.wait()
    try:
        guard_of(folder).admit(make_terms().order("middle", 2))
        results.put("admitted")
    except InputError:
        results.put("refused")


def test_a_round_that_another_process_pays_for_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard_of(tmp_path).enrol(make_terms())
    order = make_terms().order("middle", 2)
    check = RunBooks.check_rest

    def overtaken(books: RunBooks, last: int | None = None) -> None:
        check(books, last)
        monkeypatch.setattr(RunBooks, "check_rest", check)
        guard_of(tmp_path).admit(order)  # by another process, after this one has looked how far the run has come

    monkeypatch.setattr(RunBooks, "check_rest", overtaken)
    with pytest.raises(InputError, match="was released"):
        guard_of(tmp_path).admit(order)
    assert spent(tmp_path) == pytest.approx(exact(make_terms(), 2))


@pytest.mark.slow
def test_of_two_processes_asked_for_the_same_round_one_trains(tmp_path: Path) -> None:
    guard_of(tmp_path).enrol(make_terms())
    spawn = multiprocessing.get_context("spawn")
    gate, results = spawn.Event(), spawn.Queue()
    racers = [spawn.Process(target=_race, args=(tmp_path, gate, results)) for _ in range(2)]
    for racer in racers:
        racer.start()
    gate.set()
    outcomes = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()
    assert outcomes.count("admitted") == 1
    assert spent(tmp_path) == pytest.approx(exact(make_terms(), 2))


# The mod
