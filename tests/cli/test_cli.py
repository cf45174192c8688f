"""The command line, as a user meets it: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nestegg import InputError, load_plan
from nestegg.checks import one_of
from tests.conftest import EXAMPLE, Run


def config(folder: Path, *changes: tuple[str, str]) -> Path:
    """The example with pieces of its text exchanged."""
    text = EXAMPLE.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "config.toml"
    path.write_text(text)
    return path


SHORT = ("rounds = 25", "rounds = 13")


def test_plan_prints_tables_and_a_chart(run: Run) -> None:
    result = run("plan", EXAMPLE)
    assert result.code == 0
    for words in ("strict", "middle", "open", "2.424 → 2.014", "1.967", "12.592", "round by round", "9.277"):
        assert words in result.out
    assert "uniform" not in result.out  # a comparison comes on request
    assert result.err == ""
    assert max(map(len, result.out.splitlines())) <= 80


def test_json_is_the_whole_plan_and_nothing_else(run: Run) -> None:
    content = json.loads(run("plan", EXAMPLE, "--json").out)
    top = [
        "method",
        "composition",
        "accountant",
        "delta",
        "rounds",
        "clients",
        "mean_sampling_rate",
        "round_noise_multiplier",
        "groups",
    ]
    assert set(top) <= set(content)
    assert [len(content[name]) for name in ("mean_sampling_rate", "round_noise_multiplier")] == [25, 25]
    assert [group["clients"] for group in content["groups"]] == [34, 43, 23]
    for group in content["groups"]:
        assert {"name", "clients", "epsilon", "saving_rate", "transition", "epsilon_spent_pld"} <= set(group)
        for name in ("sampling_rate", "noise_multiplier", "clip_norm", "epsilon_spent"):
            assert len(group[name]) == 25
        assert 0.999 * group["epsilon"] <= group["epsilon_spent"][-1] <= group["epsilon"]
        assert group["epsilon_spent_pld"] < group["epsilon_spent"][-1]


def test_out_saves_a_plan_that_verifies(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    saved = run("plan", config(tmp_path, SHORT), "--out", path)
    assert (saved.code, saved.out.strip().splitlines()[-1]) == (0, f"Saved to {path}.")
    assert load_plan(path).rounds == 13
    verified = run("verify", path)
    assert verified.code == 0
    assert "at δ = 1e-05, by PLD" in verified.out
    assert "The plan holds: nobody is over budget" in verified.out
    found, plan = json.loads(run("verify", path, "--json").out), load_plan(path)
    assert (found["holds"], found["digest"]) == (True, plan.digest)
    assert {group["judge"] for group in found["groups"]} == {"PLD"}
    assert [group["epsilon_spent"] for group in found["groups"]] == pytest.approx(plan.verify())
    assert [group["epsilon"] for group in found["groups"]] == [row.group.budget.epsilon for row in plan.groups]


def test_a_changed_plan_fails_to_verify_with_exit_code_1(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    run("plan", config(tmp_path, SHORT), "--out", path)
    content = json.loads(path.read_text())
    content["groups"][0]["noise_multiplier"][3] *= 0.9
    path.write_text(json.dumps(content))
    result = run("verify", path)
    assert result.code == 1
    assert "was changed after it was made" in result.err
    result = run("verify", path, "--json")
    assert (result.code, json.loads(result.out)["holds"]) == (1, False)


@pytest.mark.slow
def test_compare_shows_four_planners(run: Run, tmp_path: Path) -> None:
    result = run("plan", config(tmp_path, SHORT), "--compare")
    assert result.code == 0
    rows = re.findall(r"^.{8} +(idp-fedavg|paper|exact|optimal) +\d", result.out, flags=re.MULTILINE)
    assert rows == ["idp-fedavg", "paper", "exact", "optimal"] * 3
    assert "What exact composition changes in the spending rounds" in result.out
    assert "· uniform spending" in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    together = json.loads(run("plan", config(tmp_path, SHORT), "--compare", "--json").out)
    assert list(together) == ["idp-fedavg", "paper", "exact", "optimal"]
    assert together["paper"]["composition"] == "paper"


@pytest.mark.parametrize("method", ["fedavg", "dp-fedavg", "idp-fedavg", "adaptive-clipping", "optimal", "shaped"])
def test_every_method_prints(method: str, run: Run, tmp_path: Path) -> None:
    result = run("plan", config(tmp_path, SHORT, ('"spend-as-you-go"', f'"{method}"')))
    assert result.code == 0
    assert method in result.out


def test_a_file_of_individual_budgets(run: Run, tmp_path: Path) -> None:
    lines = [f"client-{i},{1.0 + i * 0.01}" for i in range(500)]
    (tmp_path / "clients.csv").write_text("\n".join(["client,epsilon", *lines]))
    file = tmp_path / "config.toml"
    file.write_text(
        '[training]\nrounds = 4\n[privacy]\nbudgets_file = "clients.csv"\nbudget_levels = 5\nsaving_rate = 0.5\n'
    )
    content = json.loads(run("plan", file, "--json").out)
    assert content["clients"] == 500
    assert [group["transition"] for group in content["groups"]] == [3] * 5
    assert run("plan", file).code == 0


BAD = {
    "epsilon zero": (("epsilon = 10.0", "epsilon = 0.0"), "group 'strict': epsilon = 0.0"),
    "epsilon negative": (("epsilon = 10.0", "epsilon = -1.0"), "group 'strict': epsilon = -1.0"),
    "epsilon nan": (("epsilon = 10.0", "epsilon = nan"), "group 'strict': epsilon = nan"),
    "epsilon infinite": (("epsilon = 10.0", "epsilon = inf"), "group 'strict': epsilon = inf"),
    "epsilon text": (("epsilon = 10.0", 'epsilon = "10"'), "privacy.groups.1.epsilon = '10'"),
    "epsilon hopeless": (
        ("epsilon = 10.0", "epsilon = 1e-7"),
        "group 'strict': epsilon = 1e-07 at delta = 1e-05 cannot be met",
    ),
    "delta zero": (("delta = 1e-5", "delta = 0.0"), "privacy.delta = 0.0"),
    "delta one": (("delta = 1e-5", "delta = 1.0"), "privacy.delta = 1.0"),
    "rate zero": (("spending_rate = 0.9", "spending_rate = 0.0"), "privacy.spending_rate = 0.0"),
    "rate above one": (("spending_rate = 0.9", "spending_rate = 1.1"), "privacy.spending_rate = 1.1"),
    "saving above spending": (("saving_rate = 0.5", "saving_rate = 0.95"), "group 'strict': saving_rate = 0.95"),
    "saving zero": (("saving_rate = 0.5", "saving_rate = 0.0"), "group 'strict': saving_rate = 0.0"),
    "transition zero": (("transition = 13", "transition = 0"), "group 'strict': transition = 0"),
    "transition late": (("transition = 13", "transition = 26"), "group 'strict': transition = 26"),
    "shares": (("share = 0.34", "share = 0.35"), "the shares sum to 1.01"),
    "share and clients": (("share = 0.34", "share = 0.34\nclients = 34"), "group 'strict': give either share or"),
    "share for some": (("share = 0.34", "clients = 34"), "not some of each"),
    "duplicate group": (('name = "middle"', 'name = "strict"'), "the name 'strict' is used 2 times"),
    "empty name": (('name = "middle"', 'name = ""'), "name = ''"),
    "empty group": (("share = 0.34", "share = 0.0"), "group 'strict': share = 0.0"),
    "rounds zero": (("rounds = 25", "rounds = 0"), "training.rounds = 0"),
    "rounds half": (("rounds = 25", "rounds = 2.5"), "training.rounds = 2.5"),
    "clients zero": (("clients = 100", "clients = 0"), "federation.clients = 0"),
    "clip norm": (("clip_norm = 250.0", "clip_norm = -1.0"), "privacy.clip_norm = -1.0"),
    "unknown key": (("saving_rate = 0.5", "savings_rate = 0.5"), "Did you mean 'saving_rate'?"),
    "misspelt": (
        ("epsilon = 20", "epsilom = 20"),
        "privacy.groups.2.epsilom is not a known key. Did you mean 'epsilon'?",
    ),
    "unknown table": (("[training]", "[trainning]"), "trainning is not a known key. Did you mean 'training'?"),
    "unknown method": (('"spend-as-you-go"', '"spend-as-you-go!"'), "Did you mean 'spend-as-you-go'?"),
    "unknown composition": (('"exact"', '"exakt"'), "Did you mean 'exact'?"),
    "unknown accountant": (('"rdp"', '"gdp"'), "accountant = 'gdp' must be one of rdp, pld"),
    "a huge number": (("clients = 100", f"clients = {10**20}"), "federation.clients = 100000000000000000000"),
    "too many rounds": (("rounds = 25", "rounds = 1000000000000"), "training.rounds = 1000000000000"),
    "too many digits": (("rounds = 25", f"rounds = {'9' * 5000}"), "is not TOML"),
    "a shape of no kind": (("delta = 1e-5", "delta = 1e-5\nshape = 3"), "privacy.shape = 3"),
    "not TOML": (("[federation]", "[federation"), "is not TOML"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(name: str, run: Run, tmp_path: Path) -> None:
    change, message = BAD[name]
    target = tmp_path / "plan.json"
    result = run("plan", config(tmp_path, change), "--out", target)
    assert result.code == 2
    assert result.out == ""
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert "Traceback" not in result.err
    assert not target.exists()


def test_a_model_that_is_none_of_ours_is_refused_by_a_plan_too(run: Run, tmp_path: Path) -> None:
    result = run("plan", config(tmp_path, ('name = "cnn"', 'name = "sofmax"')))
    assert (result.code, result.out) == (2, "")
    assert "model.name = 'sofmax' must be one of linear, softmax" in result.err
    assert "Did you mean 'softmax'?" in result.err


def test_a_long_list_of_choices_is_cut() -> None:
    columns = [f"pixel-{number}" for number in range(60)]
    with pytest.raises(InputError, match=r"of pixel-0, .*pixel-15, … \(60 in all\)\. Did you mean 'pixel-59'\?"):
        one_of("--client", "pixl-59", columns)


def test_no_groups_and_a_missing_file(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "config.toml"
    empty.write_text("[privacy]\ndelta = 1e-5\n")
    assert "privacy.groups is empty" in run("plan", empty).err
    empty.write_text("")
    assert "privacy is missing" in run("plan", empty).err
    assert "cannot be read: No such file" in run("plan", tmp_path / "none.toml").err
    assert "is a folder; give the file in it" in run("plan", tmp_path).err
    assert "cannot be read" in run("verify", tmp_path / "none.json").err


def test_a_plan_is_not_half_written_to_a_bad_place(run: Run, tmp_path: Path) -> None:
    result = run("plan", config(tmp_path, SHORT), "--out", tmp_path / "nowhere" / "plan.json")
    assert result.code == 2
    assert "cannot be written" in result.err
    assert not (tmp_path / "nowhere").exists()


def test_help_reads_well(run: Run) -> None:
    text = re.sub(r"\s+", " ", run("--help").out + run("plan", "--help").out + run("verify", "--help").out)
    for words in ("decides when to spend", "--compare", "--json", "--out", "PLAN.json", "CONFIG.toml"):
        assert words in text


def test_the_program_itself_in_a_pipe() -> None:
    """A real process: plain text when it is not a terminal, and a real exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "nestegg", "verify", "no-such-plan.json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: no-such-plan.json cannot be read: No such file or directory.\n"


