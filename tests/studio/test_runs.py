"""Runs as the studio shows them: every state, damaged folders, curves side by side."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from tests.studio.conftest import client_of, refusal, table


def test_runs_are_found_with_their_numbers(made: Path) -> None:
    runs = table(client_of(made))
    assert list(runs) == ["many/idp-fedavg-0", "many/idp-fedavg-1", "stopped"]
    one, summary = runs["many/idp-fedavg-0"], json.loads((made / "many/idp-fedavg-0/summary.json").read_text())
    assert (one["state"], one["done"], one["rounds"], one["seed"]) == ("finished", 3, 3, 0)
    assert (one["measure"], one["quality"]) == ("test accuracy", f"{summary['final_accuracy']:.1f} %")
    last = json.loads((made / "many/idp-fedavg-0/rounds.jsonl").read_text().splitlines()[-1])
    assert {group["group"]: group["epsilon"] for group in one["spent"]} == last["epsilon_spent"]
    assert "not for release" in one["note"]
    assert runs["stopped"]["state"] == "stopped"
    assert "was stopped after round 1 by Ender, and can go on: nestegg run --resume" in runs["stopped"]["said"]


def test_a_run_that_is_at_work_and_one_that_was_killed_are_told_apart(folder: Path) -> None:
    run = folder / "many" / "idp-fedavg-0"
    (run / "summary.json").unlink()
    client = client_of(folder)
    with FileLock(run / ".lock"):
        assert table(client)["many/idp-fedavg-0"]["state"] == "running"
    found = table(client_of(folder))["many/idp-fedavg-0"]
    assert found["state"] == "interrupted"
    assert "killed after round 3 of 3" in found["said"]
    (run / "rounds.jsonl").unlink()
    assert "before its first round ended" in table(client_of(folder))["many/idp-fedavg-0"]["said"]
    with FileLock(run / ".lock", timeout=0):  # whoever looks leaves no lock behind
        pass


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("plan.json", '{"format": "nestegg-plan', "is not a complete JSON file"),
        ("plan.json", "[]", "is not a plan"),
        ("config.toml", "privacy = 3", "privacy"),
        ("rounds.jsonl", '{"round": 1, "accuracy": "high"}\n', "is damaged"),
        ("rounds.jsonl", "3\n", "is damaged"),
        ("rounds.jsonl", '{"round": 1, "accuracy": NaN, "epsilon_spent": {}}\n', "is damaged"),
        ("summary.json", "{", "cannot be read"),
        ("summary.json", '{"rounds": NaN}', "is damaged"),
        ("rounds.jsonl", '{"round": 1, "accuracy": 1e999, "epsilon_spent": {}}\n', "is damaged"),
        ("rounds.jsonl", f'{{"round": 1, "accuracy": 1{"0" * 400}, "epsilon_spent": {{}}}}\n', "is damaged"),
        ("rounds.jsonl", f'{{"round": 1, "accuracy": {"[" * 100_000}\n', "is damaged"),
        ("summary.json", "[" * 100_000, "is damaged"),
        ("summary.json", '{"rounds": 1, "stopped": "\\ud800"}', "is damaged"),
    ],
)
def test_a_damaged_folder_is_a_sentence(folder: Path, name: str, content: str, sentence: str) -> None:
    (folder / "stopped" / name).write_text(content)
    client = client_of(folder)
    runs = table(client)
    assert runs["stopped"]["state"] == "damaged"
    assert sentence in runs["stopped"]["said"]
    assert runs["many/idp-fedavg-1"]["state"] == "finished"
    assert sentence in refusal(client, "/runs/answer", run="stopped")
    assert sentence in refusal(client, "/runs/compare", run="stopped")


@pytest.mark.parametrize("name", ["plan.json", "rounds.jsonl", "audit.json", ".lock"])
def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(folder: Path, name: str) -> None:
    (folder / "stopped" / name).unlink(missing_ok=True)
    os.mkfifo(folder / "stopped" / name)
    client = client_of(folder)
    runs = table(client)
    assert "is not a file" in runs["stopped"]["said"]
    assert runs["many/idp-fedavg-1"]["state"] == "finished"
    (folder / "stopped" / "report.html").unlink()
    os.mkfifo(folder / "stopped" / "report.html")
    assert "is not a file" in refusal(client, "/runs/file", run="stopped", name="report.html")


def test_a_file_that_no_run_writes_is_not_read(folder: Path) -> None:
    with (folder / "stopped" / "rounds.jsonl").open("ab") as file:
        file.truncate(2**28 + 1)  # it takes no room
    assert "the studio reads at most" in table(client_of(folder))["stopped"]["said"]


def test_what_resumes_a_run_can_be_copied_into_a_shell(folder: Path) -> None:
    (folder / "stopped").rename(folder / "x; touch y")
    said = table(client_of(folder))["x; touch y"]["said"]
    assert said.endswith(f"nestegg run --resume '{folder}/x; touch y'")


def test_nothing_of_a_configuration_is_imported(folder: Path) -> None:
    run = folder / "stopped"
    text = (run / "config.toml").read_text().replace('name = "mlp"', 'name = "evil:make"')
    text = re.sub('method = ".*"', 'method = "evil:make"', text)
    text = re.sub('dataset = ".*"', 'dataset = "evil:make"', text)
    assert text.count("evil:make") == 3
    (run / "config.toml").write_text(text)
    (run / "evil.py").write_text(f"open({str(folder / 'executed')!r}, 'w')\n")
    client = client_of(folder)
    assert "evil:make" in table(client)["stopped"]["data"]
    assert client.get("/runs/answer?run=stopped").status_code == 200
    assert client.get("/statement?run=stopped").status_code == 200
    assert not (folder / "executed").exists()


def test_the_page_of_a_run_has_its_numbers_and_charts(made: Path) -> None:
    client = client_of(made)
    found = client.get("/runs/answer?run=many/idp-fedavg-1").json()
    assert sorted(found["charts"]) == ["accuracy", "spending"]
    drawn = [row["accuracy"] for row in found["charts"]["accuracy"]["data"]["values"]]
    lines = (made / "many/idp-fedavg-1/rounds.jsonl").read_text().splitlines()
    assert drawn == [json.loads(line)["accuracy"] for line in lines]
    summary = json.loads((made / "many/idp-fedavg-1/summary.json").read_text())
    assert [one["epsilon_left"] for one in found["accounts"]] == [one["epsilon_left"] for one in summary["groups"]]
    assert found["files"] == ["report.html", "plan.json", "summary.json"]
    assert found["audit"] is None
    assert "many/idp-fedavg-1" in client.get("/runs/show?run=many/idp-fedavg-1").text


def test_an_audit_is_told_in_a_sentence(folder: Path) -> None:
    finding = {
        "refutes": False,
        "group": None,
        "attack": "a",
        "arm": "b",
        "says": "c",
        "trials": 1,
        "p_corrected": None,
    }
    content = {
        "findings": [finding, finding],
        "evidence": [],
        "seconds": 1.0,
        "interrupted": False,
        "caveat": "c",
        "engine": "loop",
        "method": "m",
        "clients": 2,
        "rounds": 3,
        "delta": 1e-5,
        "version": "1",
        "plan": "p",
        "groups": [],
        "all_groups": 2,
    }
    (folder / "stopped" / "audit.json").write_text(json.dumps(content))
    client = client_of(folder)
    assert "not refuted by any of 2" in client.get("/runs/answer?run=stopped").json()["audit"]
    content["findings"] = [finding, {**finding, "refutes": True}]
    (folder / "stopped" / "audit.json").write_text(json.dumps(content))
    assert "refuted by 1 of 2" in client.get("/runs/answer?run=stopped").json()["audit"]
    (folder / "stopped" / "audit.json").write_text("[" * 100_000)
    assert client.get("/runs/answer?run=stopped").json()["audit"] == "its file is damaged."
    assert "what came of the audit is not known" in refusal(client, "/statement", run="stopped")


def test_seeds_are_one_curve_in_a_band(made: Path) -> None:
    client = client_of(made)
    paths = ["many/idp-fedavg-0", "stopped", "many/idp-fedavg-1"]
    found = client.get("/runs/compare", params={"run": paths}).json()
    lines = [(made / path / "rounds.jsonl").read_text().splitlines() for path in (paths[0], paths[2])]
    seeds = np.array([[json.loads(line)["accuracy"] for line in some] for some in lines])
    chart = found["charts"]["comparison"]
    rows = [row for row in chart["data"]["values"] if row["method"] == "idp-fedavg"]
    assert [row["accuracy"] for row in rows] == seeds.mean(axis=0).tolist()
    assert [row["low"] for row in rows] == seeds.min(axis=0).tolist()
    assert [row["high"] for row in rows] == seeds.max(axis=0).tolist()
    assert [row[0] for row in found["rows"]] == ["idp-fedavg", "stopped"]
    assert [row[-1] for row in found["rows"]] == ["2", "1"]
    assert any("not for release" in sentence for sentence in found["said"])


def test_curves_of_different_lengths_and_of_nothing(folder: Path) -> None:
    first = folder / "many" / "idp-fedavg-0"
    lines = (first / "rounds.jsonl").read_text().splitlines()
    (first / "rounds.jsonl").write_text("".join(f"{line}\n" for line in lines[:2]))
    (folder / "stopped" / "rounds.jsonl").unlink()
    client = client_of(folder)
    query = {"run": ["many/idp-fedavg-0", "many/idp-fedavg-1", "stopped"]}
    found = client.get("/runs/compare", params=query).json()
    assert "Runs of idp-fedavg have come to different rounds: the shortest counts." in found["said"]
    assert "stopped has no round yet." in found["said"]
    assert len(found["charts"]["comparison"]["data"]["values"]) == 2
    untested = [json.dumps({**json.loads(line), "accuracy": None, "loss": None}) for line in lines]
    (first / "rounds.jsonl").write_text("".join(f"{line}\n" for line in untested))
    assert "on public test data" in refusal(client, "/runs/compare", run="many/idp-fedavg-0")
    assert "has a round yet" in refusal(client, "/runs/compare", run="stopped")
    assert "has a round yet" in refusal(client, "/runs/compare")
