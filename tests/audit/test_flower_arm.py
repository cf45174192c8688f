"""The audit's arm on Flower: the code as it is passes, and each bug that is planted is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from nestegg import Budget, Group, InputError, LocalTraining, Mechanics, Plan
from nestegg import plan as make_plan
from nestegg.audit import Finding, audit
from nestegg.audit.claims import Claims
from nestegg.audit.flower_arm import flower_findings
from nestegg.audit.flower_exact import exact_findings
from nestegg.audit.flower_stage import Stage
from nestegg.flower import Guard, PlannedStrategy, PrivacyMod, mod, wire
from nestegg.flower.aggregation import NoisySum
from nestegg.flower.terms import Order
from nestegg.mechanism import clipped
from nestegg.mechanism.randomness import Purpose, Randomness

Patch = pytest.MonkeyPatch


@cache
def small(rounds: int = 3) -> Plan:
    return make_plan([Group("a", 7, Budget(8.0)), Group("b", 5, Budget(20.0))], rounds=rounds, spending_rate=0.9)


def findings(made: Plan | None = None, **mechanics: Any) -> Iterator[Finding]:
    claims = Claims(made or small(), Mechanics(**mechanics), LocalTraining())
    return flower_findings(claims, range(len(claims.sizes)), lambda share: lambda rounds: False)


def refutes(one: Finding) -> bool:
    """At a rate of false alarms that no number of tests makes likely; what is planted is far beyond it."""
    return one.refutes or (one.p is not None and one.p < 1e-6)


@pytest.mark.parametrize(("clipping", "colluders"), [("per-layer", 0), pytest.param("flat", 3, marks=pytest.mark.slow)])
def test_the_code_as_it_is_passes(clipping: str, colluders: int) -> None:
    found = list(findings(clipping=clipping, colluders=colluders))
    assert not [one for one in found if refutes(one)]
    assert {one.arm for one in found} == {"flower"}
    tried = {one.attack for one in found}
    assert {"sensitivity", "company", "noise of a share", "asked again", "signal", "noise across rounds"} <= tried
    kinds = {"all reply", "replies are lost", "clients fail"}
    assert {f"noise where {kind}" for kind in kinds} | {"noise after withdrawals", "withdrawals"} <= tried
    assert all(one.trials >= 1 for one in found)


def test_one_client_and_one_round_are_enough() -> None:
    found = list(findings(make_plan([Group("alone", 1, Budget(8.0))], rounds=1, spending_rate=1.0)))
    assert not [one for one in found if refutes(one)]
    assert "sampling where all take part" in {one.attack for one in found}


def test_first_and_last_of_a_group_that_has_more_clients_than_canaries_are_canaries() -> None:
    made = make_plan([Group("many", 90, Budget(8.0)), Group("some", 40, Budget(9.0))], rounds=1)
    stage = Stage.of(Claims(made, Mechanics(), LocalTraining()), [0, 1])
    assert {0, 89, 90, 129} <= set(stage.canaries)
    assert len(stage.canaries) <= 64
    assert not [one for one in exact_findings(stage, [0, 1]) if refutes(one)]


def dropouts_without_shares(patch: Patch) -> None:
    real = NoisySum.add

    def add(self: NoisySum, client: int, order: Order, reply: Message) -> None:
        try:
            real(self, client, order, reply)
        except InputError:
            self._counted.add(client)
            raise

    patch.setattr(NoisySum, "add", add)


def halved_missing_shares(patch: Patch) -> None:
    real = NoisySum.finish

    def finish(self: NoisySum, randomness: Any) -> Any:
        missing = self._terms.plan.clients - len(self._counted)
        self._counted |= set(range(1000, 1000 + 3 * missing // 4))  # a quarter of the variance
        return real(self, randomness)

    patch.setattr(NoisySum, "finish", finish)


def withdrawn_without_shares(patch: Patch) -> None:
    cohort, finish, gone = PlannedStrategy._cohort, NoisySum.finish, set[int]()

    def drawn(self: PlannedStrategy, round_: int) -> list[int]:
        gone.update(self._running.books.withdrawn())
        return cohort(self, round_)

    def finished(self: NoisySum, randomness: Any) -> Any:
        self._counted |= gone
        return finish(self, randomness)

    patch.setattr(PlannedStrategy, "_cohort", drawn)
    patch.setattr(NoisySum, "finish", finished)


def wide_clip(patch: Patch) -> None:
    patch.setattr(mod, "clipped", lambda update, norm, *rest: clipped(update, 1.02 * norm, *rest))


def counted_twice(patch: Patch) -> None:
    real = NoisySum.add

    def add(self: NoisySum, client: int, order: Order, reply: Message) -> None:
        self._counted.discard(client)
        real(self, client, order, reply)

    patch.setattr(NoisySum, "add", add)


def halved_share(patch: Patch) -> None:
    real = PrivacyMod._protected

    def protected(self: PrivacyMod, update: Any, held: Any, layout: Any, order: Order, context: Context) -> Any:
        return real(self, update, held, layout, order.model_copy(update={"noise_std": order.noise_std / 2}), context)

    patch.setattr(PrivacyMod, "_protected", protected)


def noise_that_can_be_computed(patch: Patch) -> None:
    def known(context: Context, round_: int) -> Any:
        return Randomness(5, True).stream(Purpose.NOISE, round_, client=int(context.node_config[mod.PARTITION]))

    patch.setattr(PrivacyMod.__init__, "__defaults__", (mod.account_of_node, known))


def telling_errors(patch: Patch) -> None:
    def call(self: PrivacyMod, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        try:
            return self._train(message, context, call_next)
        except Exception as error:
            return wire.error(str(error), message)

    patch.setattr(PrivacyMod, "__call__", call)


def answers_again(patch: Patch) -> None:
    patch.setattr(Guard, "admit", lambda self, order: None)


def withdrawn_are_asked(patch: Patch) -> None:
    patch.setattr("nestegg.ledger.RunBooks.withdrawn", lambda self: frozenset())


def stopping(patch: Patch) -> None:
    def add(self: NoisySum, client: int, order: Order, reply: Message) -> None:
        assert not reply.has_error()
        real(self, client, order, reply)

    real = NoisySum.add
    patch.setattr(NoisySum, "add", add)


BUGS: dict[Callable[[Patch], None], str] = {
    dropouts_without_shares: "noise where clients fail",
    halved_missing_shares: "noise where replies are lost",
    withdrawn_without_shares: "noise after withdrawals",
    wide_clip: "sensitivity",
    counted_twice: "company",
    halved_share: "noise of a share",
    noise_that_can_be_computed: "noise across runs",
    telling_errors: "clients that fail",
    answers_again: "asked again",
    withdrawn_are_asked: "withdrawals",
    stopping: "rounds",
}


SLOW = (halved_share, withdrawn_are_asked, stopping)  # tried by `make test` alone


@pytest.mark.parametrize(
    "plant",
    [pytest.param(bug, marks=pytest.mark.slow) if bug in SLOW else bug for bug in BUGS],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_noticed(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert any(one.attack == BUGS[plant] and refutes(one) for one in findings())


def test_what_flower_cannot_carry_out_is_refused() -> None:
    with pytest.raises(InputError, match=r"plan\.method = 'adaptive-clipping' must be one of"):
        next(findings(make_plan([Group("all", 60, Budget(8.0))], rounds=2, method="adaptive-clipping")))
    with pytest.raises(InputError, match="the plan has 501 clients; up to 500 are tried"):
        next(findings(make_plan([Group("all", 501, Budget(8.0))], rounds=2)))


def test_without_flower_the_audit_says_what_it_did_not_try(monkeypatch: Patch) -> None:
    monkeypatch.setattr("nestegg.extras._installed", lambda module: module != "flwr")
    made = audit(small(), seconds=0.2)
    (said,) = [one for one in made.not_attacked if one.startswith("Flower")]
    assert "pip install 'nestegg-fl[flower]'" in said
    assert "flower" not in {one.finding.arm for one in made.findings}
