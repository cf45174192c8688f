"""A planner that lives outside the package: everything works with it, and nothing is taken on trust."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from opacus.accountants.analysis.rdp import compute_rdp

from nestegg import Budget, Charge, Group, InputError, Plan, StoppedError, VerificationError, load_plan, plan, save_plan
from nestegg.accounting import ORDERS, RdpAccountant, compose
from nestegg.configuration.config import load_config, to_toml
from nestegg.configuration.identity import config_digest
from nestegg.configuration.limits import check_config
from nestegg.configuration.participants import make_plan, with_method
from nestegg.flower.terms import Terms
from nestegg.ledger import Ledger
from nestegg.named import load_object
from nestegg.planning import Standing, check_plan, judged, replanned
from nestegg.planning.curves import Pace
from nestegg.planning.plan_file import parse_plan
from nestegg.runs import start_run
from nestegg.training import LocalTraining, RoundReport
from tests.callbacks import EachRound
from tests.conftest import ANY_LENGTH, Run
from tests.examples import slow
from tests.oracles import epsilon_from_rdp
from tests.planning.test_consistency import FORGED
from tests.planning.test_plan_file import HARMLESS, MUTATIONS, digest_of

PAGE = (Path(__file__).parents[2] / "docs" / "your-own-schedule.md").read_text()
PYTHON, TOML = (re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL) for kind in ("python", "toml"))
MORE = '''

@dataclass(frozen=True)
class Ramp:
    """Rates of one's own, another curve for each group, no rest."""

    low: float = 0.2
    weights: tuple[float, ...] = (1.0, 2.0)

    def schedule(self, setting):
        rates = np.linspace(self.low, setting.spending_rate, setting.rounds) * np.ones(setting.shape)
        rates[0] /= 2.0
        curves = [np.linspace(weight, 1.0, setting.rounds) for weight in self.weights]
        made = setting.calibrated(rates, curves)
        return Schedule(made.sampling_rate.tolist(), made.noise_multiplier.tolist())


@dataclass(frozen=True)
class Careful:
    """Who has less to spend is sampled less."""

    def schedule(self, setting):
        rates = np.minimum(1.0, setting.budgets / 10.0)[:, None] * np.ones(setting.shape)
        return setting.calibrated(rates, 1.0)

    def rest(self, after, row):
        return self


@dataclass(frozen=True)
class Bad:
    how: str = "overspends"

    def schedule(self, setting):
        fine = setting.calibrated(setting.spending_rate, 1.0)
        rates, noise = fine.sampling_rate.copy(), fine.noise_multiplier.copy()
        if self.how == "overspends":
            noise *= 0.999
        if self.how == "too often":
            rates[1, 2] = 1.2
        if self.how == "never":
            rates[1, 2] = 0.0
        if self.how == "not a number":
            noise[0, 1] = np.nan
        if self.how == "endless":
            noise[0, 1] = np.inf
        if self.how == "quiet":
            noise[0, 1] = 0.01
        if self.how == "wrong shape":
            noise = noise[:, 1:]
        if self.how == "words":
            return Schedule(rates, "loud")
        if self.how == "raises":
            raise RuntimeError("no idea")
        if self.how == "nothing":
            return None
        return Schedule(rates, noise, fine.epsilon_spent)


@dataclass(frozen=True)
class Secretive:
    data: object = None

    def __post_init__(self):
        if self.data == "mine":
            raise RuntimeError("not yours")

    def schedule(self, setting):
        return setting.calibrated(setting.spending_rate, 1.0)


@dataclass(frozen=True)
class Restless(Secretive):
    def rest(self, after, row):
        return {"nobody": None}[row.group.name]


class Plain:
    def schedule(self, setting):
        return setting.calibrated(setting.spending_rate, 1.0)


