"""Numbers in words that people write: a link says what it shows, and finished cells say the number.

`[+1.3](a-day.md "fmnist: optimal minus idp-fedavg")` leads to the page of an experiment and shows how far one column is
ahead of another in a row. Of several rows (`mnist, fmnist` or `*-strict`) a range or a count is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

import altair as alt

from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.experiments.cells import plan_of
from nestegg.experiments.figures import leads_chart, relative_noise
from nestegg.experiments.outcomes import BEATS, Duel, Line, Outcome, paired
from nestegg.experiments.scales import configured
from nestegg.experiments.views import PADDING

_LINK = re.compile(r'\[(?P<said>[^\[\]]*)\](?P<to>\((?:\S*/)?(?P<name>[\w-]+)\.md "(?P<asked>[^"]+)"\))')
_PICTURE = re.compile(r'!\[(?P<title>[^\[\]]*)\]\(\S*/(?P<name>[\w-]+)/(?P<file>[\w-]+)\.svg "(?P<asked>[^"]+)"\)')
_NOT_RUN = "not run"
_SIDES = {"above", "below", "first", "last"}
_Lines = Sequence[Line]


def answered(text: str, outcomes: Mapping[str, Outcome]) -> str:
    """Return a page in which every link that asks for a number shows it.

    Raises:
        InputError: a link asks for what no outcome has.
    """

    def said(link: re.Match[str]) -> str:
        one_of(f"link to {link['name']}.md", link["name"], outcomes)
        return f"[{answer(outcomes[link['name']], link['asked'])}]{link['to']}"

    return _LINK.sub(said, text)


def asked_pictures(text: str, outcomes: Mapping[str, Outcome]) -> dict[str, alt.TopLevelMixin]:
    """Return the charts that a page's images ask for, by experiment and file.

    `![Title](images/results/when-to-spend/law.svg "*: optimal minus idp-fedavg")` draws leads with their intervals.
    """
    charts: dict[str, alt.TopLevelMixin] = {}
    for image in _PICTURE.finditer(text):
        one_of(f"image {image['file']}.svg", image["name"], outcomes)
        outcome = outcomes[image["name"]]
        lines, what = _lines(outcome, image["asked"])
        methods, _, rival = what.partition(" minus ")
        columns = {column.name: column for column in outcome.experiment.columns}
        for name in (names := methods.split(", ")) + [rival]:
            one_of(f"column of {outcome.name}", name, columns)
        chart = leads_chart(image["title"], lines, [columns[name] for name in names], columns[rival])
        if chart is not None:
            charts[f"{outcome.name}/{image['file']}"] = chart.properties(padding=PADDING)
    return charts


def answer(outcome: Outcome, asked: str) -> str:
    """Return what an outcome says to `ROWS: WHAT`; `_FORMS` has all that can be asked."""
    lines, what = _lines(outcome, asked)
    for form, found in _FORMS.items():
        if names := re.fullmatch(form, what):
            for column in {*names.groups()} - _SIDES:
                one_of(f"column of {outcome.name}", column, [one.name for one in outcome.experiment.columns])
            return found(outcome, lines, *names.groups()).replace("-", "−")
    raise InputError(f"{outcome.name}: {asked!r} asks for nothing that is known.")


def _lines(outcome: Outcome, asked: str) -> tuple[_Lines, str]:
    rows, _, what = asked.partition(": ")
    lines = [line for line in outcome.lines if any(fnmatchcase(line.row.name, row) for row in rows.split(", "))]
    if not lines:
        one_of(f"{outcome.name}: row", rows, [line.row.name for line in outcome.lines])
    return lines, what


def _mean(_: Outcome, lines: _Lines, method: str) -> str:
    numbers = [line.numbers[method] for line in lines if line.numbers[method].cells]
    if len(lines) > 1 or not numbers:
        return _range([number.mean for number in numbers], ".1f")
    (number,) = numbers
    spread = f" ± {number.deviation:.1f}" if len(number.cells) > 1 else ""
    missing = "" if number.complete else f" ({len(number.cells)} of {number.asked} seeds)"
    return f"{number.mean:.1f}{spread}{missing}"


def _papers(_: Outcome, lines: _Lines, method: str) -> str:
    papers = (line.numbers[method].paper for line in lines)
    return _range([paper for paper in papers if paper is not None], ".2f")


def _ahead(_: Outcome, lines: _Lines, method: str, rival: str) -> str:
    return _range([duel.ahead for duel in _duels(lines, method, rival)], "+z.1f")


def _surely(_: Outcome, lines: _Lines, method: str, side: str, rival: str) -> str:
    """Of how many rows the interval is on one side of zero."""
    intervals = [duel.interval for duel in _duels(lines, method, rival) if duel.interval is not None]
    sure = sum(low > 0.0 if side == "above" else high < 0.0 for low, high in intervals)
    return f"{sure} of {len(intervals)}"


def _verdict(_: Outcome, lines: _Lines, method: str, rival: str) -> str:
    """Of a planned test, with its correction; of several, how many are won."""
    duels = [duel for line in lines for duel in line.duels]
    verdicts = [duel.verdict for duel in duels if (duel.method, duel.rival) == (method, rival)]
    if len(lines) == 1:
        return verdicts[0] if verdicts else _NOT_RUN
    return f"{verdicts.count(BEATS)} of {len(verdicts)}"


def _unspent(outcome: Outcome, lines: _Lines, method: str) -> str:
    """In percent of budgets, by the accountant of the plan."""
    column = next(one for one in outcome.experiment.columns if one.name == method)
    plans = (plan_of(configured(outcome.experiment.cell(line.row, column), outcome.scale, 0)) for line in lines)
    left = [1.0 - row.epsilon_spent[-1] / row.group.budget.epsilon for plan in plans for row in plan.groups]
    return f"{_range([100.0 * share for share in left], 'z.0f')} %"


def _noise(outcome: Outcome, lines: _Lines, method: str, when: str) -> str:
    labels = {column.name: column.label for column in outcome.experiment.columns}
    curves = [relative_noise(outcome, line)[labels[method]] for line in lines]
    return _range([float(curve[0 if when == "first" else -1]) for curve in curves], ".2f")


_FORMS: dict[str, Callable[..., str]] = {
    r"([\w-]+)": _mean,
    r"the paper's ([\w-]+)": _papers,
    r"([\w-]+) minus ([\w-]+)": _ahead,
    r"([\w-]+) surely (above|below) ([\w-]+)": _surely,
    r"does ([\w-]+) beat ([\w-]+)\?": _verdict,
    r"unspent by ([\w-]+)": _unspent,
    r"noise of ([\w-]+) in the (first|last) round": _noise,
}


def _duels(lines: _Lines, method: str, rival: str) -> list[Duel]:
    return [duel for line in lines if (duel := paired(method, rival, line.numbers)) is not None]


def _range(values: Sequence[float], form: str) -> str:
    if not values:
        return _NOT_RUN
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"
