"""Accounts: composed over all runs as the judges compose them, and nobody is over, whatever happens."""

from __future__ import annotations

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st

from nestegg import Budget, Group, InputError, plan
from nestegg.ledger import Account, Ledger
from tests.examples import examples
from tests.ledger.ledgers import LIFE, NAMES, begun, spend, two_groups


def oracle(account: Account, judge: RdpAccountant | PLDAccountant) -> float:
    """ε by one of Google's accountants, from the account's charges."""
    for q, sigma, rounds in account.charges:
        judge.compose(SelfComposedDpEvent(PoissonSampledDpEvent(q, GaussianDpEvent(sigma)), rounds))
    return float(judge.get_epsilon(account.budget.delta))


@pytest.mark.no_cover
def test_an_account_composes_all_runs_as_the_judges_do(url: str) -> None:
    with begun(url) as (ledger, monday):
        spend(monday, 6)
        other = plan([Group("all", 2, Budget(4.0))], 9, accountant="pld")
        tuesday = ledger.begin("tuesday", other, ("cleo", "new"), unknown=[Budget(1.0), Budget(4.5)], rule="fixed")
        spend(tuesday, 9)
        cleo, new = ledger.account("cleo"), ledger.account("new")
        assert (cleo.budget, new.budget) == (LIFE["cleo"], Budget(4.5))  # only strangers bring a budget
        assert [(part.run, part.group, part.rounds) for part in cleo.parts] == [
            ("monday", "open", 6),
            ("tuesday", "all", 9),
        ]
        for account in (cleo, new, ledger.account("ada")):
            assert account.epsilon == pytest.approx(oracle(account, RdpAccountant()), rel=2e-3)
            coarse = PLDAccountant(value_discretization_interval=1e-3)
            assert account.epsilon_pld == pytest.approx(oracle(account, coarse), rel=2e-3)
        assert cleo.without("tuesday") == pytest.approx(10.0, rel=1e-6)
        assert cleo.within("tuesday") < cleo.epsilon < cleo.without("tuesday") + cleo.within("tuesday")
        by_peers = {account.example: account.epsilon for account in ledger.accounts()}
        assert by_peers["cleo"] == pytest.approx(cleo.epsilon, rel=1e-12)
        assert sum(account.clients for account in ledger.accounts()) == 5
        position, accounts = ledger.verify()
        assert position.entry == 4 + 2 * (6 + 9)
        assert not any(account.is_over for account in accounts)


def test_different_deltas_are_planned_each_at_its_own(url: str) -> None:
    life = {"ada": Budget(8.0), "bob": Budget(8.0, 1e-3), "cleo": Budget(900.0, 1e-12), "dan": Budget(12.0)}
    with begun(url, two_groups(), life) as (ledger, books):
        spend(ledger.begin("elsewhere", plan([Group("all", 2, Budget(6.0))], 5), ("ada", "bob")), 5)
        books.replan().verify()
        spend(books, 6)
        assert ledger.account("ada").epsilon == pytest.approx(8.0, rel=1e-3)
        assert ledger.account("bob").epsilon < 8.0
        ledger.verify()


@pytest.mark.no_cover
@pytest.mark.slow
@examples(12)
@given(data=st.data())
def test_nobody_goes_over_whatever_happens(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs with any groups, methods and rules, interleaved, crashed, rewound, re-planned and left by clients."""
    url = f"sqlite:///{tmp_path_factory.mktemp('any') / 'ledger.db'}"
    draw = data.draw
    with Ledger(url) as ledger:
        for name in NAMES:
            budget = Budget(draw(st.floats(1.0, 20.0)), draw(st.sampled_from([1e-5, 1e-6])))
            ledger.set_budgets({name: budget}, rule=draw(st.sampled_from(["fixed", "renyi"])), new=True)
        running, released = [], 0
        for i in range(draw(st.integers(1, 3))):
            names = draw(st.permutations(NAMES))[: draw(st.integers(2, 4))]
            first = draw(st.integers(1, len(names) - 1))
            groups = [
                Group("one", first, Budget(draw(st.floats(1.0, 8.0)))),
                Group("two", len(names) - first, Budget(draw(st.floats(1.0, 8.0))), saving_rate=0.3),
            ]
            method = draw(st.sampled_from(["spend-as-you-go", "idp-fedavg", "adaptive-clipping", "shaped"]))
            running.append(ledger.begin(f"run {i}", plan(groups, 4, method=method), names))
        for _ in range(draw(st.integers(1, 14))):
            books = draw(st.sampled_from(running))
            step = draw(st.sampled_from(["round", "round", "crash", "lose", "replan", "withdraw"]))
            done, planned = books.state.done, False
            try:
                if step in ("round", "crash"):
                    claim = books.reserve(done + 1)
                    if step == "round":
                        released += 1
                        books.release(done + 1, claim, f"result {released}")
                elif step == "lose" and done:
                    books.reconcile([books.state.results[round_] for round_ in range(1, done)])
                elif step == "replan":
                    books.replan().verify()
                    planned = True
                elif step == "withdraw":
                    ledger.withdraw(draw(st.sampled_from(NAMES)), "no more")
            except InputError:  # refused, or nothing left to do
                pass
            if planned:
                books.check_rest()  # what is planned is not refused
            if books.plan.method == "adaptive-clipping":  # one noise for all, whatever their histories
                assert len({row.noise_multiplier for row in books.plan.groups}) == 1
            for account in ledger.accounts():
                assert account.epsilon <= account.budget.epsilon * (1 + 1e-12)
        for account in ledger.verify()[1]:
            judge = PLDAccountant(value_discretization_interval=1e-3)
            assert oracle(account, judge) <= account.budget.epsilon * (1 + 1e-9)
