"""The numbers of a report: one ε for each group, and all others related to it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import pytest
import torch

import nestegg
from nestegg import Budget, Federation, Group, LocalTraining, Plan
from nestegg.planning import exposures, verify
from nestegg.planning.certainty import certainty, percent_right
from nestegg.report.charts import noise_chart, sampling_chart, spending_chart
from nestegg.report.gist import gist
from nestegg.report.page import shown_configuration
from nestegg.report.promises import MOST, promises, spent
from tests.callbacks import EachRound

GROUPS = [Group("strict", 8, Budget(10.0)), Group("<open>", 4, Budget(30.0))]


def made(groups: list[Group] = GROUPS, rounds: int = 3, **options: Any) -> Plan:
    return nestegg.plan(groups, rounds, **{"method": "idp-fedavg", "clip_norm": 2.0, **options})


def table(page: str) -> list[dict[str, str]]:
    """The first table of a page, a row a group."""
    heads = re.findall(r'<th scope="col">(.*?)</th>', page[: page.index("</thead>")])
    body = page[page.index("<tbody>") : page.index("</tbody>")]
    rows = [re.findall(r"<td>(?:<i[^>]*></i>)?(.*?)</td>", row) for row in body.split("</tr>")[:-1]]
    return [dict(zip(heads, row, strict=True)) for row in rows]


def test_every_epsilon_of_a_group_stands_in_one_row() -> None:
    plan = made()
    found, verdicts = exposures(plan, 2), verify(plan)
    rows = table(promises(plan, done=3, colluders=2))
    for row, one, verdict in zip(rows, found, verdicts, strict=True):
        assert row["budget ε"] == f"{one.row.group.budget.epsilon:g}"
        assert row["ε spent"] == f"{one.epsilon:.3f}"
        assert row["ε by the judge"] == f"{verdict.epsilon:.3f}"
        assert row["ε, sampled for sure"] == f"{one.sampled:.3f}"
        assert row["ε, 2 colluders"] == f"{one.colluding[2]:.3f}"
        assert row["a guess is right, at most"] == percent_right(certainty(one.row, by_pld=True))
    assert rows[1]["group"] == "&lt;open&gt;"


def test_words_and_table_say_the_same() -> None:
    page = promises(made(), done=3)
    said = re.findall(r"is right at most ([\d.]+ %) of the time", page)
    assert said == [row["a guess is right, at most"] for row in table(page)]
    for words in ("one client's whole data", "zero-out", "δ = 1e-05 (1 in 100,000)", "The judge agrees", "by PLD"):
        assert words in page


def test_a_run_that_was_stopped_has_spent_less_than_it_may() -> None:
    plan = made()
    (row, _) = table(promises(plan, done=1))
    assert row["ε spent so far"] == f"{plan.groups[0].epsilon_spent[0]:.3f}"
    assert row["ε after all rounds"] == f"{plan.groups[0].epsilon_spent[-1]:.3f}"
    assert "ε spent" not in row
    assert spent(plan, 0) == [0.0, 0.0]


def test_a_judge_who_does_not_agree_is_heard() -> None:
    plan = made()
    row = replace(plan.groups[0], noise_multiplier=(0.4,) * 3)
    page = promises(replace(plan, groups=(row, plan.groups[1])), done=3)
    assert "The judge does not agree" in page
    assert "The judge agrees" not in page
    assert "ε by the judge" not in page


@pytest.mark.parametrize(
    ("options", "judged"),
    [
        ({"method": "optimal"}, "by Google&#x27;s closed form"),
        pytest.param({"accountant": "pld"}, "nestegg verify plan.json", marks=pytest.mark.slow),
    ],
    ids=["gaussian", "pld"],
)
def test_who_judges_depends_on_the_accountant(options: dict[str, Any], judged: str) -> None:
    assert judged in promises(made(**options), done=3)


def test_of_many_groups_all_are_in_the_table_and_some_in_words() -> None:
    groups = [Group(f"g{i}", 2, Budget(5.0 + i)) for i in range(MOST + 2)]
    page = promises(made(groups, 2, method="optimal"), done=2)
    assert len(table(page)) == MOST + 2
    assert page.count("<li>") == MOST
    assert "And 2 more groups" in page


def test_the_headline_is_the_number_of_the_table(tmp_path: Path) -> None:
    clients = [(torch.randn(6, 5), torch.arange(6) % 3) for _ in range(12)]
    federation = Federation(made(), torch.nn.Linear(5, 3), clients, local=LocalTraining(epochs=1))
    nestegg.run(federation, tmp_path / "run", callbacks=[EachRound(lambda report: None)])
    page = (tmp_path / "run" / "report.html").read_text()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    rows = table(page)
    assert [row["ε spent"] for row in rows] == [f"{group['epsilon_spent']:.3f}" for group in summary["groups"]]
    assert f"<b>ε = {max(float(row['ε spent']) for row in rows):.2f}</b>the most spent, of a budget of 30" in page
    assert "their accounts say what the table above says" in page
    assert re.search(r"\d{4}-\d\d-\d\d, nestegg [\d.]+, torch ", page)
    assert not re.search(r"\d\d:\d\d:\d\d", page[: page.index("<script")])  # a day, never a time
    assert "<code>run.json</code>" in page


@pytest.mark.parametrize("chart", [spending_chart, sampling_chart, noise_chart])
def test_what_holds_for_a_round_is_a_step(chart: Any) -> None:
    assert chart(made()).to_dict()["mark"]["interpolate"] == "step"


def test_a_chart_is_told_to_people_who_do_not_see_it() -> None:
    plan = made()
    told = gist(noise_chart(plan).to_dict())
    first = plan.groups[0].noise_multiplier
    assert told.startswith("How well is each group hidden? strict (ε = 10), noise multiplier σ: ")
    assert f"{first[0]:.4g} at round 1, {first[-1]:.4g} at round 3." in told


@pytest.mark.parametrize("name", ["config.toml", "run.json"])
def test_a_page_shows_the_configuration_and_no_password(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('url = "postgresql://u@h/x?sslpassword=hunter2&sslmode=require" # <b>')
    page = shown_configuration(tmp_path)
    assert f"<code>{name}</code>" in page
    assert "hunter2" not in page
    assert "sslpassword=…&amp;sslmode=require" in page
    assert "<b>" not in page
    assert shown_configuration(tmp_path / "elsewhere") == ""


@pytest.mark.parametrize("stack", [alt.vconcat, alt.hconcat, alt.concat])
def test_a_chart_of_several_panels_is_told_whole(stack: Any) -> None:
    told = gist(stack(sampling_chart(made()), noise_chart(made()), title="Both?").to_dict())
    assert told.startswith("Both? strict (ε = 10), sampling rate: 0.9 at round 1, 0.9 at round 3.")
    assert "<open> (ε = 30), noise multiplier σ: " in told
