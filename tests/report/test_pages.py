"""Pages as a reader meets them: in a real browser, where there is one, and as text everywhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from nestegg.configuration.config import load_config
from nestegg.experiments.cells import Store
from nestegg.experiments.definition import load
from nestegg.experiments.outcomes import outcome_of
from nestegg.experiments.pages import write_outcomes
from nestegg.experiments.runner import run_cells
from nestegg.experiments.scales import configured
from nestegg.report.charts import Picture, save_charts
from nestegg.report.frame import Part, make_page
from nestegg.report.scripts import chart_scripts
from nestegg.runs import start_run
from tests.browser import Visit, visit

DIGITS = Path(__file__).parents[2] / "examples" / "digits.toml"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run."""
    folder = tmp_path_factory.mktemp("report") / "run"
    config = load_config(DIGITS)
    start_run(config.model_copy(update={"training": config.training.model_copy(update={"rounds": 14})}), folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a table, a figure of curves, one of losses and one of spending."""
    folder = tmp_path_factory.mktemp("reproduction")
    store, outcomes = Store(folder), []
    for name in ("table-clients", "figure-accuracy", "figure-training-loss", "figure-spending"):
        experiment = load(name).with_seeds(1)
        experiment = experiment.model_copy(update={"columns": experiment.columns[:2]})
        cells = [experiment.cell(row, column) for row in experiment.shown_rows() for column in experiment.columns]
        run_cells([configured(cell, "smoke", 0) for cell in cells], store, 1, lambda *_: None)
        outcomes.append(outcome_of(name, experiment, "smoke", store))
    return write_outcomes(folder, outcomes)


def settled(visit: Visit) -> int:
    """Wait until every chart is drawn or has failed; returns how many are drawn."""
    visit.page.wait_for_function("document.querySelectorAll('figure > :not([data-drawn])').length == 0")
    return int(visit.page.locator("[data-drawn=interactive]").count())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "reproduction"])
def test_every_chart_is_drawn_and_the_console_is_silent(
    name: str, request: pytest.FixtureRequest, chromium: Any
) -> None:
    page: Path = request.getfixturevalue(name)
    wanted = page.read_text().count("<figure ")
    assert wanted >= 4
    with visit(chromium, page) as seen:
        assert settled(seen) == wanted
        assert seen.console == []
        assert seen.requests == [page.resolve().as_uri()]
        drawings = [one.inner_html() for one in seen.page.locator("main figure svg").all()]
    assert len(drawings) == wanted  # each in the place of its drawing, not beside it
    for drawing in drawings:
        assert "NaN" not in drawing
        assert re.search(r'class="mark-(line|rect|symbol|rule) role-mark', drawing)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everybody_can_read_a_report(report: Path, chromium: Any, width: int, dark: bool) -> None:
    """On a phone, in the dark, by keyboard and by a screen reader."""
    with visit(chromium, report, width=width, dark=dark) as seen:
        settled(seen)
        seen.page.locator("details summary").click()
        assert seen.findings() == []
        assert seen.overflowing() == []
        table = seen.page.locator(".wide").first
        table.focus()
        seen.page.keyboard.press("End")
        first = table.locator("td").first.bounding_box()
        assert first["x"] >= 0  # the group's name stays in sight
        told = seen.page.locator("figure[role=img]").nth(1).get_attribute("aria-label")
        assert re.search(r"strict \(ε = 10\), ε spent, by RDP: [\d.]+ at round 1, 10 at round 14\.", told)
        assert "clip_unit" in seen.page.locator("pre").inner_text()


@pytest.mark.slow
def test_an_axe_finding_and_an_overflow_would_be_noticed(tmp_path: Path, chromium: Any) -> None:
    wide = '<p style="width: 900px; color: #ccc; background: #fff">pale</p>'
    (tmp_path / "page.html").write_text(make_page("Wide", wide, []))
    with visit(chromium, tmp_path / "page.html", width=390) as seen:
        assert any("color-contrast" in one for one in seen.findings())
        assert seen.overflowing()


@pytest.mark.slow
def test_the_browser_would_notice(tmp_path: Path, chromium: Any) -> None:
    broken = Picture("<svg></svg>", {"mark": "line", "encoding": {"x": {"field": "x", "type": "nonsense"}}, "data": {}})
    (tmp_path / "page.html").write_text(make_page("Broken", "", [Part("One", "", [broken])]))
    with visit(chromium, tmp_path / "page.html") as seen:
        assert settled(seen) == 0
        assert seen.console


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "reproduction"])
def test_a_page_is_one_file_with_contents_and_no_links_out(name: str, request: pytest.FixtureRequest) -> None:
    page: Path = request.getfixturevalue(name)
    text = re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text)
    assert not re.findall(r"@import|url\((?!#)", text)
    links = re.findall(r'href="#([^"]+)"', text)
    assert len(links) >= 4
    assert all(f'id="{link}"' in text for link in links)
    assert text.index('class="summary"') < text.index("<nav") < text.index("<main>")
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert text.count("<thead>") == text.count("<table>") > 0  # heads come again on each printed sheet


@pytest.mark.slow
def test_a_charts_title_is_a_question_and_its_axes_have_names(reproduction: Path) -> None:
    sources = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', reproduction.read_text(), re.DOTALL)
    for source in sources:
        content = json.loads(source)
        assert content["title"].endswith("?")
        assert content["background"] == "transparent"
        axes = re.findall(r'"(?:x|y)": \{[^{}]*(?:\{[^{}]*\}[^{}]*)*"field": "(?:round|value|accuracy)"[^}]*', source)
        assert axes
        assert "title" in source


def test_scripts_are_bundled_once_and_do_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled: list[str] = []

    def bundle(snippet: str) -> str:
        bundled.append(snippet)
        return "let vega;"

    monkeypatch.setattr("vl_convert.javascript_bundle", bundle)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [chart_scripts(), chart_scripts()] == ["let vega;"] * 2
    assert len(bundled) == 1
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [chart_scripts(), chart_scripts()] == ["let vega;"] * 2
    assert len(bundled) == 3


def test_text_in_a_page_cannot_end_a_script_or_become_html(tmp_path: Path) -> None:
    rows = alt.Data(values=[{"x": "</script><script>alert(1)</script>", "y": 1}])
    chart = alt.Chart(rows, title="Is it safe?").mark_bar().encode(x="x:N", y="y:Q")
    pictures = save_charts(tmp_path, {"chart": chart})
    page = make_page("<b>title</b>", "", [Part("<i>part</i>", "", list(pictures.values()))])
    assert "<script>alert" not in page
    assert "<b>title" not in page
    assert "<i>part" not in page
    assert {path.name for path in tmp_path.iterdir()} == {"chart.png", "chart.svg"}
