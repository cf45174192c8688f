"""The base install: what it can do by itself, what it says where an extra is missing, and that it ends when told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.licences import closure

import nestegg
from nestegg import InputError
from nestegg.extras import EXTRAS, needs
from nestegg.ledger import RULES

from .conftest import EXAMPLE, GROUPS, Run

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
BLOCKING = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
INTERRUPTED = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""
PROGRAM = "sys.argv = ['nestegg', *{arguments!r}]\nfrom nestegg.cli import main\nmain()\n"


@pytest.fixture(scope="module")
def missing() -> set[str]:
    """The modules that are installed here, and not where there is only `pip install nestegg-fl`."""
    base = closure(PROJECT["dependencies"])
    homes = metadata.packages_distributions()
    return {
        module
        for module, names in homes.items()
        if module != "nestegg" and not base & set(map(canonicalize_name, names))
    }


def process(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def program(before: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return process(before + PROGRAM.format(arguments=[str(one) for one in arguments]))


def test_the_extras_are_those_that_can_be_installed(missing: set[str]) -> None:
    assert PROJECT["name"] == "nestegg-fl"
    assert {*EXTRAS, "all", "docs", "release", "test"} == PROJECT["optional-dependencies"].keys()
    assert {module for modules in EXTRAS.values() for module in modules} | {"sklearn"} <= missing
    homes = metadata.packages_distributions()
    for extra, modules in EXTRAS.items():
        named = {canonicalize_name(Requirement(one).name) for one in PROJECT["optional-dependencies"][extra]}
        for module in modules:
            assert named & set(map(canonicalize_name, homes[module])), module


def test_the_base_install_plans_and_verifies(missing: set[str], tmp_path: Path) -> None:
    block = BLOCKING.format(blocked=missing)
    made = process(
        block + "import nestegg\n"
        "plan = nestegg.plan([nestegg.Group('all', 9, nestegg.Budget(8.0))], rounds=5)\n"
        "print(plan.verify(), len(plan._repr_html_()))\n"
    )
    assert made.returncode == 0, made.stderr
    planned = program(block, "plan", EXAMPLE, "--json", "--out", tmp_path / "plan.json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["rounds"] == 25
    assert program(block, "verify", tmp_path / "plan.json").returncode == 0
    assert program(block, "--help").returncode == 0
    assert program(block, "init", tmp_path / "recipe", "--recipe", "adult").returncode == 0
    sized = program(block, "plan", tmp_path / "recipe" / "config.toml", "--parameters", 109)
    assert "carried at 0.1" in sized.stdout, sized.stderr


@pytest.mark.parametrize(
    ("command", "spared"),
    [
        ("--version", {"dp_accounting", "numpy", "pydantic", "scipy", "torch"}),
        ("--help", {"dp_accounting", "numpy", "pydantic", "scipy", "torch"}),
        ("ledger budgets set --help", {"dp_accounting", "numpy", "pydantic", "scipy", "sqlalchemy", "torch"}),
        ("verify no-such-plan.json", {"altair", "dp_accounting", "sqlalchemy", "torch"}),
    ],
)
def test_commands_import_what_they_need(command: str, spared: set[str]) -> None:
    told = (
        "import atexit\natexit.register(lambda: print(*{one.split('.')[0] for one in sys.modules}, file=sys.stderr))\n"
    )
    done = program("import sys\n" + told, *command.split())
    imported = done.stderr.splitlines()[-1].split()
    assert {"nestegg", "typer"} <= set(imported)
    assert not spared & set(imported)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            "run {}",
            "run needs the extras 'train', 'ledger' and 'charts': pip install 'nestegg-fl[train,ledger,charts]'.",
        ),
        ("compare {}", "nestegg compare needs the extras 'train', 'ledger' and 'charts': "),
        ("reproduce --list", "nestegg reproduce needs the extras 'train', 'ledger' and 'charts': "),
        ("bench profile", "'charts' and 'bench': pip install 'nestegg-fl[train,ledger,charts,bench]'."),
        ("data get mnist", "nestegg data needs the extra 'train': pip install 'nestegg-fl[train]'."),
        ("ledger show", "the ledger needs the extra 'ledger': pip install 'nestegg-fl[ledger]'."),
        ("flower leave . run --after 1", "'ledger' and 'flower': pip install 'nestegg-fl[train,ledger,flower]'."),
    ],
)
def test_a_missing_extra_is_one_sentence(command: str, sentence: str, missing: set[str]) -> None:
    done = program(BLOCKING.format(blocked=missing), *command.format(EXAMPLE).split(" "))
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "extra"), [("train", "train"), ("LocalTraining", "train"), ("Ledger", "ledger"), ("flower", "flower")]
)
def test_python_is_told_too(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, EXTRAS[extra][0], None)
    for module in [one for one in sys.modules if one.startswith("nestegg.flower")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr(nestegg, "flower", raising=False)  # where a test before has imported it
    with pytest.raises(InputError, match=rf"needs the extra '{extra}': pip install 'nestegg-fl\[{extra}\]'"):
        exec(f"from nestegg import {name}")


def test_what_is_installed_is_not_asked_for() -> None:
    needs("everything", *EXTRAS)


def test_names_for_notebooks_and_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(nestegg.__all__) | {"__version__"} <= set(dir(nestegg))
    assert all(getattr(nestegg, name) is not None for name in nestegg.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = nestegg.trian
    monkeypatch.setattr(metadata, "version", {"nestegg-fl": "7.8.9"}.__getitem__)
    assert nestegg.__version__ == "7.8.9"


def test_the_version(run: Run) -> None:
    assert run("--version").out == f"nestegg {nestegg.__version__}\n"


def test_the_version_of_bare_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert nestegg.__version__ == "0+unknown"


def test_a_notebook_shows_a_plan_as_a_table() -> None:
    groups = (nestegg.Group("<b>", 3, nestegg.Budget(5.0)), *GROUPS)
    plan = nestegg.plan(groups, rounds=25)
    shown = plan._repr_html_()
    assert shown.count("<tr>") == 1 + len(groups)
    assert "&lt;b&gt;" in shown
    assert "<td>0.5 → 0.9</td><td>2.424 → 1.967</td>" in nestegg.plan(GROUPS, rounds=25)._repr_html_()
    many = nestegg.plan([nestegg.Group(f"g{i}", 1, nestegg.Budget(9.0)) for i in range(40)], rounds=2)
    assert "and 8 more groups" in many._repr_html_()
    assert "–" in nestegg.plan(GROUPS, rounds=25, method="fedavg")._repr_html_()


@pytest.mark.parametrize(
    ("words", "completed"),
    [("nestegg ve", "verify"), ("nestegg ledger mi", "migrate"), ("nestegg plan --js", "--json")],
)
def test_shells_complete(words: str, completed: str) -> None:
    environment = os.environ | {
        "_NESTEGG_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    command = [sys.executable, "-m", "nestegg"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [completed]


def test_completion_can_be_installed(tmp_path: Path) -> None:
    environment = os.environ | {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "nestegg", "--install-completion", "bash"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "_NESTEGG_COMPLETE=complete_bash" in (tmp_path / ".bash_completions" / "nestegg.sh").read_text()


def test_the_help_names_the_rules_that_there_are(run: Run) -> None:
    assert "|".join(RULES) in run("ledger", "budgets", "set", "--help").out


@pytest.mark.parametrize("module", ["nestegg.cli.program", "typer", "numpy", "pydantic", "dp_accounting.pld"])
def test_an_interrupt_at_any_moment_is_no_traceback(module: str) -> None:
    """While modules are imported, and, in the last case, in the middle of a command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, as by nohup, children ignore it too
    done = program(INTERRUPTED.format(module=module), "plan", EXAMPLE, "--json")
    assert done.returncode in (-signal.SIGINT, 130)
    assert (done.stdout, done.stderr) == ("", "")
