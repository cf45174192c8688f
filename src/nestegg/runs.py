"""A run: a folder that holds everything about one training, valid at every moment, and resumed from any of them.

config.toml         the configuration, with every default written out
plan.json           the plan, with its digest
rounds.jsonl        a line a round
checkpoint.safetensors  the state after the last round that counts
summary.json, model.safetensors, report.html, *.png     at the end
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nestegg.checks import one_of, whole
from nestegg.config import Config, check_method_keys, load_config, make_plan, to_toml
from nestegg.data import Dataset, load_dataset, partition
from nestegg.errors import InputError, StoppedError
from nestegg.files import write_atomically
from nestegg.models import make_model
from nestegg.planning import Plan, load_plan, save_plan
from nestegg.randomness import Purpose, Randomness
from nestegg.report import write_report
from nestegg.training import AdaptiveClipping, Federation, LocalTraining, Mechanics, RoundReport, State

NOT_FOR_RELEASE = "reproducible run: its noise follows from the seed, so it is not for release"
_NETWORKS = {"digits": "mlp", "adult": "mlp", "mnist": "cnn", "fashion-mnist": "cnn", "cifar10": "resnet20"}
CHECKPOINT = "checkpoint.safetensors"

OnRound = Callable[[RoundReport], None]


def start_run(config: Config, folder: Path, on_round: OnRound | None = None) -> dict[str, Any]:
    """Train by a configuration and write a run folder, which must not exist yet; returns its summary."""
    check_method_keys(config)
    if folder.exists():
        raise InputError(f"{folder} exists; give another folder, or resume it with --resume.")
    plan = make_plan(config)
    config = _resolved(config, plan)
    task = Task(config, plan)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        place = folder.with_name(f".{folder.name}.{os.getpid()}")
        place.mkdir()
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}.") from None
    try:
        write_atomically(place / "config.toml", tomli_w.dumps(to_toml(config)))
        save_plan(plan, place / "plan.json")
        os.rename(place, folder)  # the folder appears whole
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError):
            raise InputError(f"{folder} cannot be made: {error.strerror}.") from None
        raise
    return task.run(folder, on_round)


def rounds_left(folder: Path) -> int:
    """About how many rounds a stopped run has still to go."""
    plan = _plan_of(folder)
    lines = folder / "rounds.jsonl"
    done = lines.read_bytes().count(b"\n") if lines.is_file() else 0
    return max(plan.rounds - done, 0)


def resume_run(folder: Path, on_round: OnRound | None = None) -> dict[str, Any]:
    """Go on where a run stopped; a run that is complete is only summed up again."""
    plan = _plan_of(folder)
    return Task(load_config(folder / "config.toml"), plan).run(folder, on_round)


def _plan_of(folder: Path) -> Plan:
    if not (folder / "config.toml").is_file():
        raise InputError(f"{folder} is not a run: it has no config.toml.")
    return load_plan(folder / "plan.json")


class Task:
    """Data, model and plan of a run, made from its configuration alone."""

    def __init__(self, config: Config, plan: Plan) -> None:
        self.config, self.plan = config, plan
        training, privacy = config.training, config.privacy
        whole("training.seed", training.seed, 0, 2**63 - 1)
        _check_device(training.device)
        self.data: Dataset = load_dataset(config.federation.dataset, config.federation.data)
        self.parts = _assign(self.data, config, plan)
        name = config.model.name or _NETWORKS[self.data.name]
        self.federation = Federation(
            plan,
            make_model(name, self.data.shape, self.data.classes, training.seed).to(training.device),
            [
                (self.data.train_x[part].to(training.device), self.data.train_y[part].to(training.device))
                for part in self.parts
            ],
            LocalTraining(
                training.local_epochs,
                training.batch_size,
                training.learning_rate,
                training.momentum,
                training.schedule,
                training.precision,
            ),
            Mechanics(privacy.clipping, privacy.clip_unit, privacy.colluders),
            (self.data.test_x.to(training.device), self.data.test_y.to(training.device)),
            Randomness(training.seed, training.reproducible),
            training.engine,
            adaptive=AdaptiveClipping(**privacy.adaptive.model_dump()),
        )

    def run(self, folder: Path, on_round: OnRound | None) -> dict[str, Any]:
        """Train the rounds that are left and write the results."""
        restored, lines = self._restore(folder)
        state = restored
        write_atomically(folder / "rounds.jsonl", "".join(line + "\n" for line in lines))
        try:
            for state, report in self.federation.rounds(restored):
                lines.append(_line(report))
                # The checkpoint first, with the line in it: nothing is published of a round that may run again.
                self._save(folder, state, lines[-1])
                _append(folder / "rounds.jsonl", lines[-1] + "\n")
                if on_round is not None:
                    on_round(report)
            return self._finish(folder, state, [json.loads(line) for line in lines])
        except (InputError, OSError, KeyboardInterrupt) as error:
            reason = "It was interrupted." if isinstance(error, KeyboardInterrupt) else str(error)
            raise StoppedError(f"{reason} The run can go on: nestegg run --resume {folder}") from None

    def _save(self, folder: Path, state: State, line: str) -> None:
        tensors = {"model": state.model, "velocity": state.velocity}
        facts = {"round": state.round, "clip_norm": repr(state.clip_norm), "line": line, "config": self._digest()}
        write_atomically(folder / CHECKPOINT, save(tensors, self._metadata(facts)))

    def _restore(self, folder: Path) -> tuple[State, list[str]]:
        """The checkpoint's state, and the lines of the rounds it covers."""
        path = folder / CHECKPOINT
        if not path.exists():
            return self.federation.start(), []
        try:
            with safe_open(path, "pt") as file:
                facts = json.loads((file.metadata() or {}).get("nestegg", "{}"))
                model, velocity = file.get_tensor("model"), file.get_tensor("velocity")
        except (OSError, ValueError, SafetensorError) as error:
            raise InputError(f"{path} cannot be read: {error}.") from None
        same = facts.get("plan") == self.plan.digest and facts.get("config") == self._digest()
        if not same or model.numel() != self.federation.layout.size:
            raise InputError(f"{path} is a checkpoint of another configuration.")
        done = int(facts["round"])
        lines = _read_lines(folder / "rounds.jsonl")[: done - 1]
        if len(lines) < done - 1:
            raise InputError(
                f"{folder / 'rounds.jsonl'} has {len(lines)} whole lines of the checkpoint's {done} rounds."
            )
        lines.append(facts["line"])
        device = self.config.training.device
        return State(done, model.to(device), float(facts["clip_norm"]), velocity.to(device)), lines

    def _finish(self, folder: Path, state: State, rounds: list[dict[str, Any]]) -> dict[str, Any]:
        tensors = dict(zip(self.federation.layout.names, self.federation.layout.split(state.model), strict=True))
        packed: dict[str, Tensor] = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_atomically(folder / "model.safetensors", save(packed, self._metadata({})))
        config, plan = self.config, self.plan
        summary = {
            "method": plan.method,
            "composition": plan.composition,
            "accountant": plan.accountant,
            "dataset": config.federation.dataset,
            "model": config.model.name,
            "engine": self.federation.engine.name,
            "seed": config.training.seed,
            "rounds": plan.rounds,
            "final_accuracy": rounds[-1]["accuracy"],
            "groups": [
                {"name": r.group.name, "epsilon": r.group.budget.epsilon, "epsilon_spent": _finite(r.epsilon_spent[-1])}
                for r in plan.groups
            ],
            "seconds": sum(line["seconds"] for line in rounds),
            "reproducible": config.training.reproducible,
            **self._stamp(),
        }
        write_atomically(folder / "summary.json", json.dumps(summary, indent=1) + "\n")
        labels = [np.bincount(self.data.train_y[part].numpy(), minlength=self.data.classes) for part in self.parts]
        write_report(folder, plan, rounds, summary, np.array(labels))
        return summary

    def _digest(self) -> str:
        """Of all that a run's result depends on: not where its data lies or what it computes on."""
        content = to_toml(self.config)
        content["federation"].pop("data", None)
        content["training"].pop("device", None)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _metadata(self, facts: dict[str, Any]) -> dict[str, str]:
        """One entry only: the library writes several in no fixed order, and equal runs shall be equal files."""
        return {"nestegg": json.dumps({**facts, "plan": self.plan.digest, **self._stamp()})}

    def _stamp(self) -> dict[str, str]:
        return {"note": NOT_FOR_RELEASE} if self.config.training.reproducible else {}


