"""The privacy statement of a run on Flower: from its terms, its rounds and its ledger, to be signed and checked."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from nestegg import Budget, InputError, Ledger, SideStatistics, VerificationError
from nestegg.audit.claims import Claims
from nestegg.audit.subjects import subject_of
from nestegg.flower import Enrolling, PlannedStrategy, Sharing
from nestegg.flower.in_process import LocalGrid
from nestegg.flower.steps import PreconditionUnmet
from nestegg.mechanism.randomness import Randomness
from nestegg.release import NOT_FOR_RELEASE
from nestegg.report.statement_page import statement_page
from nestegg.runs import resume_run
from nestegg.runs.flower_folder import FlowerFolder, stated_folder
from nestegg.runs.signing import check_statement
from nestegg.runs.statement import digests, make_statement
from nestegg.runs.statement_files import write_statement
from tests.conftest import Run
from tests.grid import client_app, model, small_plan
from tests.runs.test_statement import keys, needs_ssh

__all__ = ["keys"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rounds, planned for six clients, of which three are released."""
    folder = tmp_path_factory.mktemp("flower")
    grid = LocalGrid(client_app(folder / "clients"), 6)
    strategy = PlannedStrategy(small_plan(), folder / "run", sharing=Sharing(colluders=2))
    strategy.start(grid, model(), num_rounds=3)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy" / "run"


def test_it_says_what_was_promised_and_spent(made: Path) -> None:
    said, plan = make_statement(made / "run"), small_plan()
    assert (said.run["rounds"], said.run["planned_rounds"], said.run["clients"]) == (3, 4, 6)
    assert said.run["colluders"] == 2
    assert said.run["note"] is None
    assert said.plan["digest"] == plan.digest
    for group, row in zip(said.groups, plan.groups, strict=True):
        assert group["epsilon"] == pytest.approx(row.epsilon_spent[2])
        assert group["epsilon_pld"] < group["epsilon"] < group["budget"] == row.group.budget.epsilon
    assert said.ledger is not None
    with Ledger(made / "run" / "private" / "ledger.db", read_only=True) as ledger:
        assert said.ledger["head"] == ledger.verify()[0].hash
    assert said.files == digests(made / "run")
    assert set(said.files) == {"terms.json", "rounds.jsonl", "checkpoint.safetensors"}
    assert any("not complete" in warning for warning in said.warnings)


def test_its_words_are_those_of_a_deployment_and_it_names_nobody(made: Path) -> None:
    page = statement_page(make_statement(made / "run"))
    assert "Clients are trusted to clip, and to add their share of the noise." in page
    assert "trained the model of a Flower app on their own data" in page
    for member in json.loads((made / "run" / "roster.json").read_text())["members"]:
        assert member["client"] not in page


@needs_ssh
def test_it_is_signed_and_checked(copy: Path, keys: Path, run: Run) -> None:
    write_statement(make_statement(copy), copy, key=keys / "grace")
    assert check_statement(copy / "statement.json", keys / "signers", folder=copy).signer == "grace@example.org"
    done = run("statement", "--check", str(copy / "statement.json"), "--signers", str(keys / "signers"))
    assert done.code == 0
    assert "is signed by grace@example.org, and the run in" in " ".join(done.out.split())
    terms = copy / "terms.json"
    terms.write_text(terms.read_text().replace('"colluders": 2', '"colluders": 1'))
    with pytest.raises(VerificationError, match=r"terms\.json is another file"):
        check_statement(copy / "statement.json", keys / "signers", folder=copy)


def test_terms_that_were_changed_are_not_stated(copy: Path) -> None:
    """The ledger knows the plan and the checkpoint; whatever else was agreed on, the checkpoint knows."""
    terms = copy / "terms.json"
    terms.write_text(terms.read_text().replace('"colluders": 2', '"colluders": 3'))
    for attempt in (make_statement, subject_of):
        with pytest.raises(InputError, match="checkpoint is of other terms"):
            attempt(copy)


def test_the_folder_of_a_run_that_is_not_on_flower_is_neither_taken_nor_taken_over(copy: Path) -> None:
    """By terms that lie in it, or by a strategy that is given it."""
    ordinary = copy.parent / "ordinary"
    ordinary.mkdir()
    (ordinary / "config.toml").write_text("format = 2\n")
    strategy = PlannedStrategy(small_plan(), ordinary)
    with pytest.raises(PreconditionUnmet, match="is the folder of a run that is not on Flower"):
        strategy.start(LocalGrid(client_app(copy.parent / "clients"), 6), model())
    assert not (ordinary / "terms.json").exists()
    shutil.copy(copy / "terms.json", ordinary)
    assert not isinstance(stated_folder(ordinary), FlowerFolder)


