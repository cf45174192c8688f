"""Twin runs: two real runs that differ in data which counts as zero, and whose releases must not differ at all.

Twins share a seed, so they are not for release, and may say of cohorts what others must not. A third run, whose noise
is secret, shows what a run leaves behind that is.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from nestegg.audit.arms import cast, members
from nestegg.audit.canaries import nameless
from nestegg.audit.claims import Claims
from nestegg.audit.findings import Finding
from nestegg.audit.folder import RUN, folder_findings
from nestegg.audit.own import wild
from nestegg.audit.watching import Watched
from nestegg.errors import InputError
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.runs import run
from nestegg.runs.private import NAME as PRIVATE
from nestegg.training import Callback, Federation, RoundReport, State

_ROUNDS = 3
_MOST = 10_000  # clients: a ledger of many more takes its time
_WORLDS = ((3, 0), (11, 1))  # samples of the client that differs, and its label
_GROUPS = 8  # that have canaries
_SEEDS = 1000  # of which one is taken that draws it


class _Stop(Callback):
    """Ends a run after a handful of rounds."""

    def on_round(self, state: State, report: RoundReport) -> bool:
        """Return whether it is enough."""
        return state.round >= _ROUNDS


def twin_runs(federation: Federation) -> list[Finding]:
    """Run a federation of canaries twice, durably, and compare all that may be released, to the bit.

    Cohorts and noise follow from one seed. The runs differ in one client, whose data is no number, so that it counts as
    zero in both: in how much of it there is, and in its labels. Nobody's data is used.

    Raises:
        InputError: no data counts as zero on this model, or there are too many clients for runs in passing.
    """
    if federation.plan.clients > _MOST:
        raise InputError(f"the plan has {federation.plan.clients} clients; runs of up to {_MOST} are tried.")
    odd = _odd(federation)
    for world in _WORLDS:
        made = _world(federation, odd, world)
        if Watched(made).contribution(made.start(), [odd]).any():
            raise InputError("no data of a canary counts as zero on this model.")
    with tempfile.TemporaryDirectory(prefix="nestegg-audit-") as place:
        twins = [_Twin(_world(federation, odd, world), Path(place) / str(world[0]) / "run") for world in _WORLDS]
        secret = Path(place) / "secret" / "run"
        _Twin(_world(federation, odd, _WORLDS[0], secret=True), secret)
        wrong = [one.says for one in folder_findings(secret) if one.refutes]
    first, second = (twin.released for twin in twins)
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    says = f"{differing[0]} tells of" if differing else "nothing that may be released tells of"
    at_midnight = all(twin.times == {0.0} for twin in twins)
    when = "files have the time of midnight" if at_midnight else "times of files tell how long training took"
    return [
        Finding(
            RUN,
            "twin runs",
            f"{says} data that counts as zero: how much there is, or its labels",
            refutes=bool(differing),
            trials=len(first),
        ),
        Finding(RUN, "times of files", when, refutes=not at_midnight, trials=len(first)),
        Finding(
            RUN,
            "a run for release",
            wrong[0] if wrong else "a run whose noise is secret leaves nothing else than may be released",
            refutes=bool(wrong),
        ),
    ]


class _Twin:
    """A run, and what is left of it for whoever gets its folder.

    Attributes:
        released: all files that may be released, without the run's name, and what was said while it ran.
        times: of these files, in seconds since midnight.
    """

    def __init__(self, federation: Federation, folder: Path) -> None:
        with _hearing() as sentences:
            name = str(run(federation, folder, callbacks=[_Stop()])["run"])
        files = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != PRIVATE]
        self.released = {
            path.relative_to(folder).as_posix(): path.read_bytes().replace(name.encode(), b"") for path in files
        }
        said = "\n".join(sentences).replace(name, "").replace(str(folder), "")
        self.released["what is said while it runs"] = said.encode()
        self.times = {path.stat().st_mtime % 86400.0 for path in files}


@contextmanager
def _hearing() -> Iterator[list[str]]:
    """Hear what a run says, in the place of its user."""
    logger, sentences = logging.getLogger("nestegg"), list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: sentences.append(record.getMessage())  # type: ignore[method-assign]
    before, propagates = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield sentences
    finally:
        logger.handlers, logger.propagate = before, propagates


def _odd(federation: Federation) -> int:
    """The client that differs: of the group that is drawn most often."""
    claims = Claims(federation.plan, federation.mechanics, federation.local)
    return members(claims, int(np.argmax(claims.rates[:, 0])))[-1]


def _world(federation: Federation, odd: int, world: tuple[int, int], *, secret: bool = False) -> Federation:
    """The federation with canaries for clients, one of whom has data that counts as zero."""
    plan, x, y = nameless(federation.plan), *federation.clients.zeros
    claims, (samples, label) = Claims(plan, federation.mechanics, federation.local), world
    data = [wild(federation, 0, 0.0)] * plan.clients
    for client in cast(claims, range(len(plan.groups))[:_GROUPS])[0]:
        data[client] = wild(federation, client, 1.0)
    value = torch.nan if x.is_floating_point() else torch.iinfo(x.dtype).max  # a token that no model knows
    inputs = torch.full((samples, *x.shape[1:]), value, dtype=x.dtype)
    data[odd] = inputs, torch.full((samples, *y.shape[1:]), label, dtype=y.dtype)
    rate = float(claims.rates[:, 0].max())
    randomness = Randomness() if secret else Randomness(_seed(odd, rate, plan.clients), True)
    return Federation(
        plan,
        federation.model,
        data,
        local=federation.local,
        mechanics=replace(federation.mechanics, randomness=randomness),
        test=wild(federation, 1, 1.0),
        performance=federation.performance,
    )


def _seed(client: int, rate: float, clients: int) -> int:
    """Return a seed by which a client is drawn in the first round."""
    for seed in range(_SEEDS):
        if Randomness(seed, True).stream(Purpose.COHORT, 1).random(clients)[client] < rate:
            return seed
    return 0
