"""Callbacks: code of one's own that hears of rounds, and the logs of TensorBoard and MLflow.

What is logged has been released, or the run is a simulation. How long a round took tells about its secret cohort, so
entries of a run that may be released carry the time at which it began.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from nestegg.extras import needs
from nestegg.training.callbacks import Callback
from nestegg.training.loop import Federation
from nestegg.training.reports import RoundReport, State

__all__ = ["Callback", "MLflow", "TensorBoard"]


class TensorBoard(Callback):
    """Writes rounds as TensorBoard reads them; needs the extra tensorboard.

    Args:
        folder: of the log.

    >>> nestegg.run(federation, "monday", callbacks=[TensorBoard("logs/monday")])  # doctest: +SKIP
    """

    def __init__(self, folder: Path | str) -> None:
        needs("nestegg.callbacks.TensorBoard", "tensorboard")
        self.folder = str(folder)

    def on_start(self, federation: Federation, state: State) -> None:
        """Open the log, and write what the plan is."""
        from torch.utils.tensorboard import SummaryWriter

        self._clock = _Clock(federation)
        self._log: Any = SummaryWriter(self.folder, purge_step=state.round + 1)
        facts = "\n".join(f"- {name}: {value}" for name, value in _facts(federation).items())
        self._log.add_text("plan", facts, walltime=self._clock.now())

    def on_round(self, state: State, report: RoundReport) -> None:
        """Write a round's numbers."""
        for name, value in numbers(report).items():
            self._log.add_scalar(name, value, report.round, walltime=self._clock.now())
        self._log.flush()

    def on_end(self, state: State) -> None:
        """Close the log."""
        self._log.close()


class MLflow(Callback):
    """Logs rounds as a run of MLflow; needs the extra mlflow.

    Args:
        experiment: under which it stands.
        name: of the run there.
        tracking_uri: where MLflow keeps it; by default as the environment says.

    >>> nestegg.run(federation, "monday", callbacks=[MLflow("digits", name="monday")])  # doctest: +SKIP
    """

    def __init__(
        self, experiment: str = "nestegg", *, name: str | None = None, tracking_uri: str | None = None
    ) -> None:
        needs("nestegg.callbacks.MLflow", "mlflow")
        self.experiment, self.name, self.tracking_uri = experiment, name, tracking_uri

    def on_start(self, federation: Federation, state: State) -> None:
        """Begin a run, with what the plan is as its parameters."""
        from mlflow import MlflowClient

        self._clock, self._client = _Clock(federation), MlflowClient(self.tracking_uri)
        found = self._client.get_experiment_by_name(self.experiment)
        place = found.experiment_id if found else self._client.create_experiment(self.experiment)
        run = self._client.create_run(place, run_name=self.name, start_time=self._clock.milliseconds())
        self._run: str = run.info.run_id
        for key, value in _facts(federation).items():
            self._client.log_param(self._run, key, value)

    def on_round(self, state: State, report: RoundReport) -> None:
        """Log a round's numbers."""
        from mlflow.entities import Metric

        when, step = self._clock.milliseconds(), report.round
        metrics = [Metric(name, value, when, step) for name, value in numbers(report).items()]
        self._client.log_batch(self._run, metrics=metrics)

    def on_end(self, state: State) -> None:
        """End the run."""
        self._client.set_terminated(self._run, end_time=self._clock.milliseconds())


def numbers(report: RoundReport) -> dict[str, float]:
    """Return the numbers of a report by name, those that are known; nothing private is among them."""
    own = {f"metrics/{name}": value for name, value in report.metrics.items()}
    side = {f"side/{name}": value for name, value in report.side.items()}
    spent = {f"epsilon/{name}": value for name, value in report.epsilon_spent.items()}
    groups = {f"group_accuracy/{name}": one for name, one in (report.simulation_only_group_accuracy or {}).items()}
    found = {
        "accuracy": report.accuracy,
        "loss": report.loss,
        "clip_norm": report.clip_norm,
        "noise_std": report.noise_std,
        "learning_rate": report.learning_rate,
        **own,
        **side,
        **spent,
        **groups,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


class _Clock:
    """Tells the time at which a run began, whenever it is asked, unless the run is a simulation that tells all."""

    def __init__(self, federation: Federation) -> None:
        self._moves, self._began = federation.randomness.reproducible, time.time()

    def now(self) -> float:
        return time.time() if self._moves else self._began

    def milliseconds(self) -> int:
        return int(self.now() * 1000)


def _facts(federation: Federation) -> dict[str, Any]:
    plan = federation.plan
    facts = {"method": plan.method, "rounds": plan.rounds, "clients": plan.clients, "plan": plan.digest}
    return facts | {"engine": federation.engine.name, "reproducible": federation.randomness.reproducible}
