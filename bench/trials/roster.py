"""All ideas that are tried, by name: what they are, and the values with which they are tried."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bench.trials.clients import LargestCoordinates, Normalised, PublicMask, Shares
from bench.trials.idea import EVERYTHING, Idea, Settings
from bench.trials.opponents import Bounded, ControlVariates, SharpnessAware
from bench.trials.server import Adam, LastModels, Momentum, MovingAverage, Shrinkage

NOTHING = "nothing"
SERVER, CLIENT, OPPONENT = "server", "client", "opponent"


@dataclass(frozen=True)
class Entry:
    """An idea to try.

    Attributes:
        kind: of whom: the server, clients, or opponents, which are ideas of others.
        label: what it does, in a few words.
        make: makes it, with nothing left of an earlier run.
    """

    kind: str
    label: str
    make: Callable[[], Idea]


ROSTER = {
    NOTHING: Entry("", "nothing", Idea),
    "average-5": Entry(SERVER, "mean of the last 5 models", lambda: LastModels(5)),
    "average-10": Entry(SERVER, "mean of the last 10 models", lambda: LastModels(10)),
    "moving-80": Entry(SERVER, "moving average of models, 0.8", lambda: MovingAverage(keep=0.8)),
    "polynomial-8": Entry(SERVER, "polynomial average of models, power 8", lambda: MovingAverage(power=8.0)),
    "momentum-30": Entry(SERVER, "server momentum 0.3", lambda: Momentum(0.3)),
    "momentum-50-slow": Entry(SERVER, "server momentum 0.5, λ × ½", lambda: Momentum(0.5, rate=0.5)),
    "low-pass-30": Entry(SERVER, "low-pass filter 0.3", lambda: Momentum(0.3, damped=True)),
    "low-pass-60": Entry(SERVER, "low-pass filter 0.6", lambda: Momentum(0.6, damped=True)),
    "adam": Entry(SERVER, "Adam without the noise's variance", Adam),
    "adam-careful": Entry(SERVER, "the same, floor 1", lambda: Adam(floor=1.0)),
    "shrinkage": Entry(SERVER, "James–Stein, whole", Shrinkage),
    "shrinkage-rows": Entry(SERVER, "James–Stein, by rows", lambda: Shrinkage(by_row=True)),
    "clip-half": Entry(CLIENT, "clip norm × ½", lambda: Settings(clip=0.5)),
    "clip-double": Entry(CLIENT, "clip norm × 2", lambda: Settings(clip=2.0)),
    "rate-143": Entry(CLIENT, "λ / 0.7, as far as momentum 0.3 goes", lambda: Settings(rate=1 / 0.7)),
    "normalised": Entry(CLIENT, "normalised", Normalised),
    "normalised-half": Entry(CLIENT, "normalised, c × ½", lambda: Normalised(clip=0.5)),
    "biases-1": Entry(CLIENT, "biases 1 % of c²", lambda: Shares(0.01)),
    "biases-5": Entry(CLIENT, "biases 5 % of c²", lambda: Shares(0.05)),
    "biases-20": Entry(CLIENT, "biases 20 % of c²", lambda: Shares(0.2)),
    "epochs-2": Entry(CLIENT, "2 local epochs", lambda: Settings(epochs=2)),
    "epochs-2-slow": Entry(CLIENT, "2 local epochs, λ × ½, c × 2", lambda: Settings(epochs=2, rate=0.5, clip=2.0)),
    "epochs-5": Entry(CLIENT, "5 local epochs", lambda: Settings(epochs=5)),
    "epochs-5-slow": Entry(CLIENT, "5 local epochs, λ × ⅕, c × 5", lambda: Settings(epochs=5, rate=0.2, clip=5.0)),
    "batch-10": Entry(CLIENT, "batches of 10", lambda: Settings(batch_size=10)),
    "batch-10-slow": Entry(CLIENT, "batches of 10, λ × ⅕, c × 5", lambda: Settings(None, 10, 0.2, 5.0)),
    "batch-25": Entry(CLIENT, "batches of 25", lambda: Settings(batch_size=25)),
    "batch-all": Entry(CLIENT, "all data, λ × 20, c / 20", lambda: Settings(None, EVERYTHING, 20.0, 1 / 20)),
    "batch-all-fast": Entry(CLIENT, "all data, λ × 50, c / 50", lambda: Settings(None, EVERYTHING, 50.0, 1 / 50)),
    "sam-5": Entry(OPPONENT, "SAM, ρ = 0.05", lambda: SharpnessAware(0.05)),
    "sam-50": Entry(OPPONENT, "SAM, ρ = 0.5", lambda: SharpnessAware(0.5)),
    "blur": Entry(OPPONENT, "BLUR, 0.1", lambda: Bounded(0.1)),
    "blur-strong": Entry(OPPONENT, "BLUR, 0.5", lambda: Bounded(0.5)),
    "lus-50": Entry(OPPONENT, "LUS, half", lambda: LargestCoordinates(0.5)),
    "lus-10": Entry(OPPONENT, "LUS, a tenth", lambda: LargestCoordinates(0.1)),
    "blur-lus": Entry(OPPONENT, "BLUR, 0.1, and LUS, half", lambda: Bounded(0.1, 0.5)),
    "mask-50": Entry(OPPONENT, "public mask, half, c × √½", lambda: PublicMask(0.5, clip=math.sqrt(0.5))),
    "mask-50-scaled": Entry(
        OPPONENT, "public mask, half, update × 2, c × √½", lambda: PublicMask(0.5, True, math.sqrt(0.5))
    ),
    "mask-25-scaled": Entry(OPPONENT, "public mask, quarter, update × 4, c × ½", lambda: PublicMask(0.25, True, 0.5)),
    "scaffold": Entry(OPPONENT, "control variates", ControlVariates),
    "scaffold-half": Entry(OPPONENT, "control variates, c × ½", lambda: ControlVariates(clip=0.5)),
}
