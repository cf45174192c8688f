"""Shares, counts, and files of individual budgets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from nestegg import InputError
from nestegg.configuration.config import load_config, to_toml
from nestegg.configuration.participants import make_plan
from nestegg.planning import split_clients
from nestegg.planning.clients import ClientBudgets, read_clients
from nestegg.planning.levels import bucket


@given(clients=st.integers(1, 10**6), parts=st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_shares_become_the_nearest_counts(clients: int, parts: list[int]) -> None:
    shares = np.array(parts) / sum(parts)
    counts = split_clients(clients, shares.tolist())
    assert sum(counts) == clients
    assert np.all(np.abs(np.array(counts) - clients * shares) < 1.0 + 1e-6)


def test_the_paper_s_shares() -> None:
    assert split_clients(100, [0.34, 0.43, 0.23]) == (34, 43, 23)
    assert split_clients(80, [0.34, 0.43, 0.23]) == (27, 34, 19)
    assert split_clients(100, [0.29, 0.57, 0.14]) == (29, 57, 14)


def budgets(epsilon: list[float]) -> ClientBudgets:
    n = len(epsilon)
    return ClientBudgets(tuple(map(str, range(n))), np.array(epsilon), np.full(n, np.nan), np.zeros(n, np.int64))


@given(epsilon=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=300), levels=st.integers(1, 40))
def test_nobody_is_ever_over_and_nobody_loses_more_than_stated(epsilon: list[float], levels: int) -> None:
    groups, member = bucket(budgets(epsilon), levels, 1e-5)
    planned = np.array([groups[g].budget.epsilon for g in member])
    given_ = np.array(epsilon)
    assert np.all(planned <= given_)
    assert len(groups) <= max(levels, 1)
    assert [group.clients for group in groups] == np.bincount(member).tolist()
    if len(set(epsilon)) <= levels:
        assert np.array_equal(planned, given_)
    assert np.all(1.0 - planned / given_ <= 1.0 - (given_.min() / given_.max()) ** (1.0 / levels) + 1e-9)


def test_a_csv_with_all_columns(tmp_path: Path) -> None:
    file = tmp_path / "clients.csv"
    file.write_text("client,epsilon,saving_rate,transition\nann,10,0.5,13\nbob,10,0.5,13\ncid,20,,\n\ndan,10,0.6,13\n")
    clients = read_clients(file)
    groups, member = bucket(clients, 8, 1e-5)
    assert clients.client == ("ann", "bob", "cid", "dan")
    assert member[0] == member[1] != member[3]
    found = {(g.clients, g.budget.epsilon, g.saving_rate, g.transition) for g in groups}
    assert found == {(2, 10.0, 0.5, 13), (1, 10.0, 0.6, 13), (1, 20.0, None, None)}


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "clients.jsonl"
    rows = [{"client": "ann", "epsilon": 3}, {"client": 0, "epsilon": 4.5, "transition": 2}]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    clients = read_clients(file)
    assert clients.client == ("ann", "0")
    assert clients.epsilon.tolist() == [3.0, 4.5]
    assert clients.transition.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the column 'client' is missing"),
        ("client,epsilon\n", "holds no clients"),
        (
            "client,epslion\na,1\n",
            "the column 'epsilon' is missing, and 'epslion' is not a known column; known are client, epsilon, "
            "saving_rate, transition. Did you mean 'epsilon'",
        ),
        (
            "person,epsilon\na,1\n",
            "the column 'client' is missing, and 'person' is not a known column; known are client, epsilon, "
            "saving_rate, transition.",
        ),
        ("client,epsilon\na,1\nb,-2\n", "line 3: epsilon = '-2' must be a finite number above 0"),
        ("client,epsilon\na,1\nb,nan\n", "line 3: epsilon = 'nan'"),
        ("client,epsilon\na,1\nb,ten\n", "line 3: epsilon = 'ten'"),
        ("client,epsilon\na,1\nb\n", "line 3: 1 values; the header has 2 columns"),
        ("client,epsilon,epsilon\na,1,30\n", "line 1: the column 'epsilon' is there 2 times"),
        (
            "client;epsilon\na;1,5\n",
            "line 1: 'client;epsilon' has semicolons between its columns; there must be commas",
        ),
        ("client\tepsilon\na\t1\n", "has tabs between its columns"),
        ("client,epsilon,transition\na,1,1e300\n", "line 2: transition = '1e300'"),
        ("client,epsilon\na,1\na,2\n", "line 3: client = 'a' is there already, in line 2"),
        ("client,epsilon\n,1\n", "line 2: client is missing"),
        ("client,epsilon,saving_rate\na,1,1.5\n", "line 2: saving_rate = '1.5' must be above 0 and at most 1"),
        ("client,epsilon,transition\na,1,2.5\n", "line 2: transition = '2.5' must be a whole number"),
    ],
)
def test_a_bad_line_is_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "clients.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        read_clients(file)


@pytest.mark.parametrize(
    "line",
    ["{", "[1]", '{"client": "a", "epsilon": 1, "epsilon": 30}', '{"client": "a"}', '{"client": "a", "epsilon": true}'],
)
def test_a_bad_json_line_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "clients.jsonl"
    file.write_text('{"client": "z", "epsilon": 1}\n' + line)
    with pytest.raises(InputError, match="line 2"):
        read_clients(file)


def test_too_many_groups_are_refused() -> None:
    n = 1500
    clients = ClientBudgets(tuple(map(str, range(n))), np.ones(n), np.linspace(0.1, 0.9, n), np.ones(n, np.int64))
    with pytest.raises(InputError, match="makes 1500 groups"):
        bucket(clients, 4, 1e-5)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_clients(tmp_path / "nobody.csv")


def test_rates_and_transitions_are_held_to_the_training(tmp_path: Path) -> None:
    file = tmp_path / "clients.csv"
    file.write_text("client,epsilon,saving_rate,transition\na,1,0.5,3\nb,1,0.95,3\n")
    with pytest.raises(InputError, match=r"line 3: saving_rate = '0\.95' must be above 0 and at most 0\.9"):
        read_clients(file, 25, 0.9)
    with pytest.raises(InputError, match="line 2: transition = '3' must be a whole number from 1 to 2"):
        read_clients(file, 2, 1.0)


@pytest.mark.parametrize(
    ("privacy", "ledger", "accountant"),
    [
        ("", False, "rdp"),
        ("spending_rate = 1.0", False, "rdp"),
        ("", True, "renyi"),
        ("spending_rate = 1.0", True, "gaussian"),
        ("spending_rate = 1.0\nsaving_rate = 0.5", True, "renyi"),
        ("spending_rate = 1.0\nsaving_rate = 1.0", True, "gaussian"),
        ("accountant = 'rdp'", True, "rdp"),
        ("accountant = 'pld'\nspending_rate = 1.0", True, "pld"),
    ],
)
def test_a_ledger_that_outlives_a_run_is_planned_for_by_a_filter(
    privacy: str, ledger: bool, accountant: str, tmp_path: Path
) -> None:
    """Unless a configuration says otherwise; what it says, or what was chosen, is written into a run's folder."""
    groups = '[[privacy.groups]]\nname = "all"\nclients = 3\nepsilon = 5.0\n'
    text = f"[training]\nrounds = 4\n[privacy]\n{privacy}\n{groups}"
    path = tmp_path / "config.toml"
    path.write_text(text + ('[ledger]\nurl = "sqlite:///ledger.db"\n' if ledger else ""))
    config = load_config(path)
    assert config.privacy.accountant == accountant
    assert make_plan(config).accountant == accountant
    path.write_text(tomli_w.dumps(to_toml(config)))
    assert load_config(path) == config


def test_a_saver_in_a_group_or_a_file_is_sampled_less(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    ledger = '[ledger]\nurl = "sqlite:///ledger.db"\n'
    saver = '[[privacy.groups]]\nname = "all"\nclients = 3\nepsilon = 5.0\nsaving_rate = 0.2\n'
    path.write_text(f"[privacy]\nspending_rate = 1.0\n{saver}{ledger}")
    assert load_config(path).privacy.accountant == "renyi"
    path.write_text(f'[privacy]\nspending_rate = 1.0\nbudgets_file = "clients.csv"\n{ledger}')
    assert load_config(path).privacy.accountant == "renyi"
