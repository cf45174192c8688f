"""Whether a run may go on: it was begun by this arithmetic, and its model is made of numbers."""

from __future__ import annotations

import numpy as np
import torch

from nestegg.configuration.finished import ARITHMETIC
from nestegg.errors import InputError, StoppedError
from nestegg.runs.folder import RunFolder
from nestegg.runs.life import Life
from nestegg.training import State


def check_arithmetic(life: Life, rounds: int) -> None:
    """Refuse a run of an earlier version, before anything of it is touched.

    Raises:
        InputError: its noise was in floating point. One run has one arithmetic, and its folder holds what today's keeps
            in a private part.
    """
    if life.saved is None or life.saved.facts.get("arithmetic", 1) == ARITHMETIC:
        return
    left = rounds - life.done
    what = f"its last {left} rounds must be run by that version, or the run begun anew" if left else "it is complete"
    raise InputError(
        f"the run in {life.folder.path} was begun by an earlier nestegg, whose noise was in floating point: {what}. "
        "Its folder also holds times and label counts, which must not be released. Nothing was changed."
    )


def check_finite(state: State, loss: float | None, folder: RunFolder) -> None:
    """Stop a run whose noised model, or its loss on public data, is no number any more; its rounds are paid and out.

    Raises:
        StoppedError: further rounds would cost budgets and teach nobody anything.
    """
    if torch.isfinite(state.model).all() and (loss is None or np.isfinite(loss)):
        return
    raise StoppedError(
        f"The model is not finite after round {state.round}, which is released and paid; further rounds could not mend "
        "it and are not charged. A new run with a smaller learning_rate or clip_norm is needed. What was done is in "
        f"{folder.path}."
    )
