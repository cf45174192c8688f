"""Exact attacks on Flower: what one client sends is clipped, on the lattice, noised, and counts once."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from nestegg.accounting import Array
from nestegg.audit.arms import cast
from nestegg.audit.exact import REACHED, TRUNCATED, some_rounds
from nestegg.audit.findings import Finding
from nestegg.audit.flower_stage import FLOWER, SECRET, Stage, Unpaid, answer, silence
from nestegg.audit.replay import plain_noise
from nestegg.audit.statistics import noise_repeated, noise_size
from nestegg.audit.trials import Noise
from nestegg.errors import InputError
from nestegg.flower import OwnAccount, private_client_app, wire
from nestegg.flower.aggregation import NoisySum
from nestegg.flower.mod import PARTITION
from nestegg.mechanism.randomness import Purpose, Randomness

Points = NDArray[np.float64]


def exact_findings(stage: Stage, groups: Sequence[int]) -> Iterator[Finding]:
    """Attack single clients and single sums of Flower."""
    with silence():
        yield from _Sent(stage, groups).findings()
        yield _failing(stage)
        yield _answered_once(stage)


class _Sent:
    """What some canaries send in some rounds, with noise that is known, and, twice, with noise that is secret."""

    def __init__(self, stage: Stage, groups: Sequence[int]) -> None:
        self.stage, self.claims = stage, stage.claims
        self.canaries, self.owner, _ = cast(stage.claims, groups)
        self.rounds = some_rounds(stage.claims)
        self.known = Randomness(int(np.random.SeedSequence().generate_state(1)[0]), reproducible=True)
        self.replies, self.secret, self.again = (
            self._asked(stage.app(stage.trained, ClientApp(mods=[mod])))
            for mod in (Unpaid(noise=self._noise), Unpaid(), Unpaid())
        )

    def findings(self) -> Iterator[Finding]:
        """Attack all of it."""
        asked = (self.replies, self.secret, self.again)
        everything = [one for found in asked for part in found.values() for one in part.values()]
        wrong = sum(not _is_update(reply) for reply in everything)
        says = f"{wrong} of {len(everything)} replies hold something else than one vector of lattice points"
        yield Finding(FLOWER, "what leaves a client", says, refutes=wrong > 0, trials=len(everything))
        if wrong:
            return
        yield self._lattice()
        yield from self._lengths()
        yield from self._shares()
        yield self._sums()

    def _asked(self, app: ClientApp) -> dict[int, dict[int, Message]]:
        return {t: {client: self.stage.ask(app, client, t) for client in self.canaries} for t in self.rounds}

    def _noise(self, context: Context, round_: int) -> np.random.Generator:
        return self.known.stream(Purpose.NOISE, round_, client=int(context.node_config[PARTITION]))

    def _share(self, t: int) -> float:
        """The standard deviation of a client's share of the noise."""
        return self.claims.std(t, self.claims.plan.clip_norm) / math.sqrt(self.claims.plan.clients)

    def _clipped(self, t: int, client: int) -> Points:
        """What a client has sent, less its share of the noise, in steps."""
        step, stream = self.stage.terms.lattice(t + 1).step, self.known.stream(Purpose.NOISE, t + 1, client=client)
        points = _points(self.replies[t][client])
        return points - plain_noise(self._share(t), step, 1, len(points), stream)

    def _lattice(self) -> Finding:
        """A step is a power of two that follows from the plan: 2^−22 of the round's noise, or less."""
        wrong = 0
        for t in self.rounds:
            step, std = self.stage.terms.lattice(t + 1).step, self.claims.std(t, self.claims.plan.clip_norm)
            wrong += int(math.frexp(step)[0] != 0.5 or not 2.0**-24 < step / std <= 2.0**-22)
        says = f"in {wrong} of {len(self.rounds)} rounds clients' points are not on the public lattice"
        return Finding(FLOWER, "lattice", says, refutes=wrong > 0, trials=len(self.rounds))

    def _lengths(self) -> Iterator[Finding]:
        """What leaves a client, less its noise, is as long as its clip norm at most; all of that if it is louder."""
        whole = math.sqrt(1.0 - self.claims.side.curve_share)  # canaries measure nothing
        for group in sorted(set(self.owner)):
            own = [client for client, owner in zip(self.canaries, self.owner, strict=True) if owner == group]
            shares, reached = [], []
            for t in self.rounds:
                step, norm = self.stage.terms.lattice(t + 1).step, float(self.claims.norms[group, t])
                for client in own:
                    length = math.sqrt(math.fsum(np.square(self._clipped(t, client)).tolist())) * step
                    shares.append(length / norm)
                    reached.append((length + TRUNCATED * step) / (norm * whole))
            name, most, least = self.claims.plan.groups[group].group.name, max(shares), min(shares)
            says = f"a client sends at most {most:.6f} of its clip norm, beside its noise; at most 1 is claimed"
            yield Finding(FLOWER, "sensitivity", says, name, refutes=not most <= 1.0, trials=len(shares))
            says = f"an update beyond the clip norm is sent as {least / whole:.6f} of it; 1 is claimed"
            yield Finding(FLOWER, "clip norm", says, name, refutes=not min(reached) >= REACHED, trials=len(shares))

    def _shares(self) -> Iterator[Finding]:
        """What leaves a client carries its share of the noise, (c_n σ_n)²/N, another one in every run."""
        noise = Noise()
        for t in self.rounds:
            step = self.stage.terms.lattice(t + 1).step
            for client in self.canaries:
                replies = (self.secret[t][client], self.again[t][client])
                one, before = ((_points(one) - self._clipped(t, client)) * step / self._share(t) for one in replies)
                noise.add(one[None, :], before[None, :])
        yield noise_size(FLOWER, "noise of a share", noise)
        yield noise_repeated(FLOWER, "runs", noise)

    def _sums(self) -> Finding:
        """A client changes the sum by what it has sent, and by nothing else; a reply that comes twice counts once."""
        off, trials = 0, 0
        for t in self.rounds:
            whole, step = self._sum(t, self.canaries), self.stage.terms.lattice(t + 1).step
            off += int(not np.array_equal(self._sum(t, (*self.canaries, *self.canaries)), whole))
            for client in self.canaries:
                less = self._sum(t, [one for one in self.canaries if one != client])
                off += int(not np.array_equal(whole - less, self._clipped(t, client) * step))
            trials += 1 + len(self.canaries)
        says = f"in {off} of {trials} sums a reply counted twice, or depended on others"
        return Finding(FLOWER, "company", says, refutes=off > 0, trials=trials)

    def _sum(self, t: int, clients: Sequence[int]) -> Array:
        """The sum of a round, with all its noise, which is known."""
        total = NoisySum(self.stage.terms, t + 1, len(_points(self.replies[t][self.canaries[0]])))
        for client in clients:
            order = self.stage.terms.order(self.stage.group(client), t + 1)
            try:
                total.add(client, order, self.replies[t][client])
            except InputError:
                continue  # refused, as it should be if it is the second
        return np.asarray(total.finish(self.known).numpy())


