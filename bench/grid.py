"""The parts of Flower's grid that a strategy never calls, for grids in one process."""

from __future__ import annotations

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as in a ServerApp


class ProcessGrid(Grid):
    """A grid without a SuperLink: there is no run to be told of, and messages are made by their constructor."""

    def set_run(self, run: Run) -> None:
        """There is none."""
        raise RuntimeError("a grid in one process has no run")

    @property
    def run(self) -> Run:
        """There is none."""
        raise RuntimeError("a grid in one process has no run")

    def create_message(self, *arguments: object, **options: object) -> Message:
        """Flower's own advice: use the constructor of `Message`."""
        raise RuntimeError("messages are made by their constructor")