number = 7
'''
GROUPS = [Group("strict", 30, Budget(4.0)), Group("open", 20, Budget(8.0))]
STEPS = "my_schedules:Steps"


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a module of somebody else, as long as these tests run."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "my_schedules.py").write_text(PYTHON[0] + MORE)
    (folder / "broken.py").write_text("raise OSError('no disk')")
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("my_schedules", None)


def own(name: str, **parameters: Any) -> Any:
    return load_object("method", f"my_schedules:{name}")(**parameters)


def made_by(name: str, rounds: int = 6, **parameters: Any) -> Plan:
    return plan(GROUPS, rounds, method=own(name, **parameters), spending_rate=0.5)


def small(folder: Path, method: str = STEPS, more: str = "", **privacy: object) -> Path:
    """The configuration of the page, quick to train."""
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in privacy.items())
    text = TOML[0].replace("clients = 50", "clients = 12").replace(STEPS, method)
    text = text.replace("rounds = 6", "rounds = 4\nlocal_epochs = 1\nreproducible = true")
    path = folder / "config.toml"
    path.write_text(text.replace("[privacy.planner]\nat = 3", lines + more))
    return path


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
    ours = plan(GROUPS, 4)
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


@pytest.mark.parametrize("name", ["Steps", "Ramp"])
def test_what_is_left_follows_from_what_is_spent(name: str) -> None:
    made = made_by(name)
    rest = made.replan(2)
    for old, new in zip(made.groups, rest.groups, strict=True):
        assert new.sampling_rate == pytest.approx(old.sampling_rate[2:])
        assert new.noise_multiplier == pytest.approx(old.noise_multiplier[2:], rel=1e-6)
    rest.verify()
    assert rest.parameters == ({"at": 2, "share": 0.5} if name == "Steps" else made.parameters)
    lost = made.replan(2, {"strict": [Charge(0.5, 4.0)]})
    assert lost.groups[0].noise_multiplier[0] > 1.001 * made.groups[0].noise_multiplier[2]
    assert lost.groups[1].noise_multiplier == pytest.approx(rest.groups[1].noise_multiplier)
    lost.replan(1).verify()


@pytest.mark.parametrize("name", ["Steps", "Ramp"])
def test_members_who_stand_differently_stay_within_their_budgets(name: str) -> None:
    made = made_by(name)
    standings = {row.group.name: [Standing("this run", row.group.budget, row.charges(3))] for row in made.groups}
    earlier = Standing("ada", Budget(4.5), (*made.groups[0].charges(3), Charge(0.5, 1.5, 2)))
    standings["strict"].append(earlier)
    again = replanned(made, 3, standings)
    check_plan(again)
    again.verify()
    assert again.parameters == made.parameters
    assert again.groups[0].noise_multiplier[:3] == made.groups[0].noise_multiplier[:3]
    assert again.groups[0].noise_multiplier[3] > made.groups[0].noise_multiplier[3]
    assert again.groups[1].noise_multiplier == pytest.approx(made.groups[1].noise_multiplier, rel=1e-6)


def test_members_of_a_group_share_the_rate_that_all_can_pay() -> None:
    made = made_by("Careful")
    here = {row.group.name: [Standing("this run", row.group.budget, row.charges(3))] for row in made.groups}
    done = made.groups[0].charges(3)
    others = [Standing("ada", Budget(3.8), done), Standing("bob", Budget(7.0), (*done, Charge(0.9, 1.5, 2)))]
    (row, other) = replanned(made, 3, {**here, "strict": [*here["strict"], *others]}).groups
    assert row.sampling_rate == pytest.approx([0.4] * 3 + [0.38] * 3)
    assert other.sampling_rate == pytest.approx([0.8] * 6)
    later = list(map(Charge, row.sampling_rate[3:], row.noise_multiplier[3:]))
    spent = [compose(RdpAccountant(), [*one.charges, *later]).epsilon(1e-5)[0] for one in others]
    assert [epsilon <= one.budget.epsilon for epsilon, one in zip(spent, others, strict=True)] == [True, True]


def test_a_rest_that_fails_is_a_sentence() -> None:
    with pytest.raises(InputError, match=r"my_schedules:Restless: rest\(after, row\) failed, KeyError: 'strict'"):
        made_by("Restless").replan(2)


def test_a_ledger_keeps_and_replans_it(tmp_path: Path) -> None:
    made = plan([Group("all", 2, Budget(4.0))], 4, method=own("Steps", at=2), spending_rate=1.0, accountant="renyi")
    with Ledger(tmp_path / "ledger.db") as ledger:
        books = ledger.begin("monday", made, ["ada", "bob"], unknown=[Budget(6.0), Budget(6.0)])
        new = books.replan()
        new.verify()
        assert new.method == STEPS
        assert ledger.books("monday").plan == new


def test_flowers_terms_take_it() -> None:
    made = made_by("Ramp")
    terms = Terms("monday", made, "flat", 0, (0.5,) * made.rounds)
    assert Terms.parse(terms.text).digest == terms.digest
    assert terms.order("open", 3).clip_norm == pytest.approx(0.5 * made.groups[1].clip_norm[2])


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
