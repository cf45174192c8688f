"""What correlated noise (matrix mechanisms, DP-FTRL) gives beside the computed schedule, by arithmetic.

    python -m bench.correlated

Clients are in b cohorts, and cohort i takes part in rounds i, i + b, i + 2b and so on: in k of T = k b rounds. Who
takes part when is fixed and public. A mechanism releases C x plus independent noise in proportion to the sensitivity of
C; models are sums of what is released, B C = A, and their noise has the variance ‖row of B‖² times that. At the same
sensitivity all of them have the same (ε, δ). Variances are beside the least there is, that of independent noise with
everybody in every round (docs/theory.md). C is found by a local search: there may be better ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import minimize

import nestegg
from nestegg.accounting import Array
from nestegg.planning.curves import Pace, pace_of
from nestegg.planning.influence import forgetting
from nestegg.planning.reaching import reaching_noise

CASES = ((25, 1), (24, 2), (24, 6), (24, 24), (100, 4), (100, 20))  # rounds, and in how many of them each client is
MEMORIES = (0.0, 2.0)
EPSILON = 10.0  # where clients are sampled, how much noise helps depends on it
SHARP = 200.0  # of the smooth maximum over cohorts, while searching


@dataclass(frozen=True)
class Training:
    """Rounds that forget noise by κ, with a cosine-annealed clip norm, as configurations have it.

    Attributes:
        rounds: T.
        apart: b, rounds from one participation of a client to the next.
        memory: κ.
    """

    rounds: int
    apart: int
    memory: float

    @cached_property
    def pace(self) -> Pace:
        """Learning rates, to which clip norms are in proportion."""
        return pace_of(None, self.rounds)

    @cached_property
    def models(self) -> Array:
        """A: what each model, a row, keeps of each round, exp(−κ (R_t − R_s)) c_t, and nothing of later rounds."""
        kept = forgetting(self.memory, self.pace.learning_rate)
        return np.asarray(np.tril(kept[None, :] / kept[:, None]) * np.array(self.pace.clip_scale))

    @cached_property
    def cohorts(self) -> Array:
        """A column for each cohort, with b in the rounds in which it takes part: means are over 1/b of all clients."""
        lag = np.arange(self.rounds)[:, None] - np.arange(self.apart)[None, :]
        return np.where(lag % self.apart == 0, float(self.apart), 0.0)

    def least(self, models: Array) -> float:
        """The least mean variance of some of the models by any noise: (Σ_t √M_tt)², everybody in every round."""
        return float(root_mean_square(models).sum() ** 2)

    def alone(self) -> float:
        """What the last model has if it alone is released: no noise with these cohorts does better for it."""
        return float((self.models[-1] @ self.cohorts).max() ** 2) / self.least(self.models[-1:])

    def independent(self, models: Array) -> float:
        """Independent noise with these cohorts, by the best schedule for these models."""
        return float(np.square(root_mean_square(models) @ self.cohorts).sum()) / self.least(models)

    def sampled(self) -> float:
        """The last model's, by `optimal` where everybody is sampled with the rate 1/b, with δ = 1e-5."""
        group = nestegg.Group("all", 100, nestegg.Budget(EPSILON))
        method = nestegg.Optimal(memory=self.memory)
        everybody, some = (
            nestegg.plan(
                [group], self.rounds, method=method, spending_rate=rate, accountant=accountant, local=self.pace
            )
            for rate, accountant in ((1.0, "gaussian"), (1.0 / self.apart, "pld" if self.apart > 1 else "gaussian"))
        )
        kept = forgetting(self.memory, self.pace.learning_rate)
        return float(reaching_noise(some, self.pace, kept).sum() / reaching_noise(everybody, self.pace, kept).sum())

    def correlated(self, bands: int) -> tuple[float, float]:
        """What a banded C, Toeplitz · diagonal, gives to the last model and to all, found for the mean of all."""
        rows, cohorts = torch.from_numpy(self.models), torch.from_numpy(self.cohorts)

        def variances(free: torch.Tensor, sharp: float | None = None) -> torch.Tensor:
            c = strategy(free, self.rounds, bands)
            noise = torch.linalg.solve_triangular(c, rows, upper=False, left=False).square().sum(dim=1)
            squares = (c @ cohorts).square().sum(dim=0).log()  # C has no negative entry: a client's rounds add up
            worst = squares.max() if sharp is None else torch.logsumexp(sharp * squares, 0) / sharp
            return torch.mul(noise, worst.exp())

        def objective(values: Array) -> tuple[float, Array]:
            free = torch.from_numpy(values).requires_grad_()
            found = variances(free, SHARP).mean().log()
            (slope,) = torch.autograd.grad(found, free)
            return found.item(), slope.numpy()

        tries = []
        for decay in (0.5, 2.0):
            start = np.append(np.log(root_mean_square(self.models)) / 2.0, -decay * np.log(np.arange(2, bands + 1)))
            end = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 6000})
            tries.append(variances(torch.from_numpy(end.x)))
        best = min(tries, key=lambda found: float(found.mean()))
        return float(best[-1]) / self.least(self.models[-1:]), float(best.mean()) / self.least(self.models)


def root_mean_square(models: Array) -> Array:
    """Return √M_tt: what a round means to these models."""
    return np.asarray(np.sqrt(np.square(models).mean(axis=0)))


def strategy(free: torch.Tensor, rounds: int, bands: int) -> torch.Tensor:
    """Return C from the logarithms of its diagonal, and of its further bands relative to it."""
    one, none = torch.ones(1, dtype=free.dtype), torch.zeros(rounds - bands, dtype=free.dtype)
    coefficients = torch.cat((one, free[rounds:].exp(), none))
    lag = torch.arange(rounds)[:, None] - torch.arange(rounds)[None, :]
    return torch.where(lag >= 0, coefficients[lag.clamp(min=0)], 0.0) * free[:rounds].exp()


def row(rounds: int, k: int, memory: float) -> str:
    """Return a row of the table."""
    one = Training(rounds, rounds // k, memory)
    last, every = one.correlated(one.apart if one.apart > 1 else rounds)
    values = (one.independent(one.models[-1:]), one.sampled(), last, one.alone(), one.independent(one.models), every)
    return f"| {rounds} | {k} | {memory:g} | {' | '.join(f'{value:.2f}' for value in values)} |"


def main() -> None:
    """Compute and print."""
    for rounds, k in CASES:
        for memory in MEMORIES:
            print(row(rounds, k, memory), flush=True)


if __name__ == "__main__":
    main()
