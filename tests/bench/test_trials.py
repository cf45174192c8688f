"""Trials: every idea stays within the mechanism and trains, and is judged by the rule."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from bench.trials import __main__ as program
from bench.trials.cells import Cells, Trial, described
from bench.trials.engine import norms_of, train
from bench.trials.idea import Idea, Released, Settings
from bench.trials.roster import NOTHING, ROSTER
from bench.trials.settings import PAPER, SEEDS, config_of, digest_of
from bench.trials.table import gains, summary, verdict

from nestegg import InputError
from nestegg.audit.watching import Watched
from nestegg.data import load_dataset
from nestegg.training import Evaluation, State
from tests.bench.worlds import Clients, world
from tests.examples import slow

ROOT = Path(__file__).parents[2]
# One of each class for people who wait; the same with other values for `make test`.
DISTINCT = list({type(entry.make()): name for name, entry in reversed(ROSTER.items())}.values())
OTHERS = [name for name in ROSTER if name not in DISTINCT]


def anything(clients: Clients, kind: str) -> Clients:
    """The same clients, the first with other data."""
    x, y = clients[0]
    wild = {
        "huge": (x * 1e6, y),
        "one class": (x, torch.full_like(y, 3)),
        "not finite": (torch.full_like(x, torch.nan), y),
        "others' labels": (clients[1][0], 9 - clients[1][1]),
        "one sample": (x[:1] * 50.0, y[:1]),
    }
    return [wild[kind], *clients[1:]]


@pytest.mark.parametrize("name", [*DISTINCT, *slow(*OTHERS)])
def test_what_a_client_contributes_is_within_its_norm_and_its_own(name: str, clients: Clients) -> None:
    """Whatever its data is, in every round; and it changes nobody else's contribution but through what is released."""
    first = ROSTER[name].make()
    plain, state = Watched(world(first, clients)), world(Idea(), clients).start()
    others = {kind: ROSTER[name].make() for kind in ("huge", "one class", "not finite", "others' labels", "one sample")}
    watched = {kind: Watched(world(idea, anything(clients, kind))) for kind, idea in others.items()}
    for round_ in (1, 2):
        norms = norms_of(plain.federation, round_)
        bystander = plain.contribution(state, [1])
        for kind, one in watched.items():
            length = float(torch.linalg.vector_norm(one.contribution(state, [0]))) * one.clipping.step
            assert length <= norms[0], kind
            assert torch.equal(one.contribution(state, [1]), bystander), kind
            one.federation.round(state)
        after, report = plain.federation.round(state)
        released = Released(round_, state.model, after.model - state.model, report.noise_std, report.learning_rate)
        model = first.next(released)
        assert all(torch.equal(idea.next(released), model) for idea in others.values())
        state = State(round_, model, after.clip_norm, after.velocity)


@pytest.mark.parametrize("name", [*DISTINCT, *slow(*OTHERS)])
def test_every_idea_trains_on_digits(name: str, clients: Clients) -> None:
    data, idea = load_dataset("digits"), ROSTER[name].make()
    federation = world(idea, clients, rounds=5)
    state = train(federation, idea)
    found = federation.measured(state, Evaluation(data.test_x, data.test_y))
    assert torch.isfinite(state.model).all()
    assert found.accuracy is not None
    assert found.accuracy > 20.0  # 10 is chance


def test_configurations_have_validation_data_and_the_idea_s_settings() -> None:
    plain, other = (config_of("mnist-features", one, 101) for one in (Idea(), Settings(2, 10, rate=0.5, clip=2.0)))
    assert (plain.federation.tested_on, plain.federation.validation, plain.training.seed) == ("validation", 5000, 101)
    assert (plain.privacy.spending_rate, plain.privacy.method, plain.privacy.accountant) == (1.0, "optimal", "gaussian")
    assert (other.training.local_epochs, other.training.batch_size) == (2, 10)
    assert other.training.learning_rate == plain.training.learning_rate / 2.0
    assert other.privacy.clip_norm == plain.privacy.clip_norm * 2.0
    assert digest_of("mnist-features", Idea()) != digest_of("mnist-features", Settings(2))
    with pytest.raises(InputError, match="row = 'mnist'"):
        config_of("mnist", Idea(), 1)


def filled(folder: Path, name: str, leads: tuple[float, ...]) -> Cells:
    """Trials in which an idea leads nothing by so much on each dataset."""
    cells = Cells(folder)
    for row, lead in zip(PAPER.values(), leads, strict=False):
        for seed in SEEDS:
            for one, accuracy in ((NOTHING, 50.0 + seed), (name, 50.0 + seed + lead)):
                idea = ROSTER[one].make()
                cells.put(one, idea, row, seed, trial=Trial(hash=digest_of(row, idea), accuracy=accuracy, seconds=1.0))
    return cells


@pytest.mark.parametrize(
    ("leads", "said"),
    [
        ((1.0, 1.0, 1.0, -9.0), "3 of 4, **passes**"),
        ((1.0, 1.0, 0.0, -0.1), "2 of 4, no"),
        ((1.0, 1.0), "2 of 2, open"),
        ((-1.0, -1.0, 1.0), "1 of 3, no"),
    ],
)
def test_the_verdict_follows_the_rule(tmp_path: Path, leads: tuple[float, ...], said: str) -> None:
    filled(tmp_path, "adam", leads)
    cells = Cells(tmp_path)  # read anew
    assert verdict(cells, "adam", SEEDS) == said
    assert said in summary(cells)


def test_trials_of_other_settings_do_not_count(tmp_path: Path) -> None:
    cells, row = filled(tmp_path, "epochs-2", (1.0,)), PAPER["adult"]
    assert gains(cells, "epochs-2", row, SEEDS) == [1.0, 1.0, 1.0]
    assert cells.get("epochs-2", Settings(epochs=3), row, 100) is None
    assert Cells(tmp_path).get("epochs-2", Settings(epochs=3), row, 100) is None
    assert described(Settings(epochs=3)) == {
        "class": "Settings",
        "epochs": 3,
        "batch_size": None,
        "rate": 1.0,
        "clip": 1.0,
    }
    (tmp_path / "epochs-2.json").write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        Cells(tmp_path).get("epochs-2", Settings(epochs=2), row, 100)


def test_the_program_runs_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, str, int]] = []

    def fake(idea: Idea, row: str, seed: int, data: Path) -> Trial:
        ran.append((type(idea).__name__, row, seed))
        return Trial(hash=digest_of(row, idea), accuracy=90.0, seconds=0.1)

    monkeypatch.setattr(program, "run", fake)
    arguments = ["--data", str(tmp_path), "--idea", "adam", "--dataset", "adult", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["trials", *arguments])
    program.main()
    assert len(ran) == 2 * 2 * 3
    assert "Adam without" in capsys.readouterr().out
    program.main()
    assert len(ran) == 2 * 2 * 3
    assert json.loads((tmp_path / "adam.json").read_text())["idea"]["class"] == "Adam"


def test_the_page_says_what_the_cells_say() -> None:
    text = (ROOT / "docs" / "trials.md").read_text(encoding="utf-8")
    block = text.split("<!-- trials -->\n")[1].split("\n<!-- /trials -->")[0]
    assert block == summary(Cells(ROOT / "results" / "trials"))