def _failing(stage: Stage) -> Finding:
    """What a client says that fails is one word, which is the same for everybody."""

    def raises(client: int, arrays: ArrayRecord) -> ArrayRecord:
        raise RuntimeError(SECRET)

    def breaks(client: int, arrays: ArrayRecord) -> ArrayRecord:
        moved = stage.trained(client, arrays)
        return ArrayRecord({name: FlowerArray(array.numpy() * np.float32(np.nan)) for name, array in moved.items()})

    ways = (raises, breaks)
    replies = [stage.ask(stage.app(way), stage.canaries[0], 0) for way in ways]
    words = [reply.error.reason if reply.has_error() else "an update" for reply in replies]
    wrong = [word for word in words if word not in (wire.REFUSED, wire.FAILED)]
    says = "a client that fails says one word" if not wrong else f"a client that fails sends {wrong[0]!r}"
    return Finding(FLOWER, "clients that fail", says, refutes=bool(wrong), trials=len(ways))


def _answered_once(stage: Stage) -> Finding:
    """A client that is asked again sends nothing: two answers would halve its noise. Its real account decides."""
    client, terms = stage.canaries[0], stage.terms
    budget = stage.claims.plan.groups[stage.owner[client]].group.budget
    with tempfile.TemporaryDirectory(prefix="nestegg-audit-") as place:
        app = stage.app(stage.trained, private_client_app(lambda context: OwnAccount(Path(place), budget)))
        offer = Message(RecordDict({wire.OFFER: wire.offer(terms, stage.group(client))}), 1, wire.ENROL)
        enrolled = not answer(app, offer, client).has_error()
        replies = [stage.ask(app, client, 0) for _ in range(2)]
    answers = sum(not reply.has_error() for reply in replies)
    says = f"asked twice for a round, a client answers {answers} times" if enrolled else "a client refuses the plan"
    return Finding(FLOWER, "asked again", says, refutes=enrolled and answers != 1, trials=len(replies))


def _is_update(reply: Message) -> bool:
    """Whether a reply is one vector of whole numbers, and nothing besides."""
    if reply.has_error() or list(reply.content) != [wire.UPDATE] or len(reply.content.array_records) != 1:
        return False
    arrays = wire.single_arrays(reply.content)
    return list(arrays) == [wire.UPDATE] and np.dtype(arrays[wire.UPDATE].dtype) == np.dtype("<i4")


def _points(reply: Message) -> Points:
    return np.asarray(wire.single_arrays(reply.content)[wire.UPDATE].numpy(), np.float64)
