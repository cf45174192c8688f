"""In simulations: how good the model is for each budget group, on data that its own clients held out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nestegg.configuration.config import load_config
from nestegg.configuration.participants import make_plan
from nestegg.models import make_model
from nestegg.runs import Simulation, start_run
from tests.conftest import Run
from tests.runs.test_runs import config


def test_budget_groups_are_measured_on_data_that_their_clients_do_not_train_on(tmp_path: Path) -> None:
    plain = load_config(config(tmp_path))
    held = load_config(config(tmp_path, key="dirichlet", line="dirichlet = 0.5\nheld_out = 0.25"))
    before, after = (Simulation(one, make_plan(one)) for one in (plain, held))
    test = after.federation.test
    assert test is not None
    places = {"strict": range(6), "open": range(6, 12)}
    for group, clients in places.items():
        x, y = test.by_group[group].inputs, test.by_group[group].targets
        whole = torch.cat([before.parts[i] for i in clients])
        kept = torch.cat([after.parts[i] for i in clients])
        rest = torch.tensor(sorted(set(whole.tolist()) - set(kept.tolist())))
        assert len(kept) + len(y) == len(whole)  # nothing is lost, and nothing is in both
        assert sorted(x.flatten(1).sum(1).tolist()) == sorted(after.dataset.train_x[rest].flatten(1).sum(1).tolist())
    summary = start_run(held, tmp_path / "run")
    model = make_model("mlp", after.dataset.shape, 10, 0)
    model.load_state_dict(load_file(tmp_path / "run" / "model.safetensors"))
    for group, accuracy in summary["simulation_only_group_accuracy"].items():
        own = test.by_group[group]
        with torch.no_grad():
            right = (model(own.inputs).argmax(1) == own.targets).float().mean()
        assert accuracy == pytest.approx(100 * float(right))
    assert "Budget groups (simulation only)" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("key", "line", "message"),
    [
        ("dirichlet", "held_out = 1.0", "federation.held_out = 1.0 must lie strictly between 0 and 1"),
        ("clients", "clients = 12\nheld_out = 0.2", "it is for simulations, with training.reproducible = true"),
    ],
)
def test_runs_for_release_hold_nothing_out(key: str, line: str, message: str, run: Run, tmp_path: Path) -> None:
    path = config(tmp_path, key=key, line=line)
    if key == "clients":
        path.write_text(path.read_text().replace("reproducible = true", ""))
    result = run("run", path, "--out", tmp_path / "r")
    assert result.code == 2
    assert message in result.err
    assert not (tmp_path / "r").exists()
