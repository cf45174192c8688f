"""From the paper's hyper-parameters to a configuration, at the paper's scale or at one that this machine can bear."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from nestegg.checks import one_of
from nestegg.configuration.config import Adaptive, Config, FederationTable, GroupTable, Model, Privacy, Side, Training
from nestegg.experiments.settings import Hyperparameters
from nestegg.models import NETWORKS
from nestegg.planning import COMPARED
from nestegg.runs.comparison import variant

SCALES = ("full", "day", "cpu", "smoke")
SHARES = (0.34, 0.43, 0.23)  # of the clients in groups 1, 2 and 3
_SMOKE_VALIDATION = 100
_TRAINING_SAMPLES = {"mnist": 60_000, "fashion-mnist": 60_000, "cifar10": 50_000}


@dataclass(frozen=True)
class Reduction:
    """One local epoch, and perhaps no more than so many samples of a client, in smaller batches.

    Attributes:
        samples: of a client at most.
        batch_size: the paper's by default.
        momentum: whose growth counts in how far clients go; 0 counts steps.
    """

    samples: int | None = None
    batch_size: int | None = None
    momentum: float = 0.0


# What scales train on. Adult is small enough to be left as it is.
REDUCTIONS = {
    "cpu": {
        "mnist": Reduction(samples=32, batch_size=16),
        "fashion-mnist": Reduction(samples=32, batch_size=16),
        "cifar10": Reduction(samples=16, batch_size=8),
    },
    # Counting steps alone, FedAvg ends at 67.0 % of FMNIST's validation data, six points below the paper's number; with
    # momentum's growth at 74.8 %.
    "day": dict.fromkeys(("mnist", "fashion-mnist", "cifar10"), Reduction(momentum=0.9)),
}


def configured(setting: Hyperparameters, scale: str, seed: int) -> Config:
    """The configuration of one cell; `nestegg run` would train the same from it."""
    one_of("--scale", scale, SCALES)
    setting, samples = scaled(_plain(setting), scale)
    config = Config(
        federation=FederationTable(
            dataset=setting.dataset,
            clients=setting.clients,
            samples_per_client=samples,
            validation=setting.validation,
            tested_on=setting.tested_on,
        ),
        model=Model(name=setting.model or NETWORKS[setting.dataset], features=setting.features),
        training=Training(
            rounds=setting.rounds,
            local_epochs=setting.local_epochs,
            batch_size=setting.batch_size,
            learning_rate=setting.learning_rate,
            reproducible=True,
            loss=setting.loss,
        ),
        privacy=Privacy(
            spending_rate=setting.spending_rate,
            clip_norm=setting.clip_norm,
            clip_unit=setting.clip_unit,
            clipping=setting.clipping,
            groups=_groups(setting),
            **_schedule(setting),
            adaptive=Adaptive(server_rate=setting.server_rate, server_momentum=setting.server_momentum),
            side=_side(setting),
        ),
    )
    return variant(config, setting.method, seed)


def _side(setting: Hyperparameters) -> Side:
    """The bit from which the clip norm is learnt, if it is."""
    if not setting.clip_share:
        return Side()
    return Side(clip_share=setting.clip_share, quantile=setting.quantile, step=setting.step)


def _schedule(setting: Hyperparameters) -> dict[str, Any]:
    """The accountant where one is given, and what the method optimal is told of the model's memory."""
    given = {} if setting.accountant is None else {"accountant": setting.accountant}
    if setting.method != "optimal":
        return given
    known = {"influence": setting.influence} if setting.memory is None else {"memory": setting.memory}
    accountant = COMPARED["optimal"].accountant_at(setting.spending_rate)
    return {"method": "optimal", "accountant": accountant, **known, **given}


def scaled(setting: Hyperparameters, scale: str) -> tuple[Hyperparameters, int | None]:
    """The setting at a scale, and how many samples a client keeps at most; None is all."""
    if scale == "smoke":
        return _smoke(setting), None
    reduction = REDUCTIONS.get(scale, {}).get(setting.dataset)
    if reduction is None or setting.model is not None:  # a model of our own choice is small enough
        return setting, None
    factor = stretch(setting, reduction)
    small = setting.but(
        local_epochs=1,
        batch_size=reduction.batch_size or setting.batch_size,
        learning_rate=_rounded(setting.learning_rate * factor),
        clip_norm=_rounded(setting.clip_norm / (factor if setting.clip_unit == "gradient" else 1.0)),
    )
    return small, reduction.samples


