"""A planner of one's own in a configuration, by name: every command works on it, and mistakes are one sentence."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from nestegg import StoppedError, load_plan
from nestegg.configuration.config import load_config, to_toml
from nestegg.configuration.identity import config_digest
from nestegg.configuration.limits import check_config
from nestegg.configuration.participants import make_plan, with_method
from nestegg.runs import start_run
from nestegg.training import RoundReport
from tests.callbacks import EachRound
from tests.conftest import Run
from tests.planning.schedules import MORE, PYTHON, STEPS, small

pytestmark = pytest.mark.usefixtures("home")


def test_plan_verify_run_resume_and_report_by_name(run: Run, tmp_path: Path) -> None:
    config, folder = small(tmp_path, more="[privacy.planner]\nat = 2\nshare = 0.25"), tmp_path / "run"
    shown = run("plan", config, "--out", tmp_path / "plan.json")
    assert "my_schedules:Steps (at = 2, share = 0.25): 12 clients" in shown.out
    assert run("verify", tmp_path / "plan.json").code == 0
    result = run("run", config, "--out", folder)
    assert result.code == 0, result.err
    assert load_plan(folder / "plan.json").digest == load_plan(tmp_path / "plan.json").digest
    assert load_plan(folder / "plan.json").parameters == {"at": 2, "share": 0.25}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["method"] == STEPS
    assert max(group["epsilon_spent"] for group in summary["groups"]) <= 8.0
    assert "my_schedules:Steps on digits" in (folder / "report.html").read_text()
    assert run("run", "--resume", folder).code == 0


@pytest.mark.slow
def test_compare_and_replan_by_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module lies beside the configuration, and nowhere else."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside.py").write_text(PYTHON[0] + MORE)
    steps, ramp = "beside:Steps", "beside:Ramp"
    config, folder = small(tmp_path, steps, "[privacy.planner]\nat = 2\nshare = 0.25"), tmp_path / "run"
    methods = ("--methods", f"{steps},{ramp}", "--seeds", 1, "--jobs", 1)
    compared = run("compare", config, *methods, "--out", tmp_path / "c")
    assert compared.code == 0, compared.err
    assert re.search(r"beside:Ramp +\d", compared.out)
    plans = {name: load_plan(tmp_path / "c" / f"beside.{name}-0" / "plan.json") for name in ("Steps", "Ramp")}
    assert plans["Steps"].parameters == {"at": 2, "share": 0.25}  # the configured method keeps its parameters
    assert plans["Ramp"].parameters == {"low": 0.2, "weights": [1.0, 2.0]}

    def stop(report: RoundReport) -> None:
        if report.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError):
        start_run(load_config(config), folder, callbacks=[EachRound(stop)])
    sys.path.remove(str(tmp_path))
    del sys.modules["beside"]
    assert run("ledger", "replan", folder).code == 0
    assert run("run", "--resume", folder).code == 0
    assert load_plan(folder / "plan.json").method == steps
    assert len((folder / "rounds.jsonl").read_text().splitlines()) == 4


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "does not import": ({"method": "nowhere:Steps"}, "privacy.method = 'nowhere:Steps' cannot be imported: ModuleNot"),
    "raises": ({"method": "broken:Steps"}, "privacy.method = 'broken:Steps' cannot be imported: OSError: no disk."),
    "no such name": ({"method": "my_schedules:Stairs"}, "the module 'my_schedules' has no 'Stairs'."),
    "cannot be called": ({"method": "my_schedules:number"}, "must be a class or a function, not int."),
    "no planner": ({"method": "my_schedules:Plain"}, "'Plain' must be a dataclass with schedule(setting)."),
    "no name": ({"method": "my schedules:Steps"}, "privacy.method = 'my schedules:Steps' must be one of fedavg,"),
    "unknown": ({"more": "[privacy.planner]\nsahre = 1"}, "privacy.planner.sahre is not a known key. Did you mean 'sh"),
    "type": ({"more": '[privacy.planner]\nat = "2"'}, "privacy.planner.at = '2': input should be a valid integer."),
    "refuses": (
        {"method": "my_schedules:Secretive", "more": '[privacy.planner]\ndata = "mine"'},
        "privacy.planner: RuntimeError: not yours.",
    ),
    "overspends": ({"method": "my_schedules:Bad"}, "my_schedules:Bad: group 'strict', round 4: epsilon spent ="),
    "flat key": ({"shape": "linear"}, "privacy.shape belongs to the method 'shaped'; privacy.method = 'my_schedules:"),
    "composition": ({"composition": "exact"}, "privacy.composition belongs to the method 'spend-as-you-go'"),
    "twice": (
        {"method": "shaped", "shape": "linear", "more": "[privacy.planner]\nend_ratio = 0.5"},
        "privacy.shape and privacy.planner are both given; one of them must go.",
    ),
    "ours, unknown": (
        {"method": "dp-fedavg", "more": "[privacy.planner]\nat = 1"},
        "privacy.planner.at is not a known key.",
    ),
    "ours, wrong": (
        {"method": "spend-as-you-go", "more": '[privacy.planner]\ncomposition = "papr"'},
        "privacy.planner: composition = 'papr' must be one of exact, paper.",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_mistakes_in_a_configuration_are_one_sentence(what: str, run: Run, tmp_path: Path) -> None:
    options, sentence = REFUSED[what]
    result = run("run", small(tmp_path, **options), "--out", tmp_path / "run")
    assert (result.code, result.out) == (2, "")
    assert sentence in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", [STEPS, "my_schedules:Careful", "shaped", "exact", "paper", "dp-fedavg"])
def test_a_configuration_with_another_method_means_the_same_once_written(name: str, tmp_path: Path) -> None:
    """Parameters belong to the configured method alone, and what is written can be read."""
    config = load_config(small(tmp_path, more="[privacy.planner]\nat = 2"))
    other = with_method(config, name)
    assert other.privacy.planner == ({"at": 2} if name == STEPS else {})
    check_config(other)
    (tmp_path / "other.toml").write_text(tomli_w.dumps(to_toml(other)))
    again = load_config(tmp_path / "other.toml")
    check_config(again)
    assert config_digest(again) == config_digest(other)
    assert make_plan(again).digest == make_plan(other).digest


@pytest.mark.parametrize(
    ("method", "flat", "table"),
    [
        ("spend-as-you-go", {"composition": "paper"}, 'composition = "paper"'),
        ("shaped", {"shape": "cosine", "end_ratio": 0.3}, 'shape = "cosine"\nend_ratio = 0.3'),
        ("shaped", {"shape": [3.0, 2.0, 2.0, 1.0]}, "shape = [3.0, 2.0, 2.0, 1.0]"),
    ],
)
def test_our_planners_take_parameters_either_way(
    method: str, flat: dict[str, Any], table: str, run: Run, tmp_path: Path
) -> None:
    config = load_config(small(tmp_path, method, f"[privacy.planner]\n{table}"))
    (tmp_path / "written.toml").write_text(tomli_w.dumps(to_toml(config)))
    assert config_digest(load_config(tmp_path / "written.toml")) == config_digest(config)
    one = json.loads(run("plan", small(tmp_path, method, **flat), "--json").out)
    two = json.loads(run("plan", small(tmp_path, method, f"[privacy.planner]\n{table}"), "--json").out)
    assert one["digest"] == two["digest"]