def test_where_the_ledger_lies_elsewhere_it_must_be_given(copy: Path, run: Run) -> None:
    """What was lost and paid for again is known to the ledger alone: without it ε could be stated too small."""
    own = make_statement(copy, ledger=copy / "private" / "ledger.db").ledger
    assert own is not None
    assert own["own"]
    place = copy.parent / "ours.db"
    (copy / "private" / "ledger.db").rename(place)
    with pytest.raises(InputError, match="give the ledger that pays by --ledger"):
        make_statement(copy)
    said = make_statement(copy, ledger=place).ledger
    assert said is not None
    assert not said["own"]
    (copy.parent / "other").mkdir()
    place.rename(copy.parent / "other" / "ledger.db")
    assert run("statement", copy, "--ledger", copy.parent / "other").code == 0


def test_a_ledger_in_its_folder_that_knows_another_run_is_not_its_own(copy: Path) -> None:
    place = copy / "private" / "ledger.db"
    with Ledger(place) as ledger:
        names = ["ada", "bob", "eve", "dan", "fay", "gus"]
        ledger.set_budgets(dict.fromkeys(names, Budget(20.0)), new=True)
        books = ledger.begin("another", small_plan(1), names)
        books.release(1, books.reserve(1), "result")
    said = make_statement(copy).ledger
    assert said is not None
    assert not said["own"]


def test_a_run_whose_noise_follows_from_a_seed_says_so(tmp_path: Path) -> None:
    grid = LocalGrid(client_app(tmp_path / "clients"), 6)
    sharing = Sharing("flat", colluders=1, side=SideStatistics(clip_share=0.1))
    randomness = Randomness(seed=1, reproducible=True)
    PlannedStrategy(small_plan(1), tmp_path / "run", sharing=sharing, randomness=randomness).start(grid, model())
    said = make_statement(tmp_path / "run")
    assert said.run["note"] == NOT_FOR_RELEASE
    assert "NOT FOR RELEASE" in statement_page(said)
    subject = subject_of(tmp_path / "run")  # what is audited is what was agreed on
    assert isinstance(subject.what, Claims)
    mechanics = subject.what.mechanics
    assert (mechanics.clipping, mechanics.colluders, mechanics.side) == ("flat", 1, sharing.side)
    assert subject.stamp == {"note": NOT_FOR_RELEASE}


def test_nothing_is_stated_of_terms_alone_or_of_terms_that_are_damaged(copy: Path) -> None:
    (copy / "terms.json").write_text('{"format": "nestegg-terms/2"')
    with pytest.raises(InputError, match="terms are not JSON"):
        make_statement(copy)
    (copy / "terms.json").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"terms\.json cannot be read"):
        make_statement(copy)


def test_a_run_that_has_released_nothing_has_nothing_to_state(tmp_path: Path) -> None:
    grid = LocalGrid(client_app(tmp_path / "clients"), 5)
    with pytest.raises(Exception, match="enrol"):
        PlannedStrategy(small_plan(), tmp_path / "run", enrolling=Enrolling(timeout=0.1)).start(grid, model())
    with pytest.raises(InputError, match="released no round yet"):
        make_statement(tmp_path / "run")


def test_its_plan_is_checked_and_its_promise_attacked(copy: Path, run: Run) -> None:
    done = run("verify", copy / "terms.json")
    assert (done.code, small_plan().digest in done.out) == (0, True)
    refused = run("verify", copy)
    assert (refused.code, "the plan of a run is its file terms.json" in refused.err) == (2, True)
    attacked = run("audit", copy, "--seconds", 1)
    assert attacked.code == 0, attacked.err
    assert "only its clients have their data" in " ".join(attacked.out.split())
    found = make_statement(copy).audit
    assert found is not None
    assert (found["refuted"], found["same_plan"]) == (False, True)
    changed = copy / "terms.json"
    text = changed.read_text()
    multiplier = re.search(r'noise_multiplier\\?":\s*\[\s*(\d)', text)
    assert multiplier is not None
    digit = multiplier.start(1)
    changed.write_text(text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :])
    refused = run("verify", changed)
    assert refused.code in (1, 2)
    assert "was changed after it was made" in refused.err


def test_it_goes_on_where_it_trains_and_its_ledger_is_found_by_its_folder(made: Path, run: Run) -> None:
    with pytest.raises(InputError, match="is a run on Flower: start its server again with this folder"):
        resume_run(made / "run")
    done = run("ledger", "show", "--ledger", str(made / "run"))
    assert done.code == 0
    assert "8.410" in done.out
    done = run("ledger", "show", "--ledger", str(made / "clients" / "0"))
    assert "own" in done.out
    done = run("ledger", "show", "--ledger", str(made))
    assert done.code == 2
    assert "is a folder without a ledger" in done.err
