"""The hyper-parameters of one cell: what tables of settings may say, and what no plan could be made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from nestegg.checks import one_of, rate, whole
from nestegg.errors import InputError
from nestegg.models import NETWORKS
from nestegg.planning import COMPARED
from nestegg.schema import Section

Number = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]
_Groups = Field(min_length=3, max_length=3)


class Hyperparameters(Section):
    """What `setting` tables say of a cell, in a configuration's words; lists have a value for each of three groups."""

    method: str
    dataset: str
    clients: _Count
    rounds: _Count
    local_epochs: _Count
    batch_size: _Count
    learning_rate: Number
    clip_norm: Number
    clip_unit: Literal["gradient", "update"] = "gradient"
    clipping: Literal["per-layer", "flat"] = "per-layer"
    spending_rate: Number
    accountant: Literal["rdp", "gaussian"] | None = None  # by default the method's
    epsilon: list[Number] = _Groups
    saving_rate: list[Number] = _Groups
    transition: list[_Count] = _Groups
    server_rate: Number = 1.0
    server_momentum: float = Field(default=0.0, ge=0, lt=1)
    model: str | None = None  # by default the paper's network for the dataset, which scales reduce
    features: str | None = None
    loss: Literal["balanced"] | None = None
    validation: _Count | None = None  # training samples that no client gets
    tested_on: Literal["test", "validation"] = "test"
    memory: float | None = None  # of the method optimal: κ, or else the measured curve
    influence: list[float] | None = None
    clip_share: float = Field(default=0.0, ge=0, lt=1)  # of the bit from which the clip norm is learnt
    quantile: float = Field(default=0.5, gt=0, lt=1)
    step: Number = 1.0

    def but(self, **values: Any) -> Hyperparameters:
        """The same with other values."""
        return self.model_copy(update=values)

    def check(self, where: str) -> None:
        """Refuse what no plan could be made of, before anything is trained."""
        one_of(f"{where}: method", self.method, COMPARED)
        one_of(f"{where}: dataset", self.dataset, NETWORKS)
        if self.method == "optimal" and self.memory is None and self.influence is None:
            raise InputError(f"{where}: method = 'optimal' needs memory or influence.")
        rate(f"{where}: spending_rate", self.spending_rate)
        for saving, start in zip(self.saving_rate, self.transition, strict=True):
            rate(f"{where}: saving_rate", saving, self.spending_rate, "spending_rate")
            whole(f"{where}: transition", start, 1, self.rounds)
