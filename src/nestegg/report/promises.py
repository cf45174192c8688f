"""What a run promises every group: in words, in one table that relates all its ε, and what the judge says of it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nestegg.errors import VerificationError
from nestegg.planning import LABELS, Plan, Verdict, epsilon_text, exposures, verify
from nestegg.planning.certainty import certainty, certainty_in_words, percent_right
from nestegg.report.charts import PALETTE
from nestegg.report.markup import as_html

MOST = 12  # groups that privacy loss distributions are asked about, and that are told in words: it takes a moment each
_UNIT = (
    "<p>Protected is one client's whole data, not one sample. Two worlds are compared: the federation with the "
    "client's data, and the same with that data taken out, so that the client contributes zero (zero-out). Whatever "
    "somebody looks for in all that is released is at most e<sup>ε</sup> times as likely in one world as in the other, "
    "plus δ = {delta:g}{chance}.</p>"
)


def promises(plan: Plan, done: int, colluders: int = 0) -> str:
    """Return what every group is promised, as HTML; nothing for a plan without noise.

    Args:
        plan: what is promised.
        done: rounds that are trained.
        colluders: clients against whose knowledge the shares of noise are raised.

    >>> from nestegg import Budget, Group, plan
    >>> page = promises(plan([Group("all", 100, Budget(10.0))], 25), done=25)
    >>> "is right at most 84.2 % of the time" in page, "The judge agrees" in page
    (True, True)
    """
    if not plan.is_private:
        return ""
    verdicts, said = _judged(plan)
    chance = f" (1 in {round(1.0 / plan.delta):,})" if plan.delta < 0.5 else ""
    unit = _UNIT.format(delta=plan.delta, chance=chance)
    return f"{unit}{_in_words(plan)}{_table(plan, done, colluders, verdicts)}{said}"


def spent(plan: Plan, done: int) -> list[float]:
    """Return every group's ε after the rounds that are trained, by the plan's accountant: what its budget is held to.

    >>> from nestegg import Budget, Group, plan
    >>> made = plan([Group("all", 100, Budget(10.0))], 25)
    >>> [round(spent(made, done)[0], 3) for done in (0, 25)]
    [0.0, 10.0]
    """
    return [row.epsilon_spent[done - 1] if done else 0.0 for row in plan.groups]


def _judged(plan: Plan) -> tuple[Sequence[Verdict], str]:
    """The judge's verdicts, where they are known in a moment, and what there is to say of them."""
    digest = f"Plan <code>{plan.digest}</code>."
    if plan.accountant == "pld" or (plan.accountant != "gaussian" and len(plan.groups) > MOST):
        return (), (
            "<p>The plan's own accountant has checked every group before training. A second one takes longer: "
            f"<code>nestegg verify plan.json</code>. {digest}</p>"
        )
    try:
        verdicts = verify(plan)
    except VerificationError as error:
        return (), f'<p class="note">The judge does not agree: {escape(str(error))} {digest}</p>'
    judges = " and ".join(dict.fromkeys(verdict.judge for verdict in verdicts))
    return verdicts, (
        f"<p><b>The judge agrees.</b> The judge is a second accountant: it has computed every group's spending again, "
        f"from the plan's rows alone, by {escape(judges)}: nobody exceeds a budget. {digest}</p>"
    )


def _in_words(plan: Plan) -> str:
    rows = plan.groups[:MOST]
    lines = (
        f"<li><b>{escape(row.group.name)}</b>, {row.group.clients} clients, ε = {row.group.budget.epsilon:g}: "
        f"{escape(certainty_in_words(certainty(row, by_pld=True)))}</li>"
        for row in rows
    )
    more = len(plan.groups) - len(rows)
    return f"<ul>{''.join(lines)}</ul>{f'<p>And {more} more groups, in the table.</p>' if more else ''}"


def _table(plan: Plan, done: int, colluders: int, verdicts: Sequence[Verdict]) -> str:
    """All ε of each group in one row."""
    found, by = exposures(plan, colluders), LABELS[plan.accountant]
    known = [f"ε, {k} colluder{'s' if k > 1 else ''}" for k in found[0].colluding]
    columns: dict[str, Sequence[str]] = {
        "group": [one.row.group.name for one in found],
        "clients": [str(one.row.group.clients) for one in found],
        "budget ε": [f"{one.row.group.budget.epsilon:g}" for one in found],
    }
    if done < plan.rounds:
        columns["ε spent so far"] = [epsilon_text(epsilon) for epsilon in spent(plan, done)]
    columns["ε spent" if done == plan.rounds else "ε after all rounds"] = [epsilon_text(one.epsilon) for one in found]
    if verdicts:
        columns["ε by the judge"] = [epsilon_text(verdict.epsilon) for verdict in verdicts]
    columns["ε, sampled for sure"] = [epsilon_text(one.sampled) for one in found]
    for head, k in zip(known, found[0].colluding, strict=True):
        columns[head] = [epsilon_text(one.colluding[k]) for one in found]
    columns["a guess is right, at most"] = [
        percent_right(certainty(one.row, by_pld=i < MOST)) for i, one in enumerate(found)
    ]
    columns["excess advantage"] = [f"{one.excess:+z.3f}" if i < MOST else "–" for i, one in enumerate(found)]
    table = as_html(tuple(columns), list(zip(*columns.values(), strict=True)), PALETTE)
    return f"{table}{_columns_in_words(plan, by, is_judged=bool(verdicts))}"


def _columns_in_words(plan: Plan, by: str, *, is_judged: bool) -> str:
    """How the ε of one row relate."""
    before = ", with what earlier runs have spent" if any(row.already_spent for row in plan.groups) else ""
    judge = (
        "The judge's ε is of the same rounds by another accountant, tighter where clients are sampled: both hold. "
        if is_judged
        else ""
    )
    return (
        f"<p>The budget is what is promised, and <b>ε spent</b> is what counts against it, by {escape(by)}{before}. "
        f"{judge}The next columns are no promise: they say what is left of it against somebody who knows more. "
        "<b>Sampled for sure</b>: somebody knows that a client was in every round. <b>Colluders</b>: clients who take "
        "their own shares out of the noise. A <b>guess</b> is about a client's data being there or not. <b>Excess "
        "advantage</b> is how much better the best guess is than after one Gaussian release that uses up the same "
        "budget.</p>"
    )
