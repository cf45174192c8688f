"""What the plan page asks for: the numbers that `nestegg plan` has, targets, verdicts, exports, and mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from nestegg import load_plan
from nestegg.planning.certainty import certainty
from nestegg.studio.answers import plan_of
from nestegg.studio.draft import METHODS, Draft, DraftGroup, read_draft

SMALL = Draft(rounds=6, transition=3, groups=(DraftGroup("a, b & c", 10, 4.0), DraftGroup("ü=1", 5, 9.0)))

drafts = st.builds(
    Draft,
    method=st.sampled_from(METHODS),
    rounds=st.integers(1, 1000),
    memory=st.floats(0.0, 100.0),
    rate=st.floats(0.01, 1.0),
    delta=st.floats(1e-12, 0.1),
    clip=st.floats(1e-6, 1e6),
    colluders=st.just(0),
    groups=st.lists(
        st.builds(
            DraftGroup,
            st.text(min_size=1, max_size=20).filter(lambda name: name == name.strip() and name.isprintable()),
            st.integers(1, 10**6),
            st.floats(0.01, 1000.0),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda group: group.name,
    ).map(tuple),
)


@given(drafts)
def test_an_address_gives_its_draft_back(draft: Draft) -> None:
    again = read_draft(parse_qsl(draft.to_query()))
    assert again.to_query() == draft.to_query()
    assert [one.name for one in again.groups] == [one.name for one in draft.groups]


def test_the_answer_has_the_numbers_of_the_plan(client: TestClient) -> None:
    answer = client.get(f"/plan/answer?{SMALL.to_query()}").json()
    plan = plan_of(SMALL)
    assert answer["digest"] == plan.digest
    for said, row in zip(answer["groups"], plan.groups, strict=True):
        assert said["epsilon"] == row.epsilon_spent[-1]
        assert said["right"] == certainty(row)
    assert {"spending", "noise", "sampling", "effect"} == {*answer["charts"]}


@pytest.mark.parametrize("method", METHODS)
def test_all_methods_stand_side_by_side(client: TestClient, method: str) -> None:
    draft = replace(SMALL, method=method)
    found = client.get(f"/plan/rivals?{draft.to_query()}").json()["methods"]
    by_name = {one["name"]: one["noise"] for one in found}
    assert by_name["idp-fedavg"] == 1.0
    assert min(by_name, key=lambda name: by_name[name]) == "optimal"
    assert [one["name"] for one in found if one["chosen"]] == [method]


@pytest.mark.parametrize(
    ("query", "field", "said"),
    [
        ("rounds=x", "rounds", "must be a number"),
        ("rounds=0", "rounds", "whole number, from 1"),
        ("rounds=1e9", "rounds", "1000"),
        ("rate=nan", "rate", "from 0.0001 to 1"),
        ("rate=1e-300", "rate", "from 0.0001 to 1"),
        ("saving=2", "saving", "from 0.0001 to 1"),
        ("clip=1e-300", "clip", "from 1e-09 to 1e+09"),
        ("memory=-1", "memory", "from 0"),
        ("delta=1", "delta", "strictly between"),
        ("method=optimol", "method", "Did you mean 'optimal'?"),
        ("group=10,-1,a", "group-0-epsilon", "epsilon = -1.0"),
        ("group=0,1,a", "group-0-clients", "whole number"),
        ("group=1,1,", "group-0-name", "a name"),
        ("group=", "group-0-clients", "must be a number"),
        ("group=9,1,a&group=9,1,a", "group-1-name", "another group"),
        ("colluders=100", "colluders", "fewer than the 100 clients"),
        ("color=red", "color", "no field"),
    ],
)
def test_what_is_wrong_is_said_by_its_field(client: TestClient, query: str, field: str, said: str) -> None:
    answer = client.get(f"/plan/answer?{query}")
    assert answer.status_code == 422
    assert said in answer.json()["wrong"][field]


def test_more_groups_than_can_follow_are_refused(client: TestClient) -> None:
    query = "&".join(f"group=1,1,{i}" for i in range(65))
    assert "65 groups" in client.get(f"/plan/answer?{query}").json()["wrong"]["group"]


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_certainty_that_is_wanted_is_just_met(client: TestClient, rate: float) -> None:
    draft = replace(SMALL, rate=rate)
    found = client.get(f"/plan/target?{draft.to_query()}&target=certainty&wanted=70&of={'ü=1'}").json()["epsilon"]
    assert found[0] == 4.0
    groups = tuple(replace(one, epsilon=epsilon) for one, epsilon in zip(draft.groups, found, strict=True))
    assert certainty(plan_of(replace(draft, groups=groups)).groups[1]) == pytest.approx(0.7, abs=2e-3)
    assert certainty(plan_of(replace(draft, groups=groups)).groups[1]) <= 0.7


def test_noise_that_is_wanted_is_just_met_by_one_factor_on_all_budgets(client: TestClient) -> None:
    found = client.get(f"/plan/target?{SMALL.to_query()}&target=noise&wanted=0.5").json()["epsilon"]
    assert found[0] / 4.0 == pytest.approx(found[1] / 9.0, rel=2e-3)
    groups = tuple(replace(one, epsilon=epsilon) for one, epsilon in zip(SMALL.groups, found, strict=True))
    ratio = client.get(f"/plan/answer?{replace(SMALL, groups=groups).to_query()}").json()["ratio"]
    assert ratio == pytest.approx(0.5, rel=3e-3)
    assert ratio <= 0.5


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("target=certainty&wanted=50", "above 50 and below 100"),
        ("target=certainty&wanted=no", "must be a number"),
        ("target=certainty&wanted=70&of=nobody", "group = 'nobody'"),
        ("target=luck&wanted=1", "target = 'luck'"),
        ("target=noise&wanted=1e-9", "large enough"),
    ],
)
def test_a_target_that_cannot_be_is_a_sentence(client: TestClient, query: str, said: str) -> None:
    assert said in client.get(f"/plan/target?{SMALL.to_query()}&{query}").json()["wrong"][""]


def test_the_second_accountant_is_asked_and_agrees(client: TestClient) -> None:
    found = client.get(f"/plan/verdict?{SMALL.to_query()}").json()
    for one in found["groups"]:
        assert one["pld"] == pytest.approx(one["epsilon"], rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_exports_give_the_plan_of_the_page(client: TestClient, tmp_path: Path, method: str) -> None:
    draft = replace(SMALL, method=method, groups=(DraftGroup("a b", 10, 4.0), DraftGroup("ü", 5, 9.0)))
    digest = plan_of(draft).digest
    saved = tmp_path / "plan.json"
    saved.write_bytes(client.get(f"/plan/export/plan.json?{draft.to_query()}").content)
    assert load_plan(saved).digest == digest
    assert all(row.epsilon_spent_pld is not None for row in load_plan(saved).groups)
    program = client.get(f"/plan/export/plan.py?{draft.to_query()}").text
    exec(compile(program, "plan.py", "exec"), {})  # which compares digests itself
    (tmp_path / "plan.toml").write_bytes(client.get(f"/plan/export/plan.toml?{draft.to_query()}").content)
    command = [sys.executable, "-m", "nestegg", "plan", "plan.toml", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout)["digest"] == digest


@pytest.mark.parametrize(("kind", "start"), [("svg", b"<svg"), ("png", b"\x89PNG")])
@pytest.mark.parametrize("name", ["spending", "methods"])
def test_charts_can_be_taken_away(client: TestClient, name: str, kind: str, start: bytes) -> None:
    answer = client.get(f"/plan/chart/{name}.{kind}?{SMALL.to_query()}")
    assert answer.content.startswith(start)
    assert f'filename="{name}.{kind}"' in answer.headers["content-disposition"]
    assert client.get(f"/plan/chart/{name}.exe?{SMALL.to_query()}").status_code == 422
