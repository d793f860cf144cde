"""The figures of an online market: the terms, and how far it is after each seller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from convexmarket.lab.report.figures import INK, MANY_POINTS, MUTED, WIDTH, series_style

__all__ = ["offer_curves", "running_totals", "shown_plans"]

#: Plans whose terms are drawn; more lines would not be told apart.
MOST_CURVES = 4
#: Reports that the rug shows.
MOST_REPORTS = 2_000


def shown_plans(numbers: list[int]) -> list[int]:
    """Return the plans whose terms are drawn: the first, the last, and some between."""
    if len(numbers) <= MOST_CURVES:
        return numbers
    places = np.linspace(0, len(numbers) - 1, MOST_CURVES).round().astype(int)
    return [numbers[place] for place in places]


def offer_curves(curves: pd.DataFrame, offers: pd.DataFrame, after: dict[int, int]) -> Figure:
    """Draw guarantee and payment over the report, with the reports of the sellers below.

    Parameters
    ----------
    curves : pandas.DataFrame
        Columns plan, sensitivity, epsilon and payment.
    offers : pandas.DataFrame
        Column sensitivity, of the sellers who came.
    after : dict
        How many sellers had come when each plan was made.
    """
    figure = Figure(figsize=(WIDTH, 3.5))
    panels = figure.subplots(1, 2)
    names = {"epsilon": "Privacy bought, ε", "payment": "Payment (money)"}
    plans = shown_plans(sorted(after))
    low, high = float(curves.sensitivity.min()), float(curves.sensitivity.max())
    reports = offers.sensitivity[offers.sensitivity <= high].to_numpy()
    step = max(1, -(-reports.size // MOST_REPORTS))
    for axes, (column, title) in zip(panels, names.items(), strict=True):
        for position, plan in enumerate(plans):
            line, look = curves[curves.plan == plan], series_style(position)
            axes.plot(
                line.sensitivity,
                line[column],
                color=look["color"],
                linestyle=look["linestyle"],
                label="the terms"
                if len(after) == 1
                else f"plan {plan}, after {after[plan]:,} sellers",
            )
        axes.set_title(title)
        axes.set_xlim(low, high)
        _from_zero(axes)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("reported sensitivity c (money per unit of ε)")
        # In the lowest tenth of the panel, whatever the scale of the curves is.
        axes.vlines(
            np.sort(reports)[::step],
            0.0,
            0.055,
            transform=axes.get_xaxis_transform(),
            color=INK,
            lw=0.6,
            alpha=0.55 if reports.size <= MANY_POINTS else 0.2,
            rasterized=reports.size > MANY_POINTS,
            label="reports of sellers",
        )
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def running_totals(offers: pd.DataFrame, planned: dict[str, Any], after: dict[int, int]) -> Figure:
    """Draw what was sold and paid after each seller, beside the first plan.

    Parameters
    ----------
    offers : pandas.DataFrame
        Columns number, epsilon, payment and status, by number.
    planned : dict
        Keys sellers, eta and payments: what the first plan expects in all.
    after : dict
        How many sellers had come when each plan was made.
    """
    figure = Figure(figsize=(WIDTH, 3.5))
    panels = figure.subplots(1, 2)
    sold = (offers.status == "accepted").to_numpy()
    numbers = np.concatenate(([0], offers.number.to_numpy()))
    for axes, (column, key, title) in zip(
        panels,
        (
            ("epsilon", "eta", "Privacy sold so far, η"),
            ("payment", "payments", "Payments so far (money)"),
        ),
        strict=True,
    ):
        totals = np.concatenate(([0.0], np.cumsum(np.where(sold, offers[column], 0.0))))
        axes.plot(
            [0, planned["sellers"]],
            [0, planned[key]],
            color=MUTED,
            linestyle=(0, (5, 2)),
            lw=1.2,
            label="first plan, if all come and accept",
        )
        axes.step(
            numbers,
            totals,
            where="post",
            color=series_style(0)["color"],
            label="sold to sellers who accepted",
        )
        stages = [seen for seen in after.values() if seen > 0]
        for position, seen in enumerate(stages):
            axes.axvline(
                seen,
                color=series_style(1)["color"],
                linestyle=(0, (1.2, 1.6)),
                lw=0.9,
                label="a new plan" if position == 0 else None,
            )
        axes.set_title(title)
        axes.set_xlim(0, planned["sellers"])
        _from_zero(axes)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("sellers who came")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def _from_zero(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(5))
