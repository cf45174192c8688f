"""A planner that lives outside the package: everything works with it, and nothing is taken on trust."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opacus.accountants.analysis.rdp import compute_rdp

from nestegg import Budget, Group, InputError, VerificationError, load_plan, plan, save_plan
from nestegg.accounting import ORDERS
from nestegg.configuration.config import load_config
from nestegg.configuration.limits import check_config
from nestegg.configuration.participants import make_plan
from nestegg.planning import check_plan, judged
from nestegg.planning.curves import Pace
from nestegg.planning.plan_file import parse_plan
from nestegg.training import LocalTraining
from tests.conftest import ANY_LENGTH
from tests.examples import slow
from tests.oracles import epsilon_from_rdp
from tests.planning.schedules import GROUPS, PYTHON, STEPS, made_by, own
from tests.planning.test_consistency import FORGED
from tests.planning.test_plan_file import HARMLESS, MUTATIONS, digest_of

pytestmark = pytest.mark.usefixtures("home")


def test_the_configuration_page_shows_what_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    (tmp_path / "config.toml").write_text(re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)[0])
    config = load_config(tmp_path / "config.toml")
    check_config(config)
    assert make_plan(config).composition == config.privacy.planner["composition"]


def test_the_page_shows_what_is_true() -> None:
    said: list[str] = []
    exec(PYTHON[1], {"print": lambda *words: said.append(" ".join(map(str, words)))})
    (comment,) = re.findall(r"# (my_schedules:.*)", PYTHON[1])
    assert said == [comment]


@pytest.mark.parametrize("name", ["Steps", "Ramp"])
@pytest.mark.parametrize("accountant", ["rdp", "renyi", *slow("pld")])
def test_everybody_just_meets_the_budget(name: str, accountant: str) -> None:
    made = plan(GROUPS, 3, method=own(name, **{"at": 2} if name == "Steps" else {}), accountant=accountant)
    for row in made.groups:
        if accountant == "rdp" and row is made.groups[0]:  # Opacus' curves have the last word, and take long
            curves = [compute_rdp(q=q, noise_multiplier=s, steps=n, orders=ORDERS) for q, s, n in row.charges()]
            spent = epsilon_from_rdp(list(ORDERS), np.sum(curves, axis=0).tolist(), 1e-5)
            assert row.epsilon_spent[-1] == pytest.approx(spent, rel=1e-6)
        assert 0.999 * row.group.budget.epsilon <= row.epsilon_spent[-1] <= row.group.budget.epsilon
    judged(made).verify()


def test_rates_and_noise_are_the_planners_own() -> None:
    strict, open_ = made_by("Ramp", weights=(1.0, 3.0)).groups
    assert strict.sampling_rate == pytest.approx(np.linspace(0.1, 0.25, 6))
    assert open_.sampling_rate == pytest.approx(np.linspace(0.2, 0.5, 6))
    assert np.ptp(strict.noise_multiplier) == 0.0
    assert open_.noise_multiplier[0] == pytest.approx(3.0 * open_.noise_multiplier[-1])


def test_a_planner_knows_the_unit_of_clip_norms() -> None:
    """As one needs that plans for the noise in an update, whose scale falls with the learning rate."""
    seen: list[tuple[float, ...]] = []

    class Spy(type(own("Steps"))):  # type: ignore[misc]
        def schedule(self, setting: Any) -> Any:
            seen.append(setting.clip_scale)
            return super().schedule(setting)

    Spy.__qualname__ = "Spy"
    plan(GROUPS, 3, method=Spy(), local=[0.1, 0.05, 0.01])
    plan(GROUPS, 3, method=Spy(), local=Pace((0.1, 0.05, 0.01), clip_unit="update"))
    plan(GROUPS, 3, method=Spy())
    assert seen[:2] == [(0.1, 0.05, 0.01), (1.0, 1.0, 1.0)]
    assert seen[2] == pytest.approx(LocalTraining(learning_rate=1.0).rates(3))  # by default, the default curve
    with pytest.raises(InputError, match="local has 1 learning rates"):
        plan(GROUPS, 3, method=Spy(), local=[0.1])


def test_a_planner_does_not_learn_names() -> None:
    seen: list[Any] = []

    class Spy(type(own("Steps"))):  # type: ignore[misc]
        def schedule(self, setting: Any) -> Any:
            seen.extend(setting.groups)
            return super().schedule(setting)

    Spy.__qualname__ = "Spy"
    made = plan([Group("all", ["ada", "bob"], Budget(4.0))], 3, method=Spy())
    assert [group.members for group in seen] == [()]
    assert made.groups[0].group.members == ("ada", "bob")


def test_a_plan_file_needs_nothing_of_the_planner(tmp_path: Path) -> None:
    made = made_by("Ramp", low=0.3)
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    assert json.loads((tmp_path / "plan.json").read_text())["parameters"] == {"low": 0.3, "weights": [1.0, 2.0]}
    program = """