@pytest.mark.parametrize("name", ["[/b]", "[red]", "ε", "a\\[b"])
def test_a_group_may_have_any_name(name: str, run: Run, tmp_path: Path) -> None:
    file = config(tmp_path, SHORT, ('"strict"', f"'{name}'"))
    path = tmp_path / "plan[v1].json"
    made = run("plan", file, "--out", path)
    assert made.code == 0
    assert name in made.out
    assert "plan[v1].json" in made.out
    verified = run("verify", path)
    assert verified.code == 0
    assert name in verified.out


def test_a_plan_does_not_fail_because_its_rival_would(run: Run, tmp_path: Path) -> None:
    file = config(tmp_path, SHORT, ("epsilon = 10.0", "epsilon = 0.001"))
    assert run("plan", file).code == 0


def test_a_configuration_with_a_byte_order_mark(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bom.toml"
    path.write_text(EXAMPLE.read_text().replace("rounds = 25", "rounds = 13"), encoding="utf-8-sig")
    assert run("plan", path, "--json").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_terminal_and_a_closed_pipe(encoding: str) -> None:
    command = [sys.executable, "-m", "nestegg", "plan", str(EXAMPLE)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert b"Traceback" not in child.stderr.read()
    assert child.returncode in (0, 141)


@pytest.mark.parametrize("option", [None, "--compare"])
def test_tables_keep_their_numbers_in_80_columns(option: str | None, run: Run, tmp_path: Path) -> None:
    long = "a name that is far too long for a table"
    changes = (
        SHORT,
        ('"strict"', f'"{long}"'),
        ("epsilon = 30.0", "epsilon = 1234.5"),
        ("clients = 100", "clients = 90000"),
    )
    file = config(tmp_path, *changes, ("delta = 1e-5", "delta = 1e-6\ncolluders = 12"))
    out = run("plan", file, *([option] if option else [])).out
    tables = [line for line in out.splitlines() if "┤" not in line and "●" not in line]
    assert max(map(len, out.splitlines())) <= 80
    assert not [line for line in tables if re.search(r"\d…|…\S", line)]
    assert out.count("a …") + out.count("a n") >= 1


REFUSED = {
    "key of another method": (("[privacy]", '[privacy]\nshape = "linear"'), "privacy.shape belongs to the method"),
    "momentum": (("momentum = 0.9", "momentum = 1.5"), "training.momentum = 1.5 must be"),
    "schedule": (('"cosine"', '"cosin"'), "Did you mean 'cosine'?"),
    "clipping": (('"per-layer"', '"per layer"'), "privacy.clipping = 'per layer' must be one of"),
    "epochs": (("local_epochs = 30", "local_epochs = 0"), "training.local_epochs = 0 must be"),
    "seed": (("seed = 0", "seed = -1"), "training.seed = -1 must be"),
    "partition": (('"dirichlet" ', '"dirichlets" '), "federation.partition = 'dirichlets' must be"),
    "dataset": (('"digits"', '"digitz"'), "federation.dataset = 'digitz' must be one of digits"),
    "a table": (('"digits"', '"people.csv"'), "adult, a file that ends in .parquet, or 'module:function'."),
    "bits": (
        ('"spend-as-you-go"', '"adaptive-clipping"\nadaptive = { bit_noise = 0.001 }'),
        "bit_noise = 0.001 is too little",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_plan_and_compare_refuse_what_run_refuses(what: str, run: Run, tmp_path: Path) -> None:
    change, message = REFUSED[what]
    own = ('dataset = "fashion-mnist"', 'dataset = "digits"'), ('name = "cnn"', 'name = "mlp"')
    file = config(tmp_path, SHORT, *own, change)
    for command in (["plan", file], ["run", file, "--out", tmp_path / "out"]):
        result = run(*command)
        assert result.code == 2, command
        assert message in " ".join(result.err.split()), command
    if what != "bits":  # a comparison drops them
        result = run("compare", file, "--methods", "exact", "--out", tmp_path / "out")
        assert result.code == 2
        assert message in " ".join(result.err.split())
    assert not (tmp_path / "out").exists()


def test_words_of_a_configuration_are_those_of_training() -> None:
    from nestegg.configuration import limits
    from nestegg.data import datasets, features
    from nestegg.data.partition import PARTITIONS
    from nestegg.mechanism import CLIPPINGS
    from nestegg.models import networks
    from nestegg.training.local import SCHEDULES
    from nestegg.training.mechanics import CLIP_UNITS
    from nestegg.training.performance import ENGINES, PRECISIONS

    known = (PARTITIONS, ("test", "validation"), SCHEDULES, PRECISIONS, ENGINES, CLIPPINGS, CLIP_UNITS)
    assert tuple(map(tuple, limits.CHOICES.values())) == tuple(map(tuple, known))
    assert tuple(features.FEATURES) == limits.FEATURES
    assert set(datasets.DATASETS) == set(limits.DATASETS)
    assert tuple(networks.MODELS) == limits.MODELS


def test_planning_imports_no_torch_no_charts_and_no_database() -> None:
    code = (
        "import sys; sys.argv = ['nestegg', 'plan', sys.argv[1], '--json']\n"
        "from nestegg.cli import main\n"
        "assert 'dp_accounting' not in sys.modules\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "found = {'torch', 'altair', 'sqlalchemy'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(EXAMPLE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_odd_about_a_plan_is_said_below_it_and_in_json(run: Run, tmp_path: Path) -> None:
    file = config(tmp_path, SHORT, ("delta = 1e-5", "delta = 0.01"), ("epsilon = 30.0", "epsilon = 130.0"))
    said = " ".join(run("plan", file).out.split())
    found = json.loads(run("plan", file, "--json").out)["remarks"]
    assert len(found) >= 2
    assert all(remark in said for remark in found)
    assert json.loads(run("plan", EXAMPLE, "--json").out)["remarks"] == []