def _assign(data: Dataset, config: Config, plan: Plan) -> list[Tensor]:
    """Every client's samples; which client is in which group is as random as the partition itself."""
    federation, seed = config.federation, config.training.seed
    stream = Randomness(seed, reproducible=True).stream(Purpose.PARTITION)
    parts = partition(data.train_y.numpy(), plan.clients, federation.partition, federation.dirichlet, stream)
    return [torch.from_numpy(parts[i]) for i in stream.permutation(plan.clients)]


def _check_device(name: str) -> None:
    try:
        torch.ones(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"training.device = {name!r} cannot be used here: {reason}.") from None


def _resolved(config: Config, plan: Plan) -> Config:
    """The configuration with every default written out, so that it means the same tomorrow."""
    one_of("federation.dataset", config.federation.dataset, _NETWORKS)
    federation = config.federation.model_copy(update={"clients": plan.clients})
    model = config.model.model_copy(update={"name": config.model.name or _NETWORKS[config.federation.dataset]})
    return config.model_copy(update={"federation": federation, "model": model})


def _line(report: RoundReport) -> str:
    """A report as a line of JSON; what is infinite is null."""
    content = asdict(report)
    for name in ("clip_norm", "noise_std", "loss"):
        content[name] = _finite(content[name])
    content["epsilon_spent"] = {name: _finite(spent) for name, spent in report.epsilon_spent.items()}
    return json.dumps(content, allow_nan=False)


def _read_lines(path: Path) -> list[str]:
    """The lines of a file of JSON lines, up to the first that is not whole."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None
    lines = []
    for line in text.splitlines():
        try:
            json.loads(line)
        except ValueError:
            break
        lines.append(line)
    return lines


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
