"""Draw the pictures of docs/how-to/epsilon.md from the accountant itself: `python docs/epsilon_pictures.py`."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
from scipy.stats import norm

from nestegg.accounting import gaussian_allowance
from nestegg.planning.certainty import epsilon_of_certainty

IMAGES = Path(__file__).parent / "images"
DELTA = 1e-5
_BLUE, _ORANGE = "#0072B2", "#D55E00"


def main() -> None:
    """Write both pictures as SVG."""
    certainty_chart().save(IMAGES / "epsilon-certainty.svg")
    worlds_chart().save(IMAGES / "epsilon-worlds.svg")


def certainty_chart() -> alt.LayerChart:
    """How often the best attacker is right, by ε: by this mechanism, and by any that promises the same ε."""
    right = np.linspace(0.5001, 0.9999, 400)
    ours = pd.DataFrame({"ε": [epsilon_of_certainty(one, DELTA) for one in right], "right": 100 * right})
    ours["bound"] = "nestegg: Gaussian noise, everybody in every round"
    epsilon = np.geomspace(0.1, 50.0, 400)
    any_ = pd.DataFrame({"ε": epsilon, "right": 100 * (1.0 - (1.0 - DELTA) / (1.0 + np.exp(epsilon)))})
    any_["bound"] = "any mechanism with this ε"
    data = pd.concat([ours, any_])
    data = data[(data["ε"] >= 0.1) & (data["ε"] <= 50.0)]
    line = (
        alt.Chart(data, title="How often the best guess is right, at most (δ = 0.00001)")
        .mark_line(strokeWidth=2.5)
        .encode(
            x=alt.X("ε", scale=alt.Scale(type="log"), axis=alt.Axis(values=[0.1, 0.5, 1, 2, 5, 10, 20, 50])),
            y=alt.Y("right", title="% of guesses", scale=alt.Scale(domain=[50, 100])),
            color=alt.Color(
                "bound", title=None, scale=alt.Scale(range=[_BLUE, "#7F7F7F"]), sort=None, legend=_legend(420)
            ),
        )
    )
    coin = alt.Chart(pd.DataFrame({"right": [50.0], "said": ["a coin"]}))
    return alt.layer(line, coin.mark_rule(strokeDash=[4, 4]).encode(y="right")).properties(width=560, height=260)


def worlds_chart() -> alt.FacetChart:
    """What an attacker sees of a client along its own direction, with its data and without, at three ε."""
    parts = []
    for epsilon in (1.0, 5.0, 20.0):
        mu = float(np.sqrt(gaussian_allowance(epsilon, delta=DELTA))[0])
        x = np.linspace(-4.0, 8.0, 241)
        for world, middle in (("without her data", 0.0), ("with her data", mu)):
            parts.append(pd.DataFrame({"x": x, "y": norm.pdf(x - middle), "world": world, "ε": f"ε = {epsilon:g}"}))
    return (
        alt.Chart(pd.concat(parts))
        .mark_area(opacity=0.45, line=True)
        .encode(
            x=alt.X("x", title="what is released, in units of its noise", axis=alt.Axis(labels=False, ticks=False)),
            y=alt.Y("y", title="how likely", axis=alt.Axis(labels=False, ticks=False), stack=None),
            color=alt.Color(
                "world", title=None, scale=alt.Scale(range=[_BLUE, _ORANGE]), sort=None, legend=_legend(300)
            ),
        )
        .properties(width=185, height=130)
        .facet(column=alt.Column("ε", title=None, sort=["ε = 1", "ε = 5", "ε = 20"]))
    )


def _legend(width: int) -> alt.Legend:
    return alt.Legend(columns=1, orient="bottom", labelLimit=width)


if __name__ == "__main__":
    main()
