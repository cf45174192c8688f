"""Data, model and plan of a run, and the order in which its rounds are paid, trained, saved and released."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.checks import one_of, whole
from nestegg.config import Config, changed
from nestegg.data import Dataset, load_dataset, partition, thinned
from nestegg.errors import BudgetError, InputError, StoppedError
from nestegg.files import write_atomically
from nestegg.identity import config_digest
from nestegg.ledger import Account
from nestegg.mechanism import rounding_epsilon
from nestegg.models import make_model
from nestegg.planning import Plan, remarks
from nestegg.randomness import Purpose, Randomness
from nestegg.release import stamp
from nestegg.runs.folder import RunFolder, packed
from nestegg.runs.lines import line_of, standing_of, warnings
from nestegg.runs.payment import Payment
from nestegg.runs.soundness import ARITHMETIC, check_finite
from nestegg.training import (
    AdaptiveClipping,
    Federation,
    LocalTraining,
    Mechanics,
    Performance,
    RoundReport,
    State,
    kernel,
)

NETWORKS = {"digits": "mlp", "adult": "mlp", "mnist": "cnn", "fashion-mnist": "cnn", "cifar10": "resnet20"}

OnRound = Callable[[RoundReport], None]
Say = Callable[[str], None]


class Task:
    """Data, model and plan of a run, made from its configuration alone."""

    def __init__(self, config: Config, plan: Plan) -> None:
        self.config, self.plan = config, plan
        training, privacy = config.training, config.privacy
        whole("training.seed", training.seed, 0, 2**63 - 1)
        self.data: Dataset = load_dataset(config.federation.dataset, config.federation.data)
        self.parts = _assign(self.data, config, plan)
        name = config.model.name or NETWORKS[self.data.name]
        self.federation = Federation(
            plan,
            make_model(name, self.data.shape, self.data.classes, training.seed),
            [(self.data.train_x[part], self.data.train_y[part]) for part in self.parts],
            local=LocalTraining(
                training.local_epochs,
                training.batch_size,
                training.learning_rate,
                training.momentum,
                training.schedule,
            ),
            mechanics=Mechanics(
                privacy.clipping,
                privacy.clip_unit,
                privacy.colluders,
                AdaptiveClipping(**privacy.adaptive.model_dump()),
                Randomness(training.seed, training.reproducible),
            ),
            test=(self.data.test_x, self.data.test_y),
            performance=Performance(training.engine, training.workers, training.device, training.precision),
        )

    def run(
        self, folder: RunFolder, payment: Payment, on_round: OnRound, say: Say, *, charts: bool = False
    ) -> dict[str, Any]:
        """Train the rounds that are left and write the results.

        A round is paid for, on disk, before any client works for it, and out once its checkpoint is written and the
        ledger says so. Only then does anybody hear of it.
        """
        state, lines, results = self._restore(folder, say)
        last = json.loads(lines[-1]).get("loss", 0.0) if lines else 0.0  # null is what was not finite
        check_finite(state, np.nan if last is None else last, folder)
        private = folder.private()
        resume = f"nestegg run --resume {folder.path}"
        if state.round < self.plan.rounds:
            private.check_fingerprint(self._origin(), is_new=state.round == 0)
        try:
            payment.check_rest()
            for sentence in payment.conditions():
                say(sentence)
            folder.write_lines(lines)
            while state.round < self.plan.rounds:
                claim = payment.reserve(state.round + 1)
                state, report = self.federation.step(state, payment.withdrawn())
                lines.append(line_of(report, self._stamp()))
                results.append(self._save(folder, state, lines[-1], results))
                payment.release(state.round, claim, results[-1])
                folder.append_line(lines[-1])
                private.add_timing(report.round, report.private_seconds)
                for sentence in warnings(report):
                    say(sentence)
                on_round(report)
                check_finite(state, report.loss or 0.0, folder)
            rounds = [json.loads(line) for line in lines]
            return self._finish(folder, state, rounds, payment.accounts(), charts=charts)
        except BudgetError as error:
            raise StoppedError(
                f"{error} What is left can be planned anew: nestegg ledger replan {folder.path}; and then: {resume}"
            ) from None
        except KeyboardInterrupt:
            raise StoppedError(f"It was interrupted. The run can go on: {resume}") from None
        except (InputError, OSError) as error:
            raise StoppedError(f"{error} The run can go on: {resume}") from None

    def _save(self, folder: RunFolder, state: State, line: str, results: list[str]) -> str:
        facts = {
            "round": state.round,
            "clip_norm": repr(state.clip_norm),
            "line": line,
            "config": config_digest(self.config),
            "arithmetic": ARITHMETIC,
            "engine": self.federation.engine.name,
            "instruction_set": self.federation.engine.instruction_set,
            "results": results,
        }
        return folder.save_checkpoint({"model": state.model, "velocity": state.velocity}, self._facts(facts))

    def _restore(self, folder: RunFolder, say: Say) -> tuple[State, list[str], list[str]]:
        """The checkpoint's state, the lines of the rounds it covers as far as they are there, and all results to it."""
        saved = folder.load_checkpoint()
        if saved is None:
            return self.federation.start(), [], []
        done, device = int(saved.facts["round"]), self.config.training.device
        engine, then = self.federation.engine, saved.facts.get("instruction_set")
        if done < self.plan.rounds and (
            saved.facts.get("engine") != engine.name or not kernel.agree(then, engine.instruction_set)
        ):
            say(
                f"The run began with the engine {saved.facts.get('engine')} ({then}) and goes on with {engine.name} "
                f"({engine.instruction_set}): its last bits may differ from those of a run on one machine."
            )
        lines = [line for line in folder.lines() if json.loads(line).get("round", done) < done]
        if len(lines) < done - 1:
            say(f"rounds.jsonl has lost {done - 1 - len(lines)} of its lines: the report will have gaps.")
        model, velocity = (saved.tensors[name].to(device) for name in ("model", "velocity"))
        state = State(done, model, float(saved.facts["clip_norm"]), velocity)
        return state, [*lines, saved.facts["line"]], [*saved.facts["results"], saved.digest]

    def _finish(
        self,
        folder: RunFolder,
        state: State,
        rounds: list[dict[str, Any]],
        accounts: dict[str, Account],
        *,
        charts: bool,
    ) -> dict[str, Any]:
        tensors = dict(zip(self.federation.layout.names, self.federation.layout.split(state.model), strict=True))
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_atomically(folder.path / "model.safetensors", packed(contiguous, self._facts({})))
        from nestegg.report import write_report  # charts take long to import, and are not needed before

        config, plan, run = self.config, self.plan, self.config.ledger.run or ""
        summary = {
            "method": plan.method,
            "composition": plan.composition,
            "accountant": plan.accountant,
            "colluders": config.privacy.colluders,
            "dataset": config.federation.dataset,
            "model": config.model.name,
            "engine": self.federation.engine.name,
            "engine_reason": self.federation.why,
            "instruction_set": self.federation.engine.instruction_set,
            "seed": config.training.seed,
            "rounds": plan.rounds,
            "final_accuracy": rounds[-1]["accuracy"],
            "run": config.ledger.run,
            "groups": [
                {"name": group.name, "clients": group.clients, **standing_of(run, accounts.get(group.name))}
                for group in (row.group for row in plan.groups)
            ],
            "epsilon_of_rounding": self._rounding(),
            "reproducible": config.training.reproducible,
            "remarks": remarks(plan),
            **self._stamp(),
        }
        write_atomically(folder.path / "summary.json", json.dumps(summary, indent=1) + "\n")
        write_report(folder.path, plan, rounds, summary, labels=self._labels(), as_files=charts)
        folder.hide_times()
        return summary

    def _rounding(self) -> float | None:
        """What it costs at most, in ε and over all rounds, that noise is rounded; nothing promised, nothing to cost."""
        plan = self.plan
        if not plan.is_private:
            return None
        return rounding_epsilon(plan.clients, self.federation.layout.size, plan.rounds)

    def _labels(self) -> NDArray[np.int64] | None:
        """Samples of each label at every client, which nobody may know unless the run is not for release anyway."""
        if not self.config.training.reproducible:
            return None
        counts = [np.bincount(self.data.train_y[part].numpy(), minlength=self.data.classes) for part in self.parts]
        return np.array(counts)

    def _origin(self) -> list[Tensor]:
        """What the run began with: the data, who has which of it, and the first model."""
        data = self.data
        return [data.train_x, data.train_y, data.test_x, data.test_y, *self.parts, self.federation.start().model]

    def _facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {**facts, "plan": self.plan.digest, **self._stamp()}

    def _stamp(self) -> dict[str, str]:
        return stamp(self.config.training.reproducible)


def _assign(data: Dataset, config: Config, plan: Plan) -> list[Tensor]:
    """Every client's samples; which client is in which group is as random as the partition itself."""
    federation, seed = config.federation, config.training.seed
    stream = Randomness(seed, reproducible=True).stream(Purpose.PARTITION)
    parts = partition(data.train_y.numpy(), plan.clients, federation.partition, federation.dirichlet, stream)
    parts = [parts[i] for i in stream.permutation(plan.clients)]
    if federation.samples_per_client is not None:
        parts = thinned(parts, federation.samples_per_client, stream)
    return [torch.from_numpy(part) for part in parts]


def resolved(config: Config, plan: Plan) -> Config:
    """The configuration with every default written out, so that it means the same tomorrow."""
    one_of("federation.dataset", config.federation.dataset, NETWORKS)
    config = changed(config, "federation", clients=plan.clients)
    return changed(config, "model", name=config.model.name or NETWORKS[config.federation.dataset])
