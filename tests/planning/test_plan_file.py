"""Plans on disk, and the judge: what is saved comes back, and what was tampered with is caught."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nestegg import InputError, Plan, VerificationError, load_plan, plan, save_plan
from nestegg.planning import judged
from nestegg.planning.consistency import clip_norms
from tests.conftest import ANY_LENGTH


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    save_plan(judged(plan(ANY_LENGTH, rounds=6)), path)
    return path


@pytest.mark.parametrize("method", ["fedavg", "dp-fedavg", "spend-as-you-go", "shaped"])
def test_a_plan_survives_the_disk(method: str, tmp_path: Path) -> None:
    made = plan(ANY_LENGTH, rounds=6, method=method)
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_replanned_plan_survives_the_disk(tmp_path: Path) -> None:
    rest = plan(ANY_LENGTH, rounds=6).replan(2)
    save_plan(rest, tmp_path / "plan.json")
    loaded = load_plan(tmp_path / "plan.json")
    assert loaded == rest
    assert loaded.digest == rest.digest
    loaded.verify()


def test_a_sound_plan_verifies(saved: Path) -> None:
    load_plan(saved).verify()


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value(content[path[-1]]) if callable(value) else value

    return change


MUTATIONS = {
    "less noise in one round": _set("groups", 0, "noise_multiplier", 3, value=lambda s: 0.9 * s),
    "less noise by a hair": _set("groups", 1, "noise_multiplier", 0, value=lambda s: 0.999 * s),
    "sampled more often": _set("groups", 0, "sampling_rate", 0, value=0.9),
    "a smaller budget": _set("groups", 0, "epsilon", value=9.0),
    "a larger budget": _set("groups", 0, "epsilon", value=30.0),
    "a larger clip norm": _set("groups", 2, "clip_norm", 4, value=lambda c: 1.01 * c),
    "a smaller spending": _set("groups", 2, "epsilon_spent", 5, value=lambda e: 0.9 * e),
    "a smaller PLD spending": _set("groups", 2, "epsilon_spent_pld", value=lambda e: 0.9 * e),
    "no clipping": _set("clip_norm", value=None),
    "no clipping at all": lambda content: [
        content.update(clip_norm=None),
        *(group.update(clip_norm=[None] * 6) for group in content["groups"]),
    ],
    "another method": _set("method", value="fedavg"),
    "another mean rate": _set("mean_sampling_rate", 0, value=lambda q: 0.9 * q),
    "another mean noise": _set("round_noise_multiplier", 0, value=lambda s: 1.1 * s),
    "another delta": _set("delta", value=1e-9),
    "one client more": _set("groups", 0, "clients", value=35),
    "another transition": _set("groups", 0, "transition", value=1),
    "a charge before": _set("groups", 0, "already_spent", value=[[0.9, 5.0, 1]]),
    "other orders": _set("orders", value=lambda orders: orders[:20]),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutated_plan_is_caught(name: str, saved: Path, tmp_path: Path) -> None:
    content = json.loads(saved.read_text())
    MUTATIONS[name](content)
    changed = tmp_path / "plan.json"
    changed.write_text(json.dumps(content))
    with pytest.raises((VerificationError, InputError)):
        load_plan(changed).verify()


def digest_of(content: dict[str, Any]) -> str:
    """The digest that a plan file should have."""
    derived = ("mean_sampling_rate", "round_noise_multiplier", "digest")
    decisions = json.loads(json.dumps({key: value for key, value in content.items() if key not in derived}))
    for group in decisions["groups"]:
        group.pop("epsilon_spent_pld")
    text = json.dumps(decisions, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


HARMLESS = {"a larger budget", "a charge before"}  # consistent changes that nobody is harmed by


@pytest.mark.parametrize("name", sorted(MUTATIONS.keys() - HARMLESS))
def test_a_mutated_plan_with_a_forged_digest_is_caught(name: str, saved: Path, tmp_path: Path) -> None:
    """The digest is no secret: whoever changes a plan can mend it. The numbers then contradict each other."""
    content = json.loads(saved.read_text())
    MUTATIONS[name](content)
    content["digest"] = digest_of(content)
    changed = tmp_path / "plan.json"
    changed.write_text(json.dumps(content))
    with pytest.raises((VerificationError, InputError)):
        load_plan(changed).verify()


def test_overspending_is_loud(exact: Plan) -> None:
    row = exact.groups[0]
    quieter = replace(row, noise_multiplier=tuple(0.8 * s for s in row.noise_multiplier))
    made = replace(exact, groups=(quieter, *exact.groups[1:]))
    norms = clip_norms(made).tolist()
    rows = tuple(replace(row, clip_norm=tuple(norm)) for row, norm in zip(made.groups, norms, strict=True))
    with pytest.raises(VerificationError, match="group 'strict' is over budget"):
        replace(made, groups=rows).verify()


def test_no_privacy_does_not_verify() -> None:
    with pytest.raises(VerificationError, match="over budget"):
        plan(ANY_LENGTH, rounds=3, method="fedavg").verify()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a complete JSON file"),
        ("[1, 2]", "not a plan"),
        ('{"format": "something"}', "not a plan"),
        ('{"format": "nestegg-plan/1"}', "missing"),
    ],
)
def test_what_is_not_a_plan_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InputError, match=message):
        load_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("groups", 0, "noise_multiplier", value=[1.0]), "1 values"),
        (_set("groups", 0, "noise_multiplier", 0, value=-1.0), "must not be negative"),
        (_set("groups", 0, "noise_multiplier", 0, value="2.4"), "groups.1.noise_multiplier.1 = '2.4'"),
        (_set("method", value="magic"), "method = 'magic'"),
        (_set("rounds", value=7), "rounds = 7"),
        (_set("orders", value=[0.5]), "orders"),
        (_set("groups", value=[]), "at least one Group"),
    ],
)
def test_a_malformed_plan_is_refused(
    change: Callable[[dict[str, Any]], None], message: str, saved: Path, tmp_path: Path
) -> None:
    content = json.loads(saved.read_text())
    change(content)
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        load_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_plan_is_refused(share: float, saved: Path, tmp_path: Path) -> None:
    text = saved.read_text()
    (tmp_path / "plan.json").write_text(text[: int(len(text) * share)])
    with pytest.raises(InputError, match="not a complete JSON file"):
        load_plan(tmp_path / "plan.json")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: Plan) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(InputError, match=r"plan\.json cannot be written: No space left"):
        save_plan(exact, path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
