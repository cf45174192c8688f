"""The training of a run: its rounds, in the order of its life, and what it writes at its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestegg.configuration.description import Description
from nestegg.configuration.finished import ARITHMETIC
from nestegg.errors import BudgetError, InputError, StoppedError
from nestegg.files import write_atomically
from nestegg.ledger import Account
from nestegg.mechanism import rounding_epsilon
from nestegg.planning import remarks
from nestegg.report.pages import PageContent, Pages
from nestegg.runs.folder import Checkpoint, RunFolder, packed
from nestegg.runs.life import Life
from nestegg.runs.lines import line_of, standing_of, warnings
from nestegg.runs.private import Origin
from nestegg.runs.soundness import check_finite
from nestegg.runs.telling import CallbackError, Telling, say
from nestegg.training import Callback, Federation, RoundReport, State, kernel


class Task:
    """A federation and what is to be known of its run.

    Args:
        run: what it is.
        federation: what is trained; its plan is the one in force.
        origin: what the run begins with, for the keyed fingerprint.
        labels: samples of each label at every client, which a simulation may show.
    """

    def __init__(
        self,
        run: Description,
        federation: Federation,
        origin: Origin,
        labels: NDArray[np.int64] | None = None,
    ) -> None:
        self.run, self.federation, self.plan = run, federation, federation.plan
        self.origin, self._labels = origin, labels

    def train(self, folder: RunFolder, life: Life, callbacks: Sequence[Callback], pages: Pages) -> dict[str, Any]:
        """Train the rounds that are left and write the results; returns the summary.

        Callbacks hear of a round once it is out.
        """
        state, private, stopped = self._restored(life), folder.private(), ""
        check_finite(state, _last_loss(life.saved), folder)
        go_on, telling = self.run.go_on.format(folder=folder.path), Telling(callbacks)
        try:
            life.payment.check_rest()
            say(life.payment.conditions())
            say(life.mend_lines())
            telling.start(self.federation, state)
            while state.round < self.plan.rounds and not stopped:
                state, report = self._round(life, state)
                private.add_timing(report.round, report.private_seconds)
                say(warnings(report))
                ender = telling.round(state, report)
                check_finite(state, report.loss, folder)
                if ender is not None and state.round < self.plan.rounds:
                    stopped = f"was stopped after round {state.round} by {ender}"
            summary = self._finish(folder, state, life.payment.accounts(), stopped, pages)
            telling.end()
            return summary
        except BudgetError as error:
            raise StoppedError(
                f"{error} What is left can be planned anew: nestegg ledger replan {folder.path}; and then: {go_on}"
            ) from None
        except KeyboardInterrupt:
            raise StoppedError(f"It was interrupted. The run can go on: {go_on}") from None
        except CallbackError as error:
            raise StoppedError(f"{error} The run can go on: {go_on}") from error.__cause__
        except (InputError, OSError) as error:
            raise StoppedError(f"{error} The run can go on: {go_on}") from None
        finally:
            with suppress(CallbackError):  # the run's own end is the news
                telling.end()
            with suppress(OSError):
                folder.hide_times()

    def _round(self, life: Life, state: State) -> tuple[State, RoundReport]:
        """One round: reserved before any client works, and released once it is saved."""
        life.reserve(state.round + 1)
        state, report = self.federation.step(state, life.payment.withdrawn())
        facts = {
            "clip_norm": repr(state.clip_norm),
            "loss": repr(report.loss),
            "config": self.run.identity,
            "arithmetic": ARITHMETIC,
            "engine": self.federation.engine.name,
            "instruction_set": self.federation.engine.instruction_set,
        }
        tensors = {"model": state.model, "velocity": state.velocity}
        life.release(tensors, line_of(report, self.run.stamp), self._facts(facts))
        return state, report

    def _restored(self, life: Life) -> State:
        """The state of the checkpoint, or the first one."""
        first, saved = self.federation.start(), life.saved
        if saved is None:
            return first
        engine, before = self.federation.engine, (saved.facts.get("engine"), saved.facts.get("instruction_set"))
        same = before[0] == engine.name and kernel.agree(before[1], engine.instruction_set)
        if life.done < self.plan.rounds and not same:
            say(
                [
                    f"The run began with the engine {before[0]} ({before[1]}) and goes on with {engine.name} "
                    f"({engine.instruction_set}): its last bits may differ from those of a run on one machine."
                ]
            )
        model, velocity = (saved.tensors[name].to(first.model.device) for name in ("model", "velocity"))
        return State(life.done, model, float(saved.facts["clip_norm"]), velocity)

    def _finish(
        self, folder: RunFolder, state: State, accounts: dict[str, Account], stopped: str, pages: Pages
    ) -> dict[str, Any]:
        tensors = dict(zip(self.federation.layout.names, self.federation.layout.split(state.model), strict=True))
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_atomically(folder.path / "model.safetensors", packed(contiguous, self._facts({})))
        rounds = [json.loads(line) for line in folder.lines()]
        summary = self._summary(state, rounds, accounts, stopped)
        write_atomically(folder.path / "summary.json", json.dumps(summary, indent=1) + "\n")
        unit = self.federation.mechanics.clip_unit
        pages.write(PageContent(folder.path, self.plan, rounds, summary, self._labels, unit))
        folder.hide_times()
        return summary

    def _summary(
        self, state: State, rounds: list[dict[str, Any]], accounts: dict[str, Account], stopped: str
    ) -> dict[str, Any]:
        run, plan = self.run, self.plan
        last = rounds[-1] if rounds else {}
        return {
            "method": plan.method,
            "composition": plan.composition,
            "accountant": plan.accountant,
            "colluders": run.colluders,
            "dataset": run.dataset,
            "model": run.model,
            "engine": self.federation.engine.name,
            "engine_reason": self.federation.why,
            "instruction_set": self.federation.engine.instruction_set,
            "seed": run.seed,
            "rounds": state.round,
            **({"stopped": stopped} if stopped else {}),
            "final_accuracy": last.get("accuracy"),
            "final_loss": last.get("loss"),
            **({"final_metrics": last["metrics"]} if "metrics" in last else {}),
            **{name: last[name] for name in ("simulation_only_group_accuracy",) if name in last},
            "run": run.run,
            "groups": [
                {"name": group.name, "clients": group.clients, **standing_of(run.run, accounts.get(group.name))}
                for group in (row.group for row in plan.groups)
            ],
            "epsilon_of_rounding": self._rounding(),
            "reproducible": run.reproducible,
            "remarks": remarks(plan),
            **run.stamp,
        }

    def _rounding(self) -> float | None:
        """What it costs at most, in ε and over all rounds, that noise is rounded; nothing promised, nothing to cost."""
        plan = self.plan
        if not plan.is_private:
            return None
        return rounding_epsilon(plan.clients, self.federation.layout.size, plan.rounds)

    def _facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {**facts, "plan": self.plan.digest, **self.run.stamp}


def _last_loss(saved: Checkpoint | None) -> float | None:
    """The loss of the last round; in older checkpoints, whose runs all had test data, null is what was not finite."""
    if saved is None:
        return None
    if "loss" not in saved.facts:
        return float(np.nan if (loss := json.loads(saved.facts["line"])["loss"]) is None else loss)
    return None if saved.facts["loss"] == "None" else float(saved.facts["loss"])