import sys
from nestegg import load_plan
made = load_plan(sys.argv[1])
made.verify()
print(made.digest, "my_schedules" in sys.modules)
made.replan(2)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "plan.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"{made.digest} False\n"
    assert done.returncode == 1
    assert "plan.method = 'my_schedules:Ramp' cannot be imported: ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_plan_is_refused(name: str) -> None:
    made = plan([Group("strict", 2, Budget(2.0)), Group("open", 1, Budget(30.0))], 4, method=own("Ramp"))
    check_plan(made)
    with pytest.raises(InputError, match=r"^plan[.:]"):
        check_plan(FORGED[name](made))


@pytest.mark.parametrize(
    "name", sorted(MUTATIONS.keys() - HARMLESS - {"another transition"})
)  # on which no rate depends
def test_a_mutated_plan_with_a_forged_digest_is_caught(name: str) -> None:
    made = plan(ANY_LENGTH, 6, method=own("Ramp", weights=(1.0, 2.0, 3.0)))
    content = made.to_dict()
    content["groups"][2]["epsilon_spent_pld"] = judged(made).groups[2].epsilon_spent_pld
    MUTATIONS[name](content)
    content["digest"] = digest_of(content)
    with pytest.raises((VerificationError, InputError)):
        parse_plan(json.dumps(content), "the plan").verify()


def test_parameters_are_part_of_the_plan() -> None:
    made = made_by("Steps")
    assert made.digest != replace(made, parameters={"at": 5, "share": 0.5}).digest
    content = json.loads(made.to_json())
    content["parameters"]["at"] = 5
    with pytest.raises(VerificationError, match="digest"):
        parse_plan(json.dumps(content), "the plan")
    wrong: list[Any] = [{"at": float("nan")}, {"at": object()}, {3: 4}, [1]]
    for parameters in wrong:
        with pytest.raises(InputError, match=r"plan\.parameters must be"):
            check_plan(replace(made, parameters=parameters))
    ours = plan(GROUPS, 4, method="spend-as-you-go")
    with pytest.raises(InputError, match=r"plan\.parameters must be empty where plan\.method = 'spend-as-you-go'"):
        check_plan(replace(ours, parameters={"at": 3}))


def test_the_judge_finds_who_is_over_budget() -> None:
    made = made_by("Ramp")
    for change in ({"noise_multiplier": 0.99}, {"sampling_rate": 1.01}):
        ((name, factor),) = change.items()
        row = made.groups[1]
        forged = replace(row, **{name: tuple(factor * value for value in getattr(row, name))})  # type: ignore[arg-type]
        alone = replace(made, groups=(replace(forged, clip_norm=(made.clip_norm,) * 6),))
        with pytest.raises(VerificationError, match=r"over budget|does not follow"):
            alone.verify()


BAD = {
    "overspends": r"group 'strict', round 6: epsilon spent = 4\.00\d* is over the group's budget, 4\.",
    "too often": r"group 'open', round 3: sampling_rate = 1\.2 must be above 0 and at most 1\.",
    "never": r"group 'open', round 3: sampling_rate = 0\.0 must be above 0",
    "not a number": r"group 'strict', round 2: noise_multiplier = nan must be at least 0\.1 and at most 100000\.",
    "endless": r"group 'strict', round 2: noise_multiplier = inf must be",
    "quiet": r"group 'strict', round 2: noise_multiplier = 0\.01 must be",
    "wrong shape": r"noise_multiplier has the shape \(2, 5\); it must have a row for each of the 2 groups",
    "words": r"schedule\(setting\) failed, ValueError",
    "raises": r"schedule\(setting\) failed, RuntimeError: no idea\.",
    "nothing": r"schedule\(setting\) failed, AttributeError",
}


@pytest.mark.parametrize("how", BAD)
def test_what_a_planner_returns_is_not_trusted(how: str) -> None:
    with pytest.raises(InputError, match=f"^my_schedules:Bad: {BAD[how]}") as refused:
        made_by("Bad", how=how)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (lambda: own("Plain"), "must be a name, or a frozen dataclass with schedule"),
        (lambda: type(own("Steps")), "must be a name, or a frozen dataclass with schedule"),
        (lambda: 7, "must be a name, or a frozen dataclass with schedule"),
        (lambda: own("Secretive", data=object()), "parameters must be finite numbers, words, or lists of them"),
        (lambda: own("Secretive", data=float("inf")), "parameters must be finite numbers, words, or lists of them"),
        (lambda: "spend as you go", "method = 'spend as you go' must be one of fedavg, .* Did you mean"),
        (lambda: "my_schedules:Step", "method = 'my_schedules:Step': the module 'my_schedules' has no 'Step'"),
    ],
)
def test_what_is_no_planner_is_refused(method: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        plan(GROUPS, 4, method=method())


def test_a_planner_of_a_function_has_no_name() -> None:
    class Hidden(type(own("Steps"))):  # type: ignore[misc]
        pass

    with pytest.raises(InputError, match="must stand at the top of its module"):
        plan(GROUPS, 4, method=Hidden())


def test_a_name_alone_takes_the_planners_defaults() -> None:
    assert plan(GROUPS, 6, method=STEPS, spending_rate=0.5) == made_by("Steps")


def test_gaussian_accounts_refuse_rates_of_ones_own() -> None:
    with pytest.raises(InputError, match=r"my_schedules:Ramp: sampling_rate = 0\.\d+ must be 1"):
        plan(GROUPS, 6, method=own("Ramp"), accountant="gaussian", spending_rate=1.0)
