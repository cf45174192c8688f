"""The page of an audit: for each group the claimed and the empirical trade-off curve, and everything that was tried."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import altair as alt

from nestegg.report.charts import PALETTE, draw_charts
from nestegg.report.frame import Part, facts, make_page
from nestegg.report.markup import as_html

_WIDTH, _HEIGHT = 520, 340
_MARK = re.compile(r'<section id="audit">.*?</section>', re.DOTALL)


def audit_page(content: dict[str, Any], name: str) -> str:
    """Return the page of an audit, from what `Audit.to_dict` gives."""
    charts = {one["group"]: tradeoff_chart(one) for one in content["evidence"]}
    pictures = draw_charts(charts, None)
    parts = [
        Part(f"Group {one['group']}", _evidence(one, content), [pictures[one["group"]]]) for one in content["evidence"]
    ]
    shared = [one for one in content["findings"] if one["group"] is None]
    parts.append(Part("What everybody is promised", _table(shared)))
    missing = "".join(f"<li>{escape(line)}</li>" for line in content["not_attacked"])
    parts.append(Part("What was not attacked", f"<ul>{missing}</ul>" if missing else "<p>Nothing was left out.</p>"))
    parts.append(Part("How to read this", _reading(content)))
    return make_page(f"Audit of {name}", audit_summary(content), parts)


def audit_summary(content: dict[str, Any]) -> str:
    """Return what came of an audit, as HTML."""
    refuted = [one for one in content["findings"] if one["refutes"]]
    verdict = "refuted" if refuted else "not refuted"
    numbers = [
        ("the promise is", verdict),
        ("attacks", str(len(content["findings"]))),
        ("trials", f"{sum(one['trials'] for one in content['evidence']):,}"),
        ("seconds", f"{content['seconds']:.0f}"),
    ]
    said = "".join(f'<p class="note">{escape(_sentence(one))}</p>' for one in refuted[:10])
    if content["interrupted"]:
        said += '<p class="note">The audit was interrupted: this is what was found until then.</p>'
    if "note" in content:
        said += f'<p class="note">{escape(content["note"].capitalize())}.</p>'
    engine = f"engine {content['engine']}"
    if content.get("instruction_set"):
        engine += f" ({content['instruction_set']})"
    return (
        f"{facts(numbers)}{said}<p><b>{escape(content['caveat'])}</b></p>"
        f'<p class="soft">{escape(content["method"])}, {content["clients"]} clients, {content["rounds"]} rounds, '
        f"δ = {content['delta']:g}; {escape(engine)}, nestegg {escape(content['version'])}; plan "
        f"<code>{escape(content['plan'])}</code>. "
        f"{len(content['groups'])} of {content['all_groups']} groups were attacked.</p>"
    )


def kept_audit(folder: Path) -> dict[str, Any] | None:
    """Return what the last audit of a run found, if it was audited and the file is whole."""
    try:
        content = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
        audit_summary(content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return dict(content)


def with_audit(page: str, content: dict[str, Any]) -> str:
    """Return a run's page with what came of its audit in it, in the place of an earlier one."""
    section = (
        f'<section id="audit"><h2>Audit</h2>{audit_summary(content)}<p><a href="audit.html">All of it</a></p></section>'
    )
    return _MARK.sub("", page).replace("</main>", f"{section}</main>", 1)


def tradeoff_chart(one: dict[str, Any]) -> alt.TopLevelMixin:
    """How well can anybody tell whether a client's data is there? Misses against false alarms; lower is better told."""
    rows = []
    pairs = zip(one["false_alarms"], one["misses"], one["least_misses"], strict=True)
    for alarms, misses, least in sorted(pairs):
        rows.append({"false alarms": alarms, "misses": least, "curve": "claimed: no test is below"})
        rows.append({"false alarms": alarms, "misses": misses, "curve": "attack: thresholds tried"})
    names = ["claimed: no test is below", "attack: thresholds tried"]
    colour = alt.Color("curve:N", scale=alt.Scale(domain=names, range=[PALETTE[0], PALETTE[1]]), title=None)
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("false alarms:Q", scale=alt.Scale(domain=[0, 1])), y=alt.Y("misses:Q", scale=alt.Scale(domain=[0, 1]))
    )
    line = base.transform_filter(alt.datum.curve == names[0]).mark_line(strokeWidth=2).encode(color=colour)
    dots = base.transform_filter(alt.datum.curve == names[1]).mark_point(size=28, filled=True).encode(color=colour)
    guess = alt.Chart(alt.Data(values=[{"x": 0, "y": 1}, {"x": 1, "y": 0}])).mark_line(
        strokeDash=[4, 4], color=PALETTE[6], strokeWidth=1
    )
    guess = guess.encode(x=alt.X("x:Q", title="false alarms"), y=alt.Y("y:Q", title="misses"))
    title = f"Can anybody tell whether a client of {one['group']} is there?"
    return alt.layer(guess, line, dots).properties(title=title, width=_WIDTH, height=_HEIGHT)


def _evidence(one: dict[str, Any], content: dict[str, Any]) -> str:
    own = [finding for finding in content["findings"] if finding["group"] == one["group"]]
    numbers = [
        (f"claimed, of a budget of {one['budget']:g}", f"ε = {one['epsilon']:.2f}"),
        ("at least, by counting", f"ε ≥ {one['by_counting']:.2f}"),
        ("by a Gaussian fit, which is weak", f"ε ≈ {one['by_gaussian']:.2f}"),
        ("trials", f"{one['trials']:,}"),
    ]
    return f"{facts(numbers)}{_table(own)}"


def _table(findings: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            f"{one['attack']}\n{one['says']}",
            one["arm"],
            f"{one['trials']:,}",
            "exact" if one["p_corrected"] is None else f"{one['p_corrected']:.3g}",
            "refuted" if one["refutes"] else "–",
        )
        for one in findings
    ]
    return as_html(("attack, and what was seen", "on", "trials", "p, corrected", "result"), rows)


def _sentence(one: dict[str, Any]) -> str:
    whose = f" for group {one['group']}" if one["group"] else ""
    return f"Refuted{whose} by {one['attack']} on the {one['arm']}: {one['says']}."


def _reading(content: dict[str, Any]) -> str:
    level = content["false_alarms"]
    return (
        "<p>A canary is a client made for the attack: its update is known beforehand. On the crafted network each has "
        "a coordinate of its own; on your model its data is wild. Half of the trials have its data, half have not, and "
        "the attack tries to tell which from all released models, by the likelihood ratio: no test is better. The line "
        "is what the plan claims: no test lies below it. Dots that lie on it say that the claim is tight; dots below "
        "it by more than chance refute it.</p><p>A p-value is how likely such a sight is if the promise holds. It is "
        f"multiplied by the number of attacks that have one, and refutes at {level:g} or less: one audit of correct "
        f"code in {1 / level:.0f} ends with a false alarm. Attacks called exact have one right answer, to the last "
        "bit. A lower bound on ε by counting cannot exceed the logarithm of the number of trials by much, however "
        "little privacy there is.</p>"
    )
