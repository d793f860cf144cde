"""The frontier of a trade-off: error against payments, a point for every gamma.

On the page its reader moves along gamma and sees who is bought from; in print, and without a
script, it is the curve alone.
"""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure

from convexmarket.lab.report.figures import SERIES, WIDTH, series_label, series_style, value_axis
from convexmarket.lab.report.model import Figure, Frontier
from convexmarket.lab.report.words import format_number, printable

__all__ = ["MISCLASSIFIED", "MOST_OFFERS", "frontier_figures", "frontier_json"]

MISCLASSIFIED = "test error (share misclassified)"
MOST_OFFERS = 400  # of one market, that the page shows
DIGITS = 4  # significant, of an offer
POINT_DIGITS = 6  # of a point, which is shown as a number


def frontier_figures(
    curve: pd.DataFrame,
    sellers: pd.DataFrame,
    error: str,
    payments: str = "total payments (money)",
    money: str = "money",
) -> list[Figure]:
    """Describe the frontiers of a run as figures ``frontier_<scenario>``.

    Parameters
    ----------
    curve : pandas.DataFrame
        Columns scenario, series, gamma, eta, error and payments.
    sellers : pandas.DataFrame
        Columns scenario, series, gamma, sensitivity and epsilon.
    error, payments : str
        What these two are, with their units.
    money : str
        The unit of payments.
    """
    return [
        _figure(
            str(scenario),
            Frontier(rows, sellers[sellers.scenario == scenario], error, payments, money),
        )
        for scenario, rows in curve.groupby("scenario", sort=False)
    ]


def _figure(scenario: str, frontier: Frontier) -> Figure:
    caption = (
        f"{_capitalised(frontier.error)} against {frontier.payments}, {scenario} sensitivities. "
        "One point per γ, joined in the order of γ. Further left is cheaper, lower is more "
        f"accurate. {_shown_words(frontier)}"
    )
    alt = (
        f"Lines of {frontier.error} against {frontier.payments}, with a point for every gamma. "
        "The numbers are in the table tradeoff."
    )
    return Figure(
        f"frontier_{scenario}",
        caption.strip(),
        partial(draw_frontier, frontier),
        alt,
        frontier=frontier,
    )


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def _shown_words(frontier: Frontier) -> str:
    """Say which sellers the page leaves out where it shows who is bought from."""
    largest = int(frontier.sellers.groupby(["series", "gamma"]).size().max())
    if largest <= MOST_OFFERS:
        return ""
    return (
        f"Of {largest:,} sellers, {MOST_OFFERS} are drawn where the page shows who is bought from: "
        "evenly spaced in the order of their sensitivities."
    )


def draw_frontier(frontier: Frontier) -> MatplotlibFigure:
    """Draw error against payments, one line per series, with gamma at the ends of the first."""
    figure = MatplotlibFigure(figsize=(WIDTH, 3.6))
    axes = figure.subplots()
    axes.margins(x=0.08, y=0.12)
    points = _known(frontier.points)
    for position, (series, rows) in enumerate(points.groupby("series", sort=False)):
        look = series_style(position)
        line = rows.sort_values("gamma", kind="stable")
        axes.plot(line.payments, line.error, label=series_label(series), clip_on=False, **look)
        if position == 0:
            _write_gammas(axes, line.iloc[sorted({0, len(line) - 1})])
    error, payments = value_axis(axes, points.error), value_axis(axes, points.payments, "x")
    axes.set_title(f"{_capitalised(frontier.error)}{error}")
    axes.set_xlabel(f"{frontier.payments}{payments}")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def _write_gammas(axes: Axes, ends: pd.DataFrame) -> None:
    for gamma, payments, error in zip(ends.gamma, ends.payments, ends.error, strict=True):
        axes.annotate(
            f"γ = {format_number(gamma)}",
            (payments, error),
            xytext=(4, 6),
            textcoords="offset points",
            fontsize=8,
            color=series_style(0)["color"],
        )


def frontier_json(frontier: Frontier) -> str:
    """Return what the page's script draws a frontier from, rounded and short.

    Returns
    -------
    str
        A JSON object: ``gammas``, in increasing order; ``costs``, lists of sensitivities; and
        ``series``, each with label, colour, and for each gamma one of its ``points`` (eta, error,
        payments) and ``offers`` (how many were ``bought`` from ``of`` how many, epsilon, and which
        of the lists of sensitivities goes with it), or null.
    """
    points = _known(frontier.points)
    gammas = np.unique(points.gamma)
    costs: list[list[float | None]] = []
    series = []
    for position, (label, rows) in enumerate(points.groupby("series", sort=False)):
        curve = rows.set_index("gamma")
        offered = dict(list(frontier.sellers[frontier.sellers.series == label].groupby("gamma")))
        series.append(
            {
                "label": printable(str(label)),
                "colour": f"var(--s{position % len(SERIES)})",
                "points": [
                    _rounded(curve.loc[gamma, ["eta", "error", "payments"]], POINT_DIGITS)
                    if gamma in curve.index
                    else None
                    for gamma in gammas
                ],
                "offers": [
                    _offer(offered[gamma], costs) if gamma in offered else None for gamma in gammas
                ],
            }
        )
    data = {
        "error": frontier.error,
        "payments": frontier.payments,
        "money": frontier.money,
        "gammas": gammas.tolist(),
        "costs": costs,
        "series": series,
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _known(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points that can be drawn."""
    return points[np.isfinite(points.error) & np.isfinite(points.payments)]


def _offer(offers: pd.DataFrame, costs: list[list[float | None]]) -> dict[str, Any]:
    """Return the offers of one market, and add their sensitivities to the lists if they are new."""
    shown = offers.sort_values("sensitivity", kind="stable")
    if len(shown) > MOST_OFFERS:
        shown = shown.iloc[np.linspace(0, len(shown) - 1, MOST_OFFERS).round().astype(int)]
    sensitivities = _rounded(shown.sensitivity)
    if sensitivities not in costs:
        costs.append(sensitivities)
    return {
        "bought": int((offers.epsilon > 0).sum()),
        "of": len(offers),
        "costs": costs.index(sensitivities),
        "epsilon": _rounded(shown.epsilon),
    }


def _rounded(values: pd.Series, digits: int = DIGITS) -> list[float | None]:
    """Round to a few significant digits; whole numbers lose their point, others become null."""
    numbers = [float(f"{value:.{digits}g}") for value in values]
    return [
        (int(number) if number.is_integer() else number) if math.isfinite(number) else None
        for number in numbers
    ]
