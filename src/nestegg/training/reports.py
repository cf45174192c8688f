"""What rounds hand on: the state to the next round, and a report to people."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor


@dataclass(frozen=True, eq=False)
class State:
    """All that a round hands to the next.

    Attributes:
        round: rounds that are done.
        model: trainable parameters as one vector.
        clip_norm: c^t where it is learnt; the plan's c otherwise.
        velocity: server momentum of adaptive clipping.
    """

    round: int
    model: Tensor
    clip_norm: float
    velocity: Tensor

    def copy(self) -> State:
        """Return the same with tensors of its own: whatever is done to them reaches no round."""
        return replace(self, model=self.model.clone(), velocity=self.velocity.clone())


@dataclass(frozen=True)
class RoundReport:
    """What is known after a round.

    Who was sampled is a secret of the mechanism, so are the cohort's size, how many updates were not finite, and how
    long the round took. The first two are None unless the run is reproducible, and then not for release anyway; the
    third is for the eyes of whoever runs it, and never in a file that may be released.

    Attributes:
        round: its number, from 1.
        accuracy: on public test data, in percent; None without it, or where targets are no classes.
        loss: on public test data.
        metrics: one's own, on public test data.
        simulation_only_cohort_size: how many clients were sampled.
        simulation_only_broken_updates: how many updates failed or were not finite.
        simulation_only_group_accuracy: of each budget group, on data that its own clients held back.
        private_seconds: how long the round took.
        epsilon_spent: ε of each group so far, by the plan.
        clip_norm: c of the round, in the unit of updates.
        noise_std: of each parameter of the released model's change.
        learning_rate: λ_t.
        side: side statistics, noised and paid for with the round, and the standard deviation of each one's noise.
    """

    round: int
    accuracy: float | None
    loss: float | None
    simulation_only_cohort_size: int | None
    simulation_only_broken_updates: int | None
    private_seconds: float
    epsilon_spent: dict[str, float]
    clip_norm: float
    noise_std: float
    learning_rate: float
    metrics: dict[str, float] = field(default_factory=dict)
    simulation_only_group_accuracy: dict[str, float | None] | None = None
    side: dict[str, float] = field(default_factory=dict)
