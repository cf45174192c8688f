"""What is planned where nobody says how."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestegg import Budget, Charge, Group, plan
from nestegg.configuration.config import load_config
from nestegg.configuration.participants import make_participants, make_plan

PLAIN = Group("a", 10, Budget(8.0))
FILE = """
[federation]
clients = 10
[training]
rounds = 8
[privacy]
{privacy}
[[privacy.groups]]
name = "a"
share = 1.0
epsilon = 8.0
"""


def test_when_to_spend_is_computed_unless_somebody_says_how_to_save() -> None:
    made = plan([PLAIN], 8)
    assert (made.method, made.spending_rate, made.accountant) == ("optimal", 1.0, "gaussian")
    for saver in (Group("b", 5, Budget(4.0), saving_rate=0.5), Group("b", 5, Budget(4.0), transition=3)):
        assert plan([PLAIN, saver], 8).method == "spend-as-you-go"


def test_who_was_sampled_before_is_accounted_for_by_what_knows_sampling() -> None:
    before = Group("b", 5, Budget(4.0), already_spent=[Charge(0.5, 3.0, 4)])
    made = plan([PLAIN, before], 8)
    assert (made.method, made.accountant) == ("optimal", "rdp")
    made.verify()


@pytest.mark.parametrize(
    ("head", "privacy", "method"),
    [
        ("", "", "spend-as-you-go"),
        ("format = 1", "", "spend-as-you-go"),
        ("format = 2", "", "optimal"),
        ("format = 2", "saving_rate = 0.5", "spend-as-you-go"),
        ("format = 2", "transition = 3", "spend-as-you-go"),
        ("format = 2", 'method = "idp-fedavg"', "idp-fedavg"),
    ],
)
def test_files_keep_what_their_format_means(head: str, privacy: str, method: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(head + FILE.format(privacy=privacy))
    config = load_config(tmp_path / "c.toml")
    made = make_plan(config, make_participants(config).groups)
    assert made.method == method
    if method == "optimal":
        assert made.groups[0].noise_multiplier == pytest.approx(plan([PLAIN], 8).groups[0].noise_multiplier, rel=1e-12)


def test_a_file_of_budgets_may_say_how_its_clients_save(tmp_path: Path) -> None:
    (tmp_path / "budgets.csv").write_text("client,epsilon,saving_rate,transition\nada,8,0.5,4\nbob,8,0.5,4\n")
    (tmp_path / "c.toml").write_text('format = 2\n[training]\nrounds = 8\n[privacy]\nbudgets_file = "budgets.csv"\n')
    config = load_config(tmp_path / "c.toml")
    made = make_plan(config, make_participants(config).groups)
    assert made.method == "spend-as-you-go"
    assert made.groups[0].sampling_rate[0] == 0.5


def test_groups_of_a_plan_can_be_planned_again() -> None:
    made = plan([PLAIN], 8)
    again = plan([row.group for row in made.groups], 8)
    assert again.groups[0].noise_multiplier == made.groups[0].noise_multiplier