def stretch(setting: Hyperparameters, reduction: Reduction) -> float:
    """How much longer a local step becomes, so that a client goes as far as before, and c × λ stays with it."""
    samples = _TRAINING_SAMPLES[setting.dataset] / setting.clients
    steps = setting.local_epochs * math.ceil(samples / setting.batch_size)
    fewer = math.ceil((reduction.samples or samples) / (reduction.batch_size or setting.batch_size))
    return _way(steps, reduction.momentum) / _way(fewer, reduction.momentum)


def _way(steps: int, momentum: float) -> float:
    """How far equal gradients carry, in units of λ: Σ_k (1 + m + … + m^(k−1))."""
    return sum((1.0 - momentum**k) / (1.0 - momentum) for k in range(1, steps + 1))


def stated_reduction(setting: Hyperparameters, scale: str) -> str:
    """What a scale changes, in words that datasets may share."""
    if scale == "full":
        return "nothing is reduced: the paper's setting to the letter."
    if scale == "smoke":
        return (
            "a test of the program, not of the paper: digits, ten clients, three rounds, one local epoch in batches of "
            "16, λ = 0.1, c a hundredth."
        )
    small, samples = scaled(setting, scale)
    if small == setting:
        return "nothing is reduced."
    times = f"{small.learning_rate / setting.learning_rate:.4g}"
    clip = f", and c {times} times smaller, which keeps c × λ" if setting.clip_unit == "gradient" else ""
    images = "all training images" if samples is None else f"at most {samples} training images a client"
    if REDUCTIONS[scale][setting.dataset].momentum:
        kept, less = "keeps how far a client of average size goes, with the growth of its momentum", ""
    else:
        kept = "keeps λ × local steps of a client of average size"
        less = " Momentum has fewer steps to build up in, so that clients move less than in the paper."
    return (
        f"{images}; {small.local_epochs} local epoch in batches "
        f"of {small.batch_size} instead of {setting.local_epochs} in batches of {setting.batch_size}; λ {times} times "
        f"larger, {small.learning_rate:g}, which {kept}{clip}.{less}"
    )


def _plain(setting: Hyperparameters) -> Hyperparameters:
    """The same without what its method does not read, so that cells that train the same are the same."""
    everybody, method = len(setting.epsilon), COMPARED[setting.method]
    if not method.is_private:
        return setting.but(epsilon=[1.0] * everybody, clip_norm=1.0, clip_unit="gradient")
    if method.same_noise or method.individual is not None:
        same = method.individual or setting.method
        return setting.but(method=same, epsilon=[min(setting.epsilon)] * everybody)
    return setting


def _smoke(setting: Hyperparameters) -> Hyperparameters:
    rounds = 3
    return setting.but(
        dataset="digits",
        clients=10,
        rounds=rounds,
        local_epochs=1,
        batch_size=16,
        learning_rate=0.1,
        clip_norm=setting.clip_norm / 100.0,
        validation=None if setting.validation is None else _SMOKE_VALIDATION,
        transition=[max(1, round(transition * rounds / setting.rounds)) for transition in setting.transition],
    )


def _groups(setting: Hyperparameters) -> list[GroupTable]:
    """The paper's three groups; methods that never save do not say how they would."""
    saves = COMPARED[setting.method].rates == "saving"
    lists = zip(SHARES, setting.epsilon, setting.saving_rate, setting.transition, strict=True)
    return [
        GroupTable(
            name=f"group {i}",
            epsilon=float(epsilon),
            share=share,
            saving_rate=float(rate) if saves else None,
            transition=transition if saves else None,
        )
        for i, (share, epsilon, rate, transition) in enumerate(lists, 1)
    ]


def _rounded(value: float) -> float:
    """Four digits: no reader wants more, and no hash should depend on more."""
    return float(f"{value:.4g}")
